"""Commits do not multiply with consumers: commits per second of eight against those of one, at the same load."""

import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import live, streaming
from benchmarks.ratio import Ratio, of_rounds
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.load_records import FIELDS_DDL
from headgate.model.messages import LedgerState
from tests.integration.pipeline_harness import PipelineRun

PARTITIONS = 8
BYTES_PER_S = 100_000.0
ROUNDS = 3
WARM_UP_S, MEASURED_S = 20.0, 40.0


def run() -> list[Ratio]:
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder) / "kafka", 1) as kafka:
        home = Path(folder)
        with (
            live.load(kafka.bootstrap, PARTITIONS, live.spread(PARTITIONS, BYTES_PER_S)),
            streaming.warm_session(home) as spark,
        ):
            rounds = [
                (_commits_per_s(home / f"8x{n}", kafka, spark, 8), _commits_per_s(home / f"1x{n}", kafka, spark, 1))
                for n in range(ROUNDS)
            ]
    return [of_rounds("commits per second, 8 consumers", "1 consumer", rounds, "/s", target=1.1)]


def _commits_per_s(folder: Path, kafka: EmbeddedKafka, spark: SparkSession, consumers: int) -> float:
    folder.mkdir()
    tables = [{"name": live.TABLE, "format": "json", "schema": FIELDS_DDL}]
    with PipelineRun(
        folder,
        kafka,
        spark,
        tables,
        consumers=consumers,
        topics_pattern=live.TOPIC,
        start_from="latest",
        lake={"commit_interval_s": "1 s"},
        consumer={"wait_s": "1 s"},
    ) as run:
        run.committer()
        parts = run.partitions()
        for n in range(consumers):
            run.worker(n + 1, own=parts[n::consumers])
        time.sleep(WARM_UP_S)
        began_ms = time.time() * 1000
        time.sleep(MEASURED_S)
        states = run.messages(run.names.ledger, LedgerState)
        measured = [s for s in states if s.at_ms >= began_ms]
        run.stop()
    first, last = (measured[n].following.as_dict if measured else {} for n in (0, -1))
    if stood := [p for p in parts if not first.get(p, 0) < last.get(p, 0)]:
        raise RuntimeError(f"{consumers} consumers did not read {stood}")
    commits = len({s.snapshot_id for s in measured})
    return commits / MEASURED_S
