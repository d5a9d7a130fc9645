"""The forwarder between two of librdkafka's clusters in memory, each topic with four partitions on either side."""

import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.collectors.clients import address, consumer_settings, open_producer
from headgate.collectors.forwarder import Forwarder, Limits
from headgate.collectors.metrics import RECORDS, DelayHistogram
from headgate.collectors.placement import Counts, KeepKeys, KeepPartitions, Placement
from headgate.collectors.progress import Account, Progress
from headgate.collectors.topics import Route, Wanted
from headgate.collectors.watermark import Watermark
from headgate.errors import ConfigError, ForwardingError, HeadgateError, KafkaUnavailable
from headgate.producers.murmur2 import partition_of_key
from headgate.producers.registry import build_partitioner

PARTITIONS = 4
QUICK = Limits(commit_every_s=0.05, tell_every_s=0.05, look_every_s=0.2, drain_s=5)
NOWHERE = "127.0.0.1:1"
TIMESTAMP_MS = 1_700_000_000_123
BOUNDS = ("0.005", "0.01", "300.0", "+Inf")


class InMemory:
    """A cluster that lives as long as this object."""

    def __init__(self) -> None:
        self._producer = Producer({"test.mock.num.brokers": 3, "log_level": 0})
        cluster = self._producer.list_topics(timeout=30)
        self.cluster_id, brokers = cluster.cluster_id, cluster.brokers.values()
        self.address = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def create(self, *topics: str) -> None:
        for topic in topics:
            self._producer.list_topics(topic, timeout=30)

    def write(self, topic: str, partition: int, *values: bytes | None, **others: Any) -> None:
        for value in values:
            self._producer.produce(topic, value, partition=partition, **others)
        assert self._producer.flush(30) == 0

    def read(self, topic: str, records: int) -> list[Any]:
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "reader", "log_level": 0})
        consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        found: list[Any] = []
        until = time.monotonic() + 30
        while len(found) < records and time.monotonic() < until:
            found += [message for message in consumer.consume(100, 0.1) if message.error() is None]
        consumer.close()
        return found

    def committed(self, topic: str, group: str = "g") -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group, "log_level": 0})
        found = consumer.committed([TopicPartition(topic, p) for p in range(PARTITIONS)], timeout=30)
        consumer.close()
        return {at.partition: at.offset for at in found if at.offset >= 0}


@dataclass
class Pair:
    source: InMemory
    target: InMemory

    def forwarder(
        self,
        tell: Any,
        *topics: str,
        partitioner: str = "node",
        placement: Placement | None = None,
        limits: Limits = QUICK,
        wanted: Wanted | None = None,
        to_client: dict[str, str] | None = None,
    ) -> Forwarder:
        reading = {**address(self.source.address, {}, "--from-client"), "log_level": 0, "heartbeat.interval.ms": 100}
        writing = {**address(self.target.address, to_client or {}, "--to-client"), "log_level": 0}
        return Forwarder(
            consumer_settings(reading, "g"),
            open_producer(writing, build_partitioner(partitioner), limits.in_flight_records),
            placement or KeepKeys(),
            Route(reading, writing, wanted or Wanted(topics), create=False),
            limits,
            tell,
        )

    def forward(self, records: int, *topics: str, **how: Any) -> Progress:
        """Until so many were acknowledged."""
        stop, until = threading.Event(), time.monotonic() + 60

        def tell(progress: Progress) -> None:
            if progress.records >= records or time.monotonic() > until:
                stop.set()

        return self.forwarder(tell, *topics, **how).run(stop)


@pytest.fixture
def pair() -> Pair:
    source, target = InMemory(), InMemory()
    for cluster in (source, target):
        cluster.create("t")
    return Pair(source, target)


HEADERS = [("a", b"1"), ("a", b"2"), ("none", None)]


@dataclass
class Forwarded:
    """One run over three topics, with more records than are taken in one turn (AT_ONCE)."""

    done: Progress
    found: dict[str, list[Any]]
    committed: dict[str, dict[int, int]]


@pytest.fixture(scope="module")
def forwarded() -> Forwarded:
    pair, records = Pair(InMemory(), InMemory()), {"odd": 4, "spread": 400, "keyed": 204}
    for topic in records:
        pair.source.create(topic)
        pair.target.create(topic)
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


