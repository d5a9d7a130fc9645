"""The embedded Kafka keeps its word through stops, kills and races, alone and as a cluster of three."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from headgate.cli.kafka import app
from headgate.errors import HeadgateError, SetupError
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.java_programs import run_kafka_tool
from headgate.kafka.local_ports import free_ports
from tests.eventually import eventually

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
QUIET = {"log_level": 0}
"""librdkafka tells standard error about every broker that goes away; here they go on purpose."""


@pytest.fixture(scope="module")
def one_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    kafka = EmbeddedKafka(tmp_path_factory.mktemp("one broker") / "home")
    yield kafka
    kafka.stop()


@pytest.fixture
def kafka(one_home: EmbeddedKafka) -> EmbeddedKafka:
    """One broker, shared by the tests of this file, running."""
    one_home.start()
    return one_home


def create_topic(kafka: EmbeddedKafka, name: str, copies: int = 1, **config: str) -> None:
    topic = NewTopic(name, num_partitions=1, replication_factor=copies, config=config)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
    admin.create_topics([topic])[name].result(30)


def produce(kafka: EmbeddedKafka, topic: str, values: list[bytes]) -> None:
    """Returns when Kafka has acknowledged every value; fails if it refused one."""
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all", "delivery.timeout.ms": 30_000, **QUIET})
    for value in values:
        producer.produce(topic, value, on_delivery=delivered)
    assert producer.flush(40) == 0
    assert refused == []


def consume(kafka: EmbeddedKafka, topic: str, count: int) -> list[bytes]:
    """The topic's first `count` values."""
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "readers", "enable.auto.commit": False, **QUIET}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values: list[bytes] = []

    def all_read() -> bool:
        messages = consumer.consume(count - len(values), timeout=0.2)
        values.extend(message.value() or b"" for message in messages if message.error() is None)
        return len(values) == count

    try:
        eventually(all_read, f"{count} records in {topic}")
    finally:
        consumer.close()
    return values


def brokers_alive(home: Path) -> int:
    """Counted from the outside: Java processes whose command line names the home."""
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return sum(any(part.startswith(f"-Dheadgate.broker={home}/") for part in command) for command in commands)


# --- stops, kills, restarts -------------------------------------------------------------------------------------------


def test_records_survive_a_stop_and_a_restart(kafka: EmbeddedKafka) -> None:
    address, values = kafka.bootstrap, [b"%d" % n for n in range(500)]
    create_topic(kafka, "stopped")
    produce(kafka, "stopped", values)
    assert kafka.stop()
    assert brokers_alive(kafka.home) == 0
    assert kafka.start()
    assert kafka.bootstrap == address
    assert consume(kafka, "stopped", 500) == values


def test_acknowledged_records_survive_a_kill(kafka: EmbeddedKafka) -> None:
    values = [b"%d" % n for n in range(500)]
    create_topic(kafka, "killed")
    produce(kafka, "killed", values)
    kafka.kill(1)
    assert brokers_alive(kafka.home) == 0
    # Another process that knows nothing but the folder can bring it back.
    assert EmbeddedKafka(kafka.home).start()
    assert consume(kafka, "killed", 500) == values


def test_a_stopped_home_says_so_and_stopping_it_again_does_nothing(kafka: EmbeddedKafka) -> None:
    assert kafka.status().ready
    kafka.stop()
    seen = EmbeddedKafka(kafka.home).status()
    assert (seen.running, seen.ready, seen.bootstrap) == (False, False, kafka.bootstrap)
    assert [(broker.pid, broker.reachable) for broker in seen.brokers] == [(None, False)]
    assert not kafka.stop()


def test_a_broker_that_hangs_is_seen_as_unreachable_and_killed_at_the_deadline(kafka: EmbeddedKafka) -> None:
    (broker,) = kafka.status().brokers
    assert broker.pid is not None
    kafka.freeze(1)
    (hanging,) = kafka.status().brokers
    assert (hanging.pid, hanging.reachable) == (broker.pid, False)
    kafka.thaw(1)
    eventually(lambda: kafka.status().ready, "it answers again")
    kafka.freeze(1)
    assert kafka.stop(deadline_s=0.5)
    assert brokers_alive(kafka.home) == 0


def test_a_start_killed_while_formatting_leaves_nothing_to_clean_up(tmp_path: Path) -> None:
    home = tmp_path / "home"
    program = (
        f"from pathlib import Path; from headgate.kafka.embedded import *; EmbeddedKafka(Path({str(home)!r})).start()"
    )
    starting = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    eventually((home / "broker-1" / "logs" / "format.log").exists, "formatting has begun")
    os.killpg(starting.pid, signal.SIGKILL)
    starting.wait(10)
    assert not (home / "broker-1" / "formatted").exists()
    # The kill came early; this is what one in the middle of writing leaves.
    (home / "broker-1" / "data").mkdir(exist_ok=True)
    (home / "broker-1" / "data" / "meta.properties").write_text("version=1\ncluster.id=half-of-")
    with EmbeddedKafka(home) as kafka:
        create_topic(kafka, "after")
        produce(kafka, "after", [b"all is well"])
        assert consume(kafka, "after", 1) == [b"all is well"]
    assert brokers_alive(home) == 0


# --- one home, many hands ---------------------------------------------------------------------------------------------


def test_two_starts_at_once_start_one_broker(kafka: EmbeddedKafka) -> None:
    kafka.stop()
    with ThreadPoolExecutor(2) as hands:
        started = list(hands.map(lambda _: EmbeddedKafka(kafka.home).start(), range(2)))
    assert sorted(started) == [False, True]
    assert brokers_alive(kafka.home) == 1
    assert kafka.status().ready


