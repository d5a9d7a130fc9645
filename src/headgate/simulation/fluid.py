"""A fast simulator for long traces: load flows instead of arriving record by record.

Time goes in steps, usually seconds. In each step what came is added to the backlogs of its owner, late is what stands
beyond capacity · SLO, and the owner drains its backlogs. Bunched steps bring everything at their beginning, as the
burst producer does; otherwise arrivals spread over the step. Changes are cooperative: new consumers work after their
start-up, a moved partition is not served for the pause, and who goes is billed until then.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from headgate.model import Assignment, ConsumerLoad, Decision, Observation, PartitionLoad, Plan
from headgate.simulation.arrivals import Floats
from headgate.simulation.group import CAUSE_OF, Change, GroupSettings, partition_of
from headgate.simulation.outcome import TIME_BINS, Changing
from headgate.simulation.run import Decides


@dataclass(frozen=True, slots=True)
class FluidSettings:
    group: GroupSettings = field(default_factory=GroupSettings)
    slo_s: float = 0.5
    step_s: float = 1.0
    bunched: bool = True
    decide_every: int = 1
    """Steps between two decisions."""
    rate_steps: int = 1
    """Arrival rates are means over so many steps, or over those since the last decision if that is longer."""
    warm_up_steps: int = 1
    """Before the first decision (E-21)."""
    record_bytes: float = 100.0
    consumers: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.slo_s > 0 and self.step_s > 0 and min(self.decide_every, self.rate_steps, self.consumers) >= 1):
            raise ValueError("slo_s and step_s must be above 0; decide_every, rate_steps and consumers at least 1")


class _Waits:
    """How long records waited, per part of the run: a histogram with bins 2 % wide, from a millisecond on."""

    _PER_DECADE = 116
    _DECADES = 9

    def __init__(self) -> None:
        self._counts = np.zeros((TIME_BINS, 2 + self._PER_DECADE * self._DECADES))

    def add(self, part: int, low_s: float, high_s: float, records: float) -> None:
        """Records whose waits lie evenly between the two."""
        for n in range(4):
            self._counts[part, self._bin(low_s + (n + 0.5) / 4 * (high_s - low_s))] += records / 4

    def quantile_s(self, q: float) -> float:
        return self._quantile(self._counts.sum(axis=0), q)

    def p99_per_part_s(self) -> Floats:
        return np.array([self._quantile(row, 0.99) if row.any() else math.nan for row in self._counts])

    def _bin(self, wait_s: float) -> int:
        if wait_s < 1e-3:
            return 0
        return min(1 + int(self._PER_DECADE * math.log10(wait_s / 1e-3)), self._counts.shape[1] - 1)

    def _quantile(self, counts: Floats, q: float) -> float:
        reached = np.cumsum(counts)
        found = int(reached.searchsorted(q * reached[-1] * (1 - 1e-12)))
        return 0.0 if found == 0 else float(1e-3 * 10 ** ((found - 0.5) / self._PER_DECADE))


@dataclass(frozen=True)
class FluidOutcome(Changing):
    records: float
    late: float
    replica_minutes: float
    changes: tuple[Change, ...]
    max_latency_s: float
    late_by_cause: Mapping[str, float]
    replicas: Floats
    """Billed in each step."""
    step_s: float
    waits: _Waits
    log: tuple[tuple[float, Decision], ...]

    @property
    def sla_percent(self) -> float:
        return 100.0 * (1 - self.late / self.records) if self.records else 100.0

    def quantile_s(self, q: float) -> float:
        """To about 2 %."""
        return self.waits.quantile_s(q)

    def replicas_at(self, at_s: Floats) -> Floats:
        return self.replicas[np.clip((at_s / self.step_s).astype(np.int64), 0, len(self.replicas) - 1)]

    def p99_over_time(self, duration_s: float) -> Floats:
        return self.waits.p99_per_part_s()

    def late_percent(self) -> Mapping[str, float]:
        return {cause: 100 * late / self.records for cause, late in self.late_by_cause.items() if late > 0}


def simulate_fluid(
    per_step: Floats, policy: Decides, settings: FluidSettings, told: Callable[[float], None] | None = None
) -> FluidOutcome:
    """Runs the policy on records per step and partition."""
    flow = _Flow(np.asarray(per_step, dtype=np.float64), settings)
    for step in range(len(flow.per_step)):
        if step % settings.decide_every == 0:
            flow.decide(policy, step)
        flow.advance(step)
        if told is not None and step % 1000 == 0:
            told(step / len(flow.per_step))
    return flow.outcome()


class _Flow:
    def __init__(self, per_step: Floats, settings: FluidSettings) -> None:
        if per_step.ndim != 2 or not np.all(np.isfinite(per_step)) or np.any(per_step < 0):
            raise ValueError("expected a table of steps by partitions, finite and without negative counts")
        self.per_step = per_step
        self._set = settings
        self._rng = np.random.default_rng([settings.seed, 77])
        steps, partitions = per_step.shape
        self._backlog = np.zeros(partitions)
        self._ends = np.zeros(partitions)
        self._blocked_s = np.zeros(partitions)
        """How long each partition will still not be served."""
        self._owner = 1 + np.arange(partitions) % settings.consumers
        self._assignment = Assignment(
            {
                n: frozenset(partition_of(int(p)) for p in np.flatnonzero(self._owner == n))
                for n in range(1, settings.consumers + 1)
            }
        )
        self._pending: tuple[float, Plan, str] | None = None
        self._billed = settings.consumers
        self._replicas = np.zeros(steps)
        self._seconds = 0.0
        self._late = 0.0
        self._late_by_cause: dict[str, float] = {}
        self._moved_for: dict[int, str] = {}
        """Per consumer that got partitions and has been late ever since: what for."""
        self._waits = _Waits()
        self._worst_s = 0.0
        self._changes: list[Change] = []
        self._log: list[tuple[float, Decision]] = []

    def decide(self, policy: Decides, step: int) -> None:
        now = step * self._set.step_s
        if self._pending is not None or step < max(1, self._set.warm_up_steps):
            return
        decision = policy.decide(self._observe(now, step))
        self._log.append((now, decision))
        if decision.assignment is None:
            return
        plan = Plan.between(self._assignment, decision.assignment)
        if plan.is_empty:
            return
        ready_s = now + (self._set.group.start_s(self._rng) if plan.create else 0.0)
        kind = "up" if plan.create else "down" if plan.delete else "reassign"
        self._changes.append(Change(now, ready_s, kind, len(plan.create), len(plan.delete), len(plan.rebalanced)))
        self._assignment = decision.assignment
        self._pending = (ready_s, plan, kind)
        self._billed += len(plan.create)

    def _observe(self, now: float, step: int) -> Observation:
        step_s, size, every = self._set.step_s, self._set.record_bytes, self._set.decide_every
        window = self.per_step[max(0, step - max(every, self._set.rate_steps)) : step]
        rates = window.sum(axis=0) / (len(window) * step_s)
        came = self.per_step[max(0, step - every) : step]
        partitions = {
            partition_of(p): PartitionLoad(
                rates[p] * size,
                float(rates[p]),
                round(self._backlog[p]),
                round(self._ends[p]),
                tuple(round(x) for x in came[:, p]) if self._set.bunched else (),
            )
            for p in range(len(rates))
        }
        mu = self._set.group.capacity_records_per_s
        consumers = {
            c: ConsumerLoad(capacity_bytes_per_s=mu * size, capacity_records_per_s=mu) for c in self._assignment
        }
        starts = [c.ready_s - c.at_s for c in self._changes if c.added]
        return Observation(
            now, now, partitions, self._assignment, consumers, self._changes[-1].ready_s if self._changes else 0.0,
            step_s if self._set.bunched else 0.0, pause_s=self._set.group.pause_s,
            start_s=max(starts[-50:], default=self._set.group.start_up_s),
        )  # fmt: skip

    def advance(self, step: int) -> None:
        now, step_s = step * self._set.step_s, self._set.step_s
        if self._pending is not None and self._pending[0] <= now:
            self._exchange(self._pending[1], self._pending[2])
        mu = self._set.group.capacity_records_per_s
        part = step * TIME_BINS // len(self.per_step)
        before, came = self._backlog.copy(), self.per_step[step]
        self._backlog += came
        self._ends += came
        for consumer in np.unique(self._owner).tolist():
            mine = self._owner == consumer
            stopped = mine & (self._blocked_s > 0) & (self._backlog > 0)
            wait = mu * float(self._blocked_s[stopped].max(initial=0.0))  # a pause, as records that stand ahead
            was, stands = float(before[mine].sum()) + wait, float(self._backlog[mine].sum()) + wait
            arrived = float(came[mine].sum())
            ends = stands if self._set.bunched else max(0.0, stands - mu * step_s)
            self._account(consumer, part, was, ends, arrived)
            self._worst_s = max(self._worst_s, stands / mu)
            served = np.where(mine & (self._blocked_s < step_s), self._backlog, 0.0)
            if served.sum() > 0:
                self._backlog -= served * min(1.0, mu * step_s / served.sum())
        self._blocked_s = np.maximum(0.0, self._blocked_s - step_s)
        self._seconds += step_s * self._billed
        self._replicas[step] = self._billed

    def _account(self, consumer: int, part: int, was: float, ends: float, arrived: float) -> None:
        """What arrived in one step at one consumer: its waits go evenly from the one backlog to the other."""
        mu = self._set.group.capacity_records_per_s
        if arrived > 0:
            self._waits.add(part, was / mu, ends / mu, arrived)
        late = self._late_of(was, ends, arrived)
        if late <= 0:
            if arrived > 0:
                self._moved_for.pop(consumer, None)
            return
        starting = self._pending is not None and bool(self._pending[1].create)
        self._late += late
        cause = self._moved_for.get(consumer, "start-up" if starting else "overload")
        self._late_by_cause[cause] = self._late_by_cause.get(cause, 0.0) + late

    def _late_of(self, was: float, ends: float, arrived: float) -> float:
        in_time = self._set.group.capacity_records_per_s * self._set.slo_s
        if self._set.bunched:
            return min(arrived, max(0.0, ends - in_time))
        high, low = max(was, ends), min(was, ends)
        if high <= in_time:
            return 0.0
        return arrived * (1.0 if low >= in_time else (high - in_time) / (high - low))

    def _exchange(self, plan: Plan, kind: str) -> None:
        for move in plan.moves:
            if move.new is not None:
                self._owner[move.partition.partition] = move.new
                self._blocked_s[move.partition.partition] = self._set.group.pause_s
                self._moved_for[move.new] = CAUSE_OF[kind]
        self._seconds += len(plan.delete) * self._set.group.pause_s
        self._billed -= len(plan.delete)
        self._pending = None

    def outcome(self) -> FluidOutcome:
        return FluidOutcome(
            float(self.per_step.sum()),
            self._late,
            self._seconds / 60,
            tuple(self._changes),
            self._worst_s,
            self._late_by_cause,
            self._replicas,
            self._set.step_s,
            self._waits,
            tuple(self._log),
        )
