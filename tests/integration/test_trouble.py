"""What doctor and explain make of real brokers and a real lake of a pipeline that does badly. Only the words of its
parts are written by the test, on its real topics."""

import json
import time
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition as KafkaTopicPartition
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.kafka.embedded import EmbeddedKafka
from headgate.lake.catalogs import open_catalog
from headgate.lake.commit import TableCommitter
from headgate.lake.tables import table_location
from headgate.model import Range, TopicPartition
from headgate.model.messages import (
    CommitRecord,
    ConsumerPartitions,
    ControllerState,
    DecisionRecord,
    LedgerState,
    Measurement,
    PartitionRate,
)
from tests.announcements import announce, write_file
from tests.integration.pipeline_harness import PipelineRun

MINUTE_MS = 60_000


def asked(run: PipelineRun, command: str, *more: str) -> Any:
    result = CliRunner().invoke(app, [command, str(run.folder / "pipeline.yaml"), "--output", "json", *more])
    assert result.stdout, repr(result.exception)
    assert result.exit_code == (1 if command == "doctor" else 0)
    return json.loads(result.stdout)


def committed(at_ms: int, rows: int, rejected: int, latency_ms: tuple[int, ...] = (), **reached: int) -> CommitRecord:
    numbers = (1, 0, 1, rows, rows, rejected, 0, 0, 0.1, 0)
    return CommitRecord("lake.t", at_ms, "c", 1, 1, *numbers, latency_ms, reached)


def decided(at_ms: int, **fields: Any) -> DecisionRecord:
    told = (at_ms, 1, 1, "overload", "consumer 1 has too much", fields.pop("outcome", "applied"), 1, 2, 1, 0.5, 0.4)
    rest = {"created": (2,), "deleted": (), "alerts": (), "rejected": (), **fields}
    return DecisionRecord(*told, assignment=(ConsumerPartitions(1, ()),), **rest)


def test_checks_fail_for_what_brokers_and_lake_say(broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path) -> None:
    sections: dict[str, Any] = {
        "lake": {"keep_snapshots": 1, "keep_hourly": 0},
        "policy": {"consumer_capacity_bytes_per_s": "100 kB/s", "packing_capacity_bytes_per_s": "80 kB/s"},
    }
    with PipelineRun(tmp_path, broker, spark, [{"name": "lake.t"}], {"a": 1}, **sections) as run:
        run.create("old", 1, **{"cleanup.policy": "compact,delete", "retention.ms": "60000"})
        run.pipeline = run.load([{"name": "lake.t"}], topics=[run.topic("a"), run.topic("old")], **sections)
        topic = run.topic("a")
        partition = TopicPartition(topic, 0)
        run.produce("a", [b"x"] * 160)

        # More than a hundred files, in four snapshots.
        committer = TableCommitter(open_catalog(run.pipeline.lake), run.pipeline.lake, run.pipeline.tables[0])
        data = Path(table_location(run.pipeline.lake, "lake.t")) / "data"
        for start in range(0, 120, 30):
            ranges = [Range(partition, at, at + 1) for at in range(start, start + 30)]
            files = tuple(write_file(data / f"{r.start}.parquet", (r,)) for r in ranges)
            result = committer.commit([announce((topic, 0, start, start + 30), files=files)], {partition: 0})
            assert result.exists
        # Somebody deletes what was not read yet.
        gone = KafkaTopicPartition(topic, 0, 140)
        next(iter(run.admin.delete_records([gone]).values())).result(30)

        now_ms = int(time.time() * 1000)
        fast = PartitionRate(topic, 0, 250_000.0, 1000.0, 100, 30.0)
        run.outbox.send(run.names.measurements, Measurement(now_ms, 30.0, "monitor", (fast,)))
        run.outbox.send(run.names.control, ControllerState(1, now_ms - MINUTE_MS, now_ms - MINUTE_MS, "sentinel", 1))
        problem = LedgerState("lake.t", now_ms, "c", 9, 1, True, (), (), 0, ("its schema cannot be merged",))
        run.outbox.send(run.names.ledger, problem, key="lake.t")
        run.outbox.send(run.names.commits, committed(now_ms, 900, 100))
        run.outbox.send(run.names.decisions, decided(now_ms, alerts=("no consumer came up",)))
        run.outbox.send(run.names.decisions, decided(now_ms, alerts=("of a rehearsal",), outcome="dry-run"))
        run.outbox.flush()

        checks = {c["check"]: c for c in asked(run, "doctor")["checks"]}
    said = {name: (c["verdict"], c["evidence"]) for name, c in checks.items()}
    assert said["topics"] == ("warn", f"compacted: {run.topic('old')}")
    assert said["retention"] == ("fail", f"20 offsets were deleted before they were read: {partition}")
    assert said["lag"][0] == "fail"
    assert said["lag"][1].startswith("20 records wait")
    assert said["lag"][1].endswith("and no consumer is at work")
    assert said["rejected"] == ("fail", "100 of 1,000 records in the last hour (10.00%)")
    assert said["hot"][0] == "fail"
    assert f"{partition} at 250 kB/s" in said["hot"][1]
    assert said["clocks"][0] == "fail"
    assert "the controller differs most from the brokers: -6" in said["clocks"][1]
    assert said["controller"] == ("warn", "raised within the last hour: no consumer came up")
    assert said["committer"] == ("fail", "lake.t: its schema cannot be merged")
    assert said["group"][0] == "warn", "nobody wrote the group's offsets"
    assert said["files"][0] == "warn"
    assert said["files"][1].startswith("lake.t: 120 small files, ")
    assert said["snapshots"] == ("warn", "lake.t has 4, 1 are to be kept")
    assert all(c["advice"] for c in checks.values() if c["verdict"] != "ok"), "each says what to do"


def test_a_decision_is_explained_with_what_came_of_it(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, [{"name": "lake.t"}], {"a": 2}) as run:
        topic = run.topic("a")
        rates = tuple(PartitionRate(topic, n, 50_000.0, 100.0, 1000 + n, 30.0) for n in range(2))
        measured_ms = int(time.time() * 1000)
        run.outbox.send(run.names.measurements, Measurement(measured_ms, 30.0, "monitor", rates))
        quantiles = tuple(range(0, 1010, 10))  # of latencies from 0 to 1,000 ms, a hundredth each
        run.outbox.send(run.names.commits, committed(measured_ms, 500, 0, quantiles, **{topic: 1900}))
        run.outbox.flush()
        at_ms = int(time.time() * 1000) - 5 * MINUTE_MS
        why_not = ("two moves more would have saved no consumer",)
        run.outbox.send(run.names.decisions, decided(at_ms, rejected=why_not, inputs={"load": 1.5}, handover_s=2.0))
        run.outbox.flush()

        (found,) = asked(run, "explain")
        shown = CliRunner().invoke(app, ["explain", str(run.folder / "pipeline.yaml")]).stdout
    assert found["before"]["lag_records"] is None, "nothing was measured by then"
    minute, five = found["afterwards"]
    assert minute["lag_records"] is None
    assert five["bytes_per_s"] == 100_000
    assert five["lag_records"] == 1000 + 1001 - 1900
    assert (five["latency_p50_s"], five["latency_p99_s"]) == (0.5, 0.99)
    assert "instead two moves more would have saved no consumer" in shown
    assert "inputs  load 1.5" in shown
    assert "t4 handover 2.0 s" in shown
    (row,) = [line.split() for line in shown.splitlines() if "5 min after" in line]
    assert row[3:] == ["0.1", "MB/s", "101", "records", "0.5", "s", "1.0", "s"]
