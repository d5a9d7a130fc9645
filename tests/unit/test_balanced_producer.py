"""The producer with a partitioner, on librdkafka's own cluster in memory: what it changes and what it leaves alone."""

import gc
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter, UserList, deque
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from headgate.errors import ConfigError
from headgate.producers.confluent import BalancedProducer
from headgate.producers.inflight import SqfInflight
from headgate.producers.live import Follower
from headgate.producers.murmur2 import partition_of_key
from headgate.producers.protocol import Choice, ClusterView
from headgate.producers.registry import build_partitioner
from headgate.producers.round_robin import DefaultRoundRobin
from tests.clusters_in_memory import InMemory

EXAMPLE = Path(__file__).parents[2] / "examples" / "balanced_producer.py"
IN_MEMORY = {"test.mock.num.brokers": 3, "log_level": 0}
PARTITIONS = 4
"""What that cluster gives a topic."""


class Reports:
    def __init__(self) -> None:
        self.partitions: list[int] = []

    def __call__(self, error: Any, message: Any) -> None:
        assert error is None
        self.partitions.append(message.partition())


def spread(producer: BalancedProducer, partitions: list[int], topic: str = "t") -> int:
    """By how many records the nodes that lead the topic differ; that cluster draws leaders at random."""
    assert producer.view is not None
    counts = Counter(partitions)
    nodes = [sum(counts[p] for p in led) for led in producer.view.leaders[topic].values()]
    assert sum(nodes) == len(partitions)
    return max(nodes) - min(nodes)


def led_by_all(producer: Producer) -> str:
    """A topic that all three nodes lead, so one of them leads two partitions."""
    for name in (f"t{n}" for n in range(1_000)):
        partitions = producer.list_topics(name, timeout=30).topics[name].partitions.values()
        if {p.leader for p in partitions} == {1, 2, 3}:
            return name
    raise AssertionError("no topic is led by all nodes")


@pytest.mark.parametrize(
    ("name", "at_most"), [("node", 1), ("sqf", 1), ("sqf-inflight", 1), ("latency-weighted", 1), ("jsq", 12)]
)
def test_nodes_get_the_same(name: str, at_most: int) -> None:
    """No report is served until the end, so to those that listen everything is on its way, and no latency is known.

    `jsq` never chooses the fullest of three nodes unless it draws two that are equal: nodes further apart come closer
    in two of three draws. Drawing alone, without a look at what is on its way, leaves them 40 and more apart."""
    producer, reports = BalancedProducer(IN_MEMORY, partitioner=name), Reports()
    topic = led_by_all(producer)
    for _ in range(3_000):
        producer.produce(topic, b"x", on_delivery=reports)
    assert producer.flush(30) == 0
    assert spread(producer, reports.partitions, topic) <= at_most


def test_without_a_name_it_is_round_robin_and_keys_go_where_java_puts_them() -> None:
    producer, reports = BalancedProducer(IN_MEMORY), Reports()
    for _ in range(100):
        producer.produce("t", "text", callback=reports)
    assert producer.flush(30) == 0
    assert Counter(reports.partitions) == dict.fromkeys(range(PARTITIONS), 25)
    keys = [f"key {n}" for n in range(20)]
    reports.partitions.clear()
    for key in keys:
        producer.produce("t", b"x", key, on_delivery=reports)
    assert producer.flush(30) == 0
    assert Counter(reports.partitions) == Counter(partition_of_key(key.encode(), PARTITIONS) for key in keys)


def test_a_key_is_refused_with_the_reason_and_a_partition_is_kept() -> None:
    producer, reports = BalancedProducer(IN_MEMORY, partitioner="node"), Reports()
    with pytest.raises(ConfigError, match="out of order"):
        producer.produce("t", b"x", key=b"key")
    for _ in range(10):
        producer.produce("t", b"x", key=b"key", partition=3, on_delivery=reports)
    assert producer.flush(30) == 0
    assert reports.partitions == [3] * 10


def test_a_full_queue_takes_no_turn() -> None:
    """Every other record finds the queue full: with turns that are lost one of two nodes would get everything."""
    producer, reports = (
        BalancedProducer({**IN_MEMORY, "queue.buffering.max.messages": 1}, partitioner="node"),
        Reports(),
    )
    refused = 0
    for _ in range(60):
        while True:
            try:
                producer.produce("t", b"x", on_delivery=reports)
                break
            except BufferError:
                refused += 1
                producer.flush(30)
    assert producer.flush(30) == 0
    assert refused >= 59
    assert spread(producer, reports.partitions) <= 1


