"""A collector cluster and a main cluster of three: forwarders are killed and relieved while records keep coming.

One story, looked at by many tests. Forwarders A and B share the work; A is killed with SIGKILL; C joins; B is asked to
stop. A record's value is its source partition and its offset there. At the main cluster node 2 leads two of four
partitions of `spread`, so that balance over partitions would not be balance over nodes.
"""

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.collectors.clients import consumer_settings, open_producer
from headgate.collectors.forwarder import Forwarder, Limits
from headgate.collectors.placement import KeepKeys
from headgate.collectors.topics import Route, Wanted
from headgate.errors import KafkaUnavailable
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.offsets import all_end_offsets, end_offsets, group_offsets
from headgate.model import TopicPartition as At
from headgate.producers.fallback import FallbackProducer
from headgate.producers.protocol import Partitioner
from headgate.producers.registry import build_partitioner
from tests.eventually import eventually

SPREAD, KEYED = "spread", "keyed"
PARTITIONS = 3
"""Of either topic at the collector."""
LEADERS = {1: (0,), 2: (1, 2), 3: (3,)}
"""Of `spread` at the main cluster."""
GROUP = "collect"
SOURCES = [At(topic, p) for topic in (SPREAD, KEYED) for p in range(PARTITIONS)]
TARGETS = [At(SPREAD, p) for p in range(4)] + [At(KEYED, p) for p in range(PARTITIONS)]

WAYS = {"together": [1 / 3, 1 / 3, 1 / 3], "apart": [1 / 4, 1 / 2, 1 / 4], "host": [1 / 3, 1 / 3, 1 / 3]}
"""Of two overlapping topics' records, what each of three nodes gets, by how forwarders count."""


@dataclass(frozen=True)
class Look:
    """What was committed at the collector, and, asked for afterwards, how far the main cluster's partitions went."""

    committed: Mapping[At, int]
    ends: Mapping[At, int]


@dataclass
class Story:
    sent: Counter[At] = field(default_factory=Counter)
    looks: list[Look] = field(default_factory=list)
    found: dict[At, list[tuple[int, int]]] = field(default_factory=dict)
    """By partition of the main cluster, source partition and offset of each record, in order."""
    committed: dict[At, int] = field(default_factory=dict)
    farewells: dict[str, dict[str, Any]] = field(default_factory=dict)


