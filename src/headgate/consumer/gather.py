"""Choosing the ranges of a cycle: bounded by bytes, fair between partitions. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Pending:
    """What one partition has waiting for one table."""

    start: int
    end: int
    bytes_per_record: float

    @property
    def bytes(self) -> float:
        return (self.end - self.start) * self.bytes_per_record


def choose_ranges(pending: Mapping[K, Pending], budget_bytes: float, rotation: int = 0) -> dict[K, tuple[int, int]]:
    """Offsets [start, end) per key, together about `budget_bytes`.

    Water-filling: everybody gets an equal share of the budget; what some do not need is shared by the others, so a
    hot partition takes what is left over and never what another one is due. Whoever has anything gets at least one
    record while budget is left, so a record larger than its share (or the whole budget) is still read; `rotation`
    decides who comes first when there is not even one record for each.
    """
    waiting = {key: p for key, p in pending.items() if p.end > p.start}
    chosen: dict[K, tuple[int, int]] = {}
    left = budget_bytes
    if left < sum(p.bytes_per_record for p in waiting.values()):
        keys = list(waiting)
        first = rotation % len(keys)
        for key in keys[first:] + keys[:first]:
            if left <= 0:
                break
            chosen[key] = (waiting[key].start, waiting[key].start + 1)
            left -= waiting[key].bytes_per_record
        return chosen
    smallest_first = sorted(waiting, key=lambda key: waiting[key].bytes)
    for index, key in enumerate(smallest_first):
        one = waiting[key]
        share = left / (len(smallest_first) - index)
        records = one.end - one.start
        if one.bytes > share:
            records = max(1, int(share / one.bytes_per_record))
        chosen[key] = (one.start, one.start + records)
        left -= records * one.bytes_per_record
    return chosen


class RateCap:
    """A token bucket: lets through `bytes_per_s` on average.

    It saves up two seconds' worth, or what the last cycle took if that was longer: a cap on the rate must not turn
    into a lower one because cycles are slow.
    """

    def __init__(self, bytes_per_s: float | None, now_s: float) -> None:
        self._rate = bytes_per_s
        self._tokens = 0.0
        self._at = now_s
        self._spent_at = now_s

    def allowance(self, now_s: float) -> float:
        """How many bytes may be read now; infinite without a cap."""
        if self._rate is None:
            return float("inf")
        most_s = max(2.0, now_s - self._spent_at)
        self._tokens = min(most_s * self._rate, self._tokens + (now_s - self._at) * self._rate)
        self._at = now_s
        return max(0.0, self._tokens)

    def spend(self, payload_bytes: float, chosen_at_s: float) -> None:
        """May go below zero when records were larger than expected; the next cycles wait it out."""
        if self._rate is not None and payload_bytes > 0:
            self._tokens -= payload_bytes
            self._spent_at = chosen_at_s