KEYED = {"allow_keys": True}


@pytest.mark.parametrize(
    ("name", "options", "key"),
    [
        ("node", KEYED, "key"),
        ("node-key", KEYED, "key"),
        ("sqf", KEYED, "key"),
        ("sqf", {"count_bytes": True}, None),
        ("sqf-host", KEYED, "key"),
        ("sqf-inflight", {}, None),
    ],
)
@pytest.mark.parametrize("batch", [False, True])
def test_a_full_queue_takes_no_turn_of_records_that_must_be_seen_either(
    name: str, options: dict[str, Any], key: str | None, batch: bool, tmp_path: Path
) -> None:
    """As above: with a key, with bytes counted, for partitioners that listen, and in batches of one."""
    if name == "sqf-host":
        options = {**options, "folder": tmp_path}
    partitioner = build_partitioner(name, options)
    producer = BalancedProducer({**IN_MEMORY, "queue.buffering.max.messages": 1}, partitioner=partitioner)
    reports, refused = Reports(), 0

    def taken() -> bool:
        if batch:
            return producer.produce_batch("t", [{"value": b"x", "key": key}], on_delivery=reports) == 1
        try:
            producer.produce("t", b"x", key, on_delivery=reports)
        except BufferError:
            return False
        return True

    for _ in range(60):
        while not taken():
            refused += 1
            producer.flush(30)
    assert producer.flush(30) == 0
    assert refused >= 59
    if name != "sqf-inflight":  # to which all nodes are free whenever it is asked
        assert spread(producer, reports.partitions) <= 1
    assert producer.view is not None
    counts = Counter(reports.partitions)
    for led in producer.view.leaders["t"].values():
        if name != "node-key":
            assert max(counts[p] for p in led) - min(counts[p] for p in led) <= 1


def test_a_refused_record_gives_its_turn_back_with_headers_too_and_with_a_key_it_has_none() -> None:
    """Four partitions in turn: 0, 1, then a refused one with headers, then one with a key, and 2 is still next."""
    config = {**IN_MEMORY, "queue.buffering.max.messages": 1}
    reports = Reports()
    producer = BalancedProducer(config, partitioner=DefaultRoundRobin(start=lambda: 0))
    for _ in range(2):
        producer.produce("t", b"x", on_delivery=reports)
        for refused in ({"headers": {"a": b"1"}}, {"key": "key 1"}):
            with pytest.raises(BufferError):
                producer.produce("t", b"x", **refused)
        assert producer.flush(30) == 0
    producer.produce_all("t", [b"x"] * 4, on_delivery=reports)
    assert producer.flush(30) == 0
    first = reports.partitions[0]
    assert reports.partitions == [(first + n) % PARTITIONS for n in range(6)]


class Misled(DefaultRoundRobin):
    """Chooses a partition that is no more, once."""

    def bound(self, topic: str, cluster: ClusterView) -> Choice:
        return chain([99], cycle([0])).__next__


@pytest.mark.parametrize("more", [{}, {"headers": {"a": b"1"}}])
def test_the_turn_of_a_partition_that_is_no_more_is_not_given_back(more: dict[str, Any]) -> None:
    producer = BalancedProducer(IN_MEMORY, partitioner=Misled())
    with pytest.raises(KafkaException):
        producer.produce("t", b"x", **more)
    producer.produce("t", b"x", **more)
    assert producer.flush(30) == 0


def test_a_record_that_was_not_taken_is_not_on_its_way() -> None:
    partitioner = SqfInflight()
    producer = BalancedProducer({**IN_MEMORY, "queue.buffering.max.messages": 1}, partitioner=partitioner)
    producer.produce("t", b"x")
    with pytest.raises(BufferError):
        producer.produce("t", b"x")
    assert producer.view is not None
    nodes = partitioner._maps.of(producer.view).nodes.values()
    assert sum(len(node.usage.on_the_way) for node in nodes) == 1
    assert producer.flush(30) == 0
    assert sum(len(node.usage.on_the_way) for node in nodes) == 0


