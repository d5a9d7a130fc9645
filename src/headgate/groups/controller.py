"""The controller of an ordinary consumer group: look, decide, carry out, once an interval (E-23).

It decides on the group's real assignment, never on what it planned (E-13). While a plan is carried out or a rebalance
runs, it does not decide (E-19). A look that fails is a turn not taken (E-21).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import Counter, Gauge

from headgate.controller.observing import ArrivalSlots
from headgate.errors import KafkaUnavailable
from headgate.groups.assignor import NAME
from headgate.groups.carrying import Carrier, feasible
from headgate.groups.desk import Desk
from headgate.groups.measuring import GroupLook, GroupMeter, Load
from headgate.model import Alert, Assignment, Decision, Observation, PartitionLoad, TopicPartition
from headgate.model.messages import Measurement, PartitionRate
from headgate.packing.least_loaded import Item, Room
from headgate.policies.advice import HOPELESS_MOVES, SLOW_MOVES, slow_moves
from headgate.policies.protocol import Policy

_TURNS = Counter("headgate_group_turns_total", "Turns of the controller", ["group", "outcome"])
_MEMBERS = Gauge("headgate_group_members", "Members the group has", ["group"])
_WANTED = Gauge("headgate_group_wanted_members", "Members the policy last asked for", ["group"])
_DEFERRED = Counter(
    "headgate_group_scale_downs_deferred_total",
    "Scale-downs put off because the lag of their own rebalance would not have fitted (E-17)",
    ["group"],
)
_LAG = Gauge("headgate_group_lag_records", "Records not committed by the group", ["group"])
_PAUSE = Gauge("headgate_group_rebalance_seconds", "Pauses of members in rebalances, 99th percentile", ["group"])
_FALLBACKS = Gauge("headgate_group_member_fallbacks", "Assignments that present members made without us", ["group"])
_GENERATION = Gauge("headgate_group_generation", "Newest generation that a member reported", ["group"])

_REBUILD_S = 60.0
"""A policy remembers its last action, so it is not replaced more often than this for another capacity."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    group: str
    slo_s: float
    capacity_records_per_s: float | None = None
    """What one member does; None takes what members measure of themselves (E-3)."""
    interval_s: float = 1.0
    warm_up_s: float = 5.0
    """No decision this long after the first look: rates need more than one (E-21)."""
    fill: float = 0.9
    """Up to which share of capacity members are filled when a plan does not fit their number (f_up)."""


