"""The load generator against a real broker: what it reports is what the broker holds, record by record."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Protocol

import fastavro
import pytest
import typer
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from headgate.cli.load import load
from headgate.errors import ConfigError, KafkaUnavailable
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_pace import NoWaiting
from headgate.kafka.load_records import AVRO_SCHEMA, FixedSize, UniformSize
from headgate.kafka.load_report import LoadProgress, LoadReport
from headgate.kafka.load_topics import prepare_topics
from headgate.model import TopicPartition
from headgate.simulation.workload import Workload, volumes
from headgate.simulation.workload_combined import Skew, Sum
from headgate.simulation.workload_random import RandomWalk
from headgate.simulation.workload_shapes import Cosine, Spike, Steady, Step


class Broker(Protocol):
    @property
    def bootstrap(self) -> str: ...


@dataclass(frozen=True)
class Record:
    offset: int
    key: bytes
    value: bytes

    @property
    def payload_bytes(self) -> int:
        return len(self.key) + len(self.value)


def held_by(
    broker: Broker, partitions: Iterable[TopicPartition], deadline_s: float = 60
) -> dict[TopicPartition, list[Record]]:
    """Everything the broker holds of the partitions."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    held: dict[TopicPartition, list[Record]] = {partition: [] for partition in partitions}
    ends: dict[TopicPartition, int] = {}
    try:
        until_s = time.monotonic() + deadline_s
        while ends.keys() != held.keys():
            try:
                for partition in held:
                    asked = KafkaTopicPartition(partition.topic, partition.partition)
                    low, ends[partition] = consumer.get_watermark_offsets(asked, timeout=deadline_s)
                    assert low == 0
            except KafkaException:  # the leader of a topic created a moment ago does not know it yet
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.05)
        consumer.assign([KafkaTopicPartition(p.topic, p.partition, 0) for p in held])
        while any(len(held[p]) < ends[p] for p in held) and time.monotonic() < until_s:
            for message in consumer.consume(1000, timeout=0.2):
                assert message.error() is None
                where = TopicPartition(message.topic() or "", message.partition() or 0)
                offset, key, value = message.offset(), message.key(), message.value()
                assert offset is not None
                assert isinstance(key, bytes)
                assert isinstance(value, bytes)
                held[where].append(Record(offset, key, value))
    finally:
        consumer.close()
    return held


def held_as_reported(broker: Broker, report: LoadReport) -> dict[TopicPartition, list[Record]]:
    """The records of a run on new topics, after checking that report and broker agree on every number."""
    held = held_by(broker, report.partitions)
    for partition, part in report.partitions.items():
        records = held[partition]
        assert [record.offset for record in records] == list(range(part.records))
        assert sum(record.payload_bytes for record in records) == part.payload_bytes
        assert (part.first_offset, part.last_offset) == ((0, part.records - 1) if records else (None, None))
        assert part.failed == 0
    assert report.records == sum(len(records) for records in held.values())
    return held


def new_topic() -> str:
    return f"load-{uuid.uuid4().hex[:8]}"


def partitions_of(*topics: tuple[str, int]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(name, number) for name, count in topics for number in range(count))


def test_a_count_arrives_exactly_and_split_exactly_over_two_topics(broker: Broker) -> None:
    one, two = new_topic(), new_topic()
    partitions = partitions_of((one, 4), (two, 3))
    workload = Steady.spread(partitions, 1e6)
    generator = LoadGenerator(broker.bootstrap, {}, {one: 4, two: 3}, workload, FixedSize(300), pace=NoWaiting())
    report = generator.run(count=10_000)
    held = held_as_reported(broker, report)
    # 10,000 = 7 · 1428 + 4: the first four of seven equal shares get one more.
    assert [len(held[p]) for p in partitions] == [1429, 1429, 1429, 1429, 1428, 1428, 1428]
    assert report.payload_bytes == 10_000 * 300
    assert not report.interrupted
    for partition, records in held.items():
        assert {record.payload_bytes for record in records} == {300}
        decoded = [json.loads(record.value) for record in records]
        assert [row["id"] for row in decoded] == list(range(len(records)))
        assert {(row["topic"], row["partition"]) for row in decoded} == {(partition.topic, partition.partition)}


