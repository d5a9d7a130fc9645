"""The `tables` part of a pipeline file: which records a table takes, how they are decoded, how it is laid out."""

import json
import re
from pathlib import Path
from typing import Any, Literal

import fastavro.schema
from pydantic import Field, ValidationInfo, field_validator, model_validator

from headgate.config.problems import Wrong, nearest, raise_all, wrong
from headgate.config.section import Section, folder_of
from headgate.config.units import Bytes

_TABLE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TRANSFORM = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_PARTITION = re.compile(r"\s*(?:(\w+)\s*\(\s*([^()\s]+)\s*\)|([^()\s]+))\s*")
_PARTITION_TRANSFORMS = ("identity", "day", "hour")
OWN_COLUMNS = ("_topic", "_kafka_partition", "_offset", "_timestamp")
_ICEBERGS_COLUMNS = ("_file", "_pos", "_deleted", "_spec_id", "_partition")
"""Reserved by the Iceberg specification; Spark's Iceberg runtime refuses tables that use one."""
REJECTED_SUFFIX = "__rejected"
"""Ends the name of the table that takes the records another table cannot."""
SKIPPED_SUFFIX = "__skipped"
"""Ends the name of the table that lists what Kafka skipped."""


def qualified(name: str) -> str:
    return name if "." in name else f"default.{name}"


def check_topics(topics: tuple[str, ...]) -> tuple[str, ...]:
    """For validators: legal topic names, each once."""
    found = []
    for index, topic in enumerate(topics):
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            found.append(Wrong((index,), topic, "is not a topic name: letters, digits, '.', '_' and '-', at most 249"))
        elif topic in topics[:index]:
            found.append(Wrong((index,), topic, "is listed twice"))
    raise_all(found)
    return topics


def check_pattern(pattern: str | None) -> str | None:
    """For validators: a regular expression that compiles."""
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise wrong("is not a regular expression", f": {error}") from None
    return pattern


