"""What the next seconds will bring: level and trend of the total, who gets which share, how arrivals bunch and scatter.

The total is estimated apart from the shares: it moves fast but is hardly noisy, while shares are noisy but move slowly.
Both notice a sudden change by its size against their own noise, and then forget what was before.
"""

import math
from collections import deque
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from headgate.model import Observation, TopicPartition
from headgate.policies.seen import number

Floats = npt.NDArray[np.float64]

TREND_S = 30.0
"""How long a trend is believed to last."""
_JUMP = 5.0
"""Standard errors by which a beat must miss its forecast to be taken for a new regime."""
_SHARE_JUMP = 4.0
_JUMPS_KEPT = 20
_BEND = 1.5
"""Standard errors by which the newest beats may miss a long line before a shorter one is taken."""


@dataclass(frozen=True, slots=True)
class Jump:
    """A rise of the total without notice."""

    at_s: float
    """In seconds of arrivals seen."""
    level: float
    """Records per second it rose to."""
    pattern: Floats
    """Which partitions got how much of what was added, in shares of 1."""


@dataclass(frozen=True, slots=True)
class Load:
    """Arrivals to come, as the lateness model needs them."""

    partitions: tuple[TopicPartition, ...]
    shares: Floats
    level: float
    """Records per second now."""
    slope: float
    """Change of that per second, already shrunk by how certain it is."""
    error: float
    """Standard deviation of the forecast level, one start-up ahead."""
    shape: Floats
    """Arrivals of a beat's slots relative to their mean, fullest first: all ones for a smooth stream, one tall slot and
    zeros for bursts."""
    slot_s: float
    dispersion: float
    """Variance of a partition's arrivals relative to random keys: 1 for a fair draw."""
    noise: float
    """Variance of a beat's total around its trend, relative to the total squared."""
    mean_level: float
    """Long-run records per second, what a share of late records is a share of."""
    jumps: tuple[Jump, ...] = ()
    """Those of the past."""
    jumps_per_s: float = 0.0
    steady_beats: int = 0
    """Since the total last jumped, as far back as one looks."""

    def at(self, ahead_s: float) -> float:
        """Records per second that far ahead; a trend is believed less the further ahead."""
        return max(0.0, self.level + self.slope * TREND_S * (1 - math.exp(-ahead_s / TREND_S)))


