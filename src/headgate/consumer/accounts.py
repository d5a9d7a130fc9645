"""What a consumer tells of its cycles: numbers for Prometheus, for its heartbeat and for the topic of cycles."""

import math
from dataclasses import dataclass

from prometheus_client import Counter, Gauge

from headgate.config.pipeline import Pipeline
from headgate.consumer.job import JobResult
from headgate.consumer.pace import Pace

_BYTES = Counter("headgate_consumer_bytes_total", "Payload bytes (key and value) read", ["consumer"])
_RECORDS = Counter("headgate_consumer_records_total", "Records read", ["consumer"])
_CYCLES = Counter("headgate_consumer_cycles_total", "Cycles, done or failed", ["consumer", "outcome"])
_PHASE = Gauge(
    "headgate_consumer_phase_seconds",
    "Duration of the last cycle's phases: gather, process, announce",
    ["consumer", "phase"],
)
_LAG = Gauge(
    "headgate_consumer_lag_records", "Records of owned partitions that its last cycle left unread", ["consumer"]
)
_THROUGHPUT = Gauge(
    "headgate_consumer_throughput_bytes_per_second", "Payload bytes read per second over the last cycles", ["consumer"]
)
_CAPACITY = Gauge(
    "headgate_consumer_capacity_bytes_per_second",
    "Payload bytes per second of working time, as the consumer's full cycles measured it; 0 until one did",
    ["consumer"],
)
_BUSY = Gauge(
    "headgate_consumer_busy_ratio", "Share of the time spent working rather than waiting, 0 to 1", ["consumer"]
)


@dataclass(frozen=True, slots=True)
class Times:
    """A cycle's phases, in seconds, without what it shared with the cycle before it."""

    gather_s: float
    process_s: float
    announce_s: float
    total_s: float
    """With the waiting for records."""

    @property
    def busy_s(self) -> float:
        return self.gather_s + self.process_s + self.announce_s

    @property
    def wait_s(self) -> float:
        return max(0.0, self.total_s - self.busy_s)


class Accounts:
    def __init__(self, pipeline: Pipeline, consumer_id: int) -> None:
        self.pace = Pace(pipeline.policy.capacity_estimate, pipeline.consumer.rate_cap_bytes_per_s or math.inf)
        self._label = str(consumer_id)

    def failed(self) -> None:
        _CYCLES.labels(self._label, "failed").inc()

    def done(self, results: dict[str, JobResult], times: Times, peak: bool, lag_records: int) -> None:
        payload_bytes = sum(r.stats.payload_bytes for r in results.values())
        self.pace.add(payload_bytes, times.busy_s, times.total_s, peak)
        _BYTES.labels(self._label).inc(payload_bytes)
        _RECORDS.labels(self._label).inc(sum(r.stats.records for r in results.values()))
        _CYCLES.labels(self._label, "done").inc()
        _LAG.labels(self._label).set(lag_records)
        _THROUGHPUT.labels(self._label).set(self.pace.throughput_bytes_per_s)
        _CAPACITY.labels(self._label).set(self.pace.capacity_bytes_per_s)
        _BUSY.labels(self._label).set(self.pace.busy_share)
        phases = {"gather": times.gather_s, "process": times.process_s, "announce": times.announce_s}
        for phase, seconds in phases.items():
            _PHASE.labels(self._label, phase).set(seconds)

    def forget(self) -> None:
        """A consumer that is gone has no lag; counters stay, they say what was done."""
        for gauge in (_LAG, _THROUGHPUT, _CAPACITY, _BUSY, _PHASE):
            gauge.remove_by_labels({"consumer": self._label})
