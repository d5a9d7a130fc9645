"""The least any policy could pay: one that knows every batch, places it anew each second and pays nothing for changes.

For each second and each number of replicas it takes the placement with the fewest late records. Which seconds get how
many replicas is then a matter of price: with one price on late records for the whole trace, the cheapest choice of
every second by itself is optimal for the share of late records it ends up with. Backlog from one second to the next
is left out, and so are start-up and moves, so this is a bound from below, not a policy.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from headgate.policies.lateness import excess
from headgate.simulation.arrivals import Floats, Ints


@dataclass(frozen=True, slots=True)
class Bound:
    sla_percent: float
    replica_minutes: float


def bound(per_second: Ints, in_time: float, sla_percent: float) -> Bound:
    """Fewest replica-minutes for this SLA; `in_time` is how many records of a batch one replica finishes in time.
    ValueError if nobody reaches it: single partitions get more in a second than one replica finishes in time."""
    return _cheapest(fewest_late(per_second, in_time), float(per_second.sum()), sla_percent)


def _cheapest(late: Floats, total: float, sla_percent: float) -> Bound:
    """By one price on late records, found by halving."""
    sizes = np.arange(1, late.shape[1] + 1)
    low, high = 0.0, 100.0
    best: Bound | None = None
    for _ in range(60):
        price = (low + high) / 2
        chosen = np.argmin(sizes + price * late, axis=1)
        missed = float(late[np.arange(len(late)), chosen].sum())
        reached = Bound(100 * (1 - missed / max(1.0, total)), float(sizes[chosen].sum()) / 60)
        if reached.sla_percent >= sla_percent:
            best, high = reached, price
        else:
            low = price
    if best is None:
        raise ValueError(f"no price up to {high:g} reaches {sla_percent:g} %")
    return best


def bound_of_the_curve(rates: Floats, shares: Floats, in_time: float, sla_percent: float) -> Bound:
    """The same for one who knows the curve of the total but not where keys will fall: late records are expectations."""
    totals = np.ceil(rates)
    late = np.full((len(totals), len(shares)), np.inf)
    for placement in placements(len(shares)):
        held = np.array([shares[list(group)].sum() for group in placement])
        mean = totals[:, None] * held
        deviation = np.sqrt(np.maximum(mean * (1 - held), 1e-9))
        expected = excess(mean - in_time, deviation).sum(axis=1)
        late[:, len(placement) - 1] = np.minimum(late[:, len(placement) - 1], expected)
    return _cheapest(late, float(totals.sum()), sla_percent)


def without_foresight(per_second: Ints, in_time: float, delay_s: int) -> Bound:
    """What becomes of one who has, and keeps for good, as many replicas as any second so far has needed.

    They are ready `delay_s` after that second and always placed as well as can be. Only seconds that need more than any
    before make records late, so whoever pays for nothing beyond what was seen has at least that many.
    """
    late = fewest_late(per_second, in_time)
    needed = late.argmin(axis=1)  # the fewest replicas with the fewest late
    held = np.maximum.accumulate(np.concatenate([np.zeros(delay_s, dtype=np.int64), needed])[: len(needed)])
    missed = float(late[np.arange(len(late)), held].sum())
    return Bound(100 * (1 - missed / max(1, int(per_second.sum()))), float((held + 1).sum()) / 60)


def fewest_late(per_second: Ints, in_time: float) -> Floats:
    """Late records for each second and number of replicas: shape (seconds, partitions)."""
    seconds, partitions = per_second.shape
    late = np.full((seconds, partitions), np.inf)
    for placement in placements(partitions):
        loads = np.stack([per_second[:, list(group)].sum(axis=1) for group in placement], axis=1)
        over = np.maximum(0.0, loads - in_time).sum(axis=1)
        late[:, len(placement) - 1] = np.minimum(late[:, len(placement) - 1], over)
    return late


@cache
def placements(partitions: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Every way to spread the partitions over any number of replicas: 52 for five partitions, 21,147 for nine."""
    return tuple(_split(partitions))


def _split(partitions: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    if partitions == 0:
        yield ()
        return
    last = partitions - 1
    for rest in _split(last):
        for n in range(len(rest)):
            yield (*rest[:n], (*rest[n], last), *rest[n + 1 :])
        yield (*rest, (last,))
