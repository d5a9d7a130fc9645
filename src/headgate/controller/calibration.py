"""How fast is one consumer here? A real one reads a real backlog into a scratch lake; its cycles tell (E2)."""

import random
import shutil
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from headgate.config.clients import librdkafka_settings
from headgate.config.pipeline import Lake, Pipeline
from headgate.controller.layouts import Layout, layouts
from headgate.controller.one_consumer import one_consumer
from headgate.errors import HeadgateError
from headgate.kafka.internal_topics import Topics, ensure_topics
from headgate.kafka.offsets import beginning_offsets, end_offsets, partitions_where
from headgate.model import TopicPartition
from headgate.model.messages import CycleRecord

CONSUMER_SHARE = 0.85
"""Of the slowest layout's mean, for `consumer_capacity`: 2.31 MB/s were published, and 2.0 planned with."""
PACKING_SHARE = 0.75
"""Of the consumer capacity, for `packing_capacity` (L-2)."""
WARM_UP_CYCLES = 2
FEWEST_CYCLES = 5
"""Full cycles after the warm-up from which a mean and its interval say anything."""


@dataclass(frozen=True, slots=True)
class Measure:
    """The mean over cycles, their standard deviation, and where the mean lies with 95 %."""

    mean: float
    deviation: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Measure":
        """The interval by drawing the cycles again and again: no shape of their distribution is assumed."""
        draw = random.Random(1)
        means = sorted(statistics.fmean(draw.choices(values, k=len(values))) for _ in range(1000))
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        return cls(statistics.fmean(values), deviation, means[25], means[974])


@dataclass(frozen=True, slots=True)
class Measured:
    """One layout: averages over the cycles that had a full batch waiting."""

    layout: str
    cycles: int
    partitions: int
    tables: int
    total_bytes: int
    gather_s: Measure
    process_s: Measure
    announce_s: Measure
    cycle_s: Measure
    bytes_per_s: Measure
    records_per_s: Measure

    @classmethod
    def of(cls, layout: str, cycles: Sequence[CycleRecord]) -> "Measured | None":
        """None if there were too few full ones."""
        peak = [c for c in cycles if c.peak][WARM_UP_CYCLES:]
        if len(peak) < FEWEST_CYCLES:
            return None
        busy = [c.gather_s + c.process_s + c.announce_s for c in peak]
        return cls(
            layout=layout,
            cycles=len(peak),
            partitions=max(c.partitions for c in peak),
            tables=max(c.tables for c in peak),
            total_bytes=sum(c.payload_bytes for c in peak),
            gather_s=Measure.of([c.gather_s for c in peak]),
            process_s=Measure.of([c.process_s for c in peak]),
            announce_s=Measure.of([c.announce_s for c in peak]),
            cycle_s=Measure.of(busy),
            bytes_per_s=Measure.of([c.payload_bytes / s for c, s in zip(peak, busy, strict=True)]),
            records_per_s=Measure.of([c.records / s for c, s in zip(peak, busy, strict=True)]),
        )


@dataclass(frozen=True, slots=True)
class Calibration:
    measured: tuple[Measured, ...]
    left_out: tuple[str, ...] = ()
    """Layouts that had too little backlog, with how much there was."""

    @property
    def slowest(self) -> Measured:
        return min(self.measured, key=lambda one: one.bytes_per_s.mean)

    @property
    def consumer_capacity_bytes_per_s(self) -> float:
        return CONSUMER_SHARE * self.slowest.bytes_per_s.mean

    @property
    def packing_capacity_bytes_per_s(self) -> float:
        return PACKING_SHARE * self.consumer_capacity_bytes_per_s

    @property
    def capacity_records_per_s(self) -> float:
        """The consumer capacity in records of what was read, as the latency policies want it."""
        return CONSUMER_SHARE * self.slowest.records_per_s.mean


