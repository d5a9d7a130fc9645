"""Tables come into being, are laid out as asked, grow columns, and take what they are meant to take."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.controller.assembly import channel_of
from headgate.errors import KafkaUnavailable
from headgate.kafka import offsets
from headgate.kafka.embedded import EmbeddedKafka
from headgate.lake import placing
from headgate.lake.catalogs import open_catalog
from headgate.lake.sweep import sweep_orphans
from headgate.model import TopicPartition
from headgate.model.messages import LedgerState
from tests.eventually import eventually
from tests.integration.pipeline_harness import PipelineRun, new_name


def as_json(*values: dict[str, Any]) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


def data_files(run: PipelineRun, table: str) -> list[tuple[str, tuple[Any, ...]]]:
    """The files of PyIceberg's scan plan, each with its partition value."""
    tasks = run.iceberg(table).scan().plan_files()
    return [
        (t.file.file_path, tuple(t.file.partition[i] for i in range(len(run.config(table).partition_by))))
        for t in tasks
    ]


def known_partitions(run: PipelineRun, table: str) -> set[TopicPartition]:
    """What the committer has told everyone about."""
    states = [s for s in run.messages(run.names.ledger, LedgerState) if s.table == table]
    return {TopicPartition(p.topic, p.partition) for p in states[-1].positions} if states else set()


