"""A consumer group in virtual time: who owns what, what a change of that costs, and what everything was billed.

Two ways to change hands stand side by side. `EagerGroup` is Kafka's classic protocol as the latency paper models it
(E-45): everybody stops. `CooperativeGroup` is Headgate's own: only what moves pauses, after its batch is finished, and
a consumer is deleted once it owns nothing.
"""

import heapq
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headgate.model import Assignment, Plan, TopicPartition
from headgate.simulation.arrivals import Arrivals
from headgate.simulation.service import MAX_POLL_RECORDS, Consumer, Topic
from headgate.simulation.start_times import StartTimes

TOPIC = "events"


def partition_of(index: int) -> TopicPartition:
    return TopicPartition(TOPIC, index)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """How consumers and their group behave; defaults are the paper's (E-2), start-up is a guess it leaves open."""

    capacity_records_per_s: float = 200.0
    start_up_s: float = 3.0
    """From the request, which is when billing begins, to being able to work."""
    pause_s: float = 0.05
    """t_r: how long a rebalance, or the move of one partition, keeps it from being served."""
    heartbeat_s: float = 3.0
    strict_eager: bool = False
    """A member that rejoined early blocks until the last one did (A-8)."""
    max_poll_records: int = MAX_POLL_RECORDS
    """The largest batch; a partition that moves waits for the one in hand."""
    starts: StartTimes | None = None
    """Drawn for every change instead of `start_up_s`: until all of its consumers are ready, as t3 is defined."""

    def start_s(self, rng: np.random.Generator) -> float:
        """How long the consumers of one change take to start."""
        return self.start_up_s if self.starts is None else self.starts.draw_s(rng)

    def __post_init__(self) -> None:
        for name in ("capacity_records_per_s", "heartbeat_s", "max_poll_records"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name):g}")
        for name in ("start_up_s", "pause_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, not {getattr(self, name):g}")


@dataclass(frozen=True, slots=True)
class Pause:
    """A time in which one partition was served by nobody, and why."""

    partition: int
    start_s: float
    end_s: float
    cause: str


@dataclass(frozen=True, slots=True)
class Change:
    """One action on the group, for the counts of E-40 and the marks in plots."""

    at_s: float
    ready_s: float
    kind: str
    """up, down or reassign."""
    added: int
    removed: int
    moved: int


class Group(ABC):
    def __init__(
        self, arrivals: Arrivals, settings: GroupSettings, rng: np.random.Generator, consumers: int = 1
    ) -> None:
        self.topic = Topic(arrivals)
        self.settings = settings
        self._rng = rng
        self.now_s = 0.0
        self.members: dict[int, Consumer] = {}
        self.ever: list[Consumer] = []
        self.pauses: list[Pause] = []
        self.changes: list[Change] = []
        self.is_changing = False
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        for n in range(consumers):
            self._create(n + 1).partitions = set(range(n, arrivals.partitions, consumers))
        self.assignment = Assignment(
            {n: frozenset(partition_of(p) for p in member.partitions) for n, member in self.members.items()}
        )
        """As decided; while a change is under way the members are not there yet."""

    # What a run does with it

    def advance(self, until_s: float) -> None:
        while self._agenda and self._agenda[0][0] <= until_s:
            at_s, _, act = heapq.heappop(self._agenda)
            self._serve(at_s)
            act()
        self._serve(until_s)

    def apply(self, following: Assignment) -> None:
        """Starts the change to this assignment now; nothing happens if it is the present one."""
        plan = Plan.between(self.assignment, following)
        if plan.is_empty:
            return
        if self.is_changing:
            raise RuntimeError("one change at a time: ask is_changing first")
        self.assignment = following
        kind = "up" if plan.create else "down" if plan.delete else "reassign"
        ready_s = self.now_s + (self.settings.start_s(self._rng) if plan.create else 0.0)
        moved = len(plan.rebalanced)
        self.changes.append(Change(self.now_s, ready_s, kind, len(plan.create), len(plan.delete), moved))
        self.is_changing = True
        for consumer_id in sorted(plan.create):
            self._create(consumer_id)
        self._carry_out(plan, kind, ready_s)

    def replica_seconds(self, end_s: float) -> float:
        """E-39: from each creation to its deletion, or to the end."""
        return sum((end_s if c.deleted_s is None else min(c.deleted_s, end_s)) - c.created_s for c in self.ever)

    # How a change happens

    @abstractmethod
    def _carry_out(self, plan: Plan, kind: str, ready_s: float) -> None: ...

    def _create(self, consumer_id: int) -> Consumer:
        member = Consumer(
            consumer_id,
            self.now_s,
            1 / self.settings.capacity_records_per_s,
            self.now_s,
            max_poll_records=self.settings.max_poll_records,
        )
        self.members[consumer_id] = member
        self.ever.append(member)
        return member

    def _delete(self, consumer_id: int) -> None:
        member = self.members.pop(consumer_id)
        member.deleted_s = self.now_s

    def _serve(self, until_s: float) -> None:
        for member in self.members.values():
            member.advance(self.topic, until_s)
        self.now_s = max(self.now_s, until_s)

    def _at(self, at_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (at_s, next(self._order), act))

    def _give(self, consumer_id: int, partitions: set[int]) -> None:
        """The consumer works on these from now on too; it has been served up to now."""
        member = self.members[consumer_id]
        member.partitions |= partitions
        if not member.polled:
            member.free_s = max(member.free_s, self.now_s)