def calibrate(
    pipeline: Pipeline,
    seconds: float,
    session: Callable[[], SparkSession],
    tell: Callable[[str], None],
    stop: threading.Event,
) -> Calibration:
    """Reads the pipeline's topics from the beginning, for at most `seconds` in each layout. The pipeline's own tables,
    group and topics are not touched: everything happens under a scratch name in a scratch folder, which is removed."""
    measured, left_out = [], []
    for layout in layouts(pipeline, _backlog(pipeline)):
        if stop.is_set():
            break
        with _scratch(pipeline.model_copy(update={"tables": layout.tables})) as scratch:
            cycles = _read(scratch, layout, seconds, session, tell, stop)
        result = Measured.of(layout.name, cycles)
        if result is not None:
            measured.append(result)
        else:
            full, read = sum(c.peak for c in cycles), sum(c.payload_bytes for c in cycles)
            left_out.append(f"{layout.name}: {full} full cycles in {read / 1e6:.1f} MB")
    if not measured:
        raise HeadgateError(
            f"too little could be read to measure ({'; '.join(left_out) or 'stopped'}): {WARM_UP_CYCLES} full batches "
            f"of {pipeline.consumer.batch_bytes / 1e6:.1f} MB warm up and {FEWEST_CYCLES} more are needed. Calibrate "
            "with more backlog, more --seconds, a smaller consumer.batch_bytes, or without FILE on generated records"
        )
    return Calibration(tuple(measured), tuple(left_out))


def _backlog(pipeline: Pipeline) -> dict[TopicPartition, int]:
    """Records that the brokers hold per partition; an error if there are none."""
    admin = AdminClient(dict(librdkafka_settings(pipeline)))
    found = partitions_where(admin, pipeline.matches)
    if not found:
        raise HeadgateError(
            "none of the pipeline's topics exists; check kafka.brokers and topics, or calibrate without FILE"
        )
    ends = end_offsets(admin, found, pipeline.kafka.isolation == "read_committed")
    begins = beginning_offsets(admin, found)
    backlog = {p: max(0, end - begins.get(p, 0)) for p, end in ends.items()}
    if not any(backlog.values()):
        raise HeadgateError(
            f"the pipeline's {len(found)} partitions hold no records; calibration reads what the brokers still have: "
            f"write some first (headgate load), or calibrate without FILE on generated records"
        )
    return backlog


@contextmanager
def _scratch(pipeline: Pipeline) -> Iterator[Pipeline]:
    name = f"{pipeline.name[:80]}-calibration-{uuid.uuid4().hex[:8]}"
    home = Path(tempfile.mkdtemp(prefix="headgate-calibration-"))
    scratch = pipeline.model_copy(
        update={
            "name": name,
            "home": home,
            "start_from": "earliest",
            "lake": Lake(
                catalog={"type": "sql", "uri": f"sqlite:///{home}/catalog.db"}, warehouse=str(home / "warehouse")
            ),
            "kafka": pipeline.kafka.model_copy(update={"group": name}),
            "consumer": pipeline.consumer.model_copy(update={"rate_cap_bytes_per_s": None}),
        }
    )
    admin = AdminClient(dict(librdkafka_settings(scratch)))
    topics = Topics(name)
    brokers = len(admin.list_topics(timeout=15).brokers)
    try:
        ensure_topics(admin, topics, pipeline.kafka.internal_replication or min(3, brokers), 1)
        yield scratch
    finally:
        for future in admin.delete_topics(list(topics.settings()), operation_timeout=30).values():
            future.exception(30)
        for group in admin.delete_consumer_groups([name], request_timeout=15).values():
            group.exception(20)
        shutil.rmtree(home, ignore_errors=True)


def _read(
    scratch: Pipeline,
    layout: Layout,
    seconds: float,
    session: Callable[[], SparkSession],
    tell: Callable[[str], None],
    stop: threading.Event,
) -> list[CycleRecord]:
    with one_consumer(scratch, session, tell, layout.partitions) as consumer:
        until = time.monotonic() + seconds
        while time.monotonic() < until and consumer.is_alive and not stop.is_set():
            consumer.listen(0.5)
            cycles = consumer.cycles
            done = sum(c.payload_bytes for c in cycles)
            left_s = until - time.monotonic()
            tell(f"{layout.name}: {len(cycles)} cycles, {done / 1e6:.0f} MB read, {left_s:.0f} s left at most")
            if done >= layout.most_bytes or (cycles and not cycles[-1].lag_records):
                break
    return consumer.cycles
