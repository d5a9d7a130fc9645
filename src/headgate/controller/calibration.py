"""How fast is one consumer here? A real one reads a real backlog into a scratch lake; its cycles tell (E2)."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from headgate.config.clients import librdkafka_settings
from headgate.config.pipeline import Pipeline
from headgate.controller.layouts import Layout, layouts
from headgate.controller.measured import (
    FEWEST_CYCLES,
    FIRST_CYCLES,
    NOTHING_MEASURED,
    Calibration,
    Measured,
    full_cycles,
)
from headgate.controller.one_consumer import POLL_S, OneConsumer, one_consumer
from headgate.controller.scratch import scratch
from headgate.controller.warming import WarmUp, is_warm
from headgate.errors import HeadgateError
from headgate.kafka.offsets import NoMirror, beginning_offsets, end_offsets, partitions_where
from headgate.model import TopicPartition
from headgate.model.messages import CycleRecord

WARM_UP_TIMES = 2
"""As long as a layout may take: a consumer with the published speed gets through its forty cycles in it."""


def calibrate(
    pipeline: Pipeline,
    folder: Path,
    seconds: float,
    session: Callable[[], SparkSession],
    tell: Callable[[str], None],
    stop: threading.Event,
) -> Calibration:
    """Reads the pipeline's topics from the beginning, for at most `seconds` in each layout, twice that to warm up. The
    pipeline's own tables, group and topics are not touched: everything happens under a scratch name and in `folder`."""
    bench = _Bench(pipeline, folder, session, tell, stop)
    found = layouts(pipeline, _backlog(pipeline))
    warm_up = bench.warm_up(found[-1], WARM_UP_TIMES * seconds)  # in which all tables are read
    measured, left_out = [], []
    for layout in found:
        if stop.is_set():
            break
        cycles = bench.cycles(layout, seconds)
        result = Measured.of(layout.name, cycles)
        if result is not None:
            measured.append(result)
        else:
            full, read = sum(c.peak for c in cycles), sum(c.payload_bytes for c in cycles)
            left_out.append(f"{layout.name}: {full} full cycles in {read / 1e6:.1f} MB")
    if not measured and stop.is_set():
        raise HeadgateError(NOTHING_MEASURED)
    if not measured:
        raise HeadgateError(
            f"too little could be read to measure ({'; '.join(left_out)}): {FEWEST_CYCLES} full batches of "
            f"{pipeline.consumer.batch_bytes / 1e6:.1f} MB are needed after the first {FIRST_CYCLES}. Calibrate with "
            "more backlog, more --seconds, a smaller consumer.batch_bytes, or without FILE on generated records"
        )
    return Calibration(tuple(measured), tuple(left_out), warm_up)


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


@dataclass(frozen=True, slots=True)
class _Bench:
    """Where one consumer after the other reads, all in one session."""

    pipeline: Pipeline
    folder: Path
    session: Callable[[], SparkSession]
    tell: Callable[[str], None]
    stop: threading.Event

    def cycles(self, layout: Layout, seconds: float) -> Sequence[CycleRecord]:
        """What a new consumer does with everything that is there, or within `seconds`."""
        with self._consumer(layout) as consumer:
            self._read(consumer, layout, layout.name, time.monotonic() + seconds, lambda cycles: False)
        return consumer.cycles

    def warm_up(self, layout: Layout, seconds: float) -> WarmUp:
        """Reads until cycles become no faster, a small backlog over and over: the consumer is a new one each time, but
        the JVM is the same. Where nothing could be measured it is given up."""
        full: list[CycleRecord] = []
        began_s: float | None = None
        while True:
            with self._consumer(layout) as consumer:
                began_s = began_s or time.monotonic()  # before the first, Spark had to start
                self._read(consumer, layout, "warming up", began_s + seconds, lambda new: is_warm([*full, *new]))
            new = full_cycles(consumer.cycles)
            full.extend(new)
            passed_s = time.monotonic() - began_s
            if is_warm(full) or len(new) < FEWEST_CYCLES or passed_s >= seconds or self.stop.is_set():
                return WarmUp(len(full), passed_s, is_warm(full))

    @contextmanager
    def _consumer(self, layout: Layout) -> Iterator[OneConsumer]:
        with (
            scratch(self.pipeline.model_copy(update={"tables": layout.tables}), self.folder) as double,
            one_consumer(double, self.session, self.tell, layout.partitions, NoMirror(), self.stop) as consumer,
        ):
            yield consumer

    def _read(
        self,
        consumer: OneConsumer,
        layout: Layout,
        doing: str,
        until_s: float,
        is_enough: Callable[[Sequence[CycleRecord]], bool],
    ) -> None:
        while time.monotonic() < until_s and consumer.is_alive and not self.stop.is_set():
            consumer.listen(POLL_S)
            cycles = consumer.cycles
            done = sum(c.payload_bytes for c in cycles)
            left_s = until_s - time.monotonic()
            self.tell(f"{doing}: {len(cycles)} cycles, {done / 1e6:.0f} MB read, {left_s:.0f} s left at most")
            all_read = bool(cycles) and not cycles[-1].lag_records
            if all_read or done >= layout.most_bytes or is_enough(full_cycles(cycles)):
                return
