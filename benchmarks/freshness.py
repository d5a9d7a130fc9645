"""How old records are when the lake shows them, at a steady light load, beside Spark's own streaming into Iceberg.

Both are set for it: the query starts its next micro-batch as soon as the last one is committed; the consumer gathers
for 50 ms at most, as docs/tune-and-calibrate.md advises (less makes more commits than it saves), and commits may follow
each other after 0.1 s.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pyspark.sql import SparkSession

from benchmarks import live, streaming
from benchmarks.ratio import Ratio, of_rounds
from headgate.controller.one_consumer import one_consumer
from headgate.kafka.embedded import EmbeddedKafka

PARTITIONS = 8
BYTES_PER_S = 60_000.0
ROUNDS = 2
WARM_UP_S, MEASURED_S, SETTLE_S = 15.0, 30.0, 5.0

Ages = npt.NDArray[np.float64]


def run() -> list[Ratio]:
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder) / "kafka", 1) as kafka:
        home = Path(folder)
        with (
            live.load(kafka.bootstrap, PARTITIONS, live.spread(PARTITIONS, BYTES_PER_S)),
            streaming.warm_session(home) as spark,
        ):
            rounds = [
                (_ours(home, kafka.bootstrap, spark, f"r{n}"), _streaming(home, kafka.bootstrap, spark, f"r{n}"))
                for n in range(ROUNDS + 1)  # the first warms the JVM up
            ][1:]
    what = f"age of records when committed, {BYTES_PER_S / 1e3:.0f} kB/s of 300 B JSON"
    results = []
    for q, target in ((50, None), (99, 0.8)):
        pairs = [(float(np.percentile(a, q)), float(np.percentile(b, q))) for a, b in rounds]
        results.append(of_rounds(f"p{q} {what}", streaming.NAME, pairs, target=target))
    return results


def _ours(home: Path, bootstrap: str, spark: SparkSession, name: str) -> Ages:
    pipeline = live.make_pipeline(
        home,
        name,
        bootstrap,
        start_from="latest",
        consumer="{wait_s: 50 ms}",
        lake="{commit_interval_s: 100 ms}",
    )
    with one_consumer(pipeline, lambda: spark) as consumer:
        first_ms, last_ms = _watch(lambda: consumer.listen(0.1))
    return live.ages_s(live.committed_files(pipeline), first_ms, last_ms, PARTITIONS)


def _streaming(home: Path, bootstrap: str, spark: SparkSession, name: str) -> Ages:
    table = f"{streaming.CATALOG}.db.{name}"
    source = {"subscribe": live.TOPIC, "startingOffsets": "latest"}
    query = streaming.start_query(spark, bootstrap, table, home / f"{name}-checkpoint", source)
    first_ms, last_ms = _watch(lambda: time.sleep(0.1))
    query.stop()
    files = spark.sql(
        f"SELECT e.data_file.file_path AS path, unix_millis(s.committed_at) AS at_ms "
        f"FROM {table}.entries e JOIN {table}.snapshots s ON e.snapshot_id = s.snapshot_id"
    )
    return live.ages_s([(row.path, row.at_ms) for row in files.collect()], first_ms, last_ms, PARTITIONS)


def _watch(wait: Callable[[], object]) -> tuple[int, int]:
    """The measured span, after the warm-up; ends once its records had time to land."""
    began_s = time.time()
    while time.time() < began_s + WARM_UP_S + MEASURED_S + SETTLE_S:
        wait()
    return int((began_s + WARM_UP_S) * 1000), int((began_s + WARM_UP_S + MEASURED_S) * 1000)