def test_each_file_holds_one_partition_value_and_other_engines_read_the_same_rows(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    long_name = "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch" * 2
    countries = ["de", "fr", None, "", "a/b=c %", long_name]
    times = ["2024-02-29T23:30:00Z", "2024-03-01T00:30:00Z", "2024-03-01T01:30:00Z", None]
    schema = {"format": "json", "schema": "n INT, country STRING, at TIMESTAMP, ok BOOLEAN"}
    by_country = {"name": "lake.by_country", **schema, "partition_by": ["country"]}
    by_day = {"name": "lake.by_day", **schema, "partition_by": ["day(at)", "ok"]}
    by_hour = {"name": "lake.by_hour", **schema, "partition_by": ["hour(at)"]}
    with PipelineRun(tmp_path, broker, spark, [by_country, by_day, by_hour], {"t": 2}) as run:
        values = [
            {"n": n, "country": countries[n % len(countries)], "at": times[n % len(times)], "ok": n % 3 == 0}
            for n in range(48)
        ]
        for partition in (0, 1):
            run.produce("t", as_json(*values[partition::2]), partition)
        run.run()
        run.wait_until_landed()
        run.stop()

        found = data_files(run, "lake.by_country")
        assert {partition for _, (partition,) in found} == set(countries)
        for path, (partition,) in found:
            assert set(pq.read_table(path, columns=["country"]).column(0).to_pylist()) == {partition}
        assert len({partition for _, partition in data_files(run, "lake.by_day")}) == 3 * 2
        assert len({partition for _, partition in data_files(run, "lake.by_hour")}) == 4

        for table in ("lake.by_country", "lake.by_day", "lake.by_hour"):
            run.assert_exactly_once(table)
            files = [path for path, _ in data_files(run, table)]
            by_duckdb = duckdb.read_parquet(files).project("n, country")
            assert sorted(by_duckdb.fetchall()) == [(value["n"], value["country"]) for value in values]
            assert {(row["n"], row["country"]) for row in run.rows(table)} == set(by_duckdb.fetchall())
        # Only the files of one day are read for that day.
        scan = run.iceberg("lake.by_day").scan("at >= '2024-03-01T00:00:00+00:00'")
        assert scan.to_arrow().num_rows == 24
        assert len(list(scan.plan_files())) < len(data_files(run, "lake.by_day"))


def test_a_table_gains_and_widens_columns_and_refuses_what_does_not_fit_until_it_does(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    grows: dict[str, Any] = {"name": "lake.grows", "format": "json", "schema": "a INT, s STRUCT<x: INT>"}
    fixed: dict[str, Any] = {"name": "lake.fixed", "format": "json", "schema": "c INT", "evolve": False}
    with PipelineRun(tmp_path, broker, spark, [grows, fixed], {"t": 1}) as run:
        partitions = run.partitions()
        run.produce("t", as_json({"a": 1, "c": 1, "s": {"x": 1}}))
        worker = run.run()
        run.wait_until_landed()
        worker.stop()

        # More columns, wider ones, and a deeper one; the other table may not follow.
        grown = {**grows, "schema": "a BIGINT, b STRING, s STRUCT<x: BIGINT, y: STRING>"}
        run.reload([grown, {**fixed, "schema": "c INT, b STRING"}])
        run.produce("t", as_json({"a": 2**40, "b": "new", "c": 2, "s": {"x": 2**41, "y": "deep"}}))
        worker = run.worker(own=partitions)
        error = run.error_of(worker, "evolve: false")
        assert "lake.fixed: column b is new and the table's schema may not evolve" in error
        eventually(lambda: len(run.rows("lake.grows")) == 2, "the other table goes on")
        old, new = ((row["a"], row["b"], row["s"]) for row in run.rows("lake.grows"))
        assert old == (1, None, {"x": 1, "y": None})
        assert new == (2**40, "new", {"x": 2**41, "y": "deep"})
        worker.stop()

        # A type that does not fit is refused, again and again but not often, and nothing is lost meanwhile.
        run.reload([{**grown, "schema": "a STRING, s STRUCT<x: BIGINT>"}, fixed])
        run.produce("t", as_json({"a": 3, "c": 3}))
        worker = run.worker(own=partitions)
        assert "lake.grows: column a is long in the table and string in the files" in run.error_of(worker, "column a")
        worker.stop()
        assert len(run.rows("lake.grows")) == 2

        # Fewer and narrower columns fit.
        run.reload([{**grown, "schema": "a INT"}, fixed])
        run.worker(own=partitions)
        run.wait_until_landed()
        run.stop()
        assert [row["a"] for row in run.rows("lake.grows")] == [1, 2**40, 3]
        assert [row["c"] for row in run.rows("lake.fixed")] == [1, 2, 3]
        for table in ("lake.grows", "lake.fixed"):
            run.assert_exactly_once(table)
            # What was refused is all that a sweep finds, and no file of the table among it.
            lake = run.pipeline.lake.model_copy(update={"orphan_age_s": 1e-6})
            orphans = [p for p in sweep_orphans(open_catalog(lake), table, lake, remove=True).orphans if "/data/" in p]
            assert len([path for path in orphans if path.endswith(".parquet")]) >= 1
            run.assert_exactly_once(table)


def test_another_partitioning_than_the_table_has_is_refused_with_both_named(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    table: dict[str, Any] = {"name": "lake.t", "format": "json", "schema": "country STRING, at TIMESTAMP"}
    with PipelineRun(tmp_path, broker, spark, [{**table, "partition_by": ["day(at)"]}], {"t": 1}) as run:
        record = {"country": "de", "at": "2024-03-01T00:30:00Z"}
        run.produce("t", as_json(record))
        run.run()
        run.wait_until_landed()
        run.stop()

        other = {**table, "partition_by": ["day(at)", "country"]}
        run.reload([other])
        checked = CliRunner().invoke(app, ["check", str(tmp_path / "pipeline.yaml")])
        expected = "the table is partitioned by day(at) and partition_by says day(at), country"
        assert checked.exit_code == 1
        assert f"lake.t: {expected}" in checked.output
        run.produce("t", as_json(record))
        worker = run.run()
        assert expected in run.error_of(worker, "partitioned by")
        run.stop()

        with run.iceberg("lake.t").update_spec() as update:  # as an ALTER TABLE would
            update.add_identity("country")
        run.run()
        run.wait_until_landed()
        run.stop()
        assert run.assert_exactly_once("lake.t").rows == 2


def test_topics_and_partitions_that_come_up_while_running_are_taken_in_and_records_routed(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    name = new_name()
    tables: list[dict[str, Any]] = [
        {"name": "lake.small", "topics_pattern": f"{name}-orders.*", "where": "length(value) < 5"},
        {"name": "lake.large", "topics_pattern": f"{name}-orders.*", "where": "length(value) >= 5"},
        {"name": "lake.all"},
    ]
    with PipelineRun(tmp_path, broker, spark, tables, {"orders-a": 1}, name=name, topics_pattern=f"{name}-.*") as run:
        run.produce("orders-a", [b"tiny", b"not so tiny"])
        worker = run.run()
        run.wait_until_landed()
        run.create("orders-b", 1)
        run.create("clicks", 1)
        run.add_partitions("orders-a", 2)
        run.produce("orders-a", [b"tiny"], partition=1)
        run.produce("orders-b", [b"large enough"] * 2)
        run.produce("clicks", [b"click"])
        expected = set(run.partitions())
        assert len(expected) == 4
        eventually(lambda: known_partitions(run, "lake.all") == expected, "the committer has found them")
        orders = set(run.partitions("orders-a", "orders-b"))
        eventually(lambda: known_partitions(run, "lake.small") == orders, "for the other table as well")
        run.start_consuming(worker, expected)
        run.wait_until_landed()
        run.stop()
        assert [row["value"] for row in run.rows("lake.small")] == [b"tiny", b"tiny"]
        assert [row["value"] for row in run.rows("lake.large")] == [b"not so tiny", *[b"large enough"] * 2]
        assert len(run.rows("lake.all")) == 6
        for table, filtered in (("lake.small", 3), ("lake.large", 2), ("lake.all", 0)):
            assert run.assert_exactly_once(table).filtered == filtered


def test_starting_from_latest_leaves_out_what_was_there_but_nothing_that_comes_up_later(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    name = new_name()
    with PipelineRun(
        tmp_path,
        broker,
        spark,
        [{"name": "lake.t"}],
        {"old": 1},
        name=name,
        topics_pattern=f"{name}-.*",
        start_from="latest",
    ) as run:
        run.produce("old", [b"before"] * 5)
        run.committer()
        eventually(lambda: known_partitions(run, "lake.t"), "the committer has looked")
        run.create("new", 1)
        run.produce("new", [b"all"] * 2)
        run.produce("old", [b"after"] * 3)
        eventually(lambda: len(known_partitions(run, "lake.t")) == 2, "the new topic is found")
        run.worker(own=run.partitions())
        eventually(lambda: sum(p.next for p in run.messages(run.names.ledger, LedgerState)[-1].positions) == 10, "done")
        run.stop()
        assert [row["value"] for row in run.rows("lake.t")] == [b"all"] * 2 + [b"after"] * 3
        verdict = run.assert_exactly_once("lake.t")
        assert verdict.ledger.origin == {
            TopicPartition(run.topic("old"), 0): 5,
            TopicPartition(run.topic("new"), 0): 0,
        }


def test_latest_is_waited_for_when_the_brokers_do_not_say_at_once_where_it_is(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PipelineRun(tmp_path, broker, spark, [{"name": "lake.t"}], {"t": 2}, start_from="latest") as run:
        run.produce("t", [b"before"] * 5)
        answers: list[object] = [KafkaUnavailable("told to fail"), {}]

        def end_offsets(admin: Any, asked: Iterable[TopicPartition], **how: Any) -> dict[TopicPartition, int]:
            of_table = {place.topic for place in asked} == {run.topic("t")}
            answer = answers.pop(0) if of_table and answers else offsets.end_offsets(admin, asked, **how)
            if isinstance(answer, Exception):
                raise answer
            assert isinstance(answer, dict)
            return answer

        monkeypatch.setattr(placing, "end_offsets", end_offsets)
        run.committer()
        eventually(lambda: len(known_partitions(run, "lake.t")) == 2, "the committer has looked")
        assert not answers
        state = run.messages(run.names.ledger, LedgerState)[-1]
        assert sorted(p.next for p in state.positions) == [0, 5]


def test_a_table_that_was_given_up_is_nobodys_lag_or_problem(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, [{"name": "lake.old"}], {"t": 1}) as run:
        run.produce("t", [b"x"] * 10)
        run.run()
        run.wait_until_landed()
        run.stop()
        run.reload([{"name": "lake.new"}])
        run.produce("t", [b"x"] * 5)
        run.run()
        run.wait_until_landed()
        run.stop()
        assert channel_of(run.pipeline).ledgers() == {
            "lake.old": {},
            "lake.new": {TopicPartition(run.topic("t"), 0): 15},
        }


def test_a_filter_that_spark_knows_to_be_empty_is_counted_and_holds_nobody_up(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    tables = [{"name": "lake.none", "where": "key = 'a' AND key = 'b'"}, {"name": "lake.all"}]
    with PipelineRun(tmp_path, broker, spark, tables, {"t": 1}) as run:
        run.produce("t", [b"x"] * 10)
        run.run()
        run.wait_until_landed()
        run.produce("t", [b"x"] * 10)
        run.wait_until_landed()
        run.stop()
        none = run.assert_exactly_once("lake.none")
        assert (none.rows, none.filtered, none.offsets) == (0, 20, 20)
        assert run.assert_exactly_once("lake.all").rows == 20


def test_latest_stays_where_the_first_committer_saw_it_though_it_died_before_it_committed_anything(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, [{"name": "lake.t"}], {"t": 1}, start_from="latest") as run:
        run.produce("t", [b"before"] * 5)
        first = run.committer()
        eventually(lambda: known_partitions(run, "lake.t"), "the first committer has looked")
        first.stop()
        run.produce("t", [b"after"] * 3)
        run.run()
        eventually(lambda: sum(p.next for p in run.messages(run.names.ledger, LedgerState)[-1].positions) == 8, "done")
        run.stop()
        assert [row["value"] for row in run.rows("lake.t")] == [b"after"] * 3
        assert run.assert_exactly_once("lake.t").ledger.origin == {TopicPartition(run.topic("t"), 0): 5}
