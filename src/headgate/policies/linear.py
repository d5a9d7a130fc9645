"""Sizes from the total rate alone, with Kafka's contiguous placement: the latency paper's baselines (E-34, E-35)."""

import math

from headgate.model import Alternative, Decision, Observation
from headgate.policies.replica_capacity import PUBLISHED_PER_S, UNKNOWN, ReplicaCapacity
from headgate.policies.seen import (
    at_most,
    blind,
    check_above_zero,
    check_not_negative,
    contiguous,
    held,
    rates,
    unowned,
)


class Linear:
    """N = ceil(lambda·f_up / (mu·f_down)), both directions, blind to lag and skew (E-34, A-1)."""

    def __init__(
        self,
        capacity_records_per_s: float | None = PUBLISHED_PER_S,
        f_up: float = 0.9,
        f_down: float = 0.4,
        cooldown_s: float = 10.0,
        stale_after_s: float = 10.0,
        max_consumers: int | None = None,
        consumer_capacity_bytes_per_s: float | None = None,
    ) -> None:
        check_above_zero(stale_after_s=stale_after_s)
        if not 0 < f_down <= f_up <= 1:
            raise ValueError(f"0 < f_down <= f_up <= 1 is needed, not {f_down:g} and {f_up:g}")
        check_not_negative(cooldown_s=cooldown_s)
        self._replica = ReplicaCapacity(capacity_records_per_s, consumer_capacity_bytes_per_s)
        self._share = f_down / f_up
        self._cooldown_s = cooldown_s
        self._stale_after_s = stale_after_s
        self._most = at_most(max_consumers)
        self._acted_s = float("-inf")

    def wanted(self, records_per_s: float, partitions: int) -> int:
        """Replicas for this rate: at least 1, at most one per partition and as many as allowed."""
        return max(1, min(partitions, self._most, math.ceil(records_per_s / self._per_replica - 1e-9)))

    @property
    def _per_replica(self) -> float:
        return self._replica.per_s * self._share

    def decide(self, seen: Observation) -> Decision:
        hold = held(seen, self._stale_after_s)
        if hold is not None:
            return hold
        if not self._replica.look(seen):
            return blind(seen, UNKNOWN)
        here, total = len(seen.assignment), sum(rates(seen).values())
        count = self.wanted(total, len(seen.partitions))
        inputs = {"records_per_s": total, "wanted": float(count), "consumers": float(here)}
        if count == here and not unowned(seen):
            return Decision(None, f"{total:.0f} records/s need {count} replicas, as there are", "", inputs)
        left = self._cooldown_s - (seen.at_s - self._acted_s)
        if left > 0:
            why = f"{left:.1f} s of the cooldown are left"
            return Decision(None, f"hold: {why}", "", inputs, (Alternative(f"{count} replicas", why),))
        self._acted_s = seen.at_s
        why = f"{total:.0f} records/s need {count} replicas at {self._per_replica:.1f} each: {here} -> {count}"
        kept = Alternative(f"keep {here}", "not what the rate asks for")
        trigger = "UP" if count > here else "DOWN" if count < here else "unassigned"
        return Decision(contiguous(seen, count), why, trigger, inputs, (kept,))


class RatioOnly(Linear):
    """N = ceil(lambda / mu): the rate fits, latency is not asked about (E-35)."""

    def __init__(
        self,
        capacity_records_per_s: float | None = PUBLISHED_PER_S,
        cooldown_s: float = 10.0,
        stale_after_s: float = 10.0,
        max_consumers: int | None = None,
        consumer_capacity_bytes_per_s: float | None = None,
    ) -> None:
        super().__init__(
            capacity_records_per_s, 1.0, 1.0, cooldown_s, stale_after_s, max_consumers, consumer_capacity_bytes_per_s
        )