def test_where_partition_counts_differ_a_key_goes_where_java_puts_it() -> None:
    placement = KeepKeys()
    placement.follow({"t": Counts(4, 7), "u": Counts(4, 4)})
    keys = [b"21", b"foobar", b"abc"]
    assert [placement.partition("t", 3, key) for key in keys] == [partition_of_key(key, 7) for key in keys]
    assert [placement.partition("u", 3, key) for key in keys] == [3, 3, 3]


def test_a_key_of_a_partition_that_the_main_cluster_does_not_have_goes_where_java_puts_it() -> None:
    """A fifth partition was added at the collector, and the last look was before that."""
    placement = KeepKeys()
    placement.follow({"t": Counts(4, 4)})
    assert placement.partition("t", 4, b"foobar") == partition_of_key(b"foobar", 4)


def test_keeping_partitions_asks_for_equal_counts(pair: Pair) -> None:
    assert KeepPartitions().refusal("t", Counts(4, 4)) is None
    forwarder = pair.forwarder(lambda _: None, "t", placement=KeepPartitions())
    with pytest.raises(ConfigError, match="4 partitions at the collector and 6"):
        forwarder._follow({"t": Counts(4, 6)})


def test_a_topic_that_cannot_keep_its_partitions_is_left_out_if_it_only_matches_a_pattern(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    forwarder = pair.forwarder(lambda _: None, wanted=Wanted(pattern="t|u"), placement=KeepPartitions())
    forwarder._follow({"t": Counts(4, 4), "u": Counts(4, 6)})
    assert forwarder._topics == {"t": Counts(4, 4)}
    assert "not forwarded: topic u has 4 partitions at the collector and 6" in caplog.text
    forwarder._follow({"t": Counts(4, 4), "u": Counts(6, 6)})
    assert forwarder._topics == {"t": Counts(4, 4), "u": Counts(6, 6)}
    with pytest.raises(ConfigError, match="topic t has 4"):
        forwarder._follow({"t": Counts(4, 5)})


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


def test_a_topic_that_appears_later_is_forwarded_once_the_main_cluster_has_it(pair: Pair) -> None:
    reading, writing = ({"bootstrap.servers": cluster.address} for cluster in (pair.source, pair.target))
    route = Route(reading, writing, Wanted(pattern="t|lat.*"), create=False)
    known = route.open()
    assert known == {"t": Counts(PARTITIONS, PARTITIONS)}
    pair.source.create("later")
    assert route.look(known) == known
    pair.target.create("later")
    assert route.look(known) == {**known, "later": Counts(PARTITIONS, PARTITIONS)}


def test_patterns_match_whole_names_and_leave_kafkas_own_topics_out() -> None:
    topics = {"web-a": 1, "web-b": 2, "aweb-c": 1, "__consumer_offsets": 50}
    assert Wanted(pattern="web-.*").among(topics) == ("web-a", "web-b")
    assert Wanted(pattern=".*").among(topics) == ("aweb-c", "web-a", "web-b")
    assert Wanted(("web-b", "web-a", "web-b")).among(topics) == ("web-a", "web-b")


def refusal(*words: str) -> HeadgateError:
    ended = CliRunner().invoke(app, ["collect", *words])
    assert isinstance(ended.exception, HeadgateError), (ended.exception, ended.output)
    return ended.exception


def test_what_can_never_work_is_refused_and_says_what_to_do(pair: Pair) -> None:
    a, b = pair.source.address, pair.target.address
    pair.source.create("only here")
    both = ["--from", a, "--to", b]
    assert "one cluster" in str(refusal("--from", a, "--to", a.split(",")[0], "--topic", "t"))
    assert "collector cluster has no topic x" in str(refusal(*both, "--topic", "x"))
    assert "--create" in str(refusal(*both, "--topic", "only here"))
    assert "matches" in str(refusal(*both, "--pattern", "x"))
    assert "regular expression" in str(refusal(*both, "--pattern", "("))
    assert "which topics" in str(refusal(*both))
    assert "which topics" in str(refusal(*both, "--topic", "t", "--pattern", "t"))
    assert "did you mean" in str(refusal(*both, "--topic", "t", "--partitioner", "nod"))
    assert "contradict" in str(refusal(*both, "--topic", "t", "--partitioner", "same", "--spread-keys"))
    assert "--group" in str(refusal(*both, "--topic", "t", "--from-client", "group.id=x"))
    assert "--to-client cannot be used" in str(refusal(*both, "--topic", "t", "--to-client", "no.such=1"))
    assert "--from-client cannot be used" in str(refusal(*both, "--topic", "t", "--from-client", "isolation.level=x"))
    assert "two clusters" in str(refusal(*both, "--topic", "t", "--to-client", "transactional.id=x"))
    careless = ["--to-client", "enable.idempotence=false", "--to-client", "acks=0"]
    assert "acks=0" in str(refusal(*both, "--topic", "t", *careless))


@pytest.mark.parametrize("option", ["--from-client", "--to-client"])
def test_a_setting_without_a_value_is_an_error_of_its_own_option(option: str) -> None:
    ended = CliRunner().invoke(app, ["collect", "--from", "a", "--to", "b", "--topic", "t", option, "foo"])
    assert ended.exit_code == 2
    assert f"{option} 'foo' must" in " ".join(ended.output.replace("│", "").split())


def test_forwarders_to_different_clusters_are_no_group(pair: Pair) -> None:
    reading = address(pair.source.address, {}, "--from-client")
    for target in (pair.target, InMemory()):
        writing = address(target.address, {}, "--to-client")
        assert Route(reading, writing, Wanted(("t",)), create=False).group() == f"headgate-collect-{target.cluster_id}"


@pytest.mark.parametrize(("which", "cluster"), [("--from", "collector cluster"), ("--to", "main cluster")])
def test_a_cluster_that_does_not_answer_is_named(pair: Pair, which: str, cluster: str) -> None:
    addresses = {"--from": pair.source.address, "--to": pair.target.address, which: NOWHERE}
    reading, writing = (address(brokers, {}, "--from-client") for brokers in addresses.values())
    with pytest.raises(KafkaUnavailable, match=rf"{cluster} \({which} {NOWHERE}\) did not answer within 0.3 s"):
        Route(reading, writing, Wanted(("t",)), create=False, answer_s=0.3).open()


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


def test_offsets_without_a_record_are_counted_if_it_is_known_where_reading_begins() -> None:
    known, unknown = Watermark(start=3), Watermark()
    assert [known.sent(offset) for offset in (5, 6, 10)] == [2, 0, 3]
    assert [unknown.sent(offset) for offset in (5, 6, 10)] == [0, 0, 3]
    started_anew = Watermark(start=100)
    assert [started_anew.sent(offset) for offset in (0, 1)] == [0, 0]


def test_delays_are_shown_as_a_histogram_that_took_many_at_once() -> None:
    """A clock that is behind makes a delay negative, which counts as none; 0.005 s is within the first bucket."""
    registry, delays = CollectorRegistry(), DelayHistogram()
    registry.register(delays)
    delays.observe_all([-1.0, 0.005, 0.006])
    delays.observe_all([400.0])
    shown = {
        bound: registry.get_sample_value("headgate_collect_delay_seconds_bucket", {"le": bound}) for bound in BOUNDS
    }
    assert shown == {"0.005": 2, "0.01": 3, "300.0": 3, "+Inf": 4}
    assert registry.get_sample_value("headgate_collect_delay_seconds_count") == 4
    assert registry.get_sample_value("headgate_collect_delay_seconds_sum") == pytest.approx(400.011)


def test_what_was_acknowledged_is_counted_for_every_topic() -> None:
    before = [RECORDS.labels(topic)._value.get() for topic in ("counted", "other")]
    account = Account(0.0)
    for topic, delay_s in (("counted", 0.1), ("counted", None), ("other", 0.3)):
        account.add(topic, delay_s)
    done = account.in_all(2.0, in_flight=0)
    assert (done.records, done.records_per_s, done.delay_max_s) == (3, 1.5, 0.3)
    after = [RECORDS.labels(topic)._value.get() for topic in ("counted", "other")]
    assert [now - then for now, then in zip(after, before, strict=True)] == [2, 1]


def test_offsets_are_sent_in_their_order() -> None:
    watermark = Watermark()
    watermark.sent(5)
    with pytest.raises(ValueError, match="offset 5 was sent after"):
        watermark.sent(5)
