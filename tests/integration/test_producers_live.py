"""Both bindings on a real cluster of three while a broker is killed and comes back: one story, looked at by many tests.

Node 1 leads partition 0, node 2 leads 1 and 2, node 3 leads 3. Without node 2 its partitions go to nodes 3 and 1.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from headgate.kafka.embedded import EmbeddedKafka
from headgate.producers.confluent import BalancedProducer
from headgate.producers.spark import BalancedSink
from tests.eventually import eventually

REPLICAS = [[1, 3], [2, 3], [2, 1], [3, 1]]
Leaders = dict[int, tuple[int, ...]]
HEALTHY: Leaders = {1: (0,), 2: (1, 2), 3: (3,)}
WITHOUT_2: Leaders = {1: (0, 2), 3: (1, 3)}
PHASES = {"before": HEALTHY, "away": WITHOUT_2, "back": HEALTHY}
NAMES = ("node", "sqf", "sqf-inflight")
RECORDS = 600
QUIET = {"log_level": 0}


@dataclass
class Story:
    delivered: dict[tuple[str, str], Counter[int]] = field(default_factory=dict)
    """By partitioner and phase, records per partition."""
    errors: list[object] = field(default_factory=list)
    sent_meanwhile: int = 0
    batches: int = 0
    found: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)
    """By topic, what is in Kafka: partition and value, in the order of each partition."""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Story]:
    with EmbeddedKafka(tmp_path_factory.mktemp("three"), 3) as kafka:
        yield told(kafka, spark, tmp_path_factory.mktemp("stream"))


def told(kafka: EmbeddedKafka, spark: SparkSession, checkpoint: Path) -> Story:
    story = Story()
    brokers: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.bootstrap, **QUIET}
    admin = AdminClient(brokers)
    topics = [*NAMES, "meanwhile", "spark-node", "spark-sqf", "stream"]
    for made in admin.create_topics([NewTopic(t, len(REPLICAS), replica_assignment=REPLICAS) for t in topics]).values():
        made.result(30)
    safe = {**brokers, "acks": "all", "enable.idempotence": True, "linger.ms": 5}
    producers = {name: BalancedProducer(safe, partitioner=name) for name in NAMES}
    sinks = {name: BalancedSink({"kafka.bootstrap.servers": kafka.bootstrap}, name) for name in ("node", "sqf")}

    over = threading.Event()
    meanwhile = threading.Thread(target=produce_until, args=(over, BalancedProducer(safe, partitioner="node"), story))
    meanwhile.start()
    stream = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=90, numPartitions=1)
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
        .writeStream.foreachBatch(sinks["node"].each_batch("stream"))
        .option("checkpointLocation", str(checkpoint))
        .start()
    )

    def write(phase: str) -> None:
        for name, producer in producers.items():
            eventually(partial(leads, producer, name, PHASES[phase]), f"{name} knows who leads {phase}")
            story.delivered[name, phase] = sent(producer, name, story.errors)
        for name, sink in sinks.items():
            rows = spark.range(0, RECORDS, 1, 3).selectExpr(f"CONCAT('{phase} ', id) AS value")
            sink.write(rows, f"spark-{name}")

    def batches() -> int:
        progress = stream.lastProgress
        return int(progress["batchId"]) + 1 if progress else 0

    def another_batch() -> None:
        last = batches()
        eventually(lambda: batches() > last + 1, "the stream goes on")

    for producer, name in zip(producers.values(), NAMES, strict=True):
        producer.produce(name, b"first")
        assert producer.flush(30) == 0
    write("before")
    another_batch()
    kafka.kill(2)
    write("away")
    another_batch()
    kafka.start()
    wanted = [TopicPartition(topic, p) for topic in topics for p in range(4)]
    eventually(lambda: in_sync(admin, topics), "node 2 is in sync")
    admin.elect_leaders(ElectionType.PREFERRED, wanted).result(30)
    write("back")
    another_batch()
    story.batches = batches()
    stream.stop()
    over.set()
    meanwhile.join(60)
    story.found = {topic: read(kafka.bootstrap, topic) for topic in topics}
    for name, phase in ((f"spark-{name}", phase) for name in sinks for phase in PHASES):
        counts = Counter(p for p, value in story.found[name] if value.startswith(phase.encode()))
        story.delivered[name, phase] = counts
    return story


def produce_until(over: threading.Event, producer: BalancedProducer, story: Story) -> None:
    """Numbered records without pause, also in the moment of the failure."""

    def delivered(error: object, _: object) -> None:
        if error is not None:
            story.errors.append(error)

    while not over.is_set():
        producer.produce("meanwhile", str(story.sent_meanwhile), on_delivery=delivered)
        story.sent_meanwhile += 1
        producer.poll(0)
        over.wait(0.002)
    assert producer.flush(60) == 0


def sent(producer: BalancedProducer, topic: str, errors: list[object]) -> Counter[int]:
    counts: Counter[int] = Counter()

    def delivered(error: object, message: object) -> None:
        if error is not None:
            errors.append(error)
        counts.update([message.partition()])  # type: ignore[attr-defined]

    for n in range(RECORDS):
        producer.produce(topic, str(n), on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    return counts


def leads(producer: BalancedProducer, topic: str, leaders: Leaders) -> bool:
    return producer.view is not None and producer.view.leaders.get(topic) == leaders


def in_sync(admin: AdminClient, topics: list[str]) -> bool:
    known = admin.list_topics(timeout=10).topics
    return all(len(p.isrs) == 2 for topic in topics for p in known[topic].partitions.values())


def read(bootstrap: str, topic: str) -> list[tuple[int, bytes]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "isolation.level": "read_committed", **QUIET}
    )
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in range(len(REPLICAS))}
    consumer.assign([TopicPartition(topic, p, 0) for p in ends])
    found: list[tuple[int, bytes]] = []
    until = time.monotonic() + 60
    while len(found) < sum(ends.values()):
        assert time.monotonic() < until, f"{len(found)} of {ends} read"
        found += [(m.partition() or 0, m.value() or b"") for m in consumer.consume(1000, 1.0) if m.error() is None]
    consumer.close()
    return found


def per_node(counts: Counter[int], phase: str) -> list[int]:
    return [sum(counts[p] for p in led) for led in PHASES[phase].values()]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", ["node", "sqf"])
def test_nodes_get_what_was_predicted_before_during_and_after(story: Story, name: str, phase: str) -> None:
    """B-24: a third of the records for each of three nodes, then a half for each of two; within a node the same."""
    counts = story.delivered[name, phase]
    nodes = per_node(counts, phase)
    assert sum(nodes) == RECORDS
    assert max(nodes) - min(nodes) <= 1
    for led in PHASES[phase].values():
        assert max(counts[p] for p in led) - min(counts[p] for p in led) <= 1


@pytest.mark.parametrize("phase", PHASES)
def test_a_partitioner_that_listens_leaves_no_node_out(story: Story, phase: str) -> None:
    nodes = per_node(story.delivered["sqf-inflight", phase], phase)
    assert sum(nodes) == RECORDS
    assert min(nodes) > 0


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", ["spark-node", "spark-sqf"])
def test_sparks_rows_are_spread_the_same_way(story: Story, name: str, phase: str) -> None:
    """Each of three tasks ends in the middle of a round; shares are described in thousandths."""
    nodes = per_node(story.delivered[name, phase], phase)
    assert sum(nodes) >= RECORDS
    assert max(nodes) - min(nodes) <= 12


def test_no_record_was_lost_or_out_of_order(story: Story) -> None:
    """The client may, very rarely, repeat what a leader that died had written, in its place (docs/producers.md)."""
    assert story.errors == []
    meanwhile = [(p, int(value)) for p, value in story.found["meanwhile"]]
    assert sorted(n for _, n in set(meanwhile)) == list(range(story.sent_meanwhile))
    for partition in range(len(REPLICAS)):
        numbers = [n for p, n in meanwhile if p == partition]
        assert numbers == sorted(numbers)
        assert numbers
    for name in NAMES:
        values = Counter(value for _, value in story.found[name])
        assert min(values[str(n).encode()] for n in range(RECORDS)) >= len(PHASES)


def test_no_row_of_a_batch_or_stream_was_lost_or_out_of_order(story: Story) -> None:
    for name in ("spark-node", "spark-sqf"):
        rows = Counter(value.decode() for _, value in story.found[name])
        assert rows.keys() == {f"{phase} {n}" for phase in PHASES for n in range(RECORDS)}
    streamed = [(p, int(value)) for p, value in story.found["stream"]]
    assert {n for _, n in streamed} >= set(range(90 * story.batches))
    for partition in range(len(REPLICAS)):
        numbers = [n for p, n in streamed if p == partition]
        assert numbers == sorted(numbers)