def test_a_second_run_goes_on_with_ids_and_offsets(broker: Broker) -> None:
    topic = new_topic()
    (partition,) = partitions_of((topic, 1))
    for first in (0, 50):
        generator = LoadGenerator(
            broker.bootstrap, {}, {topic: 1}, Steady({partition: 1e6}), FixedSize(200), pace=NoWaiting()
        )
        part = generator.run(count=50).partitions[partition]
        assert (part.first_offset, part.last_offset) == (first, first + 49)
    held = held_by(broker, [partition])[partition]
    assert [json.loads(record.value)["id"] for record in held] == list(range(100))


@pytest.mark.parametrize("shape", ["steps", "cosine", "spikes", "walk", "skew"])
def test_counts_follow_the_integral_of_the_shape(broker: Broker, shape: str) -> None:
    topic = new_topic()
    partitions = partitions_of((topic, 3))
    a, b, c = partitions
    shapes: dict[str, Workload] = {
        "steps": Sum((Step((a,), ((0, 1000), (7.77, 9000))), Step((b,), ((3.333, 5000),)), Steady({c: 123.4}))),
        "cosine": Cosine.staggered(partitions, 4000, 3500, 11),
        "spikes": Spike(partitions, 500, 20_000, at_s=1.2345, width_s=0.77, every_s=5.1),
        "walk": RandomWalk(partitions, 8000, 20, step_s=0.35, seed=11),
        "skew": Skew.zipf(Steady.spread(partitions, 12_000), partitions, 1.3),
    }
    workload = shapes[shape]
    generator = LoadGenerator(broker.bootstrap, {}, {topic: 3}, workload, FixedSize(150), pace=NoWaiting())
    report = generator.run(duration_s=29.5)
    held = held_as_reported(broker, report)
    due = volumes(workload, 0, 29.5)
    for partition in partitions:
        assert 0 <= due[partition] / 150 - len(held[partition]) < 1 + 1e-6


def test_in_real_time_the_same_records_take_the_time_of_the_shape(broker: Broker) -> None:
    topic = new_topic()
    partitions = partitions_of((topic, 2))
    workload = Step(partitions, ((0, 20_000), (1, 60_000)))
    seen: list[LoadProgress] = []
    generator = LoadGenerator(broker.bootstrap, {}, {topic: 2}, workload, FixedSize(200))
    report = generator.run(duration_s=2, on_progress=seen.append)
    held = held_as_reported(broker, report)
    # One second of 100 records/s and one of 300.
    assert [len(held[p]) for p in partitions] == [400, 400]
    assert report.elapsed_s >= 2
    assert {progress.target_bytes_per_s for progress in seen} == {40_000, 120_000}


def test_records_have_every_size_of_the_range_and_add_up_to_the_rate(broker: Broker) -> None:
    topic = new_topic()
    (partition,) = partitions_of((topic, 1))
    workload = Steady({partition: 100_000})
    runs = []
    for seed in (5, 5, 6):
        generator = LoadGenerator(
            broker.bootstrap, {}, {topic: 1}, workload, UniformSize(200, 260), seed=seed, pace=NoWaiting()
        )
        runs.append(generator.run(duration_s=5))
    for report in runs:
        assert 0 <= 5 * 100_000 - report.payload_bytes < 260
    sizes = [record.payload_bytes for record in held_by(broker, [partition])[partition]]
    assert len(sizes) == sum(report.records for report in runs)
    assert set(sizes) == set(range(200, 261))
    first, second, third = (report.records for report in runs)
    assert sizes[:first] == sizes[first : first + second]
    assert sizes[:100] != sizes[first + second : first + second + 100]
    assert third > 0


