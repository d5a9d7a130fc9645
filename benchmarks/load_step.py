"""After a step of the load: how long until every partition is read at its rate again, with consumers as processes.

From then on two things hold. No consumer has more partitions than it can read at their new rate, where a partition
counts for whoever announced records of it last, so for a new owner from its first files on. And what cycles leave
behind in a partition, if that is old at all, becomes no older any more. The paper's way from the step to the last
acknowledgement, t1 + t2 + t3 + t4, took 45 to 90 s.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
from confluent_kafka.admin import AdminClient

from benchmarks import live
from benchmarks.ratio import Ratio, of_limit
from headgate.config.clients import librdkafka_settings
from headgate.config.pipeline import Pipeline
from headgate.consumer import class_archive
from headgate.controller.service import Service
from headgate.kafka.channel import BEGINNING, Tail
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.internal_topics import Topics
from headgate.kafka.load_topics import prepare_topics
from headgate.model import Announcement
from headgate.model.messages import ConsumerState

PARTITIONS = 6
CAPACITY, PACKED = 300_000, 240_000
BEFORE, ADDED = 200_000.0, 240_000.0
"""Bytes per second: one consumer is enough for the first, not for both."""
MOST = int(CAPACITY / ((BEFORE + ADDED) / PARTITIONS))
"""Partitions that one consumer can read after the step."""
OLD_MS = 1000
"""A cycle that begins takes all there is, unless there is more than the consumer can do; looking takes it a moment."""
STEPS = 5
CALM_S, WATCHED_S = 15.0, 30.0
READY_S = 120.0
LIMITS = ((1, 5.0), (0, 15.0))
"""Warm spares, and the most seconds it may take."""

Offsets = dict[tuple[int, int], int]
"""When the record at an offset of a partition was produced, in milliseconds."""


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
    # The load begins when its consumer is ready, so that nothing is left to read from before the step.
    prepare_topics(AdminClient({"bootstrap.servers": bootstrap}), {live.TOPIC: PARTITIONS})
    service = Service(pipeline)
    service.start()
    try:
        _wait_for_consumers(pipeline, 1 + spares)
        with live.load(bootstrap, PARTITIONS, live.spread(PARTITIONS, BEFORE)):
            time.sleep(CALM_S)
            with live.load(bootstrap, PARTITIONS, live.spread(PARTITIONS, ADDED)):
                step_ms = int(time.time() * 1000)
                time.sleep(WATCHED_S)
    finally:
        service.stop()
    told = live.told(pipeline, Topics(pipeline.name).announcements, Announcement)
    until_ms = step_ms + 1000 * WATCHED_S
    announced = [a for a in told if a.announced_at_ms < until_ms]
    produced_ms = _timestamps(path for path, _ in live.committed_files(pipeline))
    _check_that_all_are_read(announced, produced_ms, until_ms)
    again_ms = max(spread_ms(announced, step_ms), oldest_ms(announced, produced_ms, step_ms))
    return (again_ms - step_ms) / 1000


def _wait_for_consumers(pipeline: Pipeline, count: int) -> None:
    tail = Tail(librdkafka_settings(pipeline), {(Topics(pipeline.name).control, 0): BEGINNING})
    seen: set[int] = set()
    until = time.monotonic() + READY_S
    while len(seen) < count:
        if time.monotonic() > until:
            raise TimeoutError(f"{len(seen)} of {count} consumers were ready within {READY_S:g} s")
        seen |= {r.message.consumer_id for r in tail.poll(0.5) if isinstance(r.message, ConsumerState)}
    tail.close()


def _check_that_all_are_read(announced: Sequence[Announcement], produced_ms: Offsets, until_ms: float) -> None:
    ends = {r.partition.partition: r.end for a in announced for r in a.ranges}
    late = [p for p in range(PARTITIONS) if p not in ends or produced_ms.get((p, ends[p] - 1), 0) < until_ms - 15_000]
    if late:
        raise RuntimeError(f"partitions {late} were not read any more {WATCHED_S:g} s after the step")


def spread_ms(announced: Sequence[Announcement], step_ms: int) -> int:
    """From when on no consumer has more partitions than it can read."""
    readers: dict[int, int] = {}
    since_ms = step_ms
    for announcement in announced:
        too_many = any(count > MOST for count in Counter(readers.values()).values())
        if too_many and announcement.announced_at_ms > step_ms:
            since_ms = announcement.announced_at_ms
        readers |= {r.partition.partition: announcement.consumer_id for r in announcement.ranges}
    return since_ms


def oldest_ms(announced: Sequence[Announcement], produced_ms: Offsets, step_ms: int) -> int:
    """When the last partition was read by the cycle that left its oldest record behind, of those that were old when
    their cycle began."""
    oldest: dict[int, tuple[int, int]] = {}
    for announcement in announced:
        for read in announcement.ranges:
            partition = read.partition.partition
            produced = produced_ms.get((partition, read.end), announcement.began_at_ms)
            age_ms = announcement.began_at_ms - produced
            if announcement.announced_at_ms > step_ms and age_ms > max(OLD_MS, oldest.get(partition, (0, 0))[0]):
                oldest[partition] = (age_ms, announcement.announced_at_ms)
    return max((at_ms for _, at_ms in oldest.values()), default=step_ms)


def _timestamps(files: Iterable[str]) -> Offsets:
    """Of every record, by partition and offset, in milliseconds."""
    found: Offsets = {}
    for path in files:
        rows = pq.read_table(path.removeprefix("file://"), columns=["_kafka_partition", "_offset", "_timestamp"])
        stamps = rows["_timestamp"].cast("timestamp[ms]", safe=False).cast("int64").to_pylist()
        places = zip(rows["_kafka_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True)
        found.update(zip(places, stamps, strict=True))
    return found
