"""After a step of the load: how long until every partition is read at its rate again, with consumers as processes.

For each partition that is when the age of its oldest unread record was highest: afterwards it falls. The paper's way
from the step to the last acknowledgement, t1 + t2 + t3 + t4, took 45 to 90 s.
"""

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks import live
from benchmarks.ratio import Ratio, of_limit
from headgate.config.clients import librdkafka_settings
from headgate.config.pipeline import Pipeline
from headgate.consumer import class_archive
from headgate.controller.service import Service
from headgate.kafka.channel import BEGINNING, Tail
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.internal_topics import Topics
from headgate.model import Announcement
from headgate.model.messages import ConsumerState

PARTITIONS = 6
CAPACITY, PACKED = 300_000, 240_000
BEFORE, ADDED = 200_000.0, 250_000.0
"""Bytes per second: one consumer is enough for the first, not for both."""
STEPS = 5
CALM_S, WATCHED_S = 12.0, 40.0
READY_S = 120.0
LIMITS = ((1, 5.0), (0, 15.0))
"""Warm spares, and the most seconds it may take."""


def run() -> list[Ratio]:
    class_archive.make()  # or the first fleet would have it made beside the first step
    results = []
    for spares, limit_s in LIMITS:
        took = []
        for turn in range(STEPS):
            with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder) / "kafka", 1) as kafka:
                took.append(_recovery_s(Path(folder), f"step{turn}", kafka.bootstrap, spares))
        what = "load step → every partition read at its rate, " + ("a warm spare" if spares else "no spare")
        results.append(of_limit(what, "the limit asked for (the paper: 45–90 s)", limit_s, took))
    return results


def _recovery_s(home: Path, name: str, bootstrap: str, spares: int) -> float:
    pipeline = live.make_pipeline(
        home,
        name,
        bootstrap,
        consumers=5,
        fleet=f"{{kind: processes, warm: {spares}, max_consumers: 4}}",
        policy=f"{{consumer_capacity_bytes_per_s: {CAPACITY}, packing_capacity_bytes_per_s: {PACKED}}}",
        consumer=f"{{rate_cap_bytes_per_s: {CAPACITY}, wait_s: 500 ms}}",
        monitor="{poll_s: 500 ms, window_s: 2 s, min_span_s: 1 s}",
        lake="{commit_interval_s: 500 ms}",
    )
    service = Service(pipeline)
    with live.load(bootstrap, PARTITIONS, live.spread(PARTITIONS, BEFORE)):
        time.sleep(2)
        service.start()
        try:
            _wait_for_consumers(pipeline, 1 + spares)
            time.sleep(CALM_S)
            with live.load(bootstrap, PARTITIONS, live.spread(PARTITIONS, ADDED)):
                step_s = time.time()
                time.sleep(WATCHED_S)
        finally:
            service.stop()
    return _read_again_s(pipeline, step_s, step_s + WATCHED_S) - step_s


def _wait_for_consumers(pipeline: Pipeline, count: int) -> None:
    tail = Tail(librdkafka_settings(pipeline), {(Topics(pipeline.name).control, 0): BEGINNING})
    seen: set[int] = set()
    until = time.monotonic() + READY_S
    while len(seen) < count:
        if time.monotonic() > until:
            raise TimeoutError(f"{len(seen)} of {count} consumers were ready within {READY_S:g} s")
        seen |= {r.message.consumer_id for r in tail.poll(0.5) if isinstance(r.message, ConsumerState)}
    tail.close()


def _read_again_s(pipeline: Pipeline, from_s: float, until_s: float) -> float:
    """When the last partition's age was at its highest."""
    produced_ms = _timestamps(path for path, _ in live.committed_files(pipeline))
    oldest: dict[int, tuple[float, float]] = {}
    for announcement in live.told(pipeline, Topics(pipeline.name).announcements, Announcement):
        at_s = announcement.announced_at_ms / 1000
        for read in announcement.ranges:
            if from_s <= at_s < until_s and (read.partition.partition, read.start) in produced_ms:
                age_s = at_s - produced_ms[read.partition.partition, read.start] / 1000
                oldest[read.partition.partition] = max(oldest.get(read.partition.partition, (0.0, 0.0)), (age_s, at_s))
    if len(oldest) < PARTITIONS:
        raise RuntimeError(f"of {PARTITIONS} partitions only {sorted(oldest)} were read after the step")
    return max(at_s for _, at_s in oldest.values())


def _timestamps(files: Iterable[str]) -> dict[tuple[int, int], int]:
    """Of every record, by partition and offset, in milliseconds."""
    found: dict[tuple[int, int], int] = {}
    for path in files:
        rows = pq.read_table(path.removeprefix("file://"), columns=["_kafka_partition", "_offset", "_timestamp"])
        stamps = rows["_timestamp"].cast("timestamp[ms]", safe=False).cast("int64").to_pylist()
        places = zip(rows["_kafka_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True)
        found.update(zip(places, stamps, strict=True))
    return found