def test_a_broker_is_found_even_if_its_pid_was_never_written(kafka: EmbeddedKafka) -> None:
    pid_file = kafka.home / "broker-1" / "pid"
    pid = int(pid_file.read_text())
    pid_file.unlink()
    assert kafka.status().brokers[0].pid == pid
    assert not kafka.start()
    assert brokers_alive(kafka.home) == 1


def test_a_stranger_with_the_noted_pid_is_left_alone(kafka: EmbeddedKafka) -> None:
    kafka.stop()
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        (kafka.home / "broker-1" / "pid").write_text(f"{stranger.pid}\n")
        assert not kafka.status().running
        assert not kafka.stop()
        assert stranger.poll() is None
    finally:
        stranger.communicate(b"\n")


# --- clear refusals ---------------------------------------------------------------------------------------------------


def test_a_taken_port_is_named_before_anything_starts(tmp_path: Path) -> None:
    before = free_ports(2)  # two in a row
    with socket.create_server(("127.0.0.1", before + 1)):
        port = before + 1
        with pytest.raises(SetupError, match=rf"port {port} on 127\.0\.0\.1 is taken.*: stop what uses it, or choose"):
            EmbeddedKafka(tmp_path, port=port).start()
        # The second port belongs to the controller.
        with pytest.raises(SetupError, match=rf"port {port} on 127\.0\.0\.1 is taken"):
            EmbeddedKafka(tmp_path, port=before).start()
    assert not (tmp_path / "broker-1").exists()


def test_a_home_remembers_its_size_and_can_move_to_another_port_when_stopped(kafka: EmbeddedKafka) -> None:
    with pytest.raises(SetupError, match=r"holds a Kafka with 1 broker\(s\), not 3"):
        EmbeddedKafka(kafka.home, brokers=3).start()
    port = int(kafka.bootstrap.rpartition(":")[2])
    with pytest.raises(SetupError, match=f"is running on port {port}: stop it before moving it to {port + 2}"):
        EmbeddedKafka(kafka.home, port=port + 2).start()
    create_topic(kafka, "moved")
    kafka.stop()
    EmbeddedKafka(kafka.home, port=port + 2).start()
    assert kafka.bootstrap == f"127.0.0.1:{port + 2}"
    produce(kafka, "moved", [b"found"])


def test_a_broker_that_cannot_start_is_quoted(kafka: EmbeddedKafka) -> None:
    kafka.stop()
    meta = kafka.home / "broker-1" / "data" / "meta.properties"
    right = meta.read_text()
    meta.write_text(re.sub("node.id=1", "node.id=7", right))
    try:
        with pytest.raises(SetupError, match=r"broker 1 ended while starting: .*node.*7.*; its logs are in"):
            kafka.start()
    finally:
        meta.write_text(right)
    assert not kafka.status().running


def test_an_unknown_home_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"no Kafka was ever started in .*: start one with `headgate kafka start"):
        EmbeddedKafka(tmp_path).status()
    assert not EmbeddedKafka(tmp_path).stop()


# --- Kafka's own tools and the command line ---------------------------------------------------------------------------


def test_kafkas_own_tool_sees_the_lag_of_a_group(kafka: EmbeddedKafka) -> None:
    create_topic(kafka, "described")
    produce(kafka, "described", [b"x"] * 10)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "slow"})
    consumer.commit(offsets=[TopicPartition("described", 0, 4)], asynchronous=False)
    consumer.close()
    said = run_kafka_tool(CONSUMER_GROUPS, "--bootstrap-server", kafka.bootstrap, "--describe", "--group", "slow")
    (row,) = [line.split() for line in said.splitlines() if line.startswith("slow")]
    assert row[:6] == ["slow", "described", "0", "4", "10", "6"]


def test_a_tool_that_fails_says_why() -> None:
    with pytest.raises(HeadgateError, match=r"ConsumerGroupCommand failed with exit code 1: .*nonsense"):
        run_kafka_tool(CONSUMER_GROUPS, "--nonsense")


def test_the_command_line_starts_shows_and_stops(kafka: EmbeddedKafka) -> None:
    kafka.stop()
    home, run = ["--home", str(kafka.home)], CliRunner().invoke
    assert f"Kafka is ready on {kafka.bootstrap}" in run(app, ["start", *home], catch_exceptions=False).stdout
    assert "was already running" in run(app, ["start", *home], catch_exceptions=False).stdout
    running = run(app, ["status", *home, "--output", "json"])
    assert running.exit_code == 0
    shown = json.loads(running.stdout)
    assert (shown["ready"], shown["bootstrap"]) == (True, kafka.bootstrap)
    assert psutil.pid_exists(shown["brokers"][0]["pid"])
    assert "has stopped" in run(app, ["stop", *home], catch_exceptions=False).stdout
    stopped = run(app, ["status", *home])
    assert (stopped.exit_code, "stopped" in stopped.stdout) == (1, True)


# --- three brokers ----------------------------------------------------------------------------------------------------


def test_three_brokers_lose_one_and_keep_serving(tmp_path: Path) -> None:
    before, during = [b"%d" % n for n in range(200)], [b"%d" % n for n in range(200, 400)]
    with EmbeddedKafka(tmp_path / "three", brokers=3) as kafka:
        assert kafka.status().ready
        create_topic(kafka, "copied", copies=3, **{"min.insync.replicas": "2"})
        produce(kafka, "copied", before)
        topics = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET}).list_topics("copied", timeout=10).topics
        leader = topics["copied"].partitions[0].leader
        kafka.kill(leader)
        assert [broker.id for broker in kafka.status().brokers if not broker.reachable] == [leader]
        produce(kafka, "copied", during)
        assert consume(kafka, "copied", 400) == before + during
        assert kafka.start(), "the killed broker comes back"
        assert kafka.status().ready
    assert brokers_alive(kafka.home) == 0
