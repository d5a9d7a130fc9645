"""From counters sampled over time to write rates, and when thin evidence may be believed.

Pure: no clock, no Kafka. Time comes in with each sample.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headgate.kafka.smoothing import Array, Smoothing, arranged
from headgate.model import TopicPartition
from headgate.model.columns import ByPartition, Rows
from headgate.model.messages import PartitionRate


class Counter(NamedTuple):
    """How much one partition had been written when it was sampled; only differences within one life mean anything."""

    payload_bytes: float
    """Key and value bytes counted so far, the unit of every capacity (L-4)."""
    end_offset: int
    life: int = 0
    """Changes whenever earlier samples stop being comparable (L-9): the window then starts again."""


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    """On a clock that never jumps."""
    counters: Mapping[TopicPartition, Counter]


class Rate(NamedTuple):
    bytes_per_s: float
    records_per_s: float
    end_offset: int
    span_s: float
    """How much history the rate rests on; 0 after a single sample."""


_ABSENT = (np.nan, np.nan, np.nan)
"""In place of a counter."""


def published(rates: ByPartition[Rate]) -> Rows[PartitionRate]:
    """As a measurement has them."""
    names = [p.topic for p in rates], [p.partition for p in rates]
    return Rows(PartitionRate, (*names, *rates.rows.columns))


def _whole(values: Array) -> list[int]:
    """Offsets are below 2**53, so nothing was rounded; what is NaN is nobody's."""
    found: list[int] = np.nan_to_num(values).astype(np.int64).tolist()
    return found


class WriteRates:
    """The rates of all partitions after each sample, and what to say while there is too little history.

    Every partition is reported from its first sample on, with rate 0 and span 0: a new partition must be given to a
    consumer at once (trigger 2 of L-34), not after a window. Until a partition has `min_span_s` of history (L-7), its
    rate is the larger of what the history shows so far and the rate it last had before its window began again (leader
    change, restart of the monitor). So thin evidence can raise a rate, which lets the controller react early to
    overload, and can never lower one, which would remove consumers on a guess. From `min_span_s` on the smoothed
    rate stands alone.

    All partitions are computed at once; `WriteRatesReference` does the same for one after the other.
    """

    def __init__(
        self, smoothing: Smoothing, min_span_s: float, held: Mapping[TopicPartition, Rate] | None = None
    ) -> None:
        self._smoothing = smoothing
        self._min_span_s = min_span_s
        self._reported: Mapping[TopicPartition, Rate] = {}
        self._earlier = dict(held or {})
        """What an earlier monitor reported of partitions that this one has not sampled yet."""
        self._partitions: tuple[TopicPartition, ...] = ()
        self._life, self._since_s = np.empty(0), np.empty(0)
        """Of each partition; NaN before its first sample."""
        self._held = np.empty((2, 0))
        """Bytes and records per second of the last rate that could be trusted before this life began; NaN if none."""

    def update(self, sample: Sample, partitions: Iterable[TopicPartition]) -> ByPartition[Rate]:
        """Rates of `partitions`; one that is missing from the sample (no leader just now) keeps its last rate."""
        self._arrange(tuple(sorted(partitions)))
        payload, ends, life = self._columns(ByPartition.of(Counter, sample.counters))
        here = ~np.isnan(payload)
        self._begin(here & (life != self._life), life, sample.at_s)
        self._smoothing.add(sample.at_s, np.stack((payload, ends)))
        is_young = here & (sample.at_s - self._since_s < self._min_span_s)
        per_s, span_s = self._smoothing.per_s, self._smoothing.span_s
        per_s = np.where(is_young, np.fmax(per_s, self._held), per_s)
        rates = ByPartition(self._partitions, Rows(Rate, (*per_s.tolist(), _whole(ends), span_s.tolist())))
        self._reported = rates if here.all() else self._with_last(rates, here)
        return self._reported

    def _columns(self, counters: ByPartition[Counter]) -> Array:
        """Bytes, end and life of each partition; NaN for one that is not there."""
        if counters.partitions == self._partitions:
            return np.array(counters.rows.columns, np.float64)
        found = [counters.get(p, _ABSENT) for p in self._partitions]
        return np.array(found, np.float64).reshape(-1, len(_ABSENT)).T

    def _with_last(self, rates: ByPartition[Rate], here: NDArray[np.bool_]) -> ByPartition[Rate]:
        """Of partitions that are not here the last rate, of those that never were nothing."""
        found = {}
        for (partition, rate), is_here in zip(rates.items(), here.tolist(), strict=True):
            known = rate if is_here else self._reported.get(partition) or self._earlier.get(partition)
            if known:
                found[partition] = known
        return ByPartition.of(Rate, found)

    def _arrange(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Makes room for partitions that came, and forgets those that went."""
        if partitions == self._partitions:
            return
        place = {p: n for n, p in enumerate(self._partitions)}
        places = np.array([place.get(p, -1) for p in partitions], dtype=np.int64)
        self._smoothing.arrange(places)
        self._life, self._since_s, self._held = (
            arranged(values, places, np.nan) for values in (self._life, self._since_s, self._held)
        )
        self._partitions = partitions

    def _begin(self, begins: NDArray[np.bool_], life: Array, at_s: float) -> None:
        """A new life for these. What to hold meanwhile: noise of a short window must not be carried on and on."""
        for n in np.flatnonzero(begins).tolist():
            partition = self._partitions[n]
            rate = None
            if np.isnan(self._life[n]):
                rate = self._earlier.pop(partition, None)
            elif at_s - self._since_s[n] >= self._min_span_s:
                rate = self._reported.get(partition)
            if rate is not None:
                self._held[:, n] = rate.bytes_per_s, rate.records_per_s
        self._smoothing.forget(begins)
        self._life[begins], self._since_s[begins] = life[begins], at_s
