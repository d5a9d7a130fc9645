"""Algorithms 1 and 2: pack rate and lag with Least-Loaded, big bins to grow, small ones to shrink (E-13 … E-20).

Algorithm 1 packs the lag there is. Algorithm 2 decides the same way whether to act, and then packs the lag there will
be once the rebalance it is about to cause has gone by; so reassignments may become scale-ups, and scale-downs wait
for times at which they do no harm.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headgate.model import Alert, Alternative, Assignment, Decision, Observation, TopicPartition
from headgate.packing.least_loaded import Item, Room, at_most_bins, least_loaded, onto_members
from headgate.policies.replica_capacity import PUBLISHED_PER_S, UNKNOWN, ReplicaCapacity
from headgate.policies.seen import at_most, blind, check_above_zero, check_not_negative, held, items, lag_of, unowned

Action = Literal["UP", "DOWN", "REASS", ""]
Packed = tuple[frozenset[TopicPartition], ...]
MOST_TOLD = 20
"""Partitions whose rate and lag a decision tells."""


@dataclass
class _LagPacker(ABC):
    """What both algorithms share: the paper's settings and defaults (E-1, E-2), phase 1, the cooldown and the words."""

    capacity_records_per_s: float | None = PUBLISHED_PER_S
    """None: as measured, and until then as configured in bytes."""
    slo_s: float = 0.5
    f_up: float = 0.9
    f_down: float = 0.4
    cooldown_s: float = 10.0
    """No decision this long after an action (E-19)."""
    rebalance_s: float = 0.05
    """t_r until one is measured."""
    literal: bool = True
    """A reassignment packs into as few bins as it needs, as printed; otherwise into all there are (E-20)."""
    sort_key: str = "rate"
    stale_after_s: float = 10.0
    max_consumers: int | None = None
    consumer_capacity_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.f_down < self.f_up < 1:
            raise ValueError(f"0 < f_down < f_up < 1 is needed, not {self.f_down:g} and {self.f_up:g}")
        check_above_zero(slo_s=self.slo_s, rebalance_s=self.rebalance_s, stale_after_s=self.stale_after_s)
        check_not_negative(cooldown_s=self.cooldown_s)
        self._replica = ReplicaCapacity(self.capacity_records_per_s, self.consumer_capacity_bytes_per_s)
        self._most = at_most(self.max_consumers)
        self._acted_s = float("-inf")
        self.deferred_downs = 0
        """Scale-downs that the coming rebalance's lag forbade (E-17)."""

    def _room(self, share: float) -> Room:
        return Room.of(self._replica.per_s, self.slo_s, share)

    def decide(self, seen: Observation) -> Decision:
        hold = held(seen, self.stale_after_s)
        if hold is not None:
            return hold
        is_known = self._replica.look(seen)
        if seen.at_s - self._acted_s < self.cooldown_s:
            left = self.cooldown_s - (seen.at_s - self._acted_s)
            return Decision(None, f"hold: {left:.1f} s of the cooldown are left")
        if not is_known:
            return blind(seen, UNKNOWN)
        packed = items(seen)
        g_up = self._pack(packed, self.f_up)
        g_down = self._pack(packed, self.f_down)
        inputs = {
            "consumers": float(len(seen.assignment)),
            "packed_up": float(len(g_up)),
            "packed_down": float(len(g_down)),
            "records_per_s": sum(i.rate for i in packed.values()),
            "lag_records": sum(i.lag for i in packed.values()),
            "capacity_records_per_s": self._replica.per_s,
            **_told(packed),
        }
        action = self._scale_needed(seen, packed, len(g_up), len(g_down))
        alerts = self._oversize(packed)
        if not action:
            return Decision(None, f"{len(seen.assignment)} replicas hold rate and lag", "", inputs, alerts=alerts)
        decision = self._act(seen, packed, action, inputs, alerts)
        if decision.assignment is not None and not _same(decision.assignment, seen.assignment):
            self._acted_s = seen.at_s
        return decision

    def _scale_needed(self, seen: Observation, packed: Mapping[TopicPartition, Item], up: int, down: int) -> Action:
        """E-14; the same for both."""
        if up > len(seen.assignment):
            return "UP"
        if down < len(seen.assignment):
            return "DOWN"
        if unowned(seen) or self._violates(seen, packed):
            return "REASS"
        return ""

    def _violates(self, seen: Observation, packed: Mapping[TopicPartition, Item]) -> bool:
        """E-13, on the assignment as it is now."""
        room = self._room(self.f_up)
        return any(r.lag > room.lag or r.rate > room.rate for r in lag_of(seen.assignment, packed).values())

    def _pack(self, packed: Mapping[TopicPartition, Item], share: float, min_bins: int = 1) -> Packed:
        return at_most_bins(least_loaded(packed, self._room(share), min_bins, self.sort_key), packed, self._most)

    def _reass_bins(self, seen: Observation) -> int:
        return 1 if self.literal else len(seen.assignment)

    def _plan(
        self, seen: Observation, bins: Packed, packed: Mapping[TopicPartition, Item], keep_idle: bool
    ) -> Assignment:
        plan = onto_members(bins, seen.assignment, {p: i.rate for p, i in packed.items()})
        if keep_idle:  # a literal reassignment deletes nobody: who gets no bin idles
            return Assignment({**{c: frozenset() for c in seen.assignment if c not in plan.owners}, **plan.owners})
        return plan

    def _oversize(self, packed: Mapping[TopicPartition, Item]) -> tuple[Alert, ...]:
        room = self._room(1.0)
        return tuple(
            Alert(
                f"oversize {p}",
                f"{p} has {i.rate:.0f} records/s and {i.lag:.0f} waiting, more than the {room.rate:.0f} records/s and "
                f"{room.lag:.0f} in time of one replica: it gets one alone; spread its keys over more partitions",
            )
            for p, i in sorted(packed.items())
            if i.rate > room.rate or i.lag > room.lag
        )

    def _act(
        self,
        seen: Observation,
        packed: Mapping[TopicPartition, Item],
        action: Action,
        inputs: dict[str, float],
        alerts: tuple[Alert, ...],
    ) -> Decision:
        """Phase 2, on the lag there is or there will be; a scale-down or a reassignment may turn out differently."""
        here, added_s = len(seen.assignment), self._added_s(seen)
        total = items(seen, added_s) if added_s else packed
        share = self.f_down if action == "DOWN" else self.f_up
        bins = self._pack(total, share, self._reass_bins(seen) if action == "REASS" else 1)
        inputs |= {"rebalance_s": added_s, "packed_with_rebalance": float(len(bins))}
        size = f"{len(bins)} bins filled to {share:g}" + (
            f", with the lag of a {added_s:g} s rebalance," * (added_s > 0)
        )
        if action == "DOWN":
            if len(bins) >= here:
                self.deferred_downs += 1
                why = f"scale-down deferred, the rebalance's own lag needs {len(bins)} of {here} replicas"
                rejected = (Alternative("fewer replicas now", why),)
                return Decision(None, f"phase 1 DOWN, phase 2 none: {why}", "DOWN", inputs, rejected, alerts)
            plan = self._plan(seen, bins, total, keep_idle=False)
            why = f"phase 1 DOWN, phase 2 DOWN: {size} hold everything: {here} -> {len(bins)}"
            return Decision(plan, why, "DOWN", inputs, (Alternative(f"keep {here}", "costs more"),), alerts)
        grows = len(bins) > here
        final: Action = "UP" if grows else "REASS"
        plan = self._plan(seen, bins, total, keep_idle=not grows)
        why = (
            f"{size} are needed: {here} -> {len(bins)}"
            if grows
            else f"a replica is over {self.f_up:g} of rate or lag: same size, new places"
        )
        rejected = (Alternative(f"keep {here} as they are", "the invariant of E-6 is in danger"),)
        return Decision(plan, f"phase 1 {action}, phase 2 {final}: {why}", final, inputs, rejected, alerts)

    @abstractmethod
    def _added_s(self, seen: Observation) -> float:
        """For how long nobody will work off anything because of the action itself."""


def _told(packed: Mapping[TopicPartition, Item]) -> dict[str, float]:
    """E-22: rate and lag by partition, of the busiest where there are too many for a record that people read."""
    busiest = sorted(packed, key=lambda p: (-packed[p].rate, -packed[p].lag, p))[:MOST_TOLD]
    rates = {f"{p} records_per_s": packed[p].rate for p in sorted(busiest)}
    return rates | {f"{p} lag_records": packed[p].lag for p in sorted(busiest)}


def _same(a: Assignment, b: Assignment) -> bool:
    return dict(a.owners) == dict(b.owners)


class Algorithm1(_LagPacker):
    """Acts on the lag there is (E-14): phase 2 sees what phase 1 saw."""

    def _added_s(self, seen: Observation) -> float:
        return 0.0


class Algorithm2(_LagPacker):
    """Acts on the lag there will be after the rebalance (E-16, E-17)."""

    def _added_s(self, seen: Observation) -> float:
        return self.rebalance_s if seen.pause_s is None else seen.pause_s
