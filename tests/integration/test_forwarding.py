"""The forwarder as a member of a group, between two clusters in memory, where joining alone takes seconds."""

import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from headgate.collectors.placement import KeepPartitions
from headgate.collectors.progress import Progress
from headgate.errors import ForwardingError
from tests.clusters_in_memory import PARTITIONS, QUICK, TIMESTAMP_MS, InMemory, Pair


@pytest.fixture
def pair() -> Pair:
    return Pair.with_topics("t")


HEADERS = [("a", b"1"), ("a", b"2"), ("none", None)]


@dataclass
class Forwarded:
    """One run over three topics, with more records than are taken in one turn (AT_ONCE)."""

    done: Progress
    found: dict[str, list[Any]]
    committed: dict[str, dict[int, int]]


@pytest.fixture(scope="module")
def forwarded() -> Forwarded:
    records = {"odd": 4, "spread": 400, "keyed": 204}
    pair = Pair.with_topics(*records)
    pair.source.write("odd", 1, b"value", None, b"", key=b"key", headers=HEADERS, timestamp=TIMESTAMP_MS)
    pair.source.write("odd", 3, b"empty key", key=b"")
    pair.source.write("spread", 2, *(b"%d" % n for n in range(400)))
    for partition in range(PARTITIONS):
        pair.source.write("keyed", partition, b"x", key=b"key %d" % partition)
        pair.source.write("keyed", partition, *[b"y"] * 50)
    done = pair.forward(sum(records.values()), *records, partitioner="default-rr")
    found = {topic: pair.target.read(topic, count) for topic, count in records.items()}
    return Forwarded(done, found, {topic: pair.source.committed(topic) for topic in records})


def test_records_arrive_with_keys_headers_and_timestamps(forwarded: Forwarded) -> None:
    odd = [m for m in forwarded.found["odd"] if m.key() == b"key"]
    assert [(m.value(), m.headers(), m.timestamp()[1]) for m in odd] == [
        (value, HEADERS, TIMESTAMP_MS) for value in (b"value", None, b"")
    ]
    (empty,) = (m for m in forwarded.found["odd"] if m.key() == b"")
    assert (empty.value(), empty.partition(), empty.headers()) == (b"empty key", 3, None)


def test_everything_is_acknowledged_and_committed_at_the_end(forwarded: Forwarded) -> None:
    assert (forwarded.done.records, forwarded.done.in_flight, forwarded.done.skipped) == (608, 0, 0)
    assert forwarded.committed == {"odd": {1: 3, 3: 1}, "spread": {2: 400}, "keyed": dict.fromkeys(range(4), 51)}


def evenly(counts: Mapping[int, int]) -> bool:
    """Each new view of the cluster, one for every topic here, begins a new round."""
    return len(counts) == PARTITIONS and max(counts.values()) - min(counts.values()) <= 3


def test_records_without_a_key_are_spread_and_keep_their_order_in_every_partition(forwarded: Forwarded) -> None:
    numbers: dict[int, list[int]] = {}
    for message in forwarded.found["spread"]:
        numbers.setdefault(message.partition(), []).append(int(message.value()))
    assert sorted(n for found in numbers.values() for n in found) == list(range(400))
    assert evenly({p: len(found) for p, found in numbers.items()})
    assert all(found == sorted(found) for found in numbers.values())


def test_a_key_keeps_the_partition_its_producer_chose_while_others_are_spread(forwarded: Forwarded) -> None:
    found = forwarded.found["keyed"]
    assert {m.key(): m.partition() for m in found if m.key()} == {b"key %d" % p: p for p in range(PARTITIONS)}
    assert evenly(Counter(m.partition() for m in found if not m.key()))


def test_a_record_that_the_main_cluster_never_takes_is_not_passed_over(pair: Pair) -> None:
    """The third of five is too large for the client that writes: what is before it is committed, and no more."""
    pair.source.write("t", 0, b"0", b"1", b"x" * 5000, b"3", b"4")
    with pytest.raises(ForwardingError, match=r"t\[0\] offset 2"):
        pair.forward(5, "t", placement=KeepPartitions(), to_client={"message.max.bytes": "2000"})
    assert pair.source.committed("t") == {0: 2}


def test_what_the_main_cluster_does_not_acknowledge_is_not_committed_and_holds_up_the_rest(pair: Pair) -> None:
    """Two may be on their way, and the client that writes lingers for longer than anybody waits."""
    pair.source.write("t", 0, b"0", b"1", b"2", b"3")
    stop = threading.Event()

    def tell(progress: Progress) -> None:
        if progress.paused:
            stop.set()

    impatient = replace(QUICK, drain_s=0.2, in_flight_records=2)
    done = pair.forwarder(tell, "t", limits=impatient, to_client={"linger.ms": "60000"}).run(stop)
    assert (done.records, done.in_flight) == (0, 2)
    assert "2 more were not acknowledged" in done.farewell
    assert pair.source.committed("t") == {0: 0}


