"""Sustained speed of one consumer on a backlog of JSON records, parsed: beside Spark's own streaming into Iceberg with
the same connector, transform and batch size, and beside a bare Python loop that commits nothing."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pajson
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from benchmarks.ratio import Ratio, of_rounds
from headgate import jars
from headgate.config.loader import load_pipeline
from headgate.consumer.spark import start_session
from headgate.controller.one_consumer import one_consumer
from headgate.kafka.channel import Topics, ensure_topics
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.load import LoadGenerator, NoWaiting
from headgate.kafka.load_records import FIELDS_DDL, FixedSize
from headgate.model import TopicPartition as Partition
from headgate.simulation.workload import Steady

PARTITIONS = 8
RECORD_BYTES = 300
ROUNDS = 3
WARM_UP_BATCHES = 10
BATCHES = 30
BATCH_BYTES = (5_000_000, 20_000_000)
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
        _fill(kafka.bootstrap, (WARM_UP_BATCHES + BATCHES) * max(BATCH_BYTES) // RECORD_BYTES)
        catalog = {
            "spark.sql.catalog.peer": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.peer.type": "hadoop",
            "spark.sql.catalog.peer.warehouse": str(home / "peer"),
        }
        spark = start_session("local[2]", home / "spark", jar_sets=(jars.SPARK, jars.ICEBERG), conf=catalog)
        try:
            return list(_ratios(home, kafka.bootstrap, spark))
        finally:
            spark.stop()


def _ratios(home: Path, bootstrap: str, spark: SparkSession) -> Iterator[Ratio]:
    for batch_bytes in BATCH_BYTES:
        rounds = []
        for number in range(ROUNDS + 1):  # the first warms the JVM up, which takes it some forty batches
            name = f"b{batch_bytes}-{number}"
            ours = _ours(home, bootstrap, spark, name, batch_bytes)
            streaming = _streaming(home, bootstrap, spark, name, batch_bytes)
            rounds.append((ours, streaming, _loop(home, bootstrap, name, batch_bytes)))
        what = f"time per MB, batches of {batch_bytes / 1e6:.0f} MB of 300 B JSON"
        yield of_rounds(what, "Structured Streaming into Iceberg", [(ours, peer) for ours, peer, _ in rounds[1:]])
        yield of_rounds(what, "confluent-kafka + pyarrow loop", [(ours, peer) for ours, _, peer in rounds[1:]])


def _fill(bootstrap: str, records: int) -> None:
    everywhere = [Partition("load", n) for n in range(PARTITIONS)]
    spread = Steady.spread(everywhere, 1e7)
    LoadGenerator(bootstrap, {}, {"load": PARTITIONS}, spread, FixedSize(RECORD_BYTES), pace=NoWaiting()).run(
        count=records
    )


def _ours(home: Path, bootstrap: str, spark: SparkSession, name: str, batch_bytes: int) -> float:
    """Seconds per MB, from the end of the warm-up to the commit of the last batch."""
    file = home / f"{name}.yaml"
    file.write_text(
        f"name: {name}\nhome: {home / name}\nkafka: {{brokers: '{bootstrap}'}}\ntopics: [load]\n"
        f"consumer: {{batch_bytes: {batch_bytes}}}\n"
        f"tables:\n  - {{name: lake.load, format: json, schema: '{FIELDS_DDL}'}}\n"
    )
    pipeline = load_pipeline(file)
    ensure_topics(AdminClient({"bootstrap.servers": bootstrap}), Topics(pipeline.name), 1, 1)
    with one_consumer(pipeline, lambda: spark) as consumer:
        while len(consumer.cycles) <= WARM_UP_BATCHES + BATCHES and consumer.is_alive:
            consumer.listen(0.1)
    cycles = [c for c in consumer.cycles if c.peak]
    first, last = cycles[WARM_UP_BATCHES - 1], cycles[WARM_UP_BATCHES + BATCHES - 1]
    megabytes = sum(c.payload_bytes for c in cycles[WARM_UP_BATCHES : WARM_UP_BATCHES + BATCHES]) / 1e6
    return (last.at_ms - first.at_ms) / 1000 / megabytes


def _streaming(home: Path, bootstrap: str, spark: SparkSession, name: str, batch_bytes: int) -> float:
    """Seconds per MB of the micro-batches after the warm-up, as the query itself reports them."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "load")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch_bytes // RECORD_BYTES)
        .load()
        .selectExpr(
            f"from_json(CAST(value AS STRING), '{FIELDS_DDL}') AS v",
            "topic AS _topic",
            "partition AS _kafka_partition",
            "offset AS _offset",
            "timestamp AS _timestamp",
        )
        .select("v.*", "_topic", "_kafka_partition", "_offset", "_timestamp")
    )
    table = f"peer.db.`{name}`"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS peer.db")
    spark.createDataFrame([], records.schema).writeTo(table).create()
    query = records.writeStream.option("checkpointLocation", str(home / f"{name}-checkpoint")).toTable(table)
    wanted = WARM_UP_BATCHES + BATCHES
    while query.isActive and (query.lastProgress or {"batchId": 0})["batchId"] < wanted:
        time.sleep(0.2)
    done = [p for p in query.recentProgress if WARM_UP_BATCHES <= p["batchId"] < wanted]
    query.stop()
    seconds = sum(p["durationMs"]["triggerExecution"] for p in done) / 1000
    return float(seconds / (sum(p["numInputRows"] for p in done) * RECORD_BYTES / 1e6))


def _loop(home: Path, bootstrap: str, name: str, batch_bytes: int) -> float:
    """Seconds per MB of the shortest loop that reads, parses and writes Parquet, once warm."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("load", n, 0) for n in range(PARTITIONS)])
    options = pajson.ParseOptions(explicit_schema=ARROW_FIELDS, unexpected_field_behavior="ignore")
    per_batch = batch_bytes // RECORD_BYTES
    began = 0.0
    for turn in range(WARM_UP_BATCHES + BATCHES):
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
    return seconds / (BATCHES * per_batch * RECORD_BYTES / 1e6)
