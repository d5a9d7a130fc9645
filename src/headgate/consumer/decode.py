"""From Kafka records to columns: raw, JSON and Avro, each with the reason why a record cannot be decoded.

Every decoder adds its columns and `_reason`, which is null for a good record. The Kafka columns stay available to
`where`; after it, a record is its columns and `_topic, _kafka_partition, _offset, _timestamp`.
"""

import json
from collections.abc import Callable
from typing import cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StringType, StructType

from headgate.config.pipeline import Table
from headgate.config.table import OWN_COLUMNS
from headgate.consumer.spark import first_line
from headgate.errors import ConfigError

REASON = "_reason"
META = OWN_COLUMNS
RAW_KEY, RAW_VALUE = "_headgate_key", "_headgate_value"
"""The record as it came, beside decoded fields that may be called key or value too."""
_META_FROM = (
    "topic AS _topic",
    "partition AS _kafka_partition",
    "offset AS _offset",
    "timestamp AS _timestamp",
    f"key AS {RAW_KEY}",
    f"value AS {RAW_VALUE}",
)
_KAFKA = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
_NO_VALUE = f"{RAW_VALUE} IS NULL THEN 'no value (a tombstone)'"
_CORRUPT = "_headgate_corrupt"
_DECODED = "_headgate_decoded"
_OK = "_headgate_ok"

Decoder = Callable[[DataFrame], DataFrame]


def decoder(table: Table) -> tuple[Decoder, tuple[str, ...]]:
    """How to decode this table's records, and the names of the columns that makes."""
    if table.format == "json":
        return _json(table)
    if table.format == "avro":
        return _avro(table)
    return _raw, ("key", "value")


def _raw(kafka: DataFrame) -> DataFrame:
    return kafka.selectExpr("*", *_META_FROM, f"CAST(NULL AS STRING) AS {REASON}")


def _json(table: Table) -> tuple[Decoder, tuple[str, ...]]:
    ddl = table.schema_ or ""
    try:
        schema = cast(StructType, StructType.fromDDL(ddl))
    except Exception as error:
        raise ConfigError(f"table {table.name}: schema is not a Spark DDL schema: {first_line(error)}") from error
    if taken := [name for name in schema.names if name.lower() in META]:
        raise ConfigError(f"table {table.name}: schema must not use Headgate's own columns: {', '.join(taken)}")
    declared = StructType(schema.fields).add(_CORRUPT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    corrupt = f"{_DECODED} IS NULL OR {_DECODED}.{_CORRUPT} IS NOT NULL"
    reason = f"CASE WHEN {_NO_VALUE} WHEN {corrupt} THEN 'not JSON of the declared schema' END"

    def decode(kafka: DataFrame) -> DataFrame:
        parsed = kafka.selectExpr("*", *_META_FROM).withColumn(
            _DECODED, F.from_json(F.col("value").cast("string"), declared, options)
        )
        return _expanded(parsed, reason, schema.names)

    return decode, tuple(schema.names)


def _avro(table: Table) -> tuple[Decoder, tuple[str, ...]]:
    writer = json.loads(table.schema_ or "{}")
    names = [f["name"] for f in writer["fields"]]
    # A malformed record decodes to all nulls, just like a record of nulls. Reading with one more field that has a
    # default tells them apart: only a record that decoded has it.
    reader = {**writer, "fields": [*writer["fields"], {"name": _OK, "type": "boolean", "default": True}]}
    options = {"mode": "PERMISSIVE", "avroSchema": json.dumps(reader)}
    framed = table.avro_framing == "confluent"
    unframed = "WHEN length(value) < 5 OR substring(value, 1, 1) != X'00' THEN 'no schema-id header'" if framed else ""
    broken = f"WHEN {_DECODED}.{_OK} IS NULL THEN 'not Avro of the declared schema'"
    reason = f"CASE WHEN {_NO_VALUE} {unframed} {broken} END"

    def decode(kafka: DataFrame) -> DataFrame:
        body = F.expr("substring(value, 6)") if framed else F.col("value")
        parsed = kafka.selectExpr("*", *_META_FROM).withColumn(_DECODED, from_avro(body, json.dumps(writer), options))
        return _expanded(parsed, reason, names)

    return decode, tuple(names)


def _expanded(parsed: DataFrame, reason: str, names: list[str]) -> DataFrame:
    """Decoded fields as columns; one named like a Kafka column (in any case, as Spark compares names) hides it."""
    fields = {name.lower() for name in names}
    kept = [name for name in (*_KAFKA, *META, RAW_KEY, RAW_VALUE) if name not in fields]
    return parsed.selectExpr(*kept, f"{reason} AS {REASON}", *(f"{_DECODED}.`{name}` AS `{name}`" for name in names))
