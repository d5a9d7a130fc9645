"""The topology doctor on a real cluster of three: it reads, moves, takes back, refuses, and sees a broker die."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic, ResourceType
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.errors import ConfigError, KafkaUnavailable
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.internal_topics import Topics, ensure_topics
from headgate.kafka.monitor import build_monitor
from headgate.kafka.offsets import all_end_offsets
from headgate.kafka.reassign import LeftUnderWay, Reassigner
from headgate.kafka.topology import ClusterReader, measured_records_per_s
from headgate.model import TopicPartition
from headgate.topology.cluster import Move, Topology
from headgate.topology.reassignment import Reassignment
from tests.eventually import eventually

QUIET = {"log_level": 0}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(tmp_path_factory.mktemp("three"), 3) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def admin(kafka: EmbeddedKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})


@pytest.fixture
def mover(kafka: EmbeddedKafka, admin: AdminClient) -> Iterator[Reassigner]:
    mover = Reassigner(admin, {"bootstrap_servers": kafka.bootstrap.split(",")})
    yield mover
    mover.close()


def create(admin: AdminClient, name: str, replicas: list[list[int]], **config: str) -> None:
    topic = NewTopic(name, num_partitions=len(replicas), replica_assignment=replicas, config=config)
    admin.create_topics([topic])[name].result(30)
    eventually(lambda: _known(ClusterReader(admin).read(), name), f"all of {name} has leaders")
    all_end_offsets(admin, [TopicPartition(name, number) for number in range(len(replicas))])  # which lead it by now


def _known(topology: Topology, name: str) -> bool:
    return any(t.name == name and all(p.isr == p.replicas for p in t.partitions) for t in topology.topics)


def delete(admin: AdminClient, name: str) -> None:
    admin.delete_topics([name])[name].result(30)
    eventually(lambda: all(t.name != name for t in ClusterReader(admin).read().topics), f"{name} is gone")


def fill(kafka: EmbeddedKafka, name: str) -> None:
    """Forty megabytes."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **QUIET})
    for _ in range(400):
        producer.produce(name, b"x" * 100_000)
    assert producer.flush(30) == 0


def headgate(*words: str) -> tuple[int, str]:
    ended = CliRunner().invoke(app, ["topology", *words])
    if isinstance(ended.exception, ConfigError):
        raise ended.exception
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended.exit_code, ended.output


def leaders(admin: AdminClient, name: str) -> list[int | None]:
    (topic,) = (t for t in ClusterReader(admin).read().topics if t.name == name)
    return [p.leader for p in topic.partitions]


def throttles(admin: AdminClient, *nodes: str) -> list[str]:
    found = []
    for id in nodes or ("1", "2", "3"):
        (answer,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, id)]).values()
        settings = answer.result(30)
        found += [
            name
            for name, entry in settings.items()
            if "throttled" in name and entry.source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
        ]
    return found


def test_uneven_leaders_are_found_and_moved(kafka: EmbeddedKafka, admin: AdminClient) -> None:
    create(admin, "uneven", [[1, 2, 3], [1, 3, 2], [1, 2, 3]], **{"min.insync.replicas": "2"})
    code, said = headgate("report", "--brokers", kafka.bootstrap, "--output", "json")
    report = json.loads(said)
    assert code == 1
    assert {"one-node", "idle-node"} <= {finding["kind"] for finding in report["findings"]}
    assert [topic.min_insync_replicas for topic in ClusterReader(admin).read().topics] == [2]
    code, said = headgate("advise", "--brokers", kafka.bootstrap, "--apply", "--yes")
    assert code == 0
    assert "plan leaders applied: 2 partitions" in said
    eventually(lambda: sorted(filter(None, leaders(admin, "uneven"))) == [1, 2, 3], "each node leads one")
    code, said = headgate("report", "--brokers", kafka.bootstrap)
    assert code == 0, said
    delete(admin, "uneven")


