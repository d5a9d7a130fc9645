"""A producer whose collector is lost, on librdkafka's clusters in memory."""

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
from confluent_kafka import KafkaError

from headgate.errors import ConfigError
from headgate.producers.fallback import FallbackProducer, unacknowledged
from headgate.producers.murmur2 import partition_of_key
from headgate.producers.protocol import ClusterView
from headgate.producers.registry import build_partitioner
from tests.clusters_in_memory import PARTITIONS, TIMESTAMP_MS, InMemory


def test_what_a_lost_collector_did_not_acknowledge_goes_to_the_main_cluster_in_order() -> None:
    collector, main = InMemory(), InMemory()
    for cluster in (collector, main):
        cluster.create("t")
    reports: list[tuple[Any, bytes]] = []
    producer = FallbackProducer(
        {"bootstrap.servers": collector.address, "log_level": 0},
        {"bootstrap.servers": main.address, "log_level": 0},
        lost_after_s=1,
    )

    def send(numbers: range) -> None:
        for n in numbers:
            producer.produce("t", b"%d" % n, "key", report, TIMESTAMP_MS, [("n", b"%d" % n)])
            producer.poll()

    def report(error: Any, message: Any) -> None:
        reports.append((error, message.value()))

    send(range(100))
    assert producer.flush(30) == 0
    assert not producer.direct
    assert len(collector.read("t", 100)) == 100
    del collector
    send(range(100, 200))
    until = time.monotonic() + 30
    while not producer.direct and time.monotonic() < until:
        producer.poll(0.05)
    send(range(200, 300))
    assert producer.flush(30) == 0
    producer.close()
    assert sorted(int(value) for _, value in reports) == list(range(300))
    assert {error for error, _ in reports} == {None}
    found = main.read("t", 200)
    assert [int(m.value()) for m in found] == list(range(100, 300))
    assert {m.partition() for m in found} == {partition_of_key(b"key", PARTITIONS)}
    assert all(m.headers() == [("n", m.value())] for m in found)
    assert {m.timestamp()[1] for m in found} == {TIMESTAMP_MS}


class Lost:
    """A producer whose collector is well, until it is lost."""

    def __init__(self, to_main: Any = None, to_collector: Any = None, **how: Any) -> None:
        self.collector: InMemory | None = InMemory()
        self.main = InMemory()
        for cluster in (self.collector, self.main):
            cluster.create("t")
        self.reports: dict[int, list[Any]] = {}
        collector = {"bootstrap.servers": self.collector.address, "log_level": 0, **(to_collector or {})}
        main = {"bootstrap.servers": self.main.address, "log_level": 0, **(to_main or {})}
        self.producer = FallbackProducer(collector, main, **{"lost_after_s": 1, **how})
        self.producer.produce("t", b"the collector is well")
        assert self.producer.flush(30) == 0

    def lose(self) -> None:
        self.collector = None

    def send(self, number: int, key: str | None = None, padding: int = 0) -> None:
        def report(error: Any, message: Any) -> None:
            assert (int(message.value()), message.key()) == (number, key.encode() if key else None)
            self.reports.setdefault(number, []).append(error)

        self.producer.produce("t", b"%d" % number + b" " * padding, key, report)

    def until_direct(self) -> None:
        until = time.monotonic() + 30
        while not self.producer.direct:
            assert time.monotonic() < until
            self.producer.poll(0.05)

    def delivered(self) -> list[int]:
        """What the main cluster has, in order of its partitions, once every record has an answer."""
        assert self.producer.flush(60) == 0
        self.producer.close()
        taken = [number for number, errors in self.reports.items() if errors[0] is None]
        return [int(message.value()) for message in self.main.read("t", len(taken))]


def test_a_record_that_the_main_cluster_never_takes_is_reported_and_the_others_go_on_in_order() -> None:
    """The main cluster's client has room for seven records, and not for a large one."""
    lost = Lost(to_main={"message.max.bytes": 2000, "queue.buffering.max.messages": 7})
    lost.lose()
    for n in range(100):
        lost.send(n, "key", padding=5000 if n == 33 else 0)
    lost.until_direct()
    assert lost.delivered() == [n for n in range(100) if n != 33]
    (error,) = lost.reports.pop(33)
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert lost.reports == {n: [None] for n in range(100) if n != 33}


class Stumbles:
    """At its third record."""

    def __init__(self) -> None:
        self._asked = 0

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        self._asked += 1
        if self._asked == 3:
            raise ZeroDivisionError
        return 0


def test_a_partitioner_that_fails_takes_no_other_record_with_it_and_the_one_is_reported() -> None:
    lost = Lost(partitioner=Stumbles())
    lost.lose()
    for n in range(10):
        lost.send(n)
    assert lost.delivered() == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    (error,) = lost.reports.pop(2)
    assert error.code() == KafkaError._APPLICATION
    assert "ZeroDivisionError" in error.str()
    assert lost.reports == {n: [None] for n in range(10) if n != 2}


class Disappoints:
    """A user's report that fails, of the records it is given to."""

    def __call__(self, error: Any, message: Any) -> None:
        raise RuntimeError("the user's own")


