"""Sustained speed of one consumer on a backlog of JSON records, parsed: beside Spark's own streaming into Iceberg with
Spark's Kafka connector and the same session, transform and batch size, and beside a bare Python loop that commits
nothing."""

import tempfile
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pajson
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Message, TopicPartition
from pyspark.sql import SparkSession

from benchmarks import live, streaming
from benchmarks.ratio import Ratio, of_rounds
from headgate.controller.one_consumer import one_consumer
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.internal_topics import Topics
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_pace import NoWaiting
from headgate.kafka.load_records import FixedSize
from headgate.model.messages import CommitRecord

PARTITIONS = 8
ROUNDS = 3
WARM_UP_BATCHES = 5
BATCH_BYTES = (5_000_000, 20_000_000)
COUNTED_BYTES = 400_000_000
"""Of each round, after the warm-up."""
ARROW_FIELDS = pa.schema(
    [
        ("id", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("amount", pa.float64()),
        ("padding", pa.string()),
    ]
)


def run() -> list[Ratio]:
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder) / "kafka", 1) as kafka:
        home = Path(folder)
        _fill(kafka.bootstrap, ((WARM_UP_BATCHES + 4) * max(BATCH_BYTES) + COUNTED_BYTES) // live.RECORD_BYTES)
        with streaming.warm_session(home) as spark:
            return list(_ratios(home, kafka.bootstrap, spark))


def _ratios(home: Path, bootstrap: str, spark: SparkSession) -> Iterator[Ratio]:
    for batch_bytes in BATCH_BYTES:
        rounds = []
        for number in range(ROUNDS + 1):  # the first warms the JVM up, which takes it some forty batches
            name = f"b{batch_bytes}x{number}"
            ours = _ours(home, bootstrap, spark, name, batch_bytes, "auto")
            query = _streaming(home, bootstrap, spark, name, batch_bytes)
            loop = _loop(home, bootstrap, name, batch_bytes)
            same = _ours(home, bootstrap, spark, f"{name}c", batch_bytes, "connector")
            rounds.append((ours, query, loop, same))
        what = f"speed of one consumer, batches of {batch_bytes / 1e6:.0f} MB of 300 B JSON"
        by_connector = f"{what}, Spark's connector"
        for label, place, peer, peers_place, target in (
            (what, 0, streaming.NAME, 1, 1.2),
            (what, 0, "confluent-kafka + pyarrow loop", 2, 0.6),
            (by_connector, 3, streaming.NAME, 1, 1.2),
        ):
            pairs = [(speeds[place], speeds[peers_place]) for speeds in rounds[1:]]
            yield of_rounds(label, peer, pairs, "MB/s", "higher", target)


def _fill(bootstrap: str, records: int) -> None:
    load = live.spread(PARTITIONS, 1e7)
    LoadGenerator(bootstrap, {}, {live.TOPIC: PARTITIONS}, load, FixedSize(live.RECORD_BYTES), pace=NoWaiting()).run(
        count=records
    )


def _ours(home: Path, bootstrap: str, spark: SparkSession, name: str, batch_bytes: int, reader: str) -> float:
    """MB per second that were committed, from the first commit after the warm-up to the last one while it still read:
    what is only announced by then does not count."""
    pipeline = live.make_pipeline(home, name, bootstrap, consumer=f"{{batch_bytes: {batch_bytes}, reader: {reader}}}")
    warm_up = WARM_UP_BATCHES * batch_bytes
    with one_consumer(pipeline, lambda: spark) as consumer:
        while sum(c.payload_bytes for c in consumer.cycles) < warm_up + COUNTED_BYTES and consumer.is_alive:
            consumer.listen(0.1)
        still_read_ms = consumer.cycles[-1].at_ms
    commits = [c for c in live.told(pipeline, Topics(pipeline.name).commits, CommitRecord) if c.at_ms <= still_read_ms]
    committed = list(accumulate(c.payload_bytes for c in commits))
    first = next(n for n, sum_bytes in enumerate(committed) if sum_bytes >= warm_up)
    return (committed[-1] - committed[first]) / 1e6 / ((commits[-1].at_ms - commits[first].at_ms) / 1000)


def _streaming(home: Path, bootstrap: str, spark: SparkSession, name: str, batch_bytes: int) -> float:
    """MB per second of the micro-batches after the warm-up, as the query itself reports them."""
    records = batch_bytes // live.RECORD_BYTES
    source = {"subscribe": live.TOPIC, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(records)}
    table = f"{streaming.CATALOG}.db.{name}"
    query = streaming.start_query(spark, bootstrap, table, home / f"{name}-checkpoint", source)
    wanted = WARM_UP_BATCHES + COUNTED_BYTES // batch_bytes
    streaming.wait_for_batch(query, wanted)
    done = [p for p in query.recentProgress if WARM_UP_BATCHES <= p["batchId"] < wanted]
    query.stop()
    seconds = sum(p["durationMs"]["triggerExecution"] for p in done) / 1000
    return float(sum(p["numInputRows"] for p in done) * live.RECORD_BYTES / 1e6 / seconds)


def _loop(home: Path, bootstrap: str, name: str, batch_bytes: int) -> float:
    """MB per second of the shortest loop that reads, parses and writes Parquet, once warm."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(live.TOPIC, n, 0) for n in range(PARTITIONS)])
    options = pajson.ParseOptions(explicit_schema=ARROW_FIELDS, unexpected_field_behavior="ignore")
    per_batch, batches = batch_bytes // live.RECORD_BYTES, COUNTED_BYTES // batch_bytes
    began = 0.0
    for turn in range(WARM_UP_BATCHES + batches):
        if turn == WARM_UP_BATCHES:
            began = time.perf_counter()
        messages: list[Message] = []
        while len(messages) < per_batch:
            messages += consumer.consume(min(10_000, per_batch - len(messages)), 1.0)
        lines = pa.py_buffer(b"\n".join(m.value() or b"" for m in messages))
        read = pajson.ReadOptions(block_size=max(1 << 20, lines.size // 2))
        table = pajson.read_json(pa.BufferReader(lines), read, options)
        table = table.append_column("_kafka_partition", pa.array([m.partition() for m in messages], pa.int32()))
        table = table.append_column("_offset", pa.array([m.offset() for m in messages], pa.int64()))
        table = table.append_column("_timestamp", pa.array([m.timestamp()[1] for m in messages], pa.timestamp("ms")))
        pq.write_table(table, home / f"{name}-{turn}.parquet", compression="zstd")
    seconds = time.perf_counter() - began
    consumer.close()
    return batches * per_batch * live.RECORD_BYTES / 1e6 / seconds