@pytest.mark.parametrize("name", ["sqf-inflight", "jsq", "latency-weighted"])
def test_what_a_batch_did_not_find_room_for_is_not_on_its_way_and_can_be_sent_again(name: str) -> None:
    """The queue has room for one of ten: nine are refused, and heard of once each when they are sent after all."""
    partitioner = build_partitioner(name)
    assert isinstance(partitioner, SqfInflight)
    producer = BalancedProducer({**IN_MEMORY, "queue.buffering.max.messages": 1}, partitioner=partitioner)
    reports = Reports()
    messages: list[dict[str, Any]] = [{"value": b"x", "callback": reports} for _ in range(10)]
    assert producer.produce_batch("t", messages) == 1
    assert producer.view is not None
    nodes = partitioner._maps.of(producer.view).nodes.values()
    assert sum(len(node.usage.on_the_way) for node in nodes) == 1
    assert producer.flush(30) == 0
    while messages := [message for message in messages if "_error" in message]:
        producer.produce_batch("t", messages)
        assert producer.flush(30) == 0
    assert len(reports.partitions) == 10
    assert sum(len(node.usage.on_the_way) for node in nodes) == 0


def test_turns_of_a_batch_that_found_no_room_are_the_next_records() -> None:
    """Four partitions in turn. The queue takes two of a batch's three records, then two of four: those of the third and
    fourth partition. Then come the two turns that were given back, and two more."""
    config = {**IN_MEMORY, "queue.buffering.max.messages": 2}
    reports = Reports()
    producer = BalancedProducer(config, partitioner=DefaultRoundRobin(start=lambda: 0))
    producer.produce_batch("t", [{"value": b"x"} for _ in range(3)], on_delivery=reports)
    assert producer.flush(30) == 0
    producer.produce_batch("t", [{"value": b"x"} for _ in range(4)], on_delivery=reports)
    assert producer.flush(30) == 0
    producer.produce_all("t", [b"x"] * 4, on_delivery=reports)
    assert producer.flush(30) == 0
    assert Counter(reports.partitions) == dict.fromkeys(range(PARTITIONS), 2)


def test_callbacks_and_arguments_are_the_clients_own() -> None:
    by_default, own = Reports(), Reports()
    for name in ("node", "sqf-inflight"):
        by_default.partitions, own.partitions = [], []
        producer = BalancedProducer({**IN_MEMORY, "on_delivery": by_default}, partitioner=name)
        producer.produce("t", b"x")
        producer.produce("t", b"x", None, on_delivery=own, timestamp=1_700_000_000_000, headers={"a": b"1"})
        producer.produce("t")
        assert len(producer) > 0
        assert producer.flush(30) == 0
        assert (len(by_default.partitions), len(own.partitions)) == (2, 1)
    with pytest.raises(TypeError):
        producer.produce()  # type: ignore[call-arg]
    assert isinstance(producer, Producer)


def test_batches_are_spread_like_single_records() -> None:
    producer, reports = BalancedProducer(IN_MEMORY, partitioner="node"), Reports()
    messages: list[dict[str, Any]] = [{"value": b"x"} for _ in range(90)]
    assert producer.produce_batch("t", messages, on_delivery=reports) == 90
    assert producer.flush(30) == 0
    assert spread(producer, reports.partitions) <= 1
    messages = [{"value": b"x", "partition": 2}, {"value": b"x", "callback": reports}]
    listening = BalancedProducer(IN_MEMORY, partitioner="sqf-inflight")
    reports.partitions.clear()
    assert listening.produce_batch("t", messages, on_delivery=reports) == 2
    assert listening.flush(30) == 0
    assert len(reports.partitions) == 2


@pytest.mark.parametrize("name", ["node", "sqf", "sqf-inflight"])
def test_many_values_at_once_wait_for_room_and_keep_their_order(name: str) -> None:
    """The queue has room for 7: every value is taken once, in order within its partition."""
    found: dict[int, list[int]] = {}
    config = {
        **IN_MEMORY,
        "queue.buffering.max.messages": 7,
        "on_delivery": lambda error, message: found.setdefault(message.partition(), []).append(int(message.value())),
    }
    producer = BalancedProducer(config, partitioner=name)
    producer.produce_all("t", [str(n) for n in range(100)])
    producer.produce_all("t", [])
    assert producer.flush(30) == 0
    assert sorted(n for numbers in found.values() for n in numbers) == list(range(100))
    assert all(numbers == sorted(numbers) for numbers in found.values())
    if name != "sqf-inflight":
        assert spread(producer, [p for p, numbers in found.items() for _ in numbers]) <= 1


