"""What a forwarder tells while it runs, and at its end."""

from collections import Counter
from dataclasses import dataclass

from headgate.collectors.delays import Delays
from headgate.collectors.metrics import DELAY, RECORDS, SKIPPED


@dataclass(frozen=True, slots=True)
class Progress:
    records: int
    """Acknowledged by the main cluster since the start."""
    skipped: int
    """Offsets at the collector that held no record, since the start."""
    records_per_s: float
    in_flight: int
    """Sent and not acknowledged."""
    waiting: int
    """At the collector and not sent yet, as last seen."""
    partitions: int
    """Source partitions held."""
    paused: bool
    """Too much is in flight, so nothing is read."""
    delay_p50_s: float | None
    """From a record's timestamp to its acknowledgement by the main cluster (B-43); None if there was no record."""
    delay_p99_s: float | None
    delay_max_s: float | None

    @property
    def sentence(self) -> str:
        said = f"{self.records:,} records forwarded, {self.records_per_s:,.0f}/s"
        if self.delay_p50_s is not None and self.delay_p99_s is not None:
            said += f", delay p50 {_shown(self.delay_p50_s)}, p99 {_shown(self.delay_p99_s)}"
        said += f"; {self.partitions} partitions, {self.waiting:,} records waiting, {self.in_flight:,} in flight"
        return f"{said}; paused, for the main cluster does not keep up" if self.paused else said

    @property
    def farewell(self) -> str:
        said = f"stopped: {self.records:,} records forwarded and acknowledged"
        if self.delay_p50_s is not None and self.delay_p99_s is not None and self.delay_max_s is not None:
            said += f"; delay p50 {_shown(self.delay_p50_s)}, p99 {_shown(self.delay_p99_s)}"
            said += f", longest {_shown(self.delay_max_s)}"
        if self.skipped:
            said += f"; {self.skipped:,} offsets held no record (retention, compaction, transactions)"
        if self.in_flight:
            said += f"; {self.in_flight:,} more were not acknowledged in time and are forwarded again at the next start"
        return said


class Account:
    """Counts acknowledged records, since the start and since the last progress."""

    def __init__(self, now_s: float) -> None:
        self._began_s, self._last_s = now_s, now_s
        self._all, self._lately = Delays(), Delays()
        self._records = self._records_before = self._skipped = 0
        self._new_topics: list[str] = []
        self._new_delays_s: list[float] = []

    def add(self, topic: str, delay_s: float | None) -> None:
        """A record of this topic; None: it had no timestamp. It counts once `count` is called."""
        self._new_topics.append(topic)
        if delay_s is not None:
            self._new_delays_s.append(delay_s)

    def count(self) -> None:
        """What was added since the last time: once for many records, for their sake."""
        if not self._new_topics:
            return
        topics, self._new_topics = self._new_topics, []
        delays_s, self._new_delays_s = self._new_delays_s, []
        self._records += len(topics)
        for topic, records in Counter(topics).items():
            RECORDS.labels(topic).inc(records)
        self._lately.add_all(delays_s)
        DELAY.observe_all(delays_s)

    def skip(self, topic: str, offsets: int) -> None:
        self._skipped += offsets
        SKIPPED.labels(topic).inc(offsets)

    def lately(self, now_s: float, in_flight: int, waiting: int, partitions: int, paused: bool) -> Progress:
        """Since the last time."""
        self.count()
        rate = (self._records - self._records_before) / max(now_s - self._last_s, 1e-3)
        delays, self._lately = self._lately, Delays()
        self._all.include(delays)
        self._records_before, self._last_s = self._records, now_s
        return _progress(self._records, self._skipped, rate, delays, in_flight, waiting, partitions, paused)

    def in_all(self, now_s: float, in_flight: int) -> Progress:
        self.count()
        rate = self._records / max(now_s - self._began_s, 1e-3)
        self._all.include(self._lately)
        return _progress(self._records, self._skipped, rate, self._all, in_flight, 0, 0, False)


def _progress(
    records: int, skipped: int, rate: float, delays: Delays, in_flight: int, waiting: int, partitions: int, paused: bool
) -> Progress:
    p50_s, p99_s = delays.quantile_s(0.5), delays.quantile_s(0.99)
    longest_s = delays.longest_s if delays.records else None
    return Progress(records, skipped, rate, in_flight, waiting, partitions, paused, p50_s, p99_s, longest_s)


def _shown(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
