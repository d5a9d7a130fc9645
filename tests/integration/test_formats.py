"""What was produced is what the table holds: raw, JSON and Avro, read back by an engine that did not write it."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from headgate.config.pipeline import Table
from headgate.consumer.decode import decoder
from headgate.errors import ConfigError
from headgate.kafka.embedded import EmbeddedKafka
from tests.integration.pipeline_harness import PipelineRun, Record

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "place",
            "type": {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]},
        },
    ],
}
ALL_NULL = {"type": "record", "name": "Maybe", "fields": [{"name": "note", "type": ["null", "string"]}]}
AT = datetime(2024, 2, 29, 23, 59, 59, 123456, UTC)


def avro(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    return body.getvalue()


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "note": None if number % 2 else f"n{number}",
        "amount": Decimal("-12.30") + number,
        "at": AT,
        "tags": ["a"] * (number % 3),
        "place": {"city": "Évora"},
    }


def framed(body: bytes, schema_id: int = 7) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + body


RAW: list[Record] = [(b"\x00\xff", bytes(range(256))), (None, b""), (b"k", None), (b"", b"caf\xc3\xa9")]
JSON: list[dict[str, Any]] = [
    {"id": 2**53 + 1, "name": "żółw", "at": "2024-02-29T23:59:59.123456Z", "amount": "1234567890.12", "nothing": 1},
    {"inner": {"deep": {"x": 1.5}, "flag": True}, "tags": ["a", "b", None], "day": "1969-12-31"},
    {},
]
JSON_SCHEMA = (
    "id BIGINT, name STRING, at TIMESTAMP, amount DECIMAL(12, 2), day DATE, tags ARRAY<STRING>, "
    "inner STRUCT<deep: STRUCT<x: DOUBLE>, flag: BOOLEAN>"
)
NAMED_LIKE_KAFKA = {"topic": "t", "partition": 9, "offset": 8, "value": "v", "Key": "k", "timestamp": "then"}


@pytest.fixture(scope="module")
def landed(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PipelineRun]:
    """One pipeline with a table of each format, after everything arrived."""
    tables = [
        {"name": "lake.raw", "topics": ["raw"]},
        {"name": "lake.json", "topics": ["json"], "format": "json", "schema": JSON_SCHEMA},
        {
            "name": "lake.named",
            "topics": ["named"],
            "format": "json",
            "schema": "topic STRING, partition INT, offset INT, value STRING, Key STRING, timestamp STRING",
            "where": "topic = 't' AND _offset = 0",
        },
        {"name": "lake.avro", "topics": ["avro"], "format": "avro", "schema": json.dumps(ORDER)},
        {"name": "lake.nulls", "topics": ["nulls"], "format": "avro", "schema": json.dumps(ALL_NULL)},
        {
            "name": "lake.framed",
            "topics": ["framed"],
            "format": "avro",
            "avro_framing": "confluent",
            "schema": json.dumps(ORDER),
        },
    ]
    topics = dict.fromkeys(("raw", "json", "named", "avro", "nulls", "framed"), 1)
    folder = tmp_path_factory.mktemp("formats")
    with PipelineRun(folder, broker, spark, tables, topics) as run:
        run.produce("raw", RAW)
        run.produce("json", [json.dumps(value).encode() for value in JSON])
        run.produce("named", [json.dumps({**NAMED_LIKE_KAFKA, "topic": word}).encode() for word in "tu"])
        run.produce("avro", [avro(ORDER, order(n)) for n in range(4)])
        run.produce("nulls", [avro(ALL_NULL, {"note": None}), avro(ALL_NULL, {"note": "x"})])
        run.produce("framed", [framed(avro(ORDER, order(n))) for n in range(4)])
        for short in ("json", "avro", "framed"):
            run.produce(short, [(b"gone", None)])
        run.run()
        run.wait_until_landed()
        run.stop()
        yield run


def without_meta(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("_topic", "_kafka_partition", "_timestamp")}


def test_raw_keys_and_values_survive_byte_by_byte(landed: PipelineRun) -> None:
    rows = landed.rows("lake.raw")
    assert [(row["key"], row["value"]) for row in rows] == RAW
    assert [(row["_topic"], row["_kafka_partition"], row["_offset"]) for row in rows] == [
        (landed.topic("raw"), 0, offset) for offset in range(4)
    ]
    landed.assert_exactly_once("lake.raw")


def test_json_fields_arrive_with_their_declared_types_and_missing_ones_are_null(landed: PipelineRun) -> None:
    first, second, third = (without_meta(row) for row in landed.rows("lake.json"))
    assert (first["id"], first["name"], first["amount"]) == (2**53 + 1, "żółw", Decimal("1234567890.12"))
    assert first["at"].replace(tzinfo=UTC) == AT
    assert second["inner"] == {"deep": {"x": 1.5}, "flag": True}
    assert second["tags"] == ["a", "b", None]
    assert str(second["day"]) == "1969-12-31"
    assert set(third.values()) == {None, 2}  # nothing but its offset
    types = {field.name: str(field.field_type) for field in landed.iceberg("lake.json").schema().fields}
    assert (types["id"], types["at"], types["amount"]) == ("long", "timestamptz", "decimal(12, 2)")


def test_json_fields_named_like_kafka_columns_are_the_record_s_own(landed: PipelineRun) -> None:
    (row,) = landed.rows("lake.named")
    assert {name: row[name] for name in NAMED_LIKE_KAFKA} == {**NAMED_LIKE_KAFKA, "topic": "t"}
    assert (row["_topic"], row["_offset"]) == (landed.topic("named"), 0)
    assert landed.assert_exactly_once("lake.named").filtered == 1


@pytest.mark.parametrize("table", ["lake.avro", "lake.framed"])
def test_avro_records_arrive_with_and_without_a_schema_id(landed: PipelineRun, table: str) -> None:
    rows = landed.rows(table)
    assert [row["_offset"] for row in rows] == [0, 1, 2, 3]
    for number, row in enumerate(rows):
        assert row["at"].replace(tzinfo=UTC) == AT
        assert {name: row[name] for name in ("id", "note", "amount", "tags", "place")} == {
            name: value for name, value in order(number).items() if name != "at"
        }


def test_an_avro_record_of_nulls_is_a_record(landed: PipelineRun) -> None:
    assert [row["note"] for row in landed.rows("lake.nulls")] == [None, "x"]
    assert landed.assert_exactly_once("lake.nulls").rejected == 0


@pytest.mark.parametrize(("table", "offset"), [("lake.json", 3), ("lake.avro", 4), ("lake.framed", 4)])
def test_a_tombstone_has_nothing_to_decode_and_is_kept_as_rejected(
    landed: PipelineRun, table: str, offset: int
) -> None:
    (row,) = landed.rejected(table)
    assert (bytes(row["key"]), row["value"], row["_offset"]) == (b"gone", None, offset)
    assert "tombstone" in row["reason"]
    landed.assert_exactly_once(table)


def test_a_schema_that_spark_does_not_know_is_told_in_one_line(spark: SparkSession) -> None:
    with pytest.raises(ConfigError) as told:
        decoder(Table.model_validate({"name": "lake.t", "format": "json", "schema": "id BIGGINT"}))
    (line,) = str(told.value).splitlines()
    assert line.startswith("table lake.t: schema is not a Spark DDL schema: ")
    assert "BIGGINT" in line
