"""One run: arrivals, a group and a policy on one virtual clock, and what came of it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np

from headgate.model import ConsumerLoad, Decision, Observation, PartitionLoad
from headgate.model.capacity import CapacityMeter, Estimate
from headgate.simulation.arrivals import Arrivals
from headgate.simulation.group import CooperativeGroup, EagerGroup, Group, GroupSettings, partition_of
from headgate.simulation.outcome import Outcome
from headgate.simulation.service import Consumer
from headgate.simulation.start_times import StartTimes


class Decides(Protocol):
    """A policy, as the rooms above this one know it."""

    def decide(self, seen: Observation) -> Decision: ...


@dataclass(frozen=True, slots=True)
class RunSettings:
    group: GroupSettings = field(default_factory=GroupSettings)
    protocol: Literal["eager", "cooperative"] = "eager"
    slo_s: float = 0.5
    period_s: float = 1.03
    """Time between two decisions; a little over a second, so that it drifts through the producer's second (A-5)."""
    phase_s: float = 0.0
    warm_up_s: float = 15.0
    """Before the first decision (E-21)."""
    rate_window_s: float = 1.0
    """Arrival rates are counted over this long."""
    lag_sampling: Literal["instant", "max"] = "instant"
    """The lag at the moment of observing, or the largest of samples taken since the last one (A-5)."""
    slot_s: float = 0.1
    """How finely the monitor samples end offsets."""
    record_bytes: int = 100
    capacity_estimate: Estimate = "worst_case"
    """How consumers' capacity is told from their work (E-3); the paper's choice."""
    consumers: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("slo_s", "period_s", "rate_window_s", "slot_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name):g}")

    def with_group(self, **changes: float | bool | StartTimes) -> "RunSettings":
        return replace(self, group=replace(self.group, **changes))  # type: ignore[arg-type]


_STARTS_KEPT = 50
PROTOCOLS: dict[str, type[Group]] = {"eager": EagerGroup, "cooperative": CooperativeGroup}


class Monitor:
    """Turns the group's state into observations, from what has arrived and been committed so far and nothing later."""

    def __init__(self, group: Group, settings: RunSettings) -> None:
        self._group = group
        self._settings = settings
        self._slots_seen = 0
        self._peak_lag = [0] * group.topic.arrivals.partitions
        slots = math.ceil(group.topic.arrivals.duration_s / settings.slot_s)
        edges = settings.slot_s * np.arange(slots + 1)
        self._per_slot = np.stack([np.diff(t.searchsorted(edges - 1e-9)) for t in group.topic.arrivals.times_s], axis=1)
        """Records per slot and partition. Only slots that ended before now are ever looked at."""
        self._meters: dict[tuple[int, float], CapacityMeter] = {}
        self._metered: dict[tuple[int, float], tuple[int, float]] = {}

    def sample_lag(self) -> None:
        for p in range(len(self._peak_lag)):
            self._peak_lag[p] = max(self._peak_lag[p], self._group.topic.lag(p, self._group.now_s))

    def observe(self) -> Observation:
        group, settings, now = self._group, self._settings, self._group.now_s
        slots = min(int(now / settings.slot_s + 1e-9), len(self._per_slot))
        new = self._per_slot[self._slots_seen : slots]
        self._slots_seen = slots
        self.sample_lag()
        partitions = {}
        for p in range(group.topic.arrivals.partitions):
            end = group.topic.arrived(p, now)
            rate = (end - group.topic.arrived(p, now - settings.rate_window_s)) / settings.rate_window_s
            lag = self._peak_lag[p] if settings.lag_sampling == "max" else group.topic.lag(p, now)
            counts = tuple(new[:, p].tolist())
            partitions[partition_of(p)] = PartitionLoad(rate * settings.record_bytes, rate, lag, end, counts)
        self._peak_lag = [0] * len(self._peak_lag)
        consumers = {n: self._load(member) for n, member in group.members.items()}
        pauses = [p.end_s - p.start_s for p in group.pauses[-50:]] if settings.protocol == "cooperative" else []
        return Observation(
            now, now, partitions, group.assignment, consumers, self._watching_since_s(), settings.slot_s,
            pause_s=max(pauses) if pauses else settings.group.pause_s,
            start_s=self._start_s(),
        )  # fmt: skip

    def _load(self, member: Consumer) -> ConsumerLoad:
        """What a member did since the last look counts as a cycle of it (E-3)."""
        life = member.consumer_id, member.created_s
        meter = self._meters.setdefault(life, CapacityMeter(self._settings.capacity_estimate))
        records, busy_s = self._metered.get(life, (0, 0.0))
        meter.add(member.records - records, member.busy_s - busy_s)
        self._metered[life] = member.records, member.busy_s
        capacity = meter.per_s
        return ConsumerLoad(
            busy_share=min(1.0, member.busy_s / max(1e-9, self._group.now_s - member.created_s)),
            capacity_bytes_per_s=None if capacity is None else capacity * self._settings.record_bytes,
            capacity_records_per_s=capacity,
        )

    def _start_s(self) -> float | None:
        """As the live controller tells it: of the newest starts the 99th percentile."""
        group = self._settings.group
        if group.starts is None:
            return group.start_up_s if self._group.changes else None
        took = [c.ready_s - c.at_s for c in self._group.changes if c.added][-_STARTS_KEPT:]
        return sorted(took)[math.ceil(0.99 * len(took)) - 1] if took else None

    def _watching_since_s(self) -> float:
        return self._group.changes[-1].ready_s if self._group.changes else 0.0


def simulate(
    arrivals: Arrivals, policy: Decides, settings: RunSettings, told: Callable[[float], None] | None = None
) -> Outcome:
    """Runs the policy on these arrivals; `told` hears how far it is, 0 … 1."""
    rng = np.random.default_rng([settings.seed, 77])
    group = PROTOCOLS[settings.protocol](arrivals, settings.group, rng, settings.consumers)
    monitor = Monitor(group, settings)
    log: list[tuple[float, Decision]] = []
    now = settings.phase_s + settings.warm_up_s
    step = settings.period_s if settings.lag_sampling == "instant" else settings.period_s / 8
    looks = 0
    while now < arrivals.duration_s:
        group.advance(now)
        if settings.lag_sampling == "max" and looks % 8:
            monitor.sample_lag()
        else:
            if not group.is_changing:
                decision = policy.decide(monitor.observe())
                log.append((now, decision))
                if decision.assignment is not None:
                    group.apply(decision.assignment)
            if told is not None and looks % 128 == 0:
                told(now / arrivals.duration_s)
        looks += 1
        now += step
    group.advance(arrivals.duration_s)
    replica_s = group.replica_seconds(arrivals.duration_s)
    members = len(group.members)
    group.advance(math.inf)  # what is left is served without further decisions and without further bills
    unowned = [p for p, served in enumerate(group.topic.served) if served < len(arrivals.times_s[p])]
    if unowned:
        raise RuntimeError(f"the policy left partitions {unowned} without an owner")
    return Outcome.of(group, settings.slo_s, replica_s / 60, members, log)