@pytest.mark.parametrize("kind", [UserList, tuple, deque])
def test_many_values_may_be_any_sequence_and_none_is_lost_when_the_queue_is_full(kind: Any) -> None:
    """Not every sequence's iterator says how much is left, and a deque cannot be sliced."""
    found: list[int] = []
    config = {
        **IN_MEMORY,
        "queue.buffering.max.messages": 7,
        "on_delivery": lambda error, message: found.append(int(message.value())),
    }
    producer = BalancedProducer(config, partitioner="node")
    producer.produce_all("t", kind(str(n) for n in range(100)))
    assert producer.flush(30) == 0
    assert sorted(found) == list(range(100))


def test_producers_in_several_threads_share_one_sqf() -> None:
    """B-36: each sends alone for a while, so only together are the nodes level."""
    brokers, shared, reports = InMemory(), build_partitioner("sqf"), Reports()
    brokers.create("t")
    config = {"bootstrap.servers": brokers.address, "log_level": 0}
    producers = [BalancedProducer(config, partitioner=shared) for _ in range(3)]

    def produce(producer: BalancedProducer) -> None:
        for _ in range(1000):
            producer.produce("t", b"x", on_delivery=reports)
        assert producer.flush(30) == 0

    threads = [threading.Thread(target=produce, args=(producer,)) for producer in producers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reports.partitions) == 3000
    assert spread(producers[0], reports.partitions) <= 30  # a thread that is interrupted while it counts loses a record


def test_a_topic_that_nobody_knows_is_left_to_the_client() -> None:
    failures: list[object] = []
    nowhere = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 500, "log_level": 0}
    producer = BalancedProducer(nowhere, partitioner="node", answer_s=0.2)
    producer.produce("t", b"x", on_delivery=lambda error, message: failures.append(error))
    assert producer.flush(30) == 0
    assert len(failures) == 1
    assert failures[0] is not None


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigError, match="acknowledgements"):
        BalancedProducer({**IN_MEMORY, "delivery.report.only.error": True}, partitioner="sqf-inflight")
    with pytest.raises(ConfigError, match="above 0"):
        BalancedProducer(IN_MEMORY, refresh_s=0)
    with pytest.raises(ConfigError, match="nodes"):
        BalancedProducer(IN_MEMORY, partitioner="nodes")


def test_transactions_are_the_clients_own() -> None:
    producer, reports = BalancedProducer({**IN_MEMORY, "transactional.id": "t"}, partitioner="sqf"), Reports()
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(30):
        producer.produce("t", b"x", on_delivery=reports)
    producer.commit_transaction(30)
    assert spread(producer, reports.partitions) <= 1


def test_the_example_sends_what_it_reads(tmp_path: Path) -> None:
    with_brokers = Producer(IN_MEMORY)
    addresses = [f"{b.host}:{b.port}" for b in with_brokers.list_topics(timeout=30).brokers.values()]
    lines = tmp_path / "lines"
    lines.write_text("a\nb\nc\n")
    with lines.open() as read:
        ran = subprocess.run([sys.executable, EXAMPLE, ",".join(addresses), "t"], stdin=read, check=False, timeout=60)
    assert ran.returncode == 0
    consumer = Consumer({"bootstrap.servers": addresses[0], "group.id": "g", "log_level": 0})
    consumer.assign([TopicPartition("t", p, 0) for p in range(PARTITIONS)])
    found = [message.value() for message in consumer.consume(3, 30)]
    consumer.close()
    assert sorted(value for value in found if value) == [b"a", b"b", b"c"]


def test_a_partitioner_that_fails_in_the_background_leaves_the_last_choices(caplog: pytest.LogCaptureFixture) -> None:
    client, views = Producer(IN_MEMORY), list[ClusterView]()

    def takes_one(view: ClusterView) -> None:
        if views:
            raise ConfigError("no room")
        views.append(view)

    follower = Follower(lambda: client, takes_one, every_s=60, answer_s=30)
    follower.include("t")
    with pytest.raises(ConfigError, match="no room"):
        follower.include("another")
    follower._topics |= {"another"}
    follower.look()
    until = time.monotonic() + 30
    while "no room" not in caplog.text and time.monotonic() < until:
        time.sleep(0.01)
    assert "the last one stands" in caplog.text
    assert list(views[0].partitions) == ["t"]
    follower.end()


def test_following_keeps_no_producer_alive() -> None:
    producer = BalancedProducer(IN_MEMORY, partitioner="node", refresh_s=60)
    producer.produce("t", b"x")
    assert producer.flush(30) == 0
    gone = weakref.ref(producer)
    del producer
    gc.collect()
    assert gone() is None