def test_a_report_that_fails_keeps_no_other_record_from_being_reported() -> None:
    """Three records too large for the main cluster in a row; the first one's report raises."""
    lost = Lost(to_main={"message.max.bytes": 2000})
    lost.lose()
    lost.producer.produce("t", b" " * 5000, "key", Disappoints())
    for n in range(2):
        lost.send(n, "key", padding=5000)
    lost.send(2, "key")
    with pytest.raises(RuntimeError, match="the user's own"):
        lost.producer.flush(60)
    assert lost.delivered() == [2]
    assert [error.code() for n in range(2) for error in lost.reports[n]] == [KafkaError.MSG_SIZE_TOO_LARGE] * 2


def test_closing_ends_though_both_clusters_are_lost_and_reports_what_was_not_delivered() -> None:
    """The main cluster's client holds seven records, and the rest waits for room that never comes."""
    lost = Lost(to_main={"queue.buffering.max.messages": 7})
    lost.lose()
    del lost.main
    for n in range(20):
        lost.send(n, "key")
    closed = ThreadPoolExecutor(1).submit(lost.producer.close, 1.0)
    assert closed.result(60) == 20
    assert sorted(lost.reports) == list(range(20))
    purged = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
    assert all(error.code() in purged for (error,) in lost.reports.values())


def test_a_key_that_the_main_clusters_partitioner_refuses_is_refused_while_the_collector_is_well() -> None:
    well = Lost(partitioner="node")
    with pytest.raises(ConfigError, match="has a key"):
        well.send(0, "key")
    allowed = Lost(partitioner=build_partitioner("node", {"allow_keys": True}))
    for one in (well, allowed):
        one.send(1, "key" if one is allowed else None)
        assert one.producer.flush(30) == 0
        one.producer.close()
        assert one.reports == {1: [None]}


@pytest.mark.parametrize(
    ("code", "main_cluster_is_asked"),
    [
        (KafkaError._MSG_TIMED_OUT, True),
        (KafkaError._TRANSPORT, True),  # this and the next two: of a client with retries=0
        (KafkaError.NOT_LEADER_FOR_PARTITION, True),
        (KafkaError.NOT_ENOUGH_REPLICAS, True),
        (KafkaError.MSG_SIZE_TOO_LARGE, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
    ],
)
def test_the_main_cluster_is_asked_where_another_try_might_help(code: int, main_cluster_is_asked: bool) -> None:
    assert unacknowledged(KafkaError(code)) is main_cluster_is_asked


@pytest.fixture
def often() -> Iterator[None]:
    """Threads take turns a hundred times as often as usual."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(usual_s / 100)
    yield
    sys.setswitchinterval(usual_s)


@pytest.mark.usefixtures("often")
def test_threads_that_share_a_producer_keep_each_ones_order_and_nothing_comes_twice() -> None:
    """Each writes on while what the lost collector did not acknowledge is sent again."""
    lost, threads = Lost(), 4
    lost.lose()

    def write(first: int) -> int:
        """How many it wrote."""
        after = 0
        for written in count():
            if after == 500:
                return written
            after += lost.producer.direct
            lost.send(first + threads * written, "key")
            lost.producer.poll(0 if after else 0.001)
        raise AssertionError

    with ThreadPoolExecutor(threads) as several:
        written = [done.result(60) for done in [several.submit(write, first) for first in range(threads)]]
    found = lost.delivered()
    for first in range(threads):
        sent = [first + threads * n for n in range(written[first])]
        assert [n for n in found if n % threads == first] == sent
        assert [lost.reports[n] for n in sent] == [[None]] * len(sent)


class Hesitates:
    """With the first record, until another thread asks or half a second has passed."""

    def __init__(self) -> None:
        self.hesitates, self.overtaken = threading.Event(), threading.Event()

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        if self.hesitates.is_set():
            self.overtaken.set()
        else:
            self.hesitates.set()
            self.overtaken.wait(0.5)
        return 0


def test_no_thread_overtakes_another_that_is_sending_a_returned_record() -> None:
    """One thread is about to hand the lost collector's record 0 to the main cluster when the other produces record 1.
    Nothing waits any more, and nothing is at the collector; but 0 is not with the main cluster yet."""
    hesitates = Hesitates()
    lost = Lost(partitioner=hesitates)
    lost.lose()
    lost.send(0)
    with ThreadPoolExecutor(1) as other:
        polled = other.submit(lost.until_direct)
        assert hesitates.hesitates.wait(30)
        lost.send(1)
        polled.result(30)
    assert lost.delivered() == [0, 1]


def test_it_goes_back_to_the_collector_only_when_nothing_is_outstanding() -> None:
    """The collector is well and only lost what waited for it; the main cluster's client has room for one record, and
    keeps it until it is flushed. So records wait for it when the collector answers again."""
    slow = {"linger.ms": 60_000, "message.timeout.ms": 120_000}
    lost = Lost(to_main={**slow, "queue.buffering.max.messages": 1}, to_collector=slow, again_s=0.05)
    producer = lost.producer
    for n in range(4):
        lost.send(n, "key")
    producer._collector.purge()
    lost.until_direct()
    assert producer._back.wait(30)
    lost.send(4, "key")
    assert producer.direct
    assert producer.flush(60) == 0
    lost.send(5, "key")
    assert not producer.direct
    assert producer.flush(60) == 0
    producer.close()
    assert [int(message.value()) for message in lost.main.read("t", 5)] == [0, 1, 2, 3, 4]
    assert lost.collector is not None
    assert {message.value() for message in lost.collector.read("t", 2)} == {b"the collector is well", b"5"}
    assert lost.reports == {n: [None] for n in range(6)}


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigError, match="above 0"):
        FallbackProducer({}, {}, lost_after_s=0)