def test_several_levels_are_forwarders_one_after_the_other_and_whole_partitions_keep_their_order(pair: Pair) -> None:
    edge = InMemory()
    edge.create("t")
    edge.write("t", 1, *(b"%d" % n for n in range(50)), timestamp=TIMESTAMP_MS)
    with ThreadPoolExecutor() as first_level:
        first_level.submit(Pair(edge, pair.source).forward, 50, "t", placement=KeepPartitions())
        done = pair.forward(50, "t", placement=KeepPartitions())
    found = pair.target.read("t", 50)
    assert [(m.partition(), int(m.value())) for m in found] == [(1, n) for n in range(50)]
    assert {m.timestamp()[1] for m in found} == {TIMESTAMP_MS}
    assert done.delay_p50_s is not None
    assert done.delay_p50_s > time.time() - TIMESTAMP_MS / 1000 - 3600


def test_a_rebalance_while_paused_leaves_no_partition_paused_for_good(pair: Pair) -> None:
    """Acknowledgements come in during it, so there is room right after it."""
    pair.source.write("t", 0, b"0", b"1", b"2", b"3")
    stop, until = threading.Event(), time.monotonic() + 30
    rebalanced = False

    def tell(progress: Progress) -> None:
        nonlocal rebalanced
        if progress.paused and not rebalanced:
            rebalanced = True
            assert forwarder._producer.flush(30) == 0
            forwarder._assigned(forwarder._consumer, [])  # as a member that keeps its partitions is told
        elif progress.in_flight == progress.records == 2 or time.monotonic() > until:
            stop.set()

    few = replace(QUICK, in_flight_records=2, drain_s=0.2)
    forwarder = pair.forwarder(tell, "t", limits=few, to_client={"linger.ms": "60000"})
    done = forwarder.run(stop)
    assert (done.records, done.in_flight) == (2, 2)


@pytest.mark.parametrize("how", ["_revoked", "_lost"])
def test_what_was_not_sent_of_a_partition_that_is_given_up_is_never_sent_and_the_others_are_read_again(
    pair: Pair, how: str
) -> None:
    """The client holds three records of partition 0 and of 1 when partition 0 goes to another forwarder, who sends its
    records; later the client sends what it has."""
    pair.source.write("t", 0, b"0", b"1", b"2")
    pair.source.write("t", 1, b"10", b"11", b"12")
    stop, until = threading.Event(), time.monotonic() + 30
    given_up = False

    def tell(progress: Progress) -> None:
        nonlocal given_up
        if progress.in_flight == 6 and not given_up:
            getattr(forwarder, how)(forwarder._consumer, [TopicPartition("t", 0)])
            given_up = True
        elif progress.in_flight == 3 and given_up:
            assert forwarder._producer.flush(30) == 0
        elif progress.records == 3 or time.monotonic() > until:
            stop.set()

    patient = replace(QUICK, drain_s=0.2)
    forwarder = pair.forwarder(tell, "t", placement=KeepPartitions(), limits=patient, to_client={"linger.ms": "60000"})
    done = forwarder.run(stop)
    assert (done.records, done.in_flight) == (3, 0)
    assert [m.value() for m in pair.target.read("t", 3)] == [b"10", b"11", b"12"]
    assert pair.target.written("t") == {1: 3}
    assert pair.source.committed("t")[1] == 3
    assert pair.source.committed("t").get(0, 0) == 0


def test_a_partition_whose_offsets_begin_anew_is_forwarded_on(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """As after a topic was made anew: here reading is set back."""
    pair.source.write("t", 0, b"0", b"1", b"2")
    stop, until = threading.Event(), time.monotonic() + 30

    def tell(progress: Progress) -> None:
        if progress.records == 3 and progress.in_flight == 0:
            forwarder._consumer.seek(TopicPartition("t", 0, 0))
        elif progress.records >= 6 or time.monotonic() > until:
            stop.set()

    forwarder = pair.forwarder(tell, "t", placement=KeepPartitions())
    assert forwarder.run(stop).records >= 6
    assert [int(m.value()) for m in pair.target.read("t", 6)][:6] == [0, 1, 2, 0, 1, 2]
    assert pair.source.committed("t") == {0: 3}
    assert "t[0] begins anew at offset 0" in caplog.text