def test_a_move_under_way_is_throttled_watched_refused_a_second_time_and_taken_back(
    kafka: EmbeddedKafka, admin: AdminClient, mover: Reassigner, tmp_path: Path
) -> None:
    create(admin, "heavy", [[1, 2]])
    fill(kafka, "heavy")
    before = ClusterReader(admin).read()
    change = Reassignment({TopicPartition("heavy", 0): (3, 1)})
    cancel, began, outcome = threading.Event(), threading.Event(), list[bool]()

    def move() -> None:  # forty megabytes at a kilobyte a second, of which Kafka lets some ten pass at once
        outcome.append(mover.apply(before, change, 1_000, lambda _: began.set(), cancel.is_set))

    moving = threading.Thread(target=move)
    moving.start()
    assert began.wait(60)
    other = Reassigner(admin, {"bootstrap_servers": kafka.bootstrap.split(",")})
    assert other.under_way() == {TopicPartition("heavy", 0)}
    with pytest.raises(ConfigError, match="another reassignment is under way"):
        other.apply(before, change, None, lambda _: None)
    assert throttles(admin)
    assert other.moves() == (Move(TopicPartition("heavy", 0), (1, 2), (3, 1)),)
    _, said = headgate("report", "--brokers", kafka.bootstrap, "--output", "json")
    (found,) = (f for f in json.loads(said)["findings"] if f["kind"] == "moving")
    assert found["evidence"] == ["heavy-0: from node 1, 2 to 3, 1"]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(Reassignment({TopicPartition("heavy", 0): (2, 1, 3)}).as_document()))
    saved = tmp_path / "saved.json"
    with pytest.raises(ConfigError, match=r"neither written nor applied:\n  heavy-0: from node 1, 2 to 3, 1"):
        headgate("advise", "--brokers", kafka.bootstrap, "--change", str(plan), "--save", str(saved))
    assert not saved.exists()
    cancel.set()
    moving.join(60)
    assert outcome == [False]
    assert other.under_way() == frozenset()
    eventually(lambda: not throttles(admin), "no throttle is left")
    after = ClusterReader(admin).read()
    assert [p.replicas for t in after.topics if t.name == "heavy" for p in t.partitions] == [(1, 2)]
    assert other.apply(after, change, 100_000_000, lambda _: None)
    eventually(lambda: leaders(admin, "heavy") == [3], "the new first replica leads")
    eventually(lambda: not throttles(admin), "no throttle is left")
    other.close()
    delete(admin, "heavy")


class Deaf(Reassigner):
    """Nobody hears it taking anything back."""

    def cancel(self, partitions: object, deadline_s: float = 0) -> int:
        raise KafkaUnavailable("no broker answered")


def test_a_move_that_fails_half_way_is_taken_back_or_stays_throttled(
    kafka: EmbeddedKafka, admin: AdminClient, mover: Reassigner, tmp_path: Path
) -> None:
    """As on an error of the brokers while it is watched, and on Ctrl-C."""
    create(admin, "heavy", [[1, 2]])
    fill(kafka, "heavy")
    before, at = ClusterReader(admin).read(), TopicPartition("heavy", 0)
    change = Reassignment({at: (3, 1)})

    def lost(_: object) -> None:
        raise KafkaUnavailable("no answer for two minutes")

    deaf = Deaf(admin, {"bootstrap_servers": kafka.bootstrap.split(",")})
    with pytest.raises(LeftUnderWay, match=r"still being moved.*headgate topology cancel"):
        deaf.apply(before, change, 1_000, lost)
    deaf.close()
    assert (mover.under_way(), bool(throttles(admin))) == (frozenset({at}), True)
    code, said = headgate("cancel", "--brokers", kafka.bootstrap)
    assert (code, said) == (0, "1 reassignments taken back, throttles removed\n")
    assert mover.under_way() == frozenset()
    eventually(lambda: not throttles(admin), "no throttle is left")

    with pytest.raises(KafkaUnavailable, match="no answer for two minutes"):
        mover.apply(before, change, 1_000, lost)
    assert mover.under_way() == frozenset()
    eventually(lambda: not throttles(admin), "no throttle is left")

    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(change.as_document()))
    words = ["topology", "advise", "--brokers", kafka.bootstrap, "--change", str(plan), "--apply", "--yes"]
    with (tmp_path / "said.txt").open("w") as said_by:
        command = subprocess.Popen(
            [sys.executable, "-m", "headgate.cli.main", *words, "--throttle", "1 kB"], stdout=said_by, stderr=said_by
        )
        try:
            eventually(lambda: mover.under_way() == {at}, "the command has begun")
            command.send_signal(signal.SIGINT)
            assert command.wait(60) == 130
        finally:
            command.kill()
    assert "cancelled: partitions not yet moved are as they were" in (tmp_path / "said.txt").read_text()
    assert mover.under_way() == frozenset()
    eventually(lambda: not throttles(admin), "no throttle is left")
    delete(admin, "heavy")


def test_traffic_is_measured_from_offsets(kafka: EmbeddedKafka, admin: AdminClient) -> None:
    create(admin, "busy", [[1, 2], [2, 3]])
    topology = ClusterReader(admin).read()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **QUIET})

    def write_meanwhile(window_s: float) -> None:
        for _ in range(100):
            producer.produce("busy", b"x")
        assert producer.flush(30) == 0

    began = time.monotonic()
    rates = measured_records_per_s(admin, topology, 0.0, write_meanwhile)
    assert rates["busy"] >= 100 / (time.monotonic() - began)
    delete(admin, "busy")


