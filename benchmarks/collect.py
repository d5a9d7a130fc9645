"""What a collector costs: the delay it adds to a record (B-43), and how much one forwarder can forward.

`python -m benchmarks collect` runs this alone. Two clusters of one broker, 100-byte records, acks=all. Delays
are from a record's timestamp to the main cluster's acknowledgement, by turns straight and through a collector.
"""

import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.ratio import Ratio, of_rounds
from headgate.collectors.clients import address, consumer_settings, open_producer
from headgate.collectors.delays import Delays
from headgate.collectors.forwarder import Forwarder, Limits
from headgate.collectors.placement import KeepKeys
from headgate.collectors.progress import Progress
from headgate.collectors.topics import Route, Wanted
from headgate.kafka.embedded import EmbeddedKafka
from headgate.producers.registry import build_partitioner

RECORD = b"x" * 100
ROUNDS, STEADY_S, RECORDS_PER_S = 5, 4.0, 500
BACKLOG, BACKLOG_ROUNDS = 100_000, 3
PARTITIONS = 4


def run() -> list[Ratio]:
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedKafka(Path(folder) / "collector", 1) as collector,
        EmbeddedKafka(Path(folder) / "main", 1) as main,
    ):
        return [*delays(collector.bootstrap, main.bootstrap), *backlogs(collector.bootstrap, main.bootstrap)]


def delays(collector: str, main: str) -> list[Ratio]:
    medians, tails = [], []
    for turn in range(ROUNDS + 1):  # the first one warms up
        topic = created(f"delay-{turn}", collector, main)
        straight = steadily(main, topic)
        write(collector, topic, 1)
        forwarding = Forwarding(collector, main, topic)
        forwarding.wait_for(1)  # nor is joining the group: one record does not make a 99th percentile
        steadily(collector, topic)
        through = forwarding.end(2 + straight.records)
        medians.append((through.delay_p50_s or 0.0, straight.quantile_s(0.5) or 0.0))
        tails.append((through.delay_p99_s or 0.0, straight.quantile_s(0.99) or 0.0))
    what, peer = f"acknowledged by the main cluster, {RECORDS_PER_S} records/s, through a collector", "straight to it"
    return [of_rounds(f"{what}: median", peer, medians[1:]), of_rounds(f"{what}: p99", peer, tails[1:])]


def backlogs(collector: str, main: str) -> list[Ratio]:
    rounds = []
    for turn in range(BACKLOG_ROUNDS + 1):
        topic = created(f"backlog-{turn}", collector, main)
        began = time.perf_counter()
        write(collector, topic, BACKLOG)
        written_s = time.perf_counter() - began
        forwarding = Forwarding(collector, main, topic)
        forwarding.wait_for(1)
        began, before = time.perf_counter(), forwarding.records
        forwarding.wait_for(BACKLOG)
        rounds.append(((BACKLOG - before) / (time.perf_counter() - began), BACKLOG / written_s))
        forwarding.end(BACKLOG)
    what, peer = f"forwarding {BACKLOG:,} records that wait", "plain produce, until acknowledged"
    return [of_rounds(what, peer, rounds[1:], "records/s", "higher")]


class Forwarding:
    """A forwarder in a thread."""

    def __init__(self, collector: str, main: str, topic: str) -> None:
        reading, writing = address(collector, {}, "--from-client"), address(main, {}, "--to-client")
        limits = Limits(tell_every_s=0.2)
        self._forwarder = Forwarder(
            consumer_settings(reading, topic),
            open_producer(writing, build_partitioner("sqf"), limits.in_flight_records),
            KeepKeys(),
            Route(reading, writing, Wanted((topic,)), create=False),
            limits,
            self._told,
        )
        self.records = 0
        self._stop, self._thread = threading.Event(), ThreadPoolExecutor(1)
        self._done = self._thread.submit(self._forwarder.run, self._stop)

    def _told(self, progress: Progress) -> None:
        self.records = progress.records

    def wait_for(self, records: int) -> None:
        while self.records < records and not self._done.done():
            time.sleep(0.01)

    def end(self, records: int) -> Progress:
        self.wait_for(records)
        self._stop.set()
        done = self._done.result()
        self._thread.shutdown()
        return done


def created(topic: str, *clusters: str) -> str:
    for cluster in clusters:
        admin = AdminClient({"bootstrap.servers": cluster, "log_level": 0})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    return topic


def write(cluster: str, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": cluster, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})
    for _ in range(records):
        producer.produce(topic, RECORD)
        producer.poll(0)
    assert producer.flush(120) == 0


def steadily(cluster: str, topic: str) -> Delays:
    """How long each record took until it was acknowledged."""
    took = Delays()
    producer = Producer({"bootstrap.servers": cluster, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})
    producer.produce(topic, RECORD)
    assert producer.flush(60) == 0  # connecting is not what is measured
    began, records = time.perf_counter(), round(STEADY_S * RECORDS_PER_S)
    for number in range(records):
        while (early_s := began + number / RECORDS_PER_S - time.perf_counter()) > 0:
            producer.poll(early_s)
        producer.produce(topic, RECORD, on_delivery=lambda error, message: took.add(message.latency() or 0.0))
    assert producer.flush(60) == 0
    return took
