"""How fast is one consumer here? A real one reads a real backlog into a scratch lake; its cycles tell (E2)."""

import shutil
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from headgate.config.clients import librdkafka_settings
from headgate.config.pipeline import Lake, Pipeline
from headgate.controller.drain import lag_records
from headgate.controller.one_consumer import one_consumer
from headgate.errors import HeadgateError
from headgate.kafka.channel import Topics, ensure_topics
from headgate.model.messages import CycleRecord

CONSUMER_SHARE = 0.85
"""Of the measured mean, for `consumer_capacity`: the published runs measured 2.3–2.4 MB/s and planned with 2.0."""
PACKING_SHARE = 0.75
"""Of the consumer capacity, for `packing_capacity` (L-2)."""
WARM_UP_CYCLES = 2


@dataclass(frozen=True, slots=True)
class Measure:
    mean: float
    deviation: float

    @classmethod
    def of(cls, values: list[float]) -> "Measure":
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Averages over the cycles that had a full batch waiting."""

    cycles: int
    partitions: int
    tables: int
    total_bytes: int
    gather_s: Measure
    process_s: Measure
    announce_s: Measure
    cycle_s: Measure
    bytes_per_s: Measure

    @property
    def consumer_capacity_bytes_per_s(self) -> float:
        return CONSUMER_SHARE * self.bytes_per_s.mean

    @property
    def packing_capacity_bytes_per_s(self) -> float:
        return PACKING_SHARE * self.consumer_capacity_bytes_per_s


def calibrate(
    pipeline: Pipeline,
    seconds: float,
    session: Callable[[], SparkSession],
    tell: Callable[[str], None],
    stop: threading.Event,
) -> Calibration:
    """Reads the pipeline's topics from the beginning for at most `seconds`. The pipeline's own tables, group and topics
    are not touched: everything happens under a scratch name in a scratch folder, which is removed."""
    with _scratch(pipeline) as scratch:
        cycles = _read(scratch, seconds, session, tell, stop)
    peak = [c for c in cycles if c.peak][WARM_UP_CYCLES:]
    if not peak:
        read = sum(c.payload_bytes for c in cycles)
        raise HeadgateError(
            f"only {read / 1e6:.1f} MB could be read, not enough for a full batch of "
            f"{pipeline.consumer.batch_bytes / 1e6:.1f} MB after {WARM_UP_CYCLES} warm-up cycles; calibrate with more "
            f"backlog, a smaller consumer.batch_bytes, or without FILE on generated records"
        )
    busy = [c.gather_s + c.process_s + c.announce_s for c in peak]
    return Calibration(
        cycles=len(peak),
        partitions=max(c.partitions for c in peak),
        tables=max(c.tables for c in peak),
        total_bytes=sum(c.payload_bytes for c in peak),
        gather_s=Measure.of([c.gather_s for c in peak]),
        process_s=Measure.of([c.process_s for c in peak]),
        announce_s=Measure.of([c.announce_s for c in peak]),
        cycle_s=Measure.of(busy),
        bytes_per_s=Measure.of([c.payload_bytes / s for c, s in zip(peak, busy, strict=True)]),
    )


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
    seconds: float,
    session: Callable[[], SparkSession],
    tell: Callable[[str], None],
    stop: threading.Event,
) -> list[CycleRecord]:
    settings = librdkafka_settings(scratch)
    with one_consumer(scratch, session, tell) as consumer:
        until = time.monotonic() + seconds
        while time.monotonic() < until and consumer.is_alive and not stop.is_set():
            consumer.listen(0.5)
            cycles = consumer.cycles
            done = sum(c.payload_bytes for c in cycles)
            tell(f"{len(cycles)} cycles, {done / 1e6:.0f} MB read")
            if cycles and not cycles[-1].lag_records and lag_records(scratch, settings) == 0:
                break
    return consumer.cycles
