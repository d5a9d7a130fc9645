"""After a step of the load: how long until every partition is read at its rate again, with consumers as processes.

From then on two things hold. Every partition is read by the consumer that goes on reading it, from that one's first
files on, and none has more of them than it can read at their new rate. And what cycles leave behind in a partition, if
that is old at all, becomes no older any more. The paper's way from the step to the last acknowledgement,
t1 + t2 + t3 + t4, took 45 to 90 s.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
UNREAD_MS = 8000
"""A partition of which nothing newer than this was read in the end was not read any more, or is not caught up with."""
STEPS = 5
WATCHED_S = 30.0
READY_S = 120.0


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    spares: int
    limit_s: float
    """The most it may take, or with the monitor's defaults what it is shown beside."""
    monitor: str | None = "{poll_s: 500 ms, window_s: 2 s, min_span_s: 1 s}"
    """None leaves all of it at its defaults."""
    calm_s: float = 15.0
    """Before the step, longer than the monitor's window."""


KINDS = (
    Kind("a warm spare", 1, 5.0),
    Kind("no spare", 0, 15.0),
    Kind("a warm spare, the monitor's defaults", 1, 5.0, None, 40.0),
)

Offsets = dict[tuple[int, int], int]
"""When the record at an offset of a partition was produced, in milliseconds."""


class VoidStep(RuntimeError):
    """Before the load rose, it was not what one consumer reads."""


def run() -> list[Ratio]:
    class_archive.make()  # or the first fleet would have it made beside the first step
    results = []
    for kind in KINDS:
        steps = [_step(f"step{turn}", kind) for turn in range(STEPS)]
        took, oldest = zip(*steps, strict=True)
        what = f"load step → every partition read at its rate, {kind.name}"
        limit = "the limit asked for (the paper: 45–90 s)"
        results.append(of_limit(what, limit, kind.limit_s, took, target=1.0 if kind.monitor else None))
        what = f"oldest record that a cycle left behind after a load step, {kind.name}"
        results.append(of_limit(what, "a second", 1.0, oldest, target=None))
    return results


def _step(name: str, kind: Kind) -> tuple[float, float]:
    """How long until every partition was read at its rate again, and how old what was left behind became. A step that
    found a larger group than it was meant for is told and taken again, once."""
    for last in (False, True):
        with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder) / "kafka", 1) as kafka:
            try:
                return _one_step(Path(folder), name, kafka.bootstrap, kind)
            except VoidStep as error:
                if last:
                    raise
                print(f"{name}, {kind.name}, is taken again: {error}", flush=True)
    raise AssertionError("unreachable")


def _one_step(home: Path, name: str, bootstrap: str, kind: Kind) -> tuple[float, float]:
    monitor = {"monitor": kind.monitor} if kind.monitor else {}
    pipeline = live.make_pipeline(
        home,
        name,
        bootstrap,
        consumers=5,
        fleet=f"{{kind: processes, warm: {kind.spares}, max_consumers: 4}}",
        policy=f"{{consumer_capacity_bytes_per_s: {CAPACITY}, packing_capacity_bytes_per_s: {PACKED}}}",
        consumer=f"{{rate_cap_bytes_per_s: {CAPACITY}, wait_s: 500 ms}}",
        lake="{commit_interval_s: 500 ms}",
        **monitor,
    )
    # The load begins when its consumer is ready, so that nothing is left to read from before the step.
    prepare_topics(AdminClient({"bootstrap.servers": bootstrap}), {live.TOPIC: PARTITIONS})
    service = Service(pipeline)
    service.start()
    try:
        _wait_for_consumers(pipeline, 1 + kind.spares)
        with live.load(bootstrap, PARTITIONS, live.spread(PARTITIONS, BEFORE)):
            time.sleep(kind.calm_s)
            with live.load(bootstrap, PARTITIONS, live.spread(PARTITIONS, ADDED)):
                step_ms = int(time.time() * 1000)
                time.sleep(WATCHED_S)
    finally:
        service.stop()
    until_ms = step_ms + int(1000 * WATCHED_S)
    committed = [announcement for announcement, _ in live.committed(pipeline)]
    announced = [a for a in committed if a.announced_at_ms < until_ms]
    produced_ms = _timestamps(path for announcement in committed for path in announcement.files)
    check_that_all_are_read(announced, produced_ms, until_ms)
    left = left_behind(announced, produced_ms, step_ms)
    again_ms = max(spread_ms(announced, step_ms), *(at_ms for age_ms, at_ms in left if age_ms > OLD_MS), step_ms)
    return (again_ms - step_ms) / 1000, max(age_ms for age_ms, _ in left) / 1000


