"""What a partitioner costs a producer: against confluent-kafka's plain produce, record by record, in one run.

`python -m benchmarks producers` runs this alone. Three brokers, 100-byte records, acks=1; a round sends and flushes the
same number of records with each producer in turn.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import look_ups
from benchmarks.ratio import Ratio, of_rounds
from headgate.kafka.embedded import EmbeddedKafka
from headgate.producers.choices import Choices
from headgate.producers.confluent import BalancedProducer
from headgate.producers.protocol import ClusterView
from headgate.producers.registry import build_partitioner
from headgate.topology.cluster import Node, Partition, Topic, Topology

NAMES = ("client", "default-rr", "node", "sqf", "sqf-host", "sqf-inflight")
PLAIN = "plain produce"
REPORTED = "plain produce with on_delivery"
RECORD = b"x" * 100
RECORDS = 100_000
ROUNDS, WARM_UP = 15, 2
LARGE = (100, 1_000, 10)
"""Nodes, topics, and partitions of each topic."""


def run() -> list[Ratio]:
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder) / "kafka", 3) as kafka:
        return [*throughput(kafka.bootstrap), *swaps(), *look_ups.run()]


def throughput(bootstrap: str, rounds: int = ROUNDS) -> list[Ratio]:
    with producers_on(bootstrap) as producers:
        names = list(producers)
        elapsed: dict[str, list[float]] = {name: [] for name in names}
        worked: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(WARM_UP + rounds):
            first = turn % len(names)  # everybody is first once, and follows everybody
            for name in names[first:] + names[:first]:
                elapsed_s, worked_s = measured_s(producers[name])
                if turn >= WARM_UP:
                    elapsed[name].append(elapsed_s)
                    worked[name].append(worked_s)
    measured = {f"{RECORDS:,} records until acknowledged": elapsed, "... processor time of the client": worked}
    return [
        of_rounds(f"{name}: {what}", peer, list(zip(times[name], times[peer], strict=True)))
        for what, times in measured.items()
        for name in names
        for peer in [REPORTED if name.endswith("on_delivery") else PLAIN]
        if name not in (PLAIN, REPORTED)
    ]


@contextmanager
def producers_on(bootstrap: str) -> Iterator[dict[str, Callable[[], None]]]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("bench", 6, replica_assignment=[[1], [2], [3], [1], [2], [3]])])["bench"].result(30)
    config = {
        "bootstrap.servers": bootstrap,
        "acks": 1,
        "queue.buffering.max.messages": 2 * RECORDS,
        "queue.buffering.max.kbytes": 1_000_000,
        "log_level": 0,
    }
    balanced = {name: BalancedProducer(config, partitioner=name) for name in NAMES}
    plain = Producer(config)
    yield {
        PLAIN: one_by_one(plain),
        REPORTED: one_by_one_reported(plain),
        **{name: one_by_one(producer) for name, producer in balanced.items()},
        **{f"{name}, produce_all": at_once(balanced[name]) for name in ("node", "sqf")},
        **{f"{name}, on_delivery": one_by_one_reported(balanced[name]) for name in ("client", "node", "sqf")},
    }
    for producer in balanced.values():
        producer.close()


def measured_s(send: Callable[[], None]) -> tuple[float, float]:
    """Time passed, and processor time of all threads of this process."""
    began, worked = time.perf_counter(), time.process_time()
    send()
    return time.perf_counter() - began, time.process_time() - worked


def one_by_one(producer: Producer) -> Callable[[], None]:
    def send() -> None:
        produce = producer.produce
        for _ in range(RECORDS):
            produce("bench", RECORD)
        assert producer.flush(300) == 0

    return send


def one_by_one_reported(producer: Producer) -> Callable[[], None]:
    """As programs do that want to know what became of their records."""

    def send() -> None:
        produce, delivered = producer.produce, Delivered()
        for n in range(RECORDS):
            produce("bench", RECORD, on_delivery=delivered)
            if n % 100 == 0:
                producer.poll(0)
        assert producer.flush(300) == 0
        assert delivered.records == RECORDS

    return send


class Delivered:
    def __init__(self) -> None:
        self.records = 0

    def __call__(self, error: KafkaError | None, _: Message) -> None:
        self.records += error is None


def at_once(producer: BalancedProducer) -> Callable[[], None]:
    def send() -> None:
        producer.produce_all("bench", [RECORD] * RECORDS)
        assert producer.flush(300) == 0

    return send


def swaps() -> list[Ratio]:
    """B-38: how long a change of the topology takes until the next record sees it."""
    nodes, topics, partitions = LARGE
    topology = Topology.of(
        map(Node, range(nodes)),
        (
            Topic(
                f"t{n}",
                tuple(Partition(p, (n + p) % nodes, ((n + p) % nodes,), ((n + p) % nodes,)) for p in range(partitions)),
            )
            for n in range(topics)
        ),
    )
    results = []
    for name in ("node", "sqf"):
        choices, rounds = Choices(build_partitioner(name)), []
        for _ in range(6):
            began = time.perf_counter()
            view = ClusterView.of(topology)
            read = time.perf_counter()
            choices.follow(view)
            rounds.append((time.perf_counter() - read, read - began))
        what = f"{name}: all choices anew, {nodes} nodes, {topics:,} topics, {topics * partitions:,} partitions"
        results.append(of_rounds(what, "making the view", rounds[1:]))  # the first one warms up
    return results
