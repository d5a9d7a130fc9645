"""A cycle's Spark work for one table against the shortest Spark program that reads the same ranges to Parquet."""

import json
import tempfile
from pathlib import Path

from benchmarks.ratio import Ratio, compare
from headgate.config.loader import load_pipeline
from headgate.consumer.files import Warehouse
from headgate.consumer.job import TableJob
from headgate.consumer.spark import start_session
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_pace import NoWaiting
from headgate.kafka.load_records import FIELDS_DDL, FixedSize
from headgate.model import Range, TopicPartition
from headgate.simulation.workload_shapes import Steady

PARTITIONS = 8
RECORDS_A_TURN = 250
TURNS, WARM_UP = 20, 15


def run() -> list[Ratio]:
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder) / "kafka", 1) as kafka:
        home = Path(folder)
        partitions = [TopicPartition("load", n) for n in range(PARTITIONS)]
        generator = LoadGenerator(
            kafka.bootstrap, {}, {"load": PARTITIONS}, Steady.spread(partitions, 1e6), FixedSize(500), pace=NoWaiting()
        )
        generator.run(count=PARTITIONS * RECORDS_A_TURN * (TURNS + WARM_UP))
        file = home / "pipeline.yaml"
        file.write_text(
            f"name: bench\nhome: {home}\nkafka: {{brokers: '{kafka.bootstrap}'}}\ntopics: [load]\n"
            f"tables:\n  - {{name: lake.load, format: json, schema: '{FIELDS_DDL}'}}\n"
        )
        pipeline = load_pipeline(file)
        spark = start_session("local[2]", home / "spark")
        job = TableJob(spark, pipeline, pipeline.tables[0], Warehouse(pipeline.lake))

        def ours(turn: int) -> None:
            first = turn * RECORDS_A_TURN
            result = job.run([Range(p, first, first + RECORDS_A_TURN) for p in partitions], f"turn-{turn}")
            assert result.stats.rows == PARTITIONS * RECORDS_A_TURN

        def bare(turn: int) -> None:
            start = {str(p.partition): turn * RECORDS_A_TURN for p in partitions}
            end = {str(p.partition): (turn + 1) * RECORDS_A_TURN for p in partitions}
            (
                spark.read.format("kafka")
                .option("kafka.bootstrap.servers", kafka.bootstrap)
                .option("kafka.group.id", "bench")
                .option("assign", json.dumps({"load": list(range(PARTITIONS))}))
                .option("startingOffsets", json.dumps({"load": start}))
                .option("endingOffsets", json.dumps({"load": end}))
                .load()
                .selectExpr(f"from_json(CAST(value AS STRING), '{FIELDS_DDL}') AS v", "topic", "offset")
                .select("v.*", "offset")
                .coalesce(1)
                .write.parquet(str(home / "bare" / str(turn)))
            )

        try:
            return [
                compare(
                    f"cycle of {PARTITIONS * RECORDS_A_TURN} JSON records",
                    ours,
                    "bare Spark read, from_json, Parquet",
                    bare,
                    TURNS,
                    WARM_UP,
                )
            ]
        finally:
            spark.stop()