def decodes(record_format: str, value: bytes) -> bool:
    try:
        if record_format == "json":
            json.loads(value)
        else:
            fastavro.schemaless_reader(BytesIO(value), AVRO_SCHEMA, None)
    except (ValueError, EOFError, IndexError):
        return False
    return True


@pytest.mark.parametrize("record_format", ["json", "avro"])
def test_bad_records_are_counted_apart_and_are_the_same_for_the_same_seed(broker: Broker, record_format: str) -> None:
    topic = new_topic()
    (partition,) = partitions_of((topic, 1))
    reported = []
    for seed in (1, 1, 2):
        generator = LoadGenerator(
            broker.bootstrap,
            {},
            {topic: 1},
            Steady({partition: 1e6}),
            FixedSize(250),
            record_format=record_format,
            bad_share=0.05,
            seed=seed,
            pace=NoWaiting(),
        )
        reported.append(generator.run(count=4000).bad)
    wrong = [r.offset for r in held_by(broker, [partition])[partition] if not decodes(record_format, r.value)]
    runs = [[offset % 4000 for offset in wrong if offset // 4000 == number] for number in range(3)]
    assert reported == [len(run) for run in runs]
    assert runs[0] == runs[1] != runs[2]
    # 4000 draws of 0.05: 200 with a standard deviation of 13.8, five of them either way.
    assert 131 <= reported[0] <= 269


def test_stopping_leaves_exactly_what_the_report_says(broker: Broker) -> None:
    topic = new_topic()
    partitions = partitions_of((topic, 2))
    stop = threading.Event()

    def stop_after_some(progress: LoadProgress) -> None:
        if progress.records > 200:
            stop.set()

    generator = LoadGenerator(broker.bootstrap, {}, {topic: 2}, Steady.spread(partitions, 500_000), FixedSize(500))
    report = generator.run(stop=stop, on_progress=stop_after_some)
    assert report.interrupted
    assert report.records > 200
    held_as_reported(broker, report)


def test_a_record_larger_than_kafkas_default_limit_is_written(broker: Broker) -> None:
    topic = new_topic()
    (partition,) = partitions_of((topic, 1))
    generator = LoadGenerator(
        broker.bootstrap, {}, {topic: 1}, Steady({partition: 1e6}), FixedSize(3_000_000), pace=NoWaiting()
    )
    held = held_as_reported(broker, generator.run(count=2))
    assert [record.payload_bytes for record in held[partition]] == [3_000_000, 3_000_000]


def test_records_the_broker_refuses_are_reported_as_failed(broker: Broker) -> None:
    topic = new_topic()
    (partition,) = partitions_of((topic, 1))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    limited = NewTopic(topic, num_partitions=1, replication_factor=1, config={"max.message.bytes": "1000000"})
    admin.create_topics([limited])[topic].result(30)
    generator = LoadGenerator(
        broker.bootstrap, {}, {topic: 1}, Steady({partition: 1e6}), FixedSize(3_000_000), pace=NoWaiting()
    )
    report = generator.run(count=2)
    assert (report.records, report.failed) == (0, 2)
    assert sum(report.errors.values()) == 2
    assert held_by(broker, [partition])[partition] == []


def test_topics_that_do_not_fit_are_refused_with_what_to_say_instead(broker: Broker) -> None:
    topic = new_topic()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with pytest.raises(ConfigError, match=f"say {topic}:8 to create it"):
        prepare_topics(admin, {topic: None})
    assert prepare_topics(admin, {topic: 2}) == partitions_of((topic, 2))
    assert prepare_topics(admin, {topic: None}) == partitions_of((topic, 2))
    with pytest.raises(ConfigError, match=f"say {topic}:2"):
        prepare_topics(admin, {topic: 3})


def test_records_too_small_for_their_fields_are_refused(broker: Broker) -> None:
    topic = new_topic()
    (partition,) = partitions_of((topic, 1))
    generator = LoadGenerator(broker.bootstrap, {}, {topic: 1}, Steady({partition: 1e6}), FixedSize(40))
    with pytest.raises(ConfigError, match="or use the raw format"):
        generator.run(count=1)


def test_a_workload_for_partitions_that_are_not_loaded_is_refused(broker: Broker) -> None:
    topic = new_topic()
    workload = Steady.spread(partitions_of((topic, 2)), 1e6)
    generator = LoadGenerator(broker.bootstrap, {}, {topic: 1}, workload, FixedSize(200), pace=NoWaiting())
    with pytest.raises(ConfigError, match=f"names {topic}-1"):
        generator.run(duration_s=1)


def test_brokers_that_do_not_answer_are_named_as_the_trouble() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: nothing answers there
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{taken.getsockname()[1]}", "log_level": 0})
        with pytest.raises(KafkaUnavailable, match="headgate kafka start"):
            prepare_topics(admin, {"any": 1}, deadline_s=1)


# ------------------------------------------------------------------------------------------------------ command


def command() -> typer.Typer:
    app = typer.Typer()
    app.command()(load)
    return app


def test_the_command_writes_what_its_report_file_says(broker: Broker, tmp_path: Path) -> None:
    topic, file = new_topic(), tmp_path / "report.json"
    arguments = f"--brokers {broker.bootstrap} --topic {topic}:3 --count 3000 --record-bytes 200:400 --bad-share 0.02"
    result = CliRunner().invoke(command(), [*arguments.split(), "--weights", "3,2,1", "--report", str(file)])
    assert result.exit_code == 0, result.output
    written = json.loads(file.read_text())[topic]
    assert {number: part["records"] for number, part in written.items()} == {"0": 1500, "1": 1000, "2": 500}
    partitions = partitions_of((topic, 3))
    for partition, records in held_by(broker, partitions).items():
        part = written[str(partition.partition)]
        assert len(records) == part["records"]
        assert sum(record.payload_bytes for record in records) == part["bytes"]
        assert sum(not decodes("json", record.value) for record in records) == part["bad"] > 0
    assert "3,000" in result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--period 5s", "--period belongs to --shape cosine"),
        ("--shape step", "--shape step needs levels"),
        ("--shape step --step 5", "must be a time and a rate"),
        ("--rate 2MBit", "unit"),
        ("--count 5 --duration 5s", "not both"),
        ("--no-wait", "needs an end"),
        ("--client sasl.password=${HEADGATE_NOT_SET_ANYWHERE}", "HEADGATE_NOT_SET_ANYWHERE is not set"),
        ("--topic orders:none", "orders:8"),
        ("--shape waits --rate 1MB/s", "leave out --rate"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_written(arguments: str, says: str) -> None:
    result = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(
        command(), ["--brokers", "127.0.0.1:1", "--topic", "orders:1", *arguments.split()]
    )
    assert result.exit_code == 2
    assert says in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize("interruption", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_reports_exactly_what_the_broker_holds(
    broker: Broker, tmp_path: Path, interruption: signal.Signals
) -> None:
    topic, file = new_topic(), tmp_path / "report.json"
    program = "import typer; from headgate.cli.load import load; typer.run(load)"
    arguments = f"--brokers {broker.bootstrap} --topic {topic}:2 --rate 1MB/s --duration 10min --report {file}"
    running = subprocess.Popen([sys.executable, "-c", program, *arguments.split()], stdout=subprocess.DEVNULL)
    try:
        partitions = partitions_of((topic, 2))
        until_s = time.monotonic() + 60
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        while topic not in admin.list_topics(timeout=10).topics and time.monotonic() < until_s:
            time.sleep(0.05)
        while not any(held_by(broker, partitions).values()) and time.monotonic() < until_s:
            time.sleep(0.05)
        running.send_signal(interruption)
        assert running.wait(60) == 130
    finally:
        running.kill()
        running.wait()
    written = json.loads(file.read_text())[topic]
    for partition, records in held_by(broker, partitions).items():
        assert len(records) == written[str(partition.partition)]["records"] > 0
