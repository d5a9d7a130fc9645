"""`simulate --from-journal` and `plan` against a real broker and a pipeline that really ran."""

import csv
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.controller.service import Service
from headgate.controller.status import PipelineStatus, StatusReader
from headgate.errors import HeadgateError
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.internal_topics import Topics
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_records import FIELDS_DDL, FixedSize
from headgate.kafka.load_report import LoadReport
from headgate.kafka.load_topics import prepare_topics
from headgate.model import TopicPartition
from headgate.simulation.workload_shapes import Step

DEADLINE_S = 120.0


def write_pipeline(folder: Path, bootstrap: str, name: str) -> tuple[Path, Pipeline]:
    file = folder / "pipeline.yaml"
    file.write_text(
        f"""
name: {name}
home: home
kafka: {{brokers: "{bootstrap}"}}
topics: ["{name}-a"]
tables:
  - {{name: lake.records, format: json, schema: "{FIELDS_DDL}"}}
consumer: {{rate_cap_bytes_per_s: 150 kB/s, wait_s: 500 ms, heartbeat_s: 500 ms}}
policy: {{consumer_capacity_bytes_per_s: 100 kB/s, packing_capacity_bytes_per_s: 80 kB/s, max_sentinel_s: 3 s}}
monitor: {{window_s: 4 s, min_span_s: 1 s, poll_s: 500 ms}}
controller: {{discover_s: 1 s, stale_after_s: 5 s}}
slo: {{latency_s: 10 s}}
"""
    )
    return file, load_pipeline(file)


@contextmanager
def load(broker: EmbeddedKafka, topic: str) -> Iterator[list[LoadReport]]:
    """A rise from 40 kB/s to 200 kB/s over four partitions, until the block is left."""
    partitions = tuple(TopicPartition(topic, n) for n in range(4))
    prepare_topics(AdminClient({"bootstrap.servers": broker.bootstrap}), {topic: 4}, 1)
    generator = LoadGenerator(
        broker.bootstrap, {}, {topic: 4}, Step(partitions, ((0, 40e3), (8, 200e3))), FixedSize(400)
    )
    stop, reports = threading.Event(), list[LoadReport]()
    writer = threading.Thread(target=lambda: reports.append(generator.run(duration_s=600, stop=stop)), daemon=True)
    writer.start()
    try:
        yield reports
    finally:
        stop.set()
        writer.join(60)


def told(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*arguments, "--output", "json"])
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


def ends(pipeline: Pipeline) -> Mapping[str, int]:
    """Where each of the pipeline's own topics ends; nobody wrote if this stays."""
    consumer = Consumer({**librdkafka_settings(pipeline), "group.id": "looks-only"})
    try:
        return {
            topic: consumer.get_watermark_offsets(KafkaTopicPartition(topic, 0), timeout=15)[1]
            for topic in Topics(pipeline.name).settings()
        }
    finally:
        consumer.close()


def wait_until(reader: StatusReader, consumers: int) -> PipelineStatus:
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        status = reader.refresh()
        if sum(1 for c in status.consumers if c.partitions) >= consumers and status.last_decision is not None:
            return status
        time.sleep(0.2)
    raise AssertionError(f"{consumers} consumers within {DEADLINE_S:g} s; last: {status}")


def test_a_pipeline_that_ran_can_be_replayed_and_asked_what_policies_would_do(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, unique: str
) -> None:
    file, pipeline = write_pipeline(tmp_path, broker.bootstrap, unique)
    service = Service(pipeline, session=lambda: spark)
    with load(broker, f"{unique}-a") as reports:
        service.start()
        try:
            reader = StatusReader(pipeline)
            try:
                wait_until(reader, 2)
                now = told("plan", str(file), "--policy", "all")
            finally:
                reader.close()
        finally:
            service.stop()
    assert not now["as_of_last_measurement"]
    assert now["consumers"] >= 2
    answers = {answer["policy"]: answer for answer in now["policies"]}
    assert {"sentinel", "slo", "keda"} <= answers.keys()
    assert all(answer["reason"] for answer in answers.values())
    # Arrivals of the last minutes came with the measurements, so even the forecasting policy can say something.
    assert "beats of arrivals" not in answers["slo"]["reason"]
    assert answers["slo"]["inputs"]["records_per_s"] > 0

    # Stopped: plan looks back, and nothing that was asked here changes anything.
    time_of_stop = ends(pipeline)
    until = time.monotonic() + DEADLINE_S
    while not (past := told("plan", str(file)))["as_of_last_measurement"]:
        assert time.monotonic() < until, past
        time.sleep(0.5)
    assert past["consumers"] >= 1
    shown = CliRunner().invoke(app, ["plan", str(file)])
    assert "This is what policies would have done then" in " ".join(shown.stdout.split())

    saved = tmp_path / "trace.csv"
    replayed = told("simulate", str(file), "--from-journal", "--policy", "sentinel,slo", "--save", str(saved))
    with saved.open() as lines:
        recorded = sum(int(float(row["records"])) for row in csv.DictReader(lines))
    assert replayed["trace"]["partitions"] == 4
    assert recorded == replayed["trace"]["records"]
    # What was written after the first measurement and before the last; how much that is depends on the machine.
    assert 0 < recorded <= reports[0].records
    assert replayed["trace"]["bytes"] / recorded == pytest.approx(400, rel=0.1)
    assert {p["policy"] for p in replayed["policies"]} == {"sentinel", "slo"}
    assert replayed["circumstances"]["start_s"] > 0  # measured: consumers were started
    again = told("simulate", str(file), "--trace", str(saved), "--policy", "sentinel")
    assert again["trace"]["records"] == recorded
    assert ends(pipeline) == time_of_stop


def test_with_only_the_monitor_a_plan_finds_partitions_without_owners(
    broker: EmbeddedKafka, tmp_path: Path, unique: str
) -> None:
    file, pipeline = write_pipeline(tmp_path, broker.bootstrap, unique)
    service = Service(pipeline, roles=("monitor",))
    with load(broker, f"{unique}-a"):
        service.start()
        try:
            until = time.monotonic() + DEADLINE_S
            while True:
                result = CliRunner().invoke(app, ["plan", str(file), "--policy", "sentinel,slo", "--output", "json"])
                if result.exit_code == 0:
                    answers = {a["policy"]: a for a in json.loads(result.stdout)["policies"]}
                    if answers["sentinel"]["action"] == "up" and answers["sentinel"]["inputs"]["total_bytes_per_s"] > 0:
                        break
                else:  # before the first measurement
                    assert "nothing was measured yet" in str(result.exception)
                assert time.monotonic() < until, result.output
                time.sleep(0.5)
        finally:
            service.stop()
    assert answers["sentinel"]["trigger"] == "unassigned"
    assert "4 partitions have no owner" in answers["sentinel"]["reason"]
    assert sum(map(len, answers["sentinel"]["assignment"].values())) == 4


@pytest.mark.parametrize("command", [["plan"], ["simulate", "--from-journal"]])
def test_a_pipeline_that_never_ran_is_named_as_such(
    broker: EmbeddedKafka, tmp_path: Path, unique: str, command: list[str]
) -> None:
    file, _ = write_pipeline(tmp_path, broker.bootstrap, unique)
    result = CliRunner().invoke(app, [command[0], str(file), *command[1:]])
    assert isinstance(result.exception, HeadgateError)
    assert "has never run on these brokers" in str(result.exception)
