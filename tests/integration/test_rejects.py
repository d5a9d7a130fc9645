"""A record that cannot be used is set aside with its bytes and the reason; the good ones of its batch still land."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headgate.consumer.files import Warehouse
from headgate.consumer.job import TableJob
from headgate.errors import ConfigError
from headgate.kafka.embedded import EmbeddedKafka
from headgate.model import Announcement
from tests.integration.pipeline_harness import PipelineRun, new_name
from tests.integration.test_formats import ORDER, avro, framed, order

TRANSFORM = """
from pyspark.sql import functions as F
from {module}_words import refuse

def checked(name):
    if name == refuse:
        raise ValueError(f"{{name}} is not welcome here")
    return name.upper()

def clean(df):
    return df.withColumn("name", F.udf(checked)("name"))

def forgetful(df):
    return df.drop("_offset", "_topic")

def broken(df):
    return df.undefined_method()

def silent(df):
    df.count
"""
NAMES = [f"name {n}" for n in range(20)]


def named(*names: str) -> list[bytes]:
    return [json.dumps({"name": name}).encode() for name in names]


def write_transforms(folder: Path) -> str:
    """Modules of the user's own beside the pipeline file: one that another one imports."""
    module = new_name()
    (folder / f"{module}.py").write_text(TRANSFORM.format(module=module))
    (folder / f"{module}_words.py").write_text("refuse = 'name 7'\n")
    return module


JSON = {"format": "json", "schema": "name STRING, n INT"}
AVRO = {"format": "avro", "schema": json.dumps(ORDER)}


@pytest.fixture(scope="module")
def landed(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PipelineRun]:
    """Good records with bad ones among them, for every way to be bad."""
    folder = tmp_path_factory.mktemp("rejects")
    module = write_transforms(folder)
    tables: list[dict[str, Any]] = [
        {"name": "lake.json", "topics": ["json"], **JSON},
        {"name": "lake.avro", "topics": ["avro"], **AVRO},
        {"name": "lake.framed", "topics": ["framed"], **AVRO, "avro_framing": "confluent"},
        {"name": "lake.python", "topics": ["names"], **JSON, "transform": f"{module}:clean"},
        {
            "name": "lake.sql",
            "topics": ["numbers"],
            **JSON,
            "sql": "SELECT CAST(name AS INT) AS number, _topic, _kafka_partition, _offset, _timestamp FROM input",
        },
    ]
    topics = dict.fromkeys(("json", "avro", "framed", "names", "numbers"), 1)
    with PipelineRun(folder, broker, spark, tables, topics) as run:
        run.produce(
            "json",
            [(b"k", b'{"name": "good"}'), (b"\xff", b'{"name": '), b"[1]", b'{"n": "x"}', b"\xff\xfe", b"", b"null"],
        )
        run.produce("avro", [avro(ORDER, order(0)), b"\x01", b"", avro(ORDER, order(3))])
        body = avro(ORDER, order(0))
        run.produce("framed", [framed(body), body, b"\0\0", b"\x01" + framed(body)[1:], framed(b"\xff"), framed(body)])
        run.produce("names", named(*NAMES))
        run.produce("numbers", named(*(str(n) for n in range(10)), "ten", *(str(n) for n in range(11, 20))))
        run.run()
        run.wait_until_landed()
        run.stop()
        yield run


def offsets(rows: list[dict[str, Any]]) -> list[int]:
    return [row["_offset"] for row in rows]


def test_what_is_not_json_of_the_schema_is_set_aside_as_it_came(landed: PipelineRun) -> None:
    assert offsets(landed.rows("lake.json")) == [0]
    rejected = landed.rejected("lake.json")
    assert offsets(rejected) == [1, 2, 3, 4, 5, 6]
    first = rejected[0]
    assert (first["key"], first["value"]) == (b"\xff", b'{"name": ')
    assert (first["_topic"], first["_kafka_partition"]) == (landed.topic("json"), 0)
    assert first["reason"] == "not JSON of the declared schema"
    assert abs((datetime.now(UTC) - first["_timestamp"].replace(tzinfo=UTC)).total_seconds()) < 3600
    assert [bytes(row["value"]) for row in rejected[1:]] == [b"[1]", b'{"n": "x"}', b"\xff\xfe", b"", b"null"]
    landed.assert_exactly_once("lake.json")


def test_what_is_not_avro_of_the_schema_is_set_aside(landed: PipelineRun) -> None:
    assert offsets(landed.rows("lake.avro")) == [0, 3]
    assert [(row["_offset"], row["reason"]) for row in landed.rejected("lake.avro")] == [
        (1, "not Avro of the declared schema"),
        (2, "not Avro of the declared schema"),
    ]
    landed.assert_exactly_once("lake.avro")


def test_a_missing_schema_id_is_told_from_a_broken_body(landed: PipelineRun) -> None:
    assert offsets(landed.rows("lake.framed")) == [0, 5]
    reasons = {row["_offset"]: row["reason"] for row in landed.rejected("lake.framed")}
    assert reasons == {
        1: "not Avro of the declared schema" if avro(ORDER, order(0))[0] == 0 else "no schema-id header",
        2: "no schema-id header",
        3: "no schema-id header",
        4: "not Avro of the declared schema",
    }
    landed.assert_exactly_once("lake.framed")


