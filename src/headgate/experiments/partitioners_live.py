"""One run of the producer benchmark on real brokers (B-57): so many records, as fast as they go."""

import json
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from headgate import model
from headgate.errors import KafkaUnavailable
from headgate.experiments.partitioners_cases import SHARED, Cell, Layout, Loads
from headgate.experiments.partitioners_results import Client, Run, run_of
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.offsets import all_end_offsets
from headgate.producers.confluent import BalancedProducer
from headgate.producers.protocol import Partitioner
from headgate.producers.registry import build_partitioner

ANSWER_S = 60.0
DEADLINE_S = 90.0
"""For a cluster that recovers."""
FLUSH_S = 120.0
ROOM_S = 0.01
"""How long to wait for room in a full queue before another try."""
POLL_EVERY = 200
FREE = "free"
"""The client id of producers without a limit."""
STATISTICS_MS = 200
QUEUE_RECORDS = 20_000
"""The client's default, 100,000, is a large share of a run here: it would hide most of the time that a node takes."""
BROKER_SETTINGS: Mapping[str, str | int] = {
    "log.retention.check.interval.ms": 10_000,
    "log.segment.delete.delay.ms": 1_000,
    # Kafka forgives a producer what it sent too much for 10 s; a run is shorter than that.
    "quota.window.num": 2,
    "quota.window.size.seconds": 1,
}
TOPIC_SETTINGS = {"retention.bytes": str(64 * 1024**2), "segment.bytes": str(16 * 1024**2)}


@dataclass(frozen=True, slots=True)
class Size:
    records: int = 300_000
    record_bytes: int = 100

    @property
    def value(self) -> bytes:
        return b"x" * self.record_bytes


class Brokers:
    """A running embedded cluster with the topics of the experiment."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self.kafka, self.bootstrap = kafka, kafka.bootstrap
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self.find_processes()

    def find_processes(self) -> None:
        """Again after one was killed and started."""
        self._processes = [psutil.Process(b.pid) for b in self.kafka.status().brokers if b.pid is not None]

    def create(self, topics: Mapping[str, Layout]) -> None:
        new = [
            NewTopic(name, len(layout), replica_assignment=[list(r) for r in layout], config=TOPIC_SETTINGS)
            for name, layout in topics.items()
        ]
        for made in self.admin.create_topics(new).values():
            made.result(ANSWER_S)

    def bring_leaders_home(self) -> None:
        """Once every replica is in sync, the first of each partition leads again; waits until all do."""
        self._wait_until("all replicas in sync", lambda p: len(p.isrs) == len(p.replicas))
        known = self.admin.list_topics(timeout=ANSWER_S).topics
        partitions = [TopicPartition(name, index) for name, topic in known.items() for index in topic.partitions]
        self.admin.elect_leaders(ElectionType.PREFERRED, partitions).result(ANSWER_S)
        self._wait_until("all leaders at home", lambda p: p.leader == p.replicas[0])

    def _wait_until(self, what: str, holds: Callable[[PartitionMetadata], bool]) -> None:
        until_s = time.monotonic() + DEADLINE_S
        while True:
            topics = self.admin.list_topics(timeout=ANSWER_S).topics.values()
            if all(holds(partition) for topic in topics for partition in topic.partitions.values()):
                return
            if time.monotonic() > until_s:
                raise KafkaUnavailable(
                    f"not {what} after {DEADLINE_S:g} s: the machine may be overloaded, go on later with --resume"
                )
            time.sleep(0.1)

    def ends(self, topics: Mapping[str, Layout]) -> dict[tuple[str, int], int]:
        """Records ever written, by topic and partition."""
        asked = {model.TopicPartition(name, n) for name, rows in topics.items() for n in range(len(rows))}
        return {(at.topic, at.partition): end for at, end in all_end_offsets(self.admin, asked, ANSWER_S).items()}

    def written_since(
        self, before: Mapping[tuple[str, int], int], topics: Mapping[str, Layout], acknowledged: int
    ) -> dict[tuple[str, int], int]:
        """Kafka shows a record once all replicas in sync have it, which may be after the leader acknowledged it."""
        until_s = time.monotonic() + ANSWER_S
        while True:
            written = {at: end - before[at] for at, end in self.ends(topics).items()}
            if sum(written.values()) >= acknowledged:
                return written
            if time.monotonic() > until_s:
                raise KafkaUnavailable(
                    f"of {acknowledged} acknowledged records only {sum(written.values())} were on all replicas after "
                    f"{ANSWER_S:g} s: the machine may be overloaded, go on later with --resume"
                )
            time.sleep(0.02)

    def cpu_s(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self._processes)


class Reports:
    """Latencies of acknowledged records, and how many were given up."""

    def __init__(self) -> None:
        self.latencies_s, self.failed = array("d"), 0

    def __call__(self, error: Any, message: Any) -> None:
        if error is None:
            self.latencies_s.append(message.latency())
        else:
            self.failed += 1


@dataclass(frozen=True, slots=True)
class Lane:
    """A producer and the topic that it writes to."""

    topic: str
    producer: BalancedProducer


@contextmanager
def lanes_of(cell: Cell, brokers: Brokers, settings: Mapping[str, Any]) -> Iterator[list[Lane]]:
    """Connected, and knowing who leads: that would be a larger share of a short run than of a long one. What they sent
    for it is on all replicas, or it would count as the run's."""
    config = {"bootstrap.servers": brokers.bootstrap, "acks": cell.acks, "log_level": 0, **settings}
    lanes = [
        Lane(t, BalancedProducer(config, partitioner=p)) for t, p in zip(cell.topics, _partitioners(cell), strict=True)
    ]
    try:
        before, greetings = brokers.ends(cell.topics), Reports()
        for lane in lanes:
            for partition in range(len(cell.topics[lane.topic])):
                lane.producer.produce(lane.topic, b"", partition=partition, on_delivery=greetings)
            lane.producer.produce(lane.topic, b"", on_delivery=greetings)
            flush(lane.producer)
        brokers.written_since(before, cell.topics, len(greetings.latencies_s))
        yield lanes
    finally:
        for lane in lanes:
            lane.producer.close()