CAUSE_OF = {"up": "scale-up rebalance", "down": "scale-down stall", "reassign": "reassignment"}


class EagerGroup(Group):
    """Everybody stops, everybody gets the new plan (E-28, E-45)."""

    def _carry_out(self, plan: Plan, kind: str, ready_s: float) -> None:
        self._stopped_s: dict[int, float] = {}
        for consumer_id in sorted(plan.delete):  # the leaver stops now; its partitions wait for the others to notice
            self._stop(self.members[consumer_id])
            self._delete(consumer_id)
        survivors = [self.members[n] for n in sorted(self.members.keys() - plan.create)]
        notice_s = {m.consumer_id: float(self._rng.uniform(0, self.settings.heartbeat_s)) for m in survivors}
        begins_s = ready_s
        if plan.delete or self.settings.strict_eager:
            begins_s += max(notice_s.values(), default=0.0)  # E-30
        if self.settings.strict_eager:
            for member in survivors:
                self._at(ready_s + notice_s[member.consumer_id], lambda m=member: self._stop(m))  # type: ignore[misc]
        self._at(begins_s, self._stop_all)
        self._at(begins_s + self.settings.pause_s, lambda: self._resume(CAUSE_OF[kind]))

    def _stop(self, member: Consumer) -> None:
        member.drop_batch(self.topic)
        for partition in member.partitions:
            self._stopped_s[partition] = self.now_s
        member.partitions = set()

    def _stop_all(self) -> None:
        for member in self.members.values():
            self._stop(member)

    def _resume(self, cause: str) -> None:
        for partition, stopped_s in sorted(self._stopped_s.items()):
            self.pauses.append(Pause(partition, stopped_s, self.now_s, cause))
        for consumer_id in self.assignment:
            self._give(consumer_id, {p.partition for p in self.assignment[consumer_id]})
            self.members[consumer_id].free_s = self.now_s
        self.is_changing = False


class CooperativeGroup(Group):
    """Only what moves pauses, between two batches of its old owner; who goes is drained first (DESIGN: handover)."""

    def _carry_out(self, plan: Plan, kind: str, ready_s: float) -> None:
        self._at(ready_s, lambda: self._exchange(plan, kind))

    def _exchange(self, plan: Plan, kind: str) -> None:
        finished_s = self.now_s
        for move in plan.moves:
            partition, old = move.partition.partition, move.old
            released_s = self.now_s
            if old is not None:
                owner = self.members[old]
                owner.partitions.discard(partition)  # no new polls; what it has in hand it finishes
                if owner.polled.get(partition):
                    released_s = owner.batch_end_s(self.topic)
                elif partition in owner.uncommitted:
                    owner.let_go(self.topic, partition)
            if move.new is None:
                continue
            gained_s = released_s + self.settings.pause_s
            self.pauses.append(Pause(partition, released_s, gained_s, CAUSE_OF[kind]))
            self._at(gained_s, lambda c=move.new, p=partition: self._give(c, {p}))  # type: ignore[misc]
            finished_s = max(finished_s, gained_s)
        self._at(finished_s, lambda: self._finish(plan))

    def _finish(self, plan: Plan) -> None:
        for consumer_id in sorted(plan.delete):
            self._delete(consumer_id)
        self.is_changing = False