def test_only_the_record_that_the_user_s_python_fails_on_is_set_aside_with_its_exception(landed: PipelineRun) -> None:
    assert [row["name"] for row in landed.rows("lake.python")] == [n.upper() for n in NAMES if n != "name 7"]
    (rejected,) = landed.rejected("lake.python")
    assert (rejected["_offset"], bytes(rejected["value"])) == (7, b'{"name": "name 7"}')
    assert rejected["reason"] == "ValueError: name 7 is not welcome here"
    landed.assert_exactly_once("lake.python")


def test_only_the_record_that_sql_cannot_cast_is_set_aside_with_spark_s_reason(landed: PipelineRun) -> None:
    assert [row["number"] for row in landed.rows("lake.sql")] == [*range(10), *range(11, 20)]
    (rejected,) = landed.rejected("lake.sql")
    assert (rejected["_offset"], bytes(rejected["value"])) == (10, b'{"name": "ten"}')
    assert "CAST_INVALID_INPUT" in rejected["reason"]
    assert "'ten'" in rejected["reason"]
    landed.assert_exactly_once("lake.sql")


# --- the contract of a transform --------------------------------------------------------------------------------------


def test_a_transform_keeps_its_promise_of_rows_per_record_or_its_table_waits_while_others_go_on(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.consumer.isolate._JOBS", 8)
    odd = "SELECT * FROM input WHERE _offset % 2 = 1"
    twice = "SELECT *, explode(sequence(1, n)) AS copy FROM input WHERE n > 0"
    always = "SELECT CAST(concat('x', name) AS INT) AS number, * FROM input"
    tables: list[dict[str, Any]] = [
        {"name": "lake.one", "topics": ["filtered"], **JSON, "sql": odd},
        {"name": "lake.at_most_one", "topics": ["filtered"], **JSON, "sql": odd, "rows_per_record": "at_most_one"},
        {"name": "lake.any", "topics": ["filtered"], **JSON, "sql": twice, "rows_per_record": "any"},
        {"name": "lake.fails_always", "topics": ["hopeless"], **JSON, "sql": always},
    ]
    with PipelineRun(tmp_path, broker, spark, tables, {"filtered": 1, "hopeless": 1}) as run:
        run.produce("filtered", [json.dumps({"name": "a", "n": n % 4}).encode() for n in range(20)])
        run.produce("hopeless", named(*map(str, range(12))))
        worker = run.run()
        error = run.error_of(worker, "rows_per_record")
        assert "lake.one: 10 rows came out of 20 records" in error

        run.reload([{**tables[0], "rows_per_record": "at_most_one"}, *tables[1:]])
        worker.stop()
        run.worker(2, own=run.partitions())
        run.wait_until_landed()
        for table in ("lake.one", "lake.at_most_one"):
            assert offsets(run.rows(table)) == list(range(1, 20, 2))
            assert run.assert_exactly_once(table).filtered == 10
        assert len(run.rows("lake.any")) == 5 * (0 + 1 + 2 + 3)
        assert run.assert_exactly_once("lake.any").duplicates == 0

        # Every record fails; no cycle looks at more than it can afford, and all are set aside in the end.
        assert offsets(run.rejected("lake.fails_always")) == list(range(12))
        assert run.rows("lake.fails_always") == []
        run.assert_exactly_once("lake.fails_always")
        announced = [a for a in run.messages(run.names.announcements, Announcement) if a.table == "lake.fails_always"]
        assert max(a.stats.rejected for a in announced) <= 8


def test_what_cannot_work_is_refused_before_anything_is_read_and_the_table_is_named(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    module = write_transforms(tmp_path)
    wrong: dict[str, dict[str, Any]] = {
        "cannot be resolved": {"sql": "SELECT nowhere, * FROM input"},
        "PARSE_SYNTAX_ERROR": {"sql": "SELEC * FROM input"},
        "drops _topic, _offset; keep": {"transform": f"{module}:forgetful"},
        "fails with .*undefined_method": {"transform": f"{module}:broken"},
        "must return a DataFrame": {"transform": f"{module}:silent"},
        "cannot be resolved.*check where": {"where": "nowhere > 1"},
        "partition_by names nowhere": {"partition_by": ["nowhere"]},
        "Iceberg has no type": {"sql": "SELECT *, INTERVAL 1 DAY AS span FROM input"},
        "Headgate's own columns": {"schema": "name STRING, _offset BIGINT"},
    }
    tables = [{"name": f"lake.t{n}", **JSON, **table} for n, table in enumerate(wrong.values())]
    run = PipelineRun(tmp_path, broker, spark, tables, {"any": 1})
    warehouse = Warehouse(run.pipeline.lake)
    for table, message in zip(run.pipeline.tables, wrong, strict=True):
        with pytest.raises(ConfigError, match=f"(?s)table {table.name}: .*{message}"):
            TableJob(spark, run.pipeline, table, warehouse)


def test_a_record_far_above_the_fetch_limits_is_still_read(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    limits = {"max_partition_fetch_bytes": "1 kB", "fetch_max_bytes": "2 kB"}
    large = bytes(range(256)) * 12_000
    with PipelineRun(tmp_path, broker, spark, [{"name": "lake.t"}], {"t": 1}, kafka=limits) as run:
        run.produce("t", [b"before", large, b"after"])
        run.run()
        run.wait_until_landed()
        assert [bytes(row["value"]) for row in run.rows("lake.t")] == [b"before", large, b"after"]
        run.assert_exactly_once("lake.t")