def test_a_pipelines_rates_are_taken_and_topics_outside_it_are_named(
    kafka: EmbeddedKafka, admin: AdminClient, tmp_path: Path
) -> None:
    """Records of `inside` as its monitor measured them; nobody measured `outside`."""
    create(admin, "inside", [[1, 2], [2, 3], [3, 1]])
    create(admin, "outside", [[1, 2]])
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"name: doctor\nkafka: {{brokers: '{kafka.bootstrap}'}}\ntopics: [inside]\n"
        "tables: [{name: lake.records, topics: [inside]}]\n"
        "monitor: {poll_s: 100 ms, window_s: 10 s, min_span_s: 100 ms}\n"
    )
    pipeline = load_pipeline(file)
    settings = librdkafka_settings(pipeline)
    ensure_topics(admin, Topics(pipeline.name), replication=1, consumers=1)
    monitor = build_monitor(pipeline, settings)
    monitor.step()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **QUIET})
    for n in range(99):
        producer.produce("inside", b"x" * 50, partition=n % 3)
    assert producer.flush(30) == 0
    published = eventually(lambda: [r for r in monitor.step().rates if r.bytes_per_s > 0], "the monitor sees traffic")
    monitor.close()
    code, said = headgate("report", "--pipeline", str(file), "--output", "json")
    report = json.loads(said)
    assert (code, report["unmeasured"]) == (1, ["outside"])
    assert report["verdict"].startswith("WARNING: 1 topic without a measured rate")
    assert sum(row["default_load"] for row in report["rows"]) == pytest.approx(sum(r.bytes_per_s for r in published))
    code, said = headgate("watch", "--pipeline", str(file), "--times", "1", "--output", "json")
    assert "unmeasured" in [finding["kind"] for finding in json.loads(said)["new"]]
    delete(admin, "inside")
    delete(admin, "outside")


def test_a_dead_broker_is_named_and_nothing_is_moved_onto_it(
    kafka: EmbeddedKafka, admin: AdminClient, mover: Reassigner, tmp_path: Path
) -> None:
    create(admin, "kept", [[1, 2], [2, 3], [3, 1]])
    create(admin, "lost", [[2]])
    create(admin, "thrice", [[2, 1, 3], [2, 1, 3], [1, 2, 3]])
    kafka.kill(2)
    reader = ClusterReader(admin)
    eventually(lambda: reader.read().online == {1, 3} and leaders(admin, "lost") == [None], "broker 2 is missed")
    code, said = headgate("report", "--brokers", kafka.bootstrap)
    assert code == 1
    assert said.splitlines()[0].startswith("CRITICAL: 1 topic with partitions that nobody leads")
    assert "node 2 is offline" in said
    with pytest.raises(ConfigError, match=r"kept-2: node 2 is offline or unknown"):
        mover.apply(reader.read(), Reassignment({TopicPartition("kept", 2): (3, 2)}), None, lambda _: None)
    code, said = headgate("watch", "--brokers", kafka.bootstrap, "--times", "1", "--output", "json")
    assert "node 2 is offline: the others carry the load" in [f["what"] for f in json.loads(said)["new"]]
    plan = tmp_path / "plan.json"
    assert headgate("advise", "--brokers", kafka.bootstrap, "--plan", "replace", "--save", str(plan))[0] == 0
    moved = json.loads(plan.read_text())["partitions"]
    assert {(p["topic"], p["partition"]) for p in moved} == {("kept", 0), ("kept", 1)}
    assert all(2 not in p["replicas"] for p in moved)
    assert mover.under_way() == frozenset()
    # With three replicas there is no node to copy to; other leaders can be had, and broker 2 keeps its replicas.
    assert leaders(admin, "thrice") == [1, 1, 1]
    assert headgate("advise", "--brokers", kafka.bootstrap, "--plan", "leaders", "--apply", "--yes")[0] == 0
    eventually(lambda: set(leaders(admin, "thrice")) == {1, 3}, "both live nodes lead")
    assert all(2 in p.replicas for t in reader.read().topics if t.name == "thrice" for p in t.partitions)


def test_a_broker_that_dies_during_a_move_leaves_no_throttle_on_the_others(
    kafka: EmbeddedKafka, admin: AdminClient, mover: Reassigner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broker 2 is still away from the last test's kill: it comes back, sends, and dies again."""
    monkeypatch.setattr("headgate.kafka.reassign.ANSWER_S", 10.0)
    kafka.start()
    reader = ClusterReader(admin)
    eventually(lambda: reader.read().online == {1, 2, 3}, "broker 2 is back")
    create(admin, "heavy", [[1, 2]])
    fill(kafka, "heavy")
    began, cancel = threading.Event(), threading.Event()

    def told(progress: object) -> None:
        if not began.is_set():
            kafka.kill(2)
            began.set()
            cancel.set()

    with pytest.raises(KafkaUnavailable, match="not configured: broker 2"):
        mover.apply(
            reader.read(), Reassignment({TopicPartition("heavy", 0): (3, 1)}), 1_000, told, cancelled=cancel.is_set
        )
    assert throttles(admin, "1", "3") == []
    (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "heavy")]).values()
    assert not any(entry.value for name, entry in answer.result(30).items() if "throttled" in name)


def test_an_unreachable_cluster_is_said_to_be_one() -> None:
    nobody = AdminClient({"bootstrap.servers": "127.0.0.1:1", **QUIET})
    with pytest.raises(KafkaUnavailable, match="check the address"):
        ClusterReader(nobody, deadline_s=0.5).read()