class Forecast:
    """Remembers a minute or two of arrivals."""

    def __init__(
        self, beat_s: float = 1.0, trend_beats: int = 10, share_beats: int = 60, recent_beats: int = 4
    ) -> None:
        if not beat_s > 0:
            raise ValueError(f"beat_s must be above 0, not {beat_s:g}")
        if not 2 <= recent_beats <= trend_beats <= share_beats:
            raise ValueError("2 <= recent_beats <= trend_beats <= share_beats is needed")
        self._beat_s = beat_s
        self._trend_beats = trend_beats
        self._share_beats = share_beats
        self._recent_beats = recent_beats
        self._names: tuple[TopicPartition, ...] = ()
        self._known: frozenset[TopicPartition] = frozenset()
        self._slot_s = 0.0
        self._slots: Floats = np.zeros((0, 0))
        """Arrivals per slot and partition, oldest first."""
        self._since_jump = 0
        self._fresh: dict[int, int] = {}
        """Per partition whose share jumped: slots since then."""
        self._seen_s = 0.0
        self._total = 0.0
        self._dispersion = 1.0
        self._noise = 0.0
        self._jumps: deque[Jump] = deque(maxlen=_JUMPS_KEPT)
        self._measured: tuple[float, tuple[int, ...]] | None = None
        """When the last measurement was taken and the end offsets it showed."""

    def add(self, seen: Observation) -> None:
        names = self._names if seen.partitions.keys() == self._known else tuple(sorted(seen.partitions))
        slot_s = seen.slot_s or self._beat_s / 10
        if names != self._names or slot_s != self._slot_s:
            self._names, self._known, self._slot_s = names, frozenset(names), slot_s
            self._slots = np.zeros((0, len(names)))
            self._fresh.clear()
            self._jumps.clear()
            self._since_jump = 0
        loads = [seen.partitions[p] for p in names]
        if seen.slot_s and len({len(load.arrivals) for load in loads}) == 1:  # none: nothing was measured meanwhile
            new = np.array([load.arrivals for load in loads], dtype=np.float64).T
        else:
            new = self._coarse(seen, slot_s)
        self._slots = np.concatenate([self._slots, new])[-self._per_beat * self._share_beats :]
        self._since_jump += len(new)
        self._fresh = {p: n + len(new) for p, n in self._fresh.items()}
        self._seen_s += len(new) * slot_s
        self._total += float(new.sum())

    def _coarse(self, seen: Observation, slot_s: float) -> Floats:
        """What came since the last measurement, spread evenly, by end offsets; by mean rates before there are two."""
        loads = [seen.partitions[p] for p in self._names]
        ends = tuple(load.end_offset for load in loads)
        before, self._measured = self._measured, (seen.measured_at_s, ends)
        if before is None or len(before[1]) != len(ends):
            return np.tile([number(load.records_per_s) * slot_s for load in loads], (self._per_beat, 1))
        elapsed = seen.measured_at_s - before[0]
        slots = min(round(elapsed / slot_s), self._per_beat * self._share_beats)
        if slots < 1:
            self._measured = before
            return np.zeros((0, len(loads)))
        if any(ends):
            came = [max(0.0, float(now - then)) for now, then in zip(ends, before[1], strict=True)]
        else:
            came = [number(load.records_per_s) * elapsed for load in loads]
        return np.tile([count / slots for count in came], (slots, 1))

    @property
    def _per_beat(self) -> int:
        return max(1, round(self._beat_s / (self._slot_s or self._beat_s / 10)))

    @property
    def is_ready(self) -> bool:
        return len(self._slots) >= 2 * self._per_beat

    def load(self, ahead_s: float) -> Load:
        """The forecast; `ahead_s` is where its error is wanted."""
        beats = self._beats(self._slots)
        level, slope, error = self._total_ahead(beats, ahead_s)
        shares = self._shares(beats)
        self._scatter(beats, shares)
        shape = self._shape(self._slots)
        return Load(
            self._names,
            shares,
            level,
            slope,
            error,
            shape,
            self._slot_s,
            self._dispersion,
            self._noise,
            self._total / max(self._seen_s, self._beat_s),
            tuple(self._jumps),
            len(self._jumps)
            / max(60.0, self._seen_s - (self._jumps[0].at_s if len(self._jumps) == _JUMPS_KEPT else 0.0)),
            min(len(beats), self._since_jump // self._per_beat),
        )

    def _beats(self, slots: Floats) -> Floats:
        """Arrivals per beat and partition, counted back from now; oldest first."""
        whole = len(slots) // self._per_beat
        used = slots[len(slots) - whole * self._per_beat :]
        summed: Floats = used.reshape(whole, self._per_beat, -1).sum(axis=1)
        return summed

    def _total_ahead(self, beats: Floats, ahead_s: float) -> tuple[float, float, float]:
        """Level, slope and error by least squares over the beats since the last jump."""
        totals = beats.sum(axis=1) / self._beat_s
        known = max(1, min(len(totals), self._share_beats, self._since_jump // self._per_beat))
        used = totals[-known:]
        if known >= 4:
            before = self._fitting(used[:-1])
            expected, noise = before.at(self._beat_s), max(before.residual, math.sqrt(max(1.0, before.level)))
            if abs(used[-1] - expected) > _JUMP * noise:
                self._since_jump = self._per_beat
                if used[-1] > expected:
                    self._jumps.append(self._jump(beats, known))
                used = used[-1:]
        elif self._jumps and used[-1] > self._jumps[-1].level:  # the beat that showed the jump held only part of it
            self._jumps[-1] = replace(self._jumps[-1], level=float(used[-1]))
        if len(used) < 4:
            return max(0.0, float(used.mean())), 0.0, math.sqrt(max(1.0, float(used.mean())) / len(used))
        line = self._fitting(used)
        self._noise += 0.05 * ((line.residual / max(line.level, 1.0)) ** 2 - self._noise)
        certain = line.slope**2 / (line.slope**2 + line.slope_error**2) if line.slope else 0.0
        slope = line.slope * certain
        level = line.mean + slope * self._beat_s * (line.count / 2)  # from the middle of the window to now
        return max(0.0, level), slope, line.error_at(ahead_s) * math.sqrt(certain)

    def _jump(self, beats: Floats, known: int) -> Jump:
        """The newest beat as a jump from the mean of those known before it."""
        before = beats[-known:-1][-self._trend_beats :].mean(axis=0)
        added = np.maximum(0.0, beats[-1] - before)
        return Jump(self._seen_s, float(beats[-1].sum()) / self._beat_s, added / max(added.sum(), 1e-9))

    def _fitting(self, totals: Floats) -> "_Line":
        """A line through as many beats as one line can follow: long where it is noisy, short where it bends."""
        for beats in (4 * self._trend_beats, 2 * self._trend_beats):
            if len(totals) < beats:
                continue
            line = _line(totals[-beats:], self._beat_s)
            ages = self._beat_s * (np.arange(5) - 4.5)
            off = float((totals[-5:] - (line.level + line.slope * ages)).mean())
            if abs(off) <= _BEND * line.residual / math.sqrt(5):
                return line
        return _line(totals[-self._trend_beats :], self._beat_s)

    def _shape(self, slots: Floats) -> Floats:
        """How the slots of a beat differ, fullest first, averaged over the newest beats."""
        known = min(len(slots) // self._per_beat, self._trend_beats)
        recent = slots[-known * self._per_beat :].sum(axis=1).reshape(known, self._per_beat)
        busy = recent[recent.sum(axis=1) > 0]
        if len(busy) == 0:
            return np.ones(self._per_beat)
        sorted_down = -np.sort(-busy, axis=1)
        profile: Floats = (sorted_down / busy.mean(axis=1, keepdims=True)).mean(axis=0)
        return profile

    def _shares(self, beats: Floats) -> Floats:
        slow, fast = beats.sum(axis=0), beats[-self._recent_beats :].sum(axis=0)
        if slow.sum() <= 0:
            return np.full(beats.shape[1], 1 / beats.shape[1])
        shares = (slow + 0.5) / (slow + 0.5).sum()
        total = fast.sum()
        if total > 0 and len(beats) > self._recent_beats:
            off = (fast - shares * total) / np.sqrt(self._dispersion * np.maximum(shares * (1 - shares) * total, 1.0))
            for jumped in np.flatnonzero(np.abs(off) > _SHARE_JUMP).tolist():
                self._fresh[jumped] = self._recent_beats * self._per_beat
        for p, slots in list(self._fresh.items()):
            since = slots // self._per_beat
            if since >= len(beats):
                del self._fresh[p]
                continue
            part = beats[-since:]
            shares[p] = (part[:, p].sum() + 0.5) / max(1.0, part.sum())
        result: Floats = shares / shares.sum()
        return result

    def _scatter(self, beats: Floats, shares: Floats) -> None:
        """Smooths the dispersion towards what the newest beat shows."""
        total = beats[-1].sum()
        expected = shares * (1 - shares) * total
        if len(shares) > 1 and expected.min(initial=0.0) > 1.0:
            now = float((((beats[-1] - shares * total) ** 2) / expected).mean())
            self._dispersion += 0.02 * (min(now, 9.0) - self._dispersion)


@dataclass(frozen=True, slots=True)
class _Line:
    mean: float
    level: float
    """At the end of the window."""
    slope: float
    slope_error: float
    residual: float
    count: int
    beat_s: float

    def at(self, ahead_s: float) -> float:
        return self.level + self.slope * (ahead_s - self.beat_s / 2)

    def error_at(self, ahead_s: float) -> float:
        return self.slope_error * (ahead_s + self.count * self.beat_s / 2)


def _line(values: Floats, beat_s: float) -> _Line:
    """A straight line through equally spaced values."""
    n = len(values)
    x = beat_s * (np.arange(n) - (n - 1) / 2)
    spread = float((x**2).sum())
    slope = float((x * values).sum()) / spread if spread else 0.0
    fitted = values.mean() + slope * x
    residual = math.sqrt(float(((values - fitted) ** 2).sum()) / max(1, n - 2))
    end = float(values.mean()) + slope * beat_s * n / 2
    return _Line(float(values.mean()), end, slope, residual / math.sqrt(spread) if spread else 0.0, residual, n, beat_s)
