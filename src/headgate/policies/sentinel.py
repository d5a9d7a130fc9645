"""The published trigger policy (L-34): act when a consumer is overloaded, when a partition has no owner, or after a
while in case fewer consumers would do; what to act with is the packer's answer.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from headgate.model import Alert, Alternative, Assignment, Decision, Observation, Plan, TopicPartition
from headgate.packing import Packer
from headgate.packing.any_fit import descending, usable
from headgate.packing.protocol import Capacity
from headgate.policies.folding import fold, loads
from headgate.policies.instead import Instead
from headgate.policies.seen import at_most, check_above_zero, check_not_negative, too_old

TimeoutPolicy = Literal["always", "only_if_fewer_consumers"]

WORTH_MOVING = 0.9
"""With the fleet at its limit a packing is only applied if the busiest consumer ends up with at most this share of its
load; otherwise an overload that more consumers would cure, but may not, would shuffle partitions for ever."""


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.3g} MB/s"


def _some(partitions: frozenset[TopicPartition]) -> str:
    names = ", ".join(str(p) for p in sorted(partitions)[:3])
    return names if len(partitions) <= 3 else f"{names} and {len(partitions) - 3} more"


@dataclass(frozen=True, slots=True)
class _Seen:
    """One observation with what the triggers look at."""

    rates: dict[TopicPartition, float]
    current: Assignment
    """Without consumers that own nothing; they are spares, not part of the packing."""
    load: dict[int, float]
    share: dict[int, float]
    """Of the configured capacity, what each consumer has (L-26)."""
    new_share: float
    """The same of a consumer that is not there yet."""
    unassigned: frozenset[TopicPartition]
    vanished: frozenset[TopicPartition]

    @classmethod
    def of(cls, seen: Observation, configured_bytes_per_s: float) -> "_Seen":
        rates, current = usable(seen.rates()), seen.assignment
        if not all(current.owners.values()):
            current = Assignment({c: current[c] for c in current if current[c]})
        known, owned, able = frozenset(rates), current.partitions, seen.abilities
        share = {c: able.share(c, configured_bytes_per_s) for c in {*current, *able.speed}}
        new_share = able.share(None, configured_bytes_per_s)
        return cls(rates, current, loads(current, rates), share, new_share, known - owned, owned - known)

    def capacity(self, configured_bytes_per_s: float) -> Capacity:
        """Per consumer; those that are like a new one need no mention."""
        of = {c: configured_bytes_per_s * share for c, share in self.share.items() if share != self.new_share}
        return Capacity(configured_bytes_per_s * self.new_share, of)

    def busiest(self, assignment: Assignment) -> float:
        """The highest load, as what it would be for a consumer with all its capacity: half a one carries it twice."""
        carried = loads(assignment, self.rates).items()
        return max((load / self.share.get(c, self.new_share) for c, load in carried), default=0.0)


class Sentinel:
    """Remembers nothing: the same observation always gets the same decision."""

    def __init__(
        self,
        packer: Packer,
        consumer_capacity_bytes_per_s: float,
        packing_capacity_bytes_per_s: float,
        max_sentinel_s: float = 10.0,
        timeout_policy: TimeoutPolicy = "only_if_fewer_consumers",
        max_consumers: int = 32,
        stale_after_s: float = 10.0,
    ) -> None:
        if not 0 < packing_capacity_bytes_per_s <= consumer_capacity_bytes_per_s:
            raise ValueError(
                f"packing capacity {_rate(packing_capacity_bytes_per_s)} must be above 0 and at most the consumer "
                f"capacity {_rate(consumer_capacity_bytes_per_s)} (L-2)"
            )
        if timeout_policy not in get_args(TimeoutPolicy):
            raise ValueError(f"timeout_policy is one of {', '.join(get_args(TimeoutPolicy))}, not {timeout_policy!r}")
        check_above_zero(stale_after_s=stale_after_s)
        check_not_negative(max_sentinel_s=max_sentinel_s)
        at_most(max_consumers)
        self._packer = packer
        self._consumer_capacity = consumer_capacity_bytes_per_s
        self._packing_capacity = packing_capacity_bytes_per_s
        self._max_sentinel_s = max_sentinel_s
        self._timeout_policy = timeout_policy
        self._max_consumers = max_consumers
        self._stale_after_s = stale_after_s

    def decide(self, seen: Observation) -> Decision:
        view = _Seen.of(seen, self._consumer_capacity)
        inputs = {
            "age_s": seen.age_s,
            "partitions": float(len(view.rates)),
            "total_bytes_per_s": sum(view.rates.values()),
            "busiest_bytes_per_s": max(view.load.values(), default=0.0),
            "consumers": float(len(view.current)),
            "consumer_capacity_bytes_per_s": self._consumer_capacity,
            "packing_capacity_bytes_per_s": self._packing_capacity,
        } | _reduced(view)
        stale = too_old(seen, self._stale_after_s)  # L-36
        if stale:
            return Decision(None, stale, inputs=inputs)
        fired = self._triggers(view, seen.at_s - seen.watching_since_s)
        oversize = self._oversize(view)
        if not fired:
            busiest = _rate(inputs["busiest_bytes_per_s"])
            reason = f"nothing to do: the busiest of {len(view.current)} consumers has {busiest}"
            return Decision(None, reason, inputs=inputs, alerts=oversize)
        return self._answer(view, fired, inputs, oversize)

    def _triggers(self, view: _Seen, watched_s: float) -> dict[str, str]:
        """Every trigger that fires, in order of urgency, with its sentence."""
        fired = {}
        capacity = view.capacity(self._consumer_capacity)
        # L-35: a consumer with one partition cannot be relieved by packing, so it never triggers; unless it is slow,
        # and another one could do it.
        over = [
            c
            for c in view.load
            if view.load[c] > capacity[c] and (len(view.current[c]) > 1 or view.share[c] < view.new_share)
        ]
        if over:
            worst = min(over, key=lambda c: (-view.load[c] / view.share[c], c))
            slow = "" if view.share[worst] == 1 else f" (it is down to {view.share[worst]:.0%} of its capacity)"
            fired["overload"] = (
                f"consumer {worst} has {_rate(view.load[worst])} in {len(view.current[worst])} partitions, "
                f"more than its {_rate(capacity[worst])}{slow}"
            )
        if view.unassigned:
            fired["unassigned"] = f"{len(view.unassigned)} partitions have no owner ({_some(view.unassigned)})"
        if view.vanished:
            fired["vanished"] = f"{len(view.vanished)} partitions are no longer wanted ({_some(view.vanished)})"
        if watched_s > self._max_sentinel_s:
            fired["timeout"] = f"{watched_s:.1f} s passed since the last packing"
        return fired

    def _oversize(self, view: _Seen) -> tuple[Alert, ...]:
        most = view.capacity(self._consumer_capacity).default_bytes_per_s
        oversize = [p for p, rate in view.rates.items() if rate > most]
        return tuple(
            Alert(
                f"oversize {p}",
                f"{p} is written at {_rate(view.rates[p])}, faster than the {_rate(most)} of one "
                "consumer: its lag will grow whatever the packing; spread its keys over more partitions",
            )
            for p in descending(oversize, view.rates)
        )

    def _answer(
        self, view: _Seen, fired: dict[str, str], inputs: dict[str, float], alerts: tuple[Alert, ...]
    ) -> Decision:
        trigger, why = next(iter(fired)), "; ".join(fired.values())
        if set(fired) <= {"vanished"}:  # letting go needs no packing
            chosen = Assignment(
                {c: view.current[c] - view.vanished for c in view.current if view.current[c] - view.vanished}
            )
            return Decision(chosen, f"{why}: let them go", trigger, inputs, alerts=alerts)

        packed = self._packer.pack(view.rates, view.capacity(self._packing_capacity), view.current)
        needed, chosen = len(packed), packed
        inputs["needed_consumers"] = float(needed)
        if needed > self._max_consumers:
            chosen = fold(packed, view.rates, view.current, self._max_consumers, view.capacity(1.0))
            alerts += (
                Alert(
                    "max_consumers",
                    f"fleet.max_consumers reached: {needed} needed, {self._max_consumers} allowed; "
                    "raise it, or lag will grow",
                ),
            )
        plan = Plan.between(view.current, chosen)
        instead = Instead(view.rates, view.busiest, self._packing_capacity, self._max_consumers, _rate)
        objection = self._objection(view, fired, needed, chosen, plan)
        if objection:
            offer = f"{_consumers(len(chosen))} with {len(plan.rebalanced)} moves"
            offered = () if plan.is_empty else (Alternative(offer, objection),)
            rejected = (*offered, *instead.other_sizes(view.current))
            return Decision(None, f"{why}: {objection}", trigger, inputs, rejected, alerts)
        kept = Alternative(f"keep what is, {_consumers(len(view.current))}", self._cost_of_keeping(view, chosen))
        reason = (
            f"{why}: {_consumers(len(chosen))} instead of {len(view.current)}, {len(plan.rebalanced)} moves, "
            f"the busiest gets {_rate(max(loads(chosen, view.rates).values(), default=0.0))}"
        )
        moved = instead.without_moves(view.current, view.unassigned) if plan.rebalanced else ()
        return Decision(chosen, reason, trigger, inputs, (kept, *moved, *instead.other_sizes(chosen)), alerts)

    def _cost_of_keeping(self, view: _Seen, chosen: Assignment) -> str:
        if view.unassigned:
            return f"nobody would read {_rate(sum(view.rates[p] for p in view.unassigned))}"
        behind = view.busiest(view.current) - self._consumer_capacity
        if behind > 0:
            return f"the busiest would fall behind by {_rate(behind)}"
        if len(chosen) < len(view.current):
            return f"{len(view.current) - len(chosen)} of them can be spared"
        return f"the busiest has {_rate(view.busiest(view.current))}, {_rate(view.busiest(chosen))} is possible"

    def _objection(self, view: _Seen, fired: dict[str, str], needed: int, chosen: Assignment, plan: Plan) -> str:
        """Why the packing should not be applied; empty if it should."""
        if plan.is_empty:
            return "the packing stays as it is"  # L-42
        if fired.keys() & {"unassigned", "vanished"} or len(chosen) < len(view.current):
            return ""
        if needed > self._max_consumers:
            before, after = view.busiest(view.current), view.busiest(chosen)
            if after > WORTH_MOVING * before:
                return (
                    f"{needed} consumers are needed and {self._max_consumers} allowed, and moving partitions between "
                    f"those would only take the busiest from {_rate(before)} to {_rate(after)}"
                )
        if set(fired) == {"timeout"} and self._timeout_policy == "only_if_fewer_consumers":
            return f"{len(chosen)} consumers are not fewer than the {len(view.current)} there are"
        return ""


def _consumers(count: int) -> str:
    return f"{count} consumer" if count == 1 else f"{count} consumers"


def _reduced(view: _Seen) -> dict[str, float]:
    """For the journal: which consumers count less than in full."""
    found = {f"consumer_{c}_share": share for c, share in sorted(view.share.items()) if share != view.new_share}
    return found if view.new_share == 1 else {"usual_share": view.new_share, **found}
