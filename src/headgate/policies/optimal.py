"""The paper's "Optimal" (E-37): each second's batch packed anew, as if replicas came at once and moves cost nothing.

It has no violations by definition and is no lower bound of cost at any other SLA (A-14).
"""

from collections.abc import Iterable, Sequence

from headgate.model import Alternative, Decision, Observation, TopicPartition
from headgate.packing.least_loaded import Item, Room, at_most_bins, least_loaded, onto_members
from headgate.policies.seen import at_most, check_above_zero, held, items, number, unowned

PAPER_EVENTS = 85
"""Where the authors saw 500 ms reached in practice; mu·w_sla would be 100 (A-2)."""


def replicas_for(batch: Sequence[float], events: float) -> int:
    """Bins of `events` for one second's batch of each partition."""
    loads = {TopicPartition("batch", n): Item(size, 0.0) for n, size in enumerate(batch)}
    return min(len(batch), len(least_loaded(loads, Room(events, 1.0))))


def offline(batches: Iterable[Sequence[float]], events: float) -> list[int]:
    """Replicas second by second."""
    return [replicas_for(batch, events) for batch in batches]


class Optimal:
    """The same as a policy: packs what arrived in the last second. For a simulator without start-up and pauses."""

    def __init__(
        self, events: float = PAPER_EVENTS, stale_after_s: float = 10.0, max_consumers: int | None = None
    ) -> None:
        check_above_zero(events=events, stale_after_s=stale_after_s)
        self._events = events
        self._stale_after_s = stale_after_s
        self._most = at_most(max_consumers)

    def decide(self, seen: Observation) -> Decision:
        hold = held(seen, self._stale_after_s)
        if hold is not None:
            return hold
        loads = {p: Item(number(item.rate)) for p, item in items(seen).items()}
        bins = at_most_bins(least_loaded(loads, Room(self._events, 1.0))[: len(loads)], loads, self._most)
        plan = onto_members(bins, seen.assignment, {p: i.rate for p, i in loads.items()})
        here = len(seen.assignment)
        inputs = {"packed": float(len(bins)), "consumers": float(here)}
        if len(bins) == here and not unowned(seen):
            return Decision(None, f"{here} replicas are optimal", "", inputs)
        why = f"{len(bins)} bins of {self._events:g} events hold the last second: {here} -> {len(bins)}"
        return Decision(plan, why, "UP" if len(bins) > here else "DOWN", inputs, (Alternative(f"keep {here}", why),))
