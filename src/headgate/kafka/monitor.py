"""The monitor: samples a source, smooths, and publishes every partition's write rate (L-5, L-8, L-12)."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from prometheus_client import Gauge
from prometheus_client.core import GaugeMetricFamily, Metric

from headgate.config.clients import kafka_python_settings
from headgate.config.pipeline import Pipeline
from headgate.errors import KafkaUnavailable
from headgate.kafka.channel import Outbox, Tail
from headgate.kafka.internal_topics import Topics
from headgate.kafka.log_dirs import LogDirSource
from headgate.kafka.log_ends import LogEnds
from headgate.kafka.measurements import ANSWER_S, OffsetSource, Source
from headgate.kafka.offsets import partitions_where
from headgate.kafka.rates import Rate, WriteRates, published
from headgate.kafka.record_sizes import CycleSizes, NewestRecords, RecordSizes, offset_of_newest
from headgate.kafka.smoothing import BoxMean, Ewma, Smoothing
from headgate.model import TopicPartition
from headgate.model.messages import Measurement
from headgate.part_gauge import PartGauge

log = logging.getLogger(__name__)


class _WriteRateGauge(Gauge):
    """Written out when somebody looks: setting thousands of values at every poll takes longer than measuring them."""

    _shown: ClassVar[dict[int, Mapping[TopicPartition, Rate]]] = {}
    """What each monitor of this process published last."""

    def show(self, monitor: int, rates: Mapping[TopicPartition, Rate]) -> None:
        self._shown[monitor] = rates

    def hide(self, monitor: int) -> None:
        self._shown.pop(monitor, None)

    def collect(self) -> Iterable[Metric]:
        (described,) = self.describe()
        family = GaugeMetricFamily(described.name, described.documentation, labels=["topic", "partition"])
        rates = {p: rate.bytes_per_s for shown in list(self._shown.values()) for p, rate in shown.items()}
        for partition, bytes_per_s in rates.items():
            family.add_metric([partition.topic, str(partition.partition)], bytes_per_s)
        return [family]


WRITE_RATE = _WriteRateGauge(
    "headgate_partition_write_bytes_per_second",
    "Payload bytes (key and value) written to a partition per second, as last published",
    ["topic", "partition"],
)

MEASURED = PartGauge("headgate_measurement_timestamp_seconds", "When write rates were last measured")

LONGEST_PAUSE_S = 10.0
"""Between tries while the brokers do not answer."""

HOLD_S = 600.0
"""Rates that an earlier monitor published this recently are worth holding until this one has a window of its own."""

ABSENT_DISCOVERIES = 2
"""A topic missing this often in a row is gone; once may be a broker that has only just come back."""


OF_A_DRY_RUN = "the monitor of a dry run"
"""What one is called that measures where the pipeline itself is not at work."""


class Monitor:
    """Publishes one Measurement per poll, from the first sample on; `WriteRates` says what it claims when.

    While the brokers do not answer nothing is published, so that readers see the age of what they have (L-36); the
    counters go on where they were, and the first rate afterwards is the mean over the gap.
    """

    def __init__(
        self,
        wanted: Callable[[str], bool],
        admin: AdminClient,
        source: Source,
        rates: WriteRates,
        outbox: Outbox,
        topics: Topics,
        *,
        poll_s: float,
        window_s: float,
        discover_s: float,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._wanted, self._admin, self._source, self._rates = wanted, admin, source, rates
        self._outbox, self._topics = outbox, topics
        self._poll_s, self._window_s, self._discover_s = poll_s, window_s, discover_s
        self._clock, self._wall_clock = clock, wall_clock
        self._absent: dict[TopicPartition, int] = {}
        """Partitions being watched, and for how many discoveries in a row each was missing."""
        self._discovered_s: float | None = None

    def run(self, stop: threading.Event) -> None:
        """Until `stop`. ConfigError at the start if the source cannot measure these topics."""
        failures = 0
        due_s = self._clock()
        try:
            while not stop.is_set():
                try:
                    self.step()
                    if failures:
                        log.info("the brokers answer again after %d tries: measuring goes on", failures)
                    failures = 0
                    due_s = max(due_s + self._poll_s, self._clock())
                except (KafkaUnavailable, KafkaException, TimeoutError) as error:
                    failures += 1
                    pause_s = min(LONGEST_PAUSE_S, self._poll_s * 2.0 ** min(failures, 10))
                    log.warning("nothing measured, next try in %.1f s: %s", pause_s, error)
                    due_s = self._clock() + pause_s
                stop.wait(max(0.0, due_s - self._clock()))
        finally:
            self.close()

    def step(self) -> Measurement:
        """One turn: look for new partitions when it is time, sample, publish."""
        if self._discovered_s is None or self._clock() - self._discovered_s >= self._discover_s:
            self.discover()
        sample = self._source.sample()
        rates = self._rates.update(sample, self._absent)
        age_s = self._clock() - sample.at_s
        measurement = Measurement(
            at_ms=round((self._wall_clock() - age_s) * 1000),
            window_s=self._window_s,
            source=self._source.name,
            rates=published(rates),
        )
        self._outbox.send(self._topics.measurements, measurement, partition=0)
        self._outbox.flush(ANSWER_S)
        WRITE_RATE.show(id(self), rates)
        MEASURED.set(measurement.at_ms / 1000)
        return measurement

    def discover(self) -> frozenset[TopicPartition]:
        """Takes up new topics and partitions and lets go of deleted ones."""
        present = partitions_where(self._admin, self._wanted, ANSWER_S)
        missing = {p: times + 1 for p, times in self._absent.items() if p not in present}
        absent = dict.fromkeys(present, 0) | {p: n for p, n in missing.items() if n < ABSENT_DISCOVERIES}
        absent = dict(sorted(absent.items()))  # once here, instead of for every measurement
        watched = frozenset(absent)
        self._source.watch(watched)
        self._absent, self._discovered_s = absent, self._clock()
        return watched

    def close(self) -> None:
        WRITE_RATE.hide(id(self))
        self._source.close()


def last_rates(
    settings: Mapping[str, Any], admin: AdminClient, topics: Topics, now_s: float
) -> dict[TopicPartition, Rate]:
    """What the previous monitor published last, unless that is too long ago to mean anything."""
    last = last_measurement(settings, admin, topics)
    if last is None or now_s - last.at_ms / 1000 > HOLD_S:
        return {}
    return {
        TopicPartition(r.topic, r.partition): Rate(r.bytes_per_s, r.records_per_s, r.end_offset, r.span_s)
        for r in last.rates
    }


def last_measurement(settings: Mapping[str, Any], admin: AdminClient, topics: Topics) -> Measurement | None:
    at = TopicPartition(topics.measurements, 0)
    tail = Tail(settings, {(at.topic, at.partition): offset_of_newest(admin, at, 1)})
    try:
        found = [r.message for r in tail.read_to_end(ANSWER_S) if isinstance(r.message, Measurement)]
    finally:
        tail.close()
    return found[-1] if found else None


def build_monitor(pipeline: Pipeline, settings: Mapping[str, Any], name: str = "the monitor") -> Monitor:
    """The monitor that the pipeline file describes. Its internal topics must exist (`ensure_topics`)."""
    chosen, topics, admin = pipeline.monitor, Topics(pipeline.name), AdminClient(dict(settings))
    sizes = RecordSizes(CycleSizes(settings, admin, topics), NewestRecords(settings))
    source: Source
    if chosen.source == "log_dirs":
        source = LogDirSource(admin, kafka_python_settings(pipeline), sizes)
    else:
        source = OffsetSource(LogEnds(settings, admin), sizes)
    smoothing: Smoothing = Ewma(chosen.ewma_half_life_s) if chosen.smoothing == "ewma" else BoxMean(chosen.window_s)
    # A measurement that could not be delivered soon is stale (L-36): let it die instead of arriving after newer ones.
    outbox = Outbox({**settings, "message.timeout.ms": str(int(ANSWER_S * 1000))}, name)
    return Monitor(
        lambda topic: bool(pipeline.tables_of(topic)),  # what no table takes nobody needs to read
        admin,
        source,
        WriteRates(smoothing, chosen.min_span_s, last_rates(settings, admin, topics, time.time())),
        outbox,
        topics,
        poll_s=chosen.poll_s,
        window_s=chosen.window_s,
        discover_s=pipeline.controller.discover_s,
    )
