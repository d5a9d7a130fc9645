"""Write rates once more, a counter at a time: what `WriteRates` and its smoothings are held equal to by the tests."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from headgate.kafka.rates import Counter, Rate, Sample
from headgate.model import TopicPartition


class Smoothing(Protocol):
    """One counter's rate. A fresh one is made for every counter and every life."""

    def add(self, at_s: float, total: float) -> None: ...

    @property
    def per_s(self) -> float:
        """0 until two samples were added."""

    @property
    def span_s(self) -> float: ...


class BoxMean:
    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._samples: deque[tuple[float, float]] = deque()

    def add(self, at_s: float, total: float) -> None:
        self._samples.append((at_s, total))
        while len(self._samples) > 2 and self._samples[0][0] < at_s - self._window_s:
            self._samples.popleft()

    @property
    def per_s(self) -> float:
        if not self._samples:
            return 0.0
        (oldest_s, oldest), (newest_s, newest) = self._samples[0], self._samples[-1]
        return (newest - oldest) / (newest_s - oldest_s) if newest_s > oldest_s else 0.0

    @property
    def span_s(self) -> float:
        return self._samples[-1][0] - self._samples[0][0] if self._samples else 0.0


class Ewma:
    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._first_s: float | None = None
        self._last: tuple[float, float] = (0.0, 0.0)
        self._weighted = 0.0
        self._weight = 0.0

    def add(self, at_s: float, total: float) -> None:
        if self._first_s is None:
            self._first_s = at_s
            self._last = (at_s, total)
            return
        elapsed_s = at_s - self._last[0]
        if elapsed_s <= 0:
            return
        kept = 0.5 ** (elapsed_s / self._half_life_s)
        self._weighted = kept * self._weighted + (1 - kept) * (total - self._last[1]) / elapsed_s
        self._weight = kept * self._weight + (1 - kept)
        self._last = (at_s, total)

    @property
    def per_s(self) -> float:
        return self._weighted / self._weight if self._weight > 0 else 0.0

    @property
    def span_s(self) -> float:
        return self._last[0] - self._first_s if self._first_s is not None else 0.0


@dataclass(frozen=True, slots=True)
class _Track:
    """One life of one partition's counter."""

    life: int
    since_s: float
    bytes: Smoothing
    records: Smoothing
    held: Rate | None
    """The last rate that could be trusted before this life began."""


class WriteRatesReference:
    def __init__(
        self,
        smoothing: Callable[[], Smoothing],
        min_span_s: float,
        held: Mapping[TopicPartition, Rate] | None = None,
    ) -> None:
        self._smoothing = smoothing
        self._min_span_s = min_span_s
        self._reported: dict[TopicPartition, Rate] = {}
        self._tracks: dict[TopicPartition, _Track] = {}
        self._held = dict(held or {})

    def update(self, sample: Sample, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Rate]:
        """Rates of `partitions`; one that is missing from the sample (no leader just now) keeps its last rate."""
        rates = {}
        for partition in sorted(partitions):
            counter = sample.counters.get(partition)
            rate = self._last_known(partition) if counter is None else self._advance(partition, sample.at_s, counter)
            if rate is not None:
                rates[partition] = rate
        self._tracks = {p: track for p, track in self._tracks.items() if p in rates}
        self._reported = rates
        return dict(rates)

    def _last_known(self, partition: TopicPartition) -> Rate | None:
        return self._reported.get(partition) or self._held.get(partition)

    def _advance(self, partition: TopicPartition, at_s: float, counter: Counter) -> Rate:
        track = self._tracks.get(partition)
        if track is None or track.life != counter.life:
            held = self._held.pop(partition, None) if track is None else self._trusted(partition, track, at_s)
            track = _Track(counter.life, at_s, self._smoothing(), self._smoothing(), held)
            self._tracks[partition] = track
        track.bytes.add(at_s, counter.payload_bytes)
        track.records.add(at_s, float(counter.end_offset))
        bytes_per_s, records_per_s = track.bytes.per_s, track.records.per_s
        if track.held is not None and at_s - track.since_s < self._min_span_s:
            bytes_per_s = max(bytes_per_s, track.held.bytes_per_s)
            records_per_s = max(records_per_s, track.held.records_per_s)
        return Rate(bytes_per_s, records_per_s, counter.end_offset, track.bytes.span_s)

    def _trusted(self, partition: TopicPartition, track: _Track, at_s: float) -> Rate | None:
        """What to hold when a window begins again; noise of a short window must not be carried on and on."""
        if at_s - track.since_s >= self._min_span_s and partition in self._reported:
            return self._reported[partition]
        return track.held
