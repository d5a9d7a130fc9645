"""A whole pipeline as `headgate run` runs it: monitor, controller, committer and a fleet, under a changing load."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.controller.calibration import calibrate
from headgate.controller.drain import is_drained
from headgate.controller.service import Service
from headgate.controller.status import PipelineStatus, StatusReader
from headgate.errors import ConfigError, KafkaUnavailable, SetupError
from headgate.kafka.channel import BEGINNING, Outbox, Tail
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.internal_topics import Topics, ensure_topics
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_pace import NoWaiting
from headgate.kafka.load_records import FIELDS_DDL, FixedSize
from headgate.kafka.load_report import LoadReport
from headgate.kafka.load_topics import prepare_topics
from headgate.kafka.monitor import last_measurement
from headgate.lake.catalogs import open_catalog
from headgate.lake.ledger import read_ledger
from headgate.lake.tables import load_table
from headgate.lake.verify import verify_table
from headgate.model import TopicPartition
from headgate.model.messages import DecisionRecord, Measurement, PartitionRate
from headgate.simulation.workload_shapes import Steady, Step
from tests.eventually import eventually
from tests.ports import free_port

DEADLINE_S = 120.0


def write_pipeline(folder: Path, bootstrap: str, name: str, more: str = "", consumer: str = "") -> Pipeline:
    file = folder / "pipeline.yaml"
    file.write_text(
        f"""
name: {name}
home: home
kafka: {{brokers: "{bootstrap}"}}
topics_pattern: "{name}-.*"
tables:
  - {{name: lake.records, format: json, schema: "{FIELDS_DDL}"}}
