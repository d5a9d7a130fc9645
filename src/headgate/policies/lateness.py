"""How many records will be late: for a set of partitions on one consumer, and because of a move.

Arrivals keep the shape they had lately and the level that is forecast. The backlog they leave on a consumer of known
capacity follows from them slot by slot; whatever stands beyond capacity · SLO in the queue is late. Around that
expectation backlogs scatter: keys fall at random, and the forecast has an error of its own.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from headgate.model import Assignment, Observation, PartitionLoad
from headgate.policies.forecast import Floats, Load
from headgate.policies.seen import number

USUAL = 4.0
"""Deviations above its expectation up to which a queue is nothing unusual."""


def late_per_s(
    load: Load,
    shares: Floats,
    level: float | Floats,
    capacity_records_per_s: float,
    slo_s: float,
) -> Floats:
    """Late records per second of consumers that hold these shares of the total, each entry one consumer.

    `level` is the total in records per second, one for all consumers or one for each.
    """
    rates = np.asarray(shares, dtype=np.float64) * level
    arrivals, peak, deviation = _queues(load, shares, level, capacity_records_per_s)
    over = excess(peak - capacity_records_per_s * slo_s, deviation)
    late = np.minimum(over, arrivals).sum(axis=0) / (len(load.shape) * load.slot_s)
    # A consumer that cannot keep up falls behind for ever: all it gets is late before long.
    result: Floats = np.where(rates > capacity_records_per_s, np.maximum(late, rates), late)
    return result


def highest_queue(load: Load, shares: Floats, level: float, capacity_records_per_s: float) -> Floats:
    """Records that may stand in each consumer's queue at some moment of a beat with nothing being wrong."""
    _, peak, deviation = _queues(load, shares, level, capacity_records_per_s)
    result: Floats = (peak + USUAL * deviation).max(axis=0)
    return result


def _queues(
    load: Load, shares: Floats, level: float | Floats, capacity_records_per_s: float
) -> tuple[Floats, Floats, Floats]:
    """Slot by slot and for each consumer: what comes, what then stands in the queue, and the deviation of that."""
    arrivals = np.outer(load.shape, shares * level) * load.slot_s
    drained = capacity_records_per_s * load.slot_s
    walk = np.cumsum(arrivals - drained, axis=0)
    lowest = np.minimum(np.minimum.accumulate(walk, axis=0), 0.0)
    peak = arrivals.copy()
    peak[1:] += (walk - lowest)[:-1]
    spread = load.dispersion * np.clip(1 - shares, 0, 1) * peak
    spread = spread + ((load.error / np.maximum(level, 1e-9)) ** 2 + load.noise) * peak**2
    return arrivals, peak, np.sqrt(np.maximum(spread, 1e-12))


def excess(above: Floats, deviation: Floats) -> Floats:
    """E[max(0, X)] of a normal X with this mean and deviation."""
    z = above / deviation
    density = np.exp(-0.5 * np.minimum(z * z, 700.0)) / math.sqrt(2 * math.pi)
    # The normal distribution's upper tail by the classical polynomial (Abramowitz and Stegun 26.2.17), good to 1e-7.
    t = 1 / (1 + 0.2316419 * np.abs(z))
    tail = density * t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    result: Floats = above * np.where(z > 0, 1 - tail, tail) + deviation * density
    return np.maximum(result, 0.0)


def late_by_moving(rates: Floats, pause_s: float, capacity_records_per_s: float, slo_s: float) -> float:
    """Late records because these partitions stand still once for `pause_s` each.

    What arrives meanwhile waits for the rest of the pause and then for its own backlog to be worked off.
    """
    return float((rates * np.maximum(0.0, pause_s + rates * pause_s / capacity_records_per_s - slo_s)).sum())


class LateAccount:
    """Records that came and records that were late, as far as arrivals and capacity tell; both fade over `memory_s`."""

    def __init__(self, slo_s: float, memory_s: float) -> None:
        self._slo_s = slo_s
        self._memory_s = memory_s
        self._owned = Assignment()
        """Who served what has come since the last look."""
        self._backlog: dict[int, float] = {}
        self._last_s: float | None = None
        self.records = 0.0
        self.late = 0.0

    def add(self, seen: Observation, capacity_records_per_s: float, pause_s: float, waits_s: float) -> None:
        """Follows every consumer's backlog through the slots since the last observation."""
        elapsed = 0.0 if self._last_s is None else max(0.0, seen.at_s - self._last_s)
        self._last_s = seen.at_s
        fading = math.exp(-elapsed / self._memory_s)
        self.records *= fading
        self.late *= fading
        in_time = capacity_records_per_s * self._slo_s
        for consumer in self._owned or seen.assignment:
            loads = [seen.partitions[p] for p in (self._owned or seen.assignment)[consumer] if p in seen.partitions]
            if seen.slot_s:
                self._follow(consumer, loads, capacity_records_per_s * seen.slot_s, in_time)
            else:  # nothing finer is known: what waits beyond the SLO tells how many are late
                came = elapsed * sum(number(load.records_per_s) for load in loads)
                self.records += came
                self.late += min(came, max(0.0, _waiting(loads, waits_s) - in_time))
        if seen.assignment != self._owned:
            self._change_hands(seen, capacity_records_per_s, pause_s, waits_s)

    def _follow(self, consumer: int, loads: Sequence[PartitionLoad], drained: float, in_time: float) -> None:
        backlog = self._backlog.get(consumer, 0.0)
        for came in map(sum, zip(*(load.arrivals for load in loads), strict=False)):
            backlog += came
            self.records += came
            self.late += min(came, max(0.0, backlog - in_time))
            backlog = max(0.0, backlog - drained)
        self._backlog[consumer] = backlog

    def _change_hands(self, seen: Observation, capacity_records_per_s: float, pause_s: float, waits_s: float) -> None:
        """What moved stood still meanwhile; what waits now, waits with its new owner."""
        before, loads = self._owned.by_partition(), seen.partitions
        moved = [
            number(loads[p].records_per_s)
            for c in seen.assignment
            for p in seen.assignment[c]
            if p in loads and before.get(p, c) != c
        ]
        self.late += late_by_moving(np.array(moved), pause_s, capacity_records_per_s, self._slo_s)
        self._owned = seen.assignment
        self._backlog = {
            c: _waiting([loads[p] for p in held if p in loads], waits_s) for c, held in seen.assignment.owners.items()
        }


def _waiting(loads: Iterable[PartitionLoad], waits_s: float) -> float:
    """Records that wait longer than they must."""
    return sum(max(0.0, number(load.lag_records) - number(load.records_per_s) * waits_s) for load in loads)