class GroupController:
    def __init__(
        self,
        settings: GroupSettings,
        meter: GroupMeter,
        desk: Desk,
        make_policy: Callable[[float, int], Policy],
        carrier: Carrier | None,
        tell: Callable[[str], None],
        clock: Callable[[], float],
        may_resize: bool = True,
    ) -> None:
        """Without a carrier it is a dry run: decisions are told and nothing happens."""
        self._settings, self._meter, self._desk, self._carrier = settings, meter, desk, carrier
        self._make_policy, self._tell, self._clock, self._may_resize = make_policy, tell, clock, may_resize
        self._policy: Policy | None = None
        self._built_for, self._built_s = (0.0, 0), 0.0
        self._arrivals = ArrivalSlots(settings.interval_s)
        self._topics: frozenset[str] = frozenset()
        self._began_s: float | None = None
        self._watching_since_s = clock()
        """Since the last packing; a policy's timeout counts from there."""
        self._told: dict[str, str] = {}
        self.status: dict[str, Any] = {"group": settings.group}

    def turn(self) -> Decision | None:
        """One look and what follows from it; None while a plan is carried out. ConfigError if it can never work."""
        now_s = self._clock()
        try:
            look = self._meter.group()
            # While a group rebalances its members' topics are not shown, and its leader wants to know loads just then.
            self._topics = frozenset().union(*(j.topics for j in look.members.values())) or self._topics
            loads = self._meter.loads(self._topics) if self._topics else {}
        except KafkaUnavailable as error:
            return self._held("unmeasured", f"hold: {error}")
        if loads and self._began_s is None:
            self._began_s = now_s
        numbers = self._desk.numbers(self._handles(look))
        self._spread(look, loads)
        self._warn(look)
        if not look.members and self._carrier is not None:
            self._carrier.start_first(now_s)
        blocked = self._blocked(look, now_s)
        if blocked is not None:
            return self._held(*blocked)
        try:
            current = Assignment({n: look.assigned[m] for m, n in numbers.items()})
        except ValueError as error:  # an assignor that is not ours may do that
            return self._held("doubled", f"hold: {error} in group {self._settings.group}")
        if self._carrier is not None and self._carrier.is_busy:
            self._carrier.step(current, numbers, now_s)
            self._watching_since_s = now_s
            _TURNS.labels(self._settings.group, "carrying out").inc()
            return None
        seen = self._observed(current, numbers, loads, now_s)
        policy = self._policy_for(seen)
        if policy is None:
            return self._held("capacity", "hold: no member has measured yet how many records a second it works off")
        decision = policy.decide(seen)
        if decision.trigger:
            self._watching_since_s = now_s
        self._take(decision, seen, numbers)
        return decision

    # --- looking -------------------------------------------------------------------------------------------------

    def _handles(self, look: GroupLook) -> dict[str, int | None]:
        beats = self._desk.beats()
        return {m: beats[m].handle if m in beats else joined.handle for m, joined in look.members.items()}

    def _spread(self, look: GroupLook, loads: Mapping[TopicPartition, Load]) -> None:
        """What was seen goes to whoever wants to know: the desk, Prometheus, people."""
        group, desk = self._settings.group, self._desk
        capacity = self._settings.capacity_records_per_s or self._built_for[0]
        room = Room.of(capacity, self._settings.slo_s, self._settings.fill) if capacity else None
        items = {p: Item(load.rate.records_per_s, load.lag) for p, load in loads.items()}
        desk.measured(items, room, self._carrier.ours if self._carrier else ())
        desk.forget_others(look.members.keys())
        _MEMBERS.labels(group).set(len(look.members))
        _LAG.labels(group).set(sum(i.lag for i in items.values()))
        fallbacks = sum(beat.fallbacks for beat in desk.beats().values())
        _FALLBACKS.labels(group).set(fallbacks)
        _GENERATION.labels(group).set(desk.generation)
        _PAUSE.labels(group).set(desk.pause_s or 0.0)
        self.status |= {
            "state": look.state,
            "strategy": look.strategy,
            "generation": desk.generation,
            "pause_s": desk.pause_s,
            "members": {m: sorted(str(p) for p in owned) for m, owned in look.assigned.items()},
            "loads": {str(p): {"records_per_s": i.rate, "lag_records": i.lag} for p, i in sorted(items.items())},
            "fallbacks": fallbacks,
        }

    def _warn(self, look: GroupLook) -> None:
        slo_s = self._settings.slo_s
        slowest_s = max((b.heartbeat_s for m, b in self._desk.beats().items() if m in look.members), default=0.0)
        if slowest_s > slo_s:  # E-30
            self._say(
                "heartbeat",
                f"warning: members send heartbeats every {slowest_s:g} s and the SLO is {slo_s:g} s: when one leaves, "
                f"its partitions stand still up to that long; set heartbeat_interval_ms={min(500, slo_s * 1000):.0f}",
            )
        slow = slow_moves(slo_s, self._desk.pause_s or 0.0)  # E-31
        if not slow:
            self._told.pop("moves", None)
        for alert in slow:
            self._alert(alert)

    def _blocked(self, look: GroupLook, now_s: float) -> tuple[str, str] | None:
        """Why nothing can be decided or done now, as kind and words; None if it can."""
        if not look.members:
            return "empty", f"hold: group {self._settings.group} has no members"
        if not look.is_settled:
            return "rebalancing", f"hold: the group is rebalancing ({look.state})"
        if look.strategy != NAME and self._carrier is not None:
            return "strategy", (
                f"hold: the group's assignor is {look.strategy!r}, so no plan would be followed; every member must be "
                "a PlannedConsumer, or list PlannedAssignor first in partition_assignment_strategy"
            )
        if self._began_s is None or now_s - self._began_s < self._settings.warm_up_s:
            return "warm-up", f"hold: rates are measured for {self._settings.warm_up_s:g} s first"
        return None

    def _observed(
        self, current: Assignment, numbers: Mapping[str, int], loads: Mapping[TopicPartition, Load], now_s: float
    ) -> Observation:
        # Everything is counted in records here, so what policies know as bytes is records, too.
        rates = {p: x.rate.records_per_s for p, x in loads.items()}
        ends = {p: x.rate.end_offset for p, x in loads.items()}
        told = tuple(PartitionRate(p.topic, p.partition, rates[p], rates[p], ends[p], 0.0) for p in sorted(loads))
        self._arrivals.add(Measurement(round(now_s * 1000), 0.0, "offsets", told))
        slots = self._arrivals.take()
        return Observation(
            at_s=now_s,
            measured_at_s=now_s,
            partitions={p: PartitionLoad(rates[p], rates[p], x.lag, ends[p], slots[p]) for p, x in loads.items()},
            assignment=current,
            consumers=self._desk.abilities(numbers),
            watching_since_s=self._watching_since_s,
            slot_s=self._settings.interval_s,
            pause_s=self._desk.pause_s,
            start_s=self._carrier.start_s if self._carrier else None,
        )

    def _policy_for(self, seen: Observation) -> Policy | None:
        """One for the capacity that is set, else for the slowest member's own (E-3), anew when that changed a lot.

        Where nothing may be started, the size is whatever others make it; a policy that is told it must follow.
        """
        measured = [c.capacity_records_per_s for c in seen.consumers.values() if c.capacity_records_per_s]
        capacity = self._settings.capacity_records_per_s or min(measured, default=None)
        if capacity is None:
            return self._policy
        built_for, size = self._built_for, 0 if self._may_resize else len(seen.assignment)
        drifted = not 0.8 <= capacity / (built_for[0] or capacity) <= 1.25 and seen.at_s - self._built_s >= _REBUILD_S
        if self._policy is None or drifted or size != built_for[1]:
            self._policy, self._built_for = self._make_policy(capacity, len(seen.assignment)), (capacity, size)
            self._built_s = seen.at_s
            self._say("capacity", f"{capacity:.1g}", f"one member does {capacity:.0f} records/s")
        return self._policy

    # --- deciding ------------------------------------------------------------------------------------------------

    def _take(self, decision: Decision, seen: Observation, numbers: Mapping[str, int]) -> None:
        group, current, plan = self._settings.group, seen.assignment, decision.assignment
        self.status["decision"] = decision.reason
        for alert in decision.alerts:
            self._alert(alert)
        _WANTED.labels(group).set(len(current if plan is None else plan))
        if plan is None and decision.trigger == "DOWN":
            _DEFERRED.labels(group).inc()
        if plan is None or dict(plan.owners) == dict(current.owners):
            _TURNS.labels(group, "kept").inc()
            already = "" if plan is None else "; it is so already"
            self._say("kept", decision.reason.split(":")[0], decision.reason + already)
            return
        _TURNS.labels(group, decision.trigger or "changed").inc()
        resizes = plan.owners.keys() != current.owners.keys()
        if self._carrier is None:
            self._say("kept", f"would {plan.owners}", f"would: {decision.reason}")
        elif resizes and not self._may_resize:
            self._say("kept", f"size {len(plan)}", f"advice: {decision.reason}; without --command nothing is started")
        else:
            possible = feasible(plan, current, self._carrier.ours, seen.rates())
            if possible is None:
                self._say(
                    "kept", "strangers", f"{decision.reason}; but members started elsewhere must be stopped there"
                )
                return
            self._told.pop("kept", None)
            self._carrier.begin(possible, decision.reason, seen.at_s)
            self._carrier.step(current, numbers, seen.at_s)

    def _held(self, kind: str, text: str) -> Decision:
        self.status["decision"] = text
        _TURNS.labels(self._settings.group, "held").inc()
        self._say("kept", kind, text)
        return Decision(None, text)

    def _alert(self, alert: Alert) -> None:
        about = "moves" if alert.about in (SLOW_MOVES, HOPELESS_MOVES) else alert.about  # told again in another class
        self._say(about, alert.about, f"warning: {alert.text}")

    def _say(self, about: str, kind: str, text: str | None = None) -> None:
        """Once, as long as it stays the same kind of thing."""
        if self._told.get(about) != kind:
            self._told[about] = kind
            self._tell(text or kind)