def _partitioners(cell: Cell) -> Sequence[str | Partitioner]:
    if cell.partitioner == SHARED:
        return [build_partitioner("sqf")] * len(cell.topics)
    return [cell.partitioner] * len(cell.topics)


def flush(producer: BalancedProducer) -> None:
    if left := producer.flush(FLUSH_S):
        raise KafkaUnavailable(
            f"{left} records were not acknowledged within {FLUSH_S:g} s: the machine may be overloaded, go on later "
            "with --resume"
        )


@dataclass(frozen=True, slots=True)
class LeadIn:
    """Records before those that count, and how long they and a pause after them take at least."""

    records: int = 0
    seconds: float = 0.0


def measure(
    cell: Cell,
    number: int,
    brokers: Brokers,
    size: Size,
    client_id: str = FREE,
    lead_in: LeadIn = LeadIn(),  # noqa: B008, a frozen value
) -> Run:
    """One run of a cell; records go to its topics in turn."""
    statistics: list[str] = []
    settings = {
        "client.id": client_id,
        "queue.buffering.max.messages": QUEUE_RECORDS,
        "statistics.interval.ms": STATISTICS_MS,
        "stats_cb": statistics.append,
    }
    with lanes_of(cell, brokers, settings) as lanes:
        until_s = time.monotonic() + lead_in.seconds
        before, leading = brokers.ends(cell.topics), Reports()
        send(lanes, lead_in.records, size.value, leading)
        for lane in lanes:
            flush(lane.producer)
        brokers.written_since(before, cell.topics, len(leading.latencies_s))  # or they would count as the run's
        time.sleep(max(0.0, until_s - time.monotonic()))
        reports, statistics[:] = Reports(), []
        ends, broker_s = brokers.ends(cell.topics), brokers.cpu_s()
        began, client_s = time.perf_counter(), time.process_time()
        send(lanes, size.records, size.value, reports)
        for lane in lanes:
            flush(lane.producer)
        seconds, client_s = time.perf_counter() - began, time.process_time() - client_s
        internal_ms, outbuf_ms, rtt_ms = spent_ms(statistics)
        client = Client(internal_ms, outbuf_ms, rtt_ms, client_s, brokers.cpu_s() - broker_s)
        written = brokers.written_since(ends, cell.topics, len(reports.latencies_s))
    led, held = landed(written, cell.topics)
    return run_of(
        cell, number, size.record_bytes, reports.latencies_s, reports.failed, seconds, led, held, client=client
    )


def send(lanes: Sequence[Lane], records: int, value: bytes, reports: Callable[[Any, Any], None]) -> None:
    for n in range(records):
        lane = lanes[n % len(lanes)]
        produce, topic = lane.producer.produce, lane.topic
        while True:
            try:
                produce(topic, value, on_delivery=reports)
                break
            except BufferError:
                lane.producer.poll(ROOM_S)
        if n % POLL_EVERY == 0:
            for other in lanes:
                other.producer.poll(0)


def landed(written: Mapping[tuple[str, int], int], topics: Mapping[str, Layout]) -> tuple[Loads, Loads]:
    """By node: records of partitions that it leads, and of all that it holds."""
    led: Loads = {}
    held: Loads = {}
    for (topic, partition), records in written.items():
        for place, node in enumerate(topics[topic][partition]):
            held[node] = held.get(node, 0) + records
            led[node] = led.get(node, 0) + (records if place == 0 else 0)
    return led, held


def spent_ms(statistics: Iterable[str]) -> list[float]:
    """Mean over all requests of the run's whole windows: in the queue, until sent, until answered."""
    windows = [
        broker[name]
        for text in statistics
        for broker in json.loads(text)["brokers"].values()
        for name in ("int_latency", "outbuf_latency", "rtt")
    ]
    return [_mean_ms(windows[start::3]) for start in range(3)]


def _mean_ms(windows: Sequence[Mapping[str, float]]) -> float:
    count = sum(window["cnt"] for window in windows)
    return sum(window["sum"] for window in windows) / count / 1000 if count else float("nan")