consumer: {{rate_cap_bytes_per_s: 150 kB/s, wait_s: 500 ms, heartbeat_s: 500 ms{consumer}}}
policy: {{consumer_capacity_bytes_per_s: 100 kB/s, packing_capacity_bytes_per_s: 80 kB/s, max_sentinel_s: 3 s}}
monitor: {{window_s: 4 s, min_span_s: 1 s, poll_s: 500 ms}}
controller: {{discover_s: 1 s}}
{more}
"""
    )
    return load_pipeline(file)


@contextmanager
def running(pipeline: Pipeline, spark: SparkSession, dry_run: bool = False) -> Iterator[Service]:
    service = Service(pipeline, dry_run=dry_run, session=lambda: spark)
    service.start()
    try:
        yield service
    finally:
        service.stop()


def wait_for(reader: StatusReader, condition: Callable[[PipelineStatus], bool], what: str) -> PipelineStatus:
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        status = reader.refresh()
        if condition(status):
            return status
        time.sleep(0.2)
    raise AssertionError(f"{what} within {DEADLINE_S:g} s; last: {status}")


def owners(status: PipelineStatus) -> int:
    return sum(1 for consumer in status.consumers if consumer.partitions)


def test_consumers_follow_the_load_up_and_down_and_every_record_lands_once(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, unique: str
) -> None:
    upkeep = "lake: {maintain_every_s: 3 s}"  # beside all of it
    pipeline = write_pipeline(tmp_path, broker.bootstrap, unique, upkeep)
    settings = librdkafka_settings(pipeline)
    topic = f"{unique}-a"
    partitions = [TopicPartition(topic, n) for n in range(4)]
    surge_over, stop, reports = threading.Event(), threading.Event(), list[LoadReport]()

    def write() -> None:
        """A surge until it was seen, however long consumers take to start here; then little."""
        for levels, until in (((0, 40e3), (5, 240e3)), surge_over), (((0, 20e3),), stop):
            shape = Step(tuple(partitions), levels)
            generator = LoadGenerator(broker.bootstrap, {}, {topic: 4}, shape, FixedSize(400))
            reports.append(generator.run(duration_s=600, stop=until))

    prepare_topics(AdminClient({"bootstrap.servers": broker.bootstrap}), {topic: 4}, 1)
    writer = threading.Thread(target=write, daemon=True)
    with running(pipeline, spark):
        reader = StatusReader(pipeline)
        wait_for(reader, lambda s: owners(s) == 1, "one consumer for an idle topic")
        writer.start()
        wait_for(reader, lambda s: owners(s) >= 3, "three consumers for 240 kB/s at 80 kB/s each")
        surge_over.set()
        wait_for(reader, lambda s: owners(s) == 1, "one consumer again")

        late = f"{unique}-b"  # a topic that did not exist when the pipeline started
        extra = LoadGenerator(
            broker.bootstrap,
            {},
            {late: 2},
            Steady.spread([TopicPartition(late, 0), TopicPartition(late, 1)], 1e5),
            FixedSize(300),
            pace=NoWaiting(),
        )
        reports.append(extra.run(count=500))
        wait_for(
            reader,
            lambda s: {p.partition.topic for p in s.partitions if p.owner is not None} == {topic, late},
            "the late topic is owned, too",
        )
        stop.set()
        writer.join(30)
        until = time.monotonic() + DEADLINE_S
        while not is_drained(pipeline, settings) and time.monotonic() < until:
            time.sleep(0.5)
        reader.refresh()
    verdict = verify_table(spark, open_catalog(pipeline.lake), pipeline.tables[0])
    assert verdict.problems == ()
    assert verdict.rows == sum(report.records for report in reports)
    files = open_catalog(pipeline.lake).load_table("lake.records").scan().plan_files()
    assert any("/compacted-" in task.file.file_path for task in files)

    applied = [d for d in reader.decisions if d.outcome == "applied"]
    assert {"unassigned", "overload", "timeout"} <= {d.trigger for d in applied}
    grown = next(d for d in applied if d.trigger == "overload" and d.created)
    assert grown.moved > 0
    assert grown.inputs
    assert grown.rejected, "what else was considered"
    assert grown.rscore_packing > grown.rscore_consumer > 0
    assert min(grown.measure_s, grown.decide_s, grown.ready_s, grown.handover_s) >= 0
    assert grown.ready_s > 0
    assert grown.handover_s > 0
    assert 0 < grown.pause_s <= grown.handover_s  # t_r (E-29)
    assert {one.consumer_id for one in grown.capacities} == {1}
    status = reader.refresh()
    assert status.pause_s is not None
    assert status.configured_bytes_per_s == pipeline.policy.consumer_capacity_bytes_per_s
    assert status.latency_p50_s is not None
    assert status.latency_p99_s is not None
    assert 0 < status.latency_p50_s <= status.latency_p99_s
    reader.close()


def test_a_dry_run_decides_and_touches_nothing(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, unique: str
) -> None:
    pipeline = write_pipeline(tmp_path, broker.bootstrap, unique, f"metrics_port: {free_port()}")
    prepare_topics(AdminClient({"bootstrap.servers": broker.bootstrap}), {f"{unique}-a": 3}, 1)
    with running(pipeline, spark, dry_run=True):
        assert [file.name for file in (pipeline.home / "metrics").iterdir()] == ["dry-run.json"]  # it raises no alert
        reader = StatusReader(pipeline)
        wait_for(reader, lambda s: any(d.outcome == "dry-run" for d in reader.decisions), "a decision")
        assert reader.refresh().consumers == ()
        reader.close()
    assert not (pipeline.home / "warehouse").exists()


def test_a_dry_run_measures_only_while_its_pipeline_does_not_and_takes_no_port_from_it(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, unique: str
) -> None:
    port, topics = free_port(), Topics(unique)
    pipeline = write_pipeline(tmp_path, broker.bootstrap, unique, f"metrics_port: {port}")
    settings, admin = librdkafka_settings(pipeline), AdminClient({"bootstrap.servers": broker.bootstrap})
    prepare_topics(admin, {f"{unique}-a": 3}, 1)
    ensure_topics(admin, topics, replication=1, consumers=1)
    outbox, other = Outbox(settings, "the monitor"), "another monitor"

    @contextmanager
    def measuring() -> Iterator[None]:
        rates, stop = tuple(PartitionRate(f"{unique}-a", n, 1000.0, 10.0, 0, 30.0) for n in range(3)), threading.Event()

        def measure() -> None:
            while not stop.wait(0.5):
                outbox.send(topics.measurements, Measurement(int(1000 * time.time()), 4.0, other, rates))

        thread = threading.Thread(target=measure)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def sources(tail: Tail) -> list[str]:
        return [r.message.source for r in tail.poll(0.5)]

    with socket.create_server(("127.0.0.1", port)), ExitStack() as first:
        first.enter_context(measuring())
        eventually(lambda: last_measurement(settings, admin, topics) is not None, "something was measured")
        with running(pipeline, spark, dry_run=True):
            reader = StatusReader(pipeline)
            wait_for(reader, lambda s: any(d.outcome == "dry-run" for d in reader.decisions), "a decision")
            reader.close()
            assert (pipeline.home / "metrics" / "dry-run.json").exists()
            tail = Tail(settings, {(topics.measurements, 0): BEGINNING})
            assert {r.message.source for r in tail.read_to_end()} == {other}
            first.close()
            eventually(lambda: any(source != other for source in sources(tail)), "it measures itself")
            with measuring():
                heard: list[str] = []

                def rests() -> bool:
                    heard.extend(sources(tail))
                    return heard[-6:] == [other] * 6

                eventually(rests, "it leaves that to the other one again")
            tail.close()


def json_lines(said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines()]


def test_a_fleet_of_threads_whose_spark_dies_says_so_in_json_and_the_next_start_goes_on(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, unique: str
) -> None:
    metrics_port = free_port()
    pipeline = write_pipeline(tmp_path, broker.bootstrap, unique, f"metrics_port: {metrics_port}")
    partitions = [TopicPartition(f"{unique}-a", n) for n in range(2)]
    LoadGenerator(
        broker.bootstrap, {}, {f"{unique}-a": 2}, Steady.spread(partitions, 1e5), FixedSize(300), pace=NoWaiting()
    ).run(count=3000)
    settings = librdkafka_settings(pipeline)
    file = str(tmp_path / "pipeline.yaml")
    command = [sys.executable, "-m", "headgate.cli.main", "run", file, "--log-format", "json"]

    def start() -> "subprocess.Popen[str]":
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    process = start()
    try:
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until and not committed_rows(pipeline):
            time.sleep(0.5)
        assert committed_rows(pipeline)
        (jvm,) = (p for p in psutil.Process(process.pid).children(recursive=True) if p.name() == "java")
        jvm.kill()
        said, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 1
        told = json_lines(said)  # nothing but JSON, Spark's and the error's lines included
        assert told[-1]["message"] == "Spark's JVM has ended (out of memory?); start the pipeline again"
        assert told[-1]["level"] == "error"
        target = pipeline.home / "metrics" / "run.json"
        assert target.exists(), "Prometheus goes on asking, and finds it down"
        assert "unassigned" in [line["decision"]["trigger"] for line in told if "decision" in line]

        process = start()
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until and not is_drained(pipeline, settings):
            time.sleep(0.5)
        shown = CliRunner().invoke(app, ["status", file, "--output", "json"])
        status = json.loads(shown.output)
        assert shown.exit_code == 0
        assert sum(len(c["partitions"]) for c in status["consumers"]) == 2
        assert {p["partition"]["topic"] for p in status["partitions"]} == {f"{unique}-a"}
        assert status["problems"] == []
        drawn = CliRunner().invoke(app, ["status", file, "--once"]).output
        assert "consumers 1" in drawn
        assert f"{unique}-a-1" in drawn
        metrics = urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=10).read().decode()
        assert 'headgate_rows_total{table="lake.records"}' in metrics
        assert 'headgate_consumer_records_total{consumer="1"}' in metrics
        process.send_signal(signal.SIGINT)  # Ctrl-C
        said, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0
        assert json_lines(said)
        assert not target.exists()
    finally:
        process.kill()
    verdict = verify_table(spark, open_catalog(pipeline.lake), pipeline.tables[0])
    assert (verdict.problems, verdict.rows) == ((), 3000)


def committed_rows(pipeline: Pipeline) -> int:
    table = load_table(open_catalog(pipeline.lake), pipeline.tables[0].name)
    return 0 if table is None else read_ledger(table).totals.rows


def test_what_cannot_work_is_said_in_one_line_before_anything_starts(tmp_path: Path, broker: EmbeddedKafka) -> None:
    with pytest.raises(KafkaUnavailable, match=r"no broker answers at 127\.0\.0\.1:1"):
        Service(write_pipeline(tmp_path, "127.0.0.1:1", "nobody")).start()
    port = int(broker.bootstrap.rsplit(":", 1)[1])
    with pytest.raises(SetupError, match=f"cannot serve metrics on 127.0.0.1 port {port}"):
        Service(write_pipeline(tmp_path, broker.bootstrap, "taken", f"metrics_port: {port}")).start()
    with pytest.raises(ConfigError, match="known are processes, threads"):
        Service(write_pipeline(tmp_path, broker.bootstrap, "other", "fleet: {kind: cloud}")).start()


def test_calibration_measures_full_cycles_and_leaves_nothing_behind(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, unique: str
) -> None:
    topic = f"{unique}-a"
    spread = Steady.spread([TopicPartition(topic, n) for n in range(4)], 1e6)
    LoadGenerator(broker.bootstrap, {}, {topic: 4}, spread, FixedSize(1000), pace=NoWaiting()).run(count=6000)
    pipeline = write_pipeline(tmp_path, broker.bootstrap, unique)
    smaller = pipeline.consumer.model_copy(update={"batch_bytes": 500_000})
    pipeline = pipeline.model_copy(update={"consumer": smaller})
    result = calibrate(pipeline, tmp_path, 60, lambda: spark, lambda _: None, threading.Event())
    assert result.warm_up is not None
    assert result.warm_up.cycles > 12  # there are as many batches: they were read more than once
    (measured,) = result.measured  # one table and few partitions: the three layouts are the same
    assert measured.cycles >= 5
    assert measured.partitions == 4
    assert result.packing_capacity_bytes_per_s < result.consumer_capacity_bytes_per_s < measured.bytes_per_s.mean
    assert measured.bytes_per_s.low <= measured.bytes_per_s.mean <= measured.bytes_per_s.high
    assert measured.records_per_s.mean > 0
    assert measured.cycle_s.mean >= measured.process_s.mean > 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    eventually(lambda: not [t for t in admin.list_topics(timeout=10).topics if "calibration" in t], "topics are gone")


def test_with_a_warm_spare_growing_does_not_wait_for_a_start(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, unique: str
) -> None:
    fleet = "fleet: {kind: processes, warm: 1, max_consumers: 2}"
    pipeline = write_pipeline(tmp_path, broker.bootstrap, unique, fleet)
    topic = f"{unique}-a"
    partitions = tuple(TopicPartition(topic, n) for n in range(2))
    prepare_topics(AdminClient({"bootstrap.servers": broker.bootstrap}), {topic: 2}, 1)
    load = LoadGenerator(broker.bootstrap, {}, {topic: 2}, Steady.spread(partitions, 150e3), FixedSize(400))
    reports = list[LoadReport]()
    with running(pipeline, spark):
        reader = StatusReader(pipeline)
        wait_for(reader, lambda s: owners(s) == 1 and len(s.consumers) == 2, "one owner and one spare")
        reports.append(load.run(duration_s=15))
        wait_for(reader, lambda s: any(d.consumers_after == 2 for d in applied(reader)), "a second owner")
        grown = next(d for d in applied(reader) if d.consumers_after == 2)
        wait_for(reader, lambda s: s.lag_records == 0, "everything lands")
        reader.close()
    assert grown.created == ()
    verdict = verify_table(spark, open_catalog(pipeline.lake), pipeline.tables[0])
    assert (verdict.problems, verdict.rows) == ((), reports[0].records)


@pytest.mark.slow
def test_a_consumer_that_gets_a_noisy_neighbour_is_noticed_and_relieved(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, unique: str
) -> None:
    fleet = "fleet: {kind: processes, max_consumers: 3}"
    pipeline = write_pipeline(tmp_path, broker.bootstrap, unique, fleet, ", batch_bytes: 25 kB")
    topic = f"{unique}-a"
    partitions = tuple(TopicPartition(topic, n) for n in range(2))
    prepare_topics(AdminClient({"bootstrap.servers": broker.bootstrap}), {topic: 2}, 1)
    load = LoadGenerator(broker.bootstrap, {}, {topic: 2}, Steady.spread(partitions, 120e3), FixedSize(400))
    stop, reports = threading.Event(), list[LoadReport]()
    writer = threading.Thread(target=lambda: reports.append(load.run(duration_s=600, stop=stop)), daemon=True)
    with running(pipeline, spark):
        reader = StatusReader(pipeline)
        writer.start()
        status = wait_for(reader, lambda s: owners(s) == 2, "a partition of 60 kB/s for each of two consumers")
        victim = max(c.consumer_id for c in status.consumers)
        with a_noisy_neighbour_of(victim, pipeline):
            wait_for(
                reader,
                lambda s: any(
                    alert.startswith(f"consumer {victim} does") for d in reader.decisions for alert in d.alerts
                ),
                "the slow consumer is noticed",
            )
            status = wait_for(
                reader,
                lambda s: s.lag_records < 400 and victim not in {p.owner for p in s.partitions},
                "others have its partition, and are abreast of the load",
            )
        assert owners(status) == 2
        stop.set()
        writer.join(30)
        wait_for(reader, lambda s: s.lag_records == 0, "everything lands")
        reader.close()
    verdict = verify_table(spark, open_catalog(pipeline.lake), pipeline.tables[0])
    assert (verdict.problems, verdict.rows) == ((), reports[0].records)


@contextmanager
def a_noisy_neighbour_of(consumer_id: int, pipeline: Pipeline) -> Iterator[None]:
    """Its processes get a tenth of the time: they are stopped and let go on, several times a second."""
    (head,) = (p for p in psutil.process_iter() if is_consumer(p, consumer_id, pipeline))
    done = threading.Event()

    def pulse() -> None:
        while not done.is_set():
            for number, pause_s in ((signal.SIGSTOP, 0.27), (signal.SIGCONT, 0.03)):
                with suppress(psutil.NoSuchProcess):  # it may be replaced
                    for process in (*head.children(recursive=True), head):
                        process.send_signal(number)
                time.sleep(pause_s)

    thread = threading.Thread(target=pulse, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def is_consumer(process: psutil.Process, consumer_id: int, pipeline: Pipeline) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.cmdline()[-3:] == [str(pipeline.file), "--id", str(consumer_id)]
    return False


def applied(reader: StatusReader) -> list[DecisionRecord]:
    return [d for d in reader.decisions if d.outcome == "applied"]
