"""How old records are when the lake shows them, at a steady light load: beside Spark's own streaming into Iceberg.

Both are asked to be quick: the query starts its next micro-batch as soon as the last one is committed, the consumer
gathers for 0.2 s and commits may follow each other after 0.5 s.
"""

import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.one_consumer import one_consumer
from benchmarks.ratio import Ratio, of_rounds
from benchmarks.streaming import start_query, streaming_session
from headgate.config.loader import load_pipeline
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_records import FIELDS_DDL, FixedSize
from headgate.lake.tables import open_catalog
from headgate.model import TopicPartition
from headgate.simulation.workload import Steady

PARTITIONS = 8
BYTES_PER_S = 60_000.0
ROUNDS = 3
WARM_UP_S = 15.0
MEASURED_S = 30.0


def run() -> list[Ratio]:
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder) / "kafka", 1) as kafka:
        home = Path(folder)
        with _light_load(kafka.bootstrap), streaming_session(home) as spark:
            rounds = [
                (_ours(home, kafka.bootstrap, spark, f"r{n}"), _streaming(home, kafka.bootstrap, spark, f"r{n}"))
                for n in range(ROUNDS)
            ]
    what = f"age of records when committed, {BYTES_PER_S / 1e3:.0f} kB/s of 300 B JSON"
    peer = "Structured Streaming into Iceberg"
    return [
        of_rounds(f"p{percent} {what}", peer, [(np.percentile(a, percent), np.percentile(b, percent)) for a, b in rounds])
        for percent in (50, 99)
    ]