class ForwarderProcess:
    def __init__(self, name: str, folder: Path, source: str, target: str, *more: str) -> None:
        self._log = folder / f"{name}.log"
        command = [sys.executable, "-m", "headgate.cli.main", "collect", "--from", source, "--to", target]
        options = ["--group", GROUP, "--report", "200ms", "--log-format", "json"]
        with self._log.open("w") as log:
            self.process = subprocess.Popen([*command, *options, *more], stdout=log, stderr=log)

    def lines(self) -> list[dict[str, Any]]:
        whole = [line for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [json.loads(line) for line in whole]

    def has_forwarded(self, more_than: int) -> bool:
        told = [line for line in self.lines() if line.get("event") == "progress"]
        assert self.process.poll() is None, self._log.read_text()
        return bool(told) and told[-1]["records"] > more_than

    def ends(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        return self.process.wait(60)


@pytest.fixture(scope="module")
def main(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    # A broker that gets no processor for 4 s would lose what it leads; here nobody is killed.
    patient = {"broker.session.timeout.ms": 30_000}
    with EmbeddedKafka(tmp_path_factory.mktemp("main"), 3, settings=patient) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def story(broker: EmbeddedKafka, main: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Story:
    at_collector, at_main = ({"bootstrap.servers": kafka.bootstrap, "log_level": 0} for kafka in (broker, main))
    create(at_collector, *(NewTopic(topic, PARTITIONS, 1) for topic in (SPREAD, KEYED)))
    create(
        at_main,
        NewTopic(SPREAD, 4, replica_assignment=[[1, 2], [2, 3], [2, 1], [3, 1]]),
        NewTopic(KEYED, PARTITIONS, replica_assignment=[[1, 2], [2, 3], [3, 1]]),
    )
    told, over = Story(), threading.Event()
    folder = tmp_path_factory.mktemp("forwarders")
    aside = ThreadPoolExecutor()
    beside = [
        aside.submit(write, at_collector, told, over),
        aside.submit(look, at_collector, at_main, told, over),
    ]

    def forwarder(name: str) -> ForwarderProcess:
        return ForwarderProcess(name, folder, broker.bootstrap, main.bootstrap, "--topic", SPREAD, "--topic", KEYED)

    a, b = forwarder("a"), forwarder("b")
    running = [a, b]
    try:
        eventually(lambda: a.has_forwarded(300) and b.has_forwarded(300), "both forward")
        a.ends(signal.SIGKILL)
        running.append(c := forwarder("c"))
        eventually(lambda: c.has_forwarded(300), "a third one has its share")
        assert b.ends(signal.SIGTERM) == 0
        before = c.lines()[-1].get("records", 0)
        eventually(lambda: c.has_forwarded(before + 300), "the last one goes on alone")
        eventually(lambda: len(telling(told.looks)) > 10, "looks at what was committed")
        over.set()
        for thread in beside:
            thread.result(120)
        eventually(lambda: committed(at_collector) == dict(told.sent), "everything is committed")
        assert c.ends(signal.SIGTERM) == 0
    finally:
        over.set()
        aside.shutdown()
        for left in running:
            left.process.kill()
    told.committed = committed(at_collector)
    told.found = {target: read(at_main, target) for target in TARGETS}
    told.farewells = {name: one.lines()[-1] for name, one in (("b", b), ("c", c))}
    return told


def create(brokers: dict[str, Any], *topics: NewTopic) -> None:
    admin = AdminClient(brokers)
    for made in admin.create_topics(list(topics)).values():
        made.result(30)


def write(brokers: dict[str, Any], story: Story, over: threading.Event) -> None:
    """To every partition alike; a record of `keyed` has its partition as key."""
    producer = Producer({**brokers, "enable.idempotence": True, "linger.ms": 5})
    while not over.wait(0.005):
        for at in SOURCES:
            key = str(at.partition) if at.topic == KEYED else None
            producer.produce(at.topic, f"{at.partition} {story.sent[at]}", key, at.partition)
            story.sent[at] += 1
        producer.poll(0)
    assert producer.flush(60) == 0


def committed(brokers: dict[str, Any]) -> dict[At, int]:
    return group_offsets(brokers, GROUP, SOURCES, deadline_s=60)


def look(collector: dict[str, Any], main: dict[str, Any], story: Story, over: threading.Event) -> None:
    """A look that a busy broker did not answer, or only in part, says nothing: there are others."""
    admin = AdminClient(main)
    while not over.wait(0.2):
        try:
            seen = committed(collector)
            ends = end_offsets(admin, TARGETS)
        except KafkaUnavailable:
            continue
        if ends.keys() == set(TARGETS):
            story.looks.append(Look(seen, ends))


def telling(looks: list[Look]) -> list[Look]:
    return [look for look in looks if any(look.committed.values())]


def read(brokers: dict[str, Any], at: At) -> list[tuple[int, int]]:
    consumer = Consumer({**brokers, "group.id": "check"})
    end = consumer.get_watermark_offsets(TopicPartition(at.topic, at.partition), timeout=30)[1]
    consumer.assign([TopicPartition(at.topic, at.partition, 0)])
    found: list[tuple[int, int]] = []
    until = time.monotonic() + 60
    while len(found) < end:
        assert time.monotonic() < until, f"{len(found)} of {end} read"
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None
            partition, offset = map(int, (message.value() or b"").split())
            found.append((partition, offset))
    consumer.close()
    return found


def test_every_record_arrived_and_every_offset_was_committed(story: Story) -> None:
    for topic in (SPREAD, KEYED):
        arrived = {record for at, records in story.found.items() if at.topic == topic for record in records}
        assert arrived == {(p, n) for p in range(PARTITIONS) for n in range(story.sent[At(topic, p)])}
    assert story.committed == dict(story.sent)


def test_no_offset_was_ever_committed_before_the_main_cluster_had_everything_below_it(story: Story) -> None:
    """At each look the committed offsets were read first: all below them stands within the ends read afterwards."""
    first: dict[tuple[At, int], list[tuple[At, int]]] = {}
    for target, records in story.found.items():
        for place, (partition, offset) in enumerate(records):
            first.setdefault((At(target.topic, partition), offset), []).append((target, place))
    assert len(telling(story.looks)) > 10
    for seen in story.looks:
        for source, position in seen.committed.items():
            for offset in range(position):
                assert any(place < seen.ends[target] for target, place in first[source, offset])


def steps_back(offsets: list[int]) -> int:
    return sum(after <= before for before, after in pairwise(offsets))


def test_order_is_kept_except_that_a_killed_forwarders_last_records_come_again(story: Story) -> None:
    """One forwarder was killed: its successor goes back once, to the committed offset. B and C left in peace."""
    for target, records in story.found.items():
        for partition in range(PARTITIONS):
            assert steps_back([n for p, n in records if p == partition]) <= 1, (target, partition)


def test_a_key_stays_in_its_partition_and_in_order_but_for_repetitions(story: Story) -> None:
    for partition in range(PARTITIONS):
        records = story.found[At(KEYED, partition)]
        assert {p for p, _ in records} == {partition}
        assert list(dict.fromkeys(n for _, n in records)) == list(range(story.sent[At(KEYED, partition)]))


def test_nodes_of_the_main_cluster_got_the_same(story: Story) -> None:
    nodes = [sum(len(story.found[At(SPREAD, p)]) for p in led) for led in LEADERS.values()]
    assert max(nodes) - min(nodes) <= 0.05 * sum(nodes)


def test_who_stops_says_what_it_did_and_how_long_records_took(story: Story) -> None:
    for said in story.farewells.values():
        assert said["event"] == "stopped"
        assert said["records"] > 300
        assert (said["in_flight"], said["skipped"]) == (0, 0)
        assert 0 < said["delay_p50_s"] <= said["delay_p99_s"] <= said["delay_max_s"]


def test_forwarders_that_count_together_level_an_overlap_and_those_that_count_apart_do_not(
    broker: EmbeddedKafka, main: EmbeddedKafka, tmp_path: Path, unique: str
) -> None:
    """B-42 with B-25's loads: as much for A, on nodes 1 and 2, as for B, on 2 and 3. One forwarder levels the nodes, a
    third each, and so do two on one host. Two with a count each halve their own topic: a quarter, a half, a quarter."""
    at_collector: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
    at_main: dict[str, Any] = {"bootstrap.servers": main.bootstrap, "log_level": 0}
    nodes = {f"{unique}-{way}-{name}": led for way in WAYS for name, led in (("a", (1, 2)), ("b", (2, 3)))}
    create(at_collector, *(NewTopic(topic, 1, 1) for topic in nodes))
    create(at_main, *(NewTopic(topic, 2, replica_assignment=[[n] for n in led]) for topic, led in nodes.items()))
    ends = partial(all_end_offsets, AdminClient(at_main), [At(topic, p) for topic in nodes for p in range(2)])
    stop = threading.Event()

    def forward(partitioner: Partitioner, *names: str) -> None:
        topics = tuple(f"{unique}-{name}" for name in names)
        route, limits = Route(at_collector, at_main, Wanted(topics), create=False), Limits(tell_every_s=0.1)
        producer = open_producer(at_main, partitioner, limits.in_flight_records)
        reading = consumer_settings(at_collector, topics[0])
        Forwarder(reading, producer, KeepKeys(), route, limits, lambda _: None).run(stop)

    def write(records: int) -> None:
        for _ in range(records):
            for topic in nodes:
                producer.produce(topic, b"record")
        assert producer.flush(30) == 0

    def forwarded(of_each: int) -> bool:
        return sum(ends().values()) == of_each * len(nodes)

    producer = Producer(at_collector)
    with ThreadPoolExecutor(5) as threads:
        running = [threads.submit(forward, build_partitioner("sqf"), "together-a", "together-b")]
        for name in ("a", "b"):
            on_this_host = build_partitioner("sqf-host", {"folder": tmp_path})
            running.append(threads.submit(forward, build_partitioner("sqf"), f"apart-{name}"))
            running.append(threads.submit(forward, on_this_host, f"host-{name}"))
        try:
            for written in range(100, 1_501, 100):  # or one topic could be far ahead, and no count level them
                write(100)
                eventually(partial(forwarded, written), "all is forwarded")
        finally:
            stop.set()
        for done in running:
            done.result(60)
    for way, shares in WAYS.items():
        got = Counter[int]()
        for at, records in ends().items():
            if way in at.topic:
                got[nodes[at.topic][at.partition]] += records
        assert [got[node] / 3_000 for node in (1, 2, 3)] == pytest.approx(shares, abs=0.05), way


def test_a_topic_that_appears_later_is_forwarded_too(broker: EmbeddedKafka, main: EmbeddedKafka, unique: str) -> None:
    first, later = f"{unique}-first", f"{unique}-later"
    at_collector: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
    at_main: dict[str, Any] = {"bootstrap.servers": main.bootstrap, "log_level": 0}
    limits, stop = Limits(look_every_s=0.2, tell_every_s=0.1), threading.Event()
    forwarder = Forwarder(
        consumer_settings(at_collector, unique),
        open_producer(at_main, build_partitioner("node"), limits.in_flight_records),
        KeepKeys(),
        Route(at_collector, at_main, Wanted(pattern=f"{unique}-.*"), create=True),
        limits,
        lambda _: None,
    )
    producer = Producer(at_collector)

    def written(topic: str) -> None:
        create(at_collector, NewTopic(topic, 1, 1))
        producer.produce(topic, b"0 0")
        assert producer.flush(30) == 0

    written(first)
    with ThreadPoolExecutor() as thread:
        done = thread.submit(forwarder.run, stop)
        try:
            eventually(lambda: arrived(at_main, first), "the first topic is forwarded")
            written(later)
            eventually(lambda: arrived(at_main, later), "the other one as well")
        finally:
            stop.set()
        assert done.result(60).records == 2


def arrived(brokers: dict[str, Any], topic: str) -> bool:
    if topic not in AdminClient(brokers).list_topics(timeout=10).topics:
        return False
    try:
        return len(read(brokers, At(topic, 0))) == 1
    except KafkaException:  # its leader does not know it yet
        return False


def test_a_lost_collector_cuts_nobody_off(main: EmbeddedKafka, tmp_path: Path, unique: str) -> None:
    """Its producer turns to the main cluster, and back; what it had is forwarded when it is back (B-44)."""
    at_main: dict[str, Any] = {"bootstrap.servers": main.bootstrap, "log_level": 0}
    create(at_main, NewTopic(unique, 1, 1))
    errors: list[Any] = []
    sent = 0
    with EmbeddedKafka(tmp_path / "collector", 1) as collector:
        at_collector: dict[str, Any] = {"bootstrap.servers": collector.bootstrap, "log_level": 0}
        create(at_collector, NewTopic(unique, 1, 1))
        producer = FallbackProducer(at_collector, at_main, lost_after_s=2, again_s=0.5)

        def writes_until(direct: bool) -> bool:
            nonlocal sent
            producer.produce(unique, f"0 {sent}", on_delivery=lambda error, _: errors.append(error))
            producer.poll()
            sent += 1
            return producer.direct is direct and len(errors) > 20

        eventually(lambda: writes_until(direct=False), "the collector takes records")
        for loss in ("killed", "frozen"):
            collector.kill(1) if loss == "killed" else collector.freeze(1)
            eventually(lambda: writes_until(direct=True), "records go to the main cluster")
            collector.start() if loss == "killed" else collector.thaw(1)
            eventually(lambda: writes_until(direct=False), "records go to the collector again")
        assert producer.flush(60) == 0
        producer.close()
        straight = [n for _, n in read(at_main, At(unique, 0))]
        assert straight == sorted(set(straight))
        assert len(straight) > 20
        forwarder = ForwarderProcess(
            "d", tmp_path, collector.bootstrap, main.bootstrap, "--topic", unique, "--group", f"{GROUP} {unique}"
        )
        try:
            eventually(lambda: len(set(read(at_main, At(unique, 0)))) == sent, "all records are at the main cluster")
            assert forwarder.ends(signal.SIGTERM) == 0
        finally:
            forwarder.process.kill()
    assert set(errors) == {None}
    assert len(errors) == sent