class PartitionField(Section):
    """One level of a table's partitioning, written as "day(_timestamp)", "identity(country)" or "country"."""

    column: str = Field(
        description="Column to partition by; _topic, _kafka_partition, _offset and _timestamp always exist."
    )
    transform: Literal["identity", "day", "hour"] = Field(
        default="identity", description="What is taken of the column: the value itself, its day or its hour (UTC)."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        match = _PARTITION.fullmatch(value)
        if match is None:
            raise wrong("must look like day(_timestamp), hour(_timestamp), identity(country) or country")
        transform, column = match[1] or "identity", match[2] or match[3]
        if transform not in _PARTITION_TRANSFORMS:
            guess = nearest(transform, _PARTITION_TRANSFORMS)
            raise wrong(
                f"must use one of {', '.join(_PARTITION_TRANSFORMS)}", f"; did you mean {guess}?" if guess else ""
            )
        return {"column": column, "transform": transform}

    def __str__(self) -> str:
        return f"{self.transform}({self.column})"


class Table(Section):
    """One Iceberg table and the records that land in it."""

    name: str = Field(
        description="namespace.table; a bare table means default.table. Created when it does not exist. No default."
    )
    topics: tuple[str, ...] = Field(
        default=(), description="Topics that go to this table. Default: all of the pipeline's topics."
    )
    topics_pattern: str | None = Field(
        default=None,
        description="Regular expression that must match a topic's whole name, beside or instead of topics. Default: "
        "none.",
    )
    where: str | None = Field(
        default=None,
        min_length=1,
        description="Spark SQL condition; only records that meet it land here. It may use key, value, topic, "
        "partition, offset, timestamp, headers and the decoded fields. Default: every record.",
    )
    format: Literal["raw", "json", "avro"] = Field(
        default="raw",
        description="How values are decoded. Default raw: key and value as they are, which can never fail. What "
        "cannot be decoded goes to <table>__rejected with the reason.",
    )
    schema_: str | None = Field(
        default=None,
        alias="schema",
        description="json: Spark DDL such as `id BIGINT, at TIMESTAMP`. avro: the Avro schema as JSON text, or the "
        "path of an .avsc file relative to the pipeline file. Default: none; required for both, and not for raw.",
    )
    avro_framing: Literal["plain", "confluent"] = Field(
        default="plain",
        description="confluent: values start with a zero byte and a four-byte schema id, which are skipped. Default "
        "plain: the bare Avro record.",
    )
    transform: str | None = Field(
        default=None,
        description="`package.module:function` on the decoded DataFrame, DataFrame in, DataFrame out; found in the "
        "pipeline file's folder or wherever Python finds modules. Default: none.",
    )
    sql: str | None = Field(
        default=None,
        min_length=1,
        description="Inline SQL instead of a transform: `SELECT ... FROM input`. Default: none.",
    )
    rows_per_record: Literal["one", "at_most_one", "any"] = Field(
        default="one",
        description="What the transform makes of a record: exactly one row, none or one (it filters), or any number "
        "(it explodes). `verify` holds the table to it. Default one, the strictest.",
    )
    partition_by: tuple[PartitionField, ...] = Field(
        default=(),
        description='How files are split: "day(_timestamp)", "hour(_timestamp)", "identity(country)" or "country". '
        "Default: not at all, right for small tables; each value costs a file per cycle.",
    )
    target_file_bytes: Bytes = Field(
        default=128_000_000,
        description="Size that files are aimed at, in bytes. Default 128 MB: large enough to scan fast, small enough "
        "to prune.",
    )
    evolve: bool = Field(
        default=True,
        description="Whether the table gains new columns, and wider types, when the records have them. Default true; "
        "with false the table takes nothing more until schema or transform fit it again, and says so.",
    )

    @field_validator("name")
    @classmethod
    def _name_is_qualified(cls, name: str) -> str:
        if not _TABLE.fullmatch(name):
            raise wrong("must be namespace.table, of letters, digits, '_' and '-'")
        for suffix, what in ((REJECTED_SUFFIX, "rejected records go"), (SKIPPED_SUFFIX, "skipped offsets are listed")):
            if name.endswith(suffix):
                raise wrong(f"must not end in {suffix}: that is where {what}")
        return qualified(name)

    @field_validator("topics")
    @classmethod
    def _topics_are_names(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        return check_topics(topics)

    @field_validator("topics_pattern")
    @classmethod
    def _pattern_compiles(cls, pattern: str | None) -> str | None:
        return check_pattern(pattern)

    @field_validator("schema_")
    @classmethod
    def _schema_fits_format(cls, schema: str | None, info: ValidationInfo) -> str | None:
        match info.data.get("format"):
            case "raw" if schema is not None:
                raise wrong("has no meaning for format raw; say format: json or format: avro, or remove the schema")
            case "json" | "avro" as declared if schema is None or not schema.strip():
                raise wrong(f"is required for format {declared}")
            case "avro":
                return _avro_text(str(schema), folder_of(info))
        return schema

    @field_validator("avro_framing")
    @classmethod
    def _framing_is_for_avro(cls, framing: str, info: ValidationInfo) -> str:
        if framing != "plain" and info.data.get("format", "avro") != "avro":
            raise wrong("applies to format avro only")
        return framing

    @field_validator("transform")
    @classmethod
    def _transform_names_a_function(cls, transform: str | None) -> str | None:
        if transform is not None and not _TRANSFORM.fullmatch(transform):
            raise wrong("must look like package.module:function")
        return transform

    @field_validator("sql")
    @classmethod
    def _sql_or_transform(cls, sql: str | None, info: ValidationInfo) -> str | None:
        if sql is not None and info.data.get("transform") is not None:
            raise wrong("cannot stand beside transform: choose one of the two")
        return sql

    @field_validator("partition_by")
    @classmethod
    def _partitioning_is_not_redundant(cls, fields: tuple[PartitionField, ...]) -> tuple[PartitionField, ...]:
        kinds = [(field.column, field.transform == "identity") for field in fields]
        raise_all(
            Wrong((index,), str(fields[index]), f"partitions by {kind[0]} a second time; keep the finer of the two")
            for index, kind in enumerate(kinds)
            if kind in kinds[:index]
        )
        return fields

    def matches(self, topic: str) -> bool:
        """Whether this table takes the topic, given that the pipeline does."""
        if not self.topics and self.topics_pattern is None:
            return True
        return topic in self.topics or fully_matches(self.topics_pattern, topic)


def fully_matches(pattern: str | None, topic: str) -> bool:
    return pattern is not None and re.fullmatch(pattern, topic) is not None


def _avro_text(schema: str, folder: Path) -> str:
    """The schema as JSON text, read from its file when it is a path, and checked."""
    if schema.lstrip()[0] not in "{[":
        path = folder / schema.strip()
        try:
            schema = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise wrong("is neither Avro schema JSON nor a readable .avsc file", f": {error}") from None
    try:
        parsed = json.loads(schema)
    except json.JSONDecodeError as error:
        raise wrong("is not JSON", f": {error}") from None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise wrong('must be an Avro record: {"type": "record", "name": ..., "fields": [...]}')
    if not isinstance(parsed.get("fields"), list):
        raise wrong("must list the record's fields")
    try:
        # Its own named_schemas, so that tables do not see each other's types.
        fastavro.schema.parse_schema(parsed, named_schemas={})
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, KeyError, TypeError) as error:
        raise wrong("is not a valid Avro schema", f": {type(error).__name__} {error}") from None
    taken = [field["name"] for field in parsed["fields"] if field["name"] in OWN_COLUMNS + _ICEBERGS_COLUMNS]
    if taken:
        raise wrong("must not use the names of Headgate's own or Iceberg's reserved columns", f": {', '.join(taken)}")
    return schema