def _wait_for_consumers(pipeline: Pipeline, count: int) -> None:
    tail = Tail(librdkafka_settings(pipeline), {(Topics(pipeline.name).control, 0): BEGINNING})
    seen: set[int] = set()
    until = time.monotonic() + READY_S
    while len(seen) < count:
        if time.monotonic() > until:
            raise TimeoutError(f"{len(seen)} of {count} consumers were ready within {READY_S:g} s")
        seen |= {r.message.consumer_id for r in tail.poll(0.5) if isinstance(r.message, ConsumerState)}
    tail.close()


def check_that_all_are_read(announced: Sequence[Announcement], produced_ms: Offsets, until_ms: int) -> None:
    ends = {r.partition.partition: r.end for a in announced for r in a.ranges}
    late = [p for p in range(PARTITIONS) if p not in ends or produced_ms[p, ends[p] - 1] < until_ms - UNREAD_MS]
    if late:
        raise RuntimeError(f"of partitions {late} nothing was read that was written in the last {UNREAD_MS / 1000:g} s")


def spread_ms(announced: Sequence[Announcement], step_ms: int) -> int:
    """When a partition was announced by another consumer than before for the last time."""
    readers: dict[int, int] = {}
    since_ms = 0
    for announcement in announced:
        if announcement.announced_at_ms > step_ms and not since_ms:
            since_ms = step_ms
            if len(readers) < PARTITIONS or len(set(readers.values())) > 1:
                raise VoidStep(f"before the step partitions were read by {readers}, not all of them by one")
        for read in announcement.ranges:
            before = readers.get(read.partition.partition)
            readers[read.partition.partition] = announcement.consumer_id
            if since_ms and announcement.consumer_id != before:
                since_ms = announcement.announced_at_ms
    if not since_ms or max(Counter(readers.values()).values()) > MOST:
        raise RuntimeError(f"in the end partitions were read by {readers}, more of them by one than it can read")
    return since_ms


def left_behind(announced: Sequence[Announcement], produced_ms: Offsets, step_ms: int) -> list[tuple[int, int]]:
    """For each partition the oldest record that a cycle left behind after the step: how old it was when that cycle
    began, and when what the cycle did read was announced."""
    oldest: dict[int, tuple[int, int]] = {}
    for announcement in announced:
        for read in announcement.ranges:
            partition = read.partition.partition
            age_ms = max(0, announcement.began_at_ms - produced_ms.get((partition, read.end), announcement.began_at_ms))
            if announcement.announced_at_ms > step_ms and age_ms > oldest.get(partition, (-1, 0))[0]:
                oldest[partition] = (age_ms, announcement.announced_at_ms)
    return list(oldest.values())


def _timestamps(files: Iterable[str]) -> Offsets:
    """Of every record, by partition and offset, in milliseconds."""
    found: Offsets = {}
    for path in files:
        rows = pq.read_table(path.removeprefix("file://"), columns=["_kafka_partition", "_offset", "_timestamp"])
        stamps = rows["_timestamp"].cast("timestamp[ms]", safe=False).cast("int64").to_pylist()
        places = zip(rows["_kafka_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True)
        found.update(zip(places, stamps, strict=True))
    return found
