"""A fast simulator for long traces: load flows instead of arriving record by record.

Time goes in steps, usually seconds. In each step what came is added to the backlogs of its owner, late is what stands
beyond capacity · SLO, and the owner drains its backlogs. Bunched steps bring everything at their beginning, as the
burst producer does; otherwise arrivals spread over the step. Changes are cooperative: new consumers work after their
start-up, a moved partition is not served for the pause, and who goes is billed until then.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from headgate.model import Assignment, ConsumerLoad, Decision, Observation, PartitionLoad, Plan
from headgate.simulation.arrivals import Floats
from headgate.simulation.group import Change, GroupSettings, partition_of
from headgate.simulation.run import Decides


@dataclass(frozen=True, slots=True)
class FluidSettings:
    group: GroupSettings = field(default_factory=GroupSettings)
    slo_s: float = 0.5
    step_s: float = 1.0
    bunched: bool = True
    decide_every: int = 1
    """Steps between two decisions."""
    record_bytes: float = 100.0

    def __post_init__(self) -> None:
        if not (self.slo_s > 0 and self.step_s > 0 and self.decide_every >= 1):
            raise ValueError("slo_s and step_s must be above 0 and decide_every at least 1")


@dataclass(frozen=True)
class FluidOutcome:
    records: float
    late: float
    replica_minutes: float
    changes: tuple[Change, ...]
    worst_wait_s: float
    log: tuple[tuple[float, Decision], ...]

    @property
    def sla_percent(self) -> float:
        return 100.0 * (1 - self.late / self.records) if self.records else 100.0

    @property
    def moves(self) -> int:
        return sum(c.moved for c in self.changes)


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
        partitions = per_step.shape[1]
        self._backlog = np.zeros(partitions)
        self._ends = np.zeros(partitions)
        self._blocked_s = np.zeros(partitions)
        """How long each partition will still not be served."""
        self._owner = np.ones(partitions, dtype=np.int64)
        self._assignment = Assignment({1: frozenset(map(partition_of, range(partitions)))})
        self._pending: tuple[float, Plan] | None = None
        self._billed = 1
        self._seconds = 0.0
        self._late = 0.0
        self._worst_s = 0.0
        self._changes: list[Change] = []
        self._log: list[tuple[float, Decision]] = []

    def decide(self, policy: Decides, step: int) -> None:
        now = step * self._set.step_s
        if self._pending is not None or step == 0:
            return
        since = max(0, step - self._set.decide_every)
        came = self.per_step[since:step]
        decision = policy.decide(self._observe(now, came))
        self._log.append((now, decision))
        if decision.assignment is None:
            return
        plan = Plan.between(self._assignment, decision.assignment)
        if plan.is_empty:
            return
        ready_s = now + (self._set.group.start_up_s if plan.create else 0.0)
        kind = "up" if plan.create else "down" if plan.delete else "reassign"
        self._changes.append(Change(now, ready_s, kind, len(plan.create), len(plan.delete), len(plan.rebalanced)))
        self._assignment = decision.assignment
        self._pending = (ready_s, plan)
        self._billed += len(plan.create)

    def _observe(self, now: float, came: Floats) -> Observation:
        step_s, size = self._set.step_s, self._set.record_bytes
        rates = came.sum(axis=0) / (len(came) * step_s)
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
        return Observation(
            now, now, partitions, self._assignment, consumers, self._changes[-1].ready_s if self._changes else 0.0,
            step_s if self._set.bunched else 0.0, pause_s=self._set.group.pause_s, start_s=self._set.group.start_up_s,
        )  # fmt: skip

    def advance(self, step: int) -> None:
        now, step_s = step * self._set.step_s, self._set.step_s
        if self._pending is not None and self._pending[0] <= now:
            self._exchange(self._pending[1])
        mu = self._set.group.capacity_records_per_s
        before, came = self._backlog.copy(), self.per_step[step]
        self._backlog += came
        self._ends += came
        for consumer in np.unique(self._owner):
            mine = self._owner == consumer
            stopped = mine & (self._blocked_s > 0) & (self._backlog > 0)
            wait = mu * float(self._blocked_s[stopped].max(initial=0.0))  # a pause, as records that stand ahead
            was, stands, arrived = before[mine].sum() + wait, self._backlog[mine].sum() + wait, came[mine].sum()
            self._late += self._late_of(was, stands, arrived)
            self._worst_s = max(self._worst_s, stands / mu)
            served = np.where(mine & (self._blocked_s < step_s), self._backlog, 0.0)
            if served.sum() > 0:
                self._backlog -= served * min(1.0, mu * step_s / served.sum())
        self._blocked_s = np.maximum(0.0, self._blocked_s - step_s)
        self._seconds += step_s * self._billed

    def _late_of(self, was: float, stands: float, arrived: float) -> float:
        """Late records of what arrived at a consumer in one step, by the backlog before and after it."""
        mu = self._set.group.capacity_records_per_s
        in_time = mu * self._set.slo_s
        if self._set.bunched:
            return min(arrived, max(0.0, stands - in_time))
        end = max(0.0, stands - mu * self._set.step_s)
        high, low = max(was, end), min(was, end)
        if high <= in_time:
            return 0.0
        return arrived * (1.0 if low >= in_time else (high - in_time) / (high - low))

    def _exchange(self, plan: Plan) -> None:
        for move in plan.moves:
            if move.new is not None:
                self._owner[move.partition.partition] = move.new
                self._blocked_s[move.partition.partition] = self._set.group.pause_s
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
            tuple(self._log),
        )
