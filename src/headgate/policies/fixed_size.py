"""Groups that never grow or shrink: sized for the peak (E-36), or balanced within a given size (L-43, L-59)."""

from headgate.model import Alternative, Assignment, Decision, Observation, Plan, TopicPartition
from headgate.packing.least_loaded import Item, Room, least_loaded, onto_members
from headgate.policies.replica_capacity import PUBLISHED_PER_S, UNKNOWN, ReplicaCapacity
from headgate.policies.seen import (
    at_most,
    blind,
    check_above_zero,
    check_not_negative,
    contiguous,
    held,
    lag_of,
    rates,
    unowned,
)


def overprovisioned_size(
    peak_records_per_s: float, partitions: int, capacity_records_per_s: float, slo_s: float, f_up: float = 0.9
) -> int:
    """E-36: Least-Loaded with every partition at its share of the peak, one second's batch as its lag (A-4)."""
    check_above_zero(peak_records_per_s=peak_records_per_s, partitions=partitions)
    each = peak_records_per_s / partitions
    items = {TopicPartition("peak", n): Item(each, each) for n in range(partitions)}
    return min(partitions, len(least_loaded(items, Room.of(capacity_records_per_s, slo_s, f_up))))


class EqualCount:
    """Kafka's own way at a fixed size: the same number of partitions for everybody, whatever their load (L-59)."""

    def __init__(self, replicas: int, stale_after_s: float = 10.0, max_consumers: int | None = None) -> None:
        if not replicas >= 1:
            raise ValueError(f"replicas must be at least 1, not {replicas}")
        check_above_zero(stale_after_s=stale_after_s)
        self._replicas = min(replicas, at_most(max_consumers))
        self._stale_after_s = stale_after_s

    def decide(self, seen: Observation) -> Decision:
        hold = held(seen, self._stale_after_s)
        if hold is not None:
            return hold
        count = min(self._replicas, len(seen.partitions))
        if len(seen.assignment) == count and not unowned(seen):
            return Decision(None, f"{count} replicas, as configured")
        why = f"{count} replicas are configured, there are {len(seen.assignment)}"
        return Decision(contiguous(seen, count), why, "size", {"wanted": float(count)})


class Overprovisioned:
    """As many replicas as the peak will need, always (E-36). Sized once, by what a replica does when that is known."""

    def __init__(
        self,
        peak_records_per_s: float,
        partitions: int,
        capacity_records_per_s: float | None = PUBLISHED_PER_S,
        slo_s: float = 0.5,
        f_up: float = 0.9,
        stale_after_s: float = 10.0,
        max_consumers: int | None = None,
        consumer_capacity_bytes_per_s: float | None = None,
    ) -> None:
        check_above_zero(peak_records_per_s=peak_records_per_s, partitions=partitions, stale_after_s=stale_after_s)
        check_above_zero(slo_s=slo_s, f_up=f_up)
        self._replica = ReplicaCapacity(capacity_records_per_s, consumer_capacity_bytes_per_s)
        self._stale_after_s = stale_after_s
        most = at_most(max_consumers)

        def sized() -> EqualCount:
            size = overprovisioned_size(peak_records_per_s, partitions, self._replica.per_s, slo_s, f_up)
            return EqualCount(size, stale_after_s, most)

        self._sized = sized
        self._same = None if capacity_records_per_s is None else sized()

    def decide(self, seen: Observation) -> Decision:
        if self._same is None:
            hold = held(seen, self._stale_after_s)
            if hold is not None:
                return hold
            if not self._replica.look(seen):
                return blind(seen, UNKNOWN)
            self._same = self._sized()
        return self._same.decide(seen)


class LoadBalance:
    """L-43: a fixed number of replicas, their load kept even; moves only when the busiest gains enough by it."""

    def __init__(
        self,
        replicas: int,
        worth_moving: float = 0.9,
        cooldown_s: float = 10.0,
        stale_after_s: float = 10.0,
        max_consumers: int | None = None,
    ) -> None:
        if not replicas >= 1:
            raise ValueError(f"replicas must be at least 1, not {replicas}")
        check_above_zero(stale_after_s=stale_after_s)
        if not 0 < worth_moving <= 1:
            raise ValueError(
                f"worth_moving is a share of the busiest load, above 0 and at most 1, not {worth_moving:g}"
            )
        check_not_negative(cooldown_s=cooldown_s)
        self._replicas = min(replicas, at_most(max_consumers))
        self._worth_moving = worth_moving
        self._cooldown_s = cooldown_s
        self._stale_after_s = stale_after_s
        self._acted_s = float("-inf")

    def decide(self, seen: Observation) -> Decision:
        hold = held(seen, self._stale_after_s)
        if hold is not None:
            return hold
        count = min(self._replicas, len(seen.partitions))
        loads = {p: Item(rate) for p, rate in rates(seen).items()}
        whole = Room(max(1e-9, sum(i.rate for i in loads.values())) * 2, 1.0)
        bins = least_loaded(loads, whole, min_bins=count)
        plan = onto_members(bins, seen.assignment, {p: i.rate for p, i in loads.items()})
        before, after = _busiest(seen.assignment, loads), _busiest(plan, loads)
        inputs = {"busiest_before": before, "busiest_after": after, "wanted": float(count)}
        offer = f"{len(Plan.between(seen.assignment, plan).rebalanced)} moves"
        if len(seen.assignment) == count and not unowned(seen):
            left = self._cooldown_s - (seen.at_s - self._acted_s)
            if after > self._worth_moving * before or left > 0:
                why = f"the busiest would go from {before:.0f} to {after:.0f} records/s" if left <= 0 else "cooldown"
                return Decision(None, f"keep: {why}", "", inputs, (Alternative(offer, why),))
        self._acted_s = seen.at_s
        why = f"{offer}: the busiest of {count} goes from {before:.0f} to {after:.0f} records/s"
        return Decision(plan, why, "balance", inputs, (Alternative("keep", "uneven"),))


def _busiest(assignment: Assignment, loads: dict[TopicPartition, Item]) -> float:
    return max((r.rate for r in lag_of(assignment, loads).values()), default=0.0)
