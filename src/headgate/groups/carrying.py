"""From a plan to a group that follows it: members started, members stopped, the group made to rebalance."""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headgate.errors import FleetError
from headgate.fleet import Fleet
from headgate.groups.desk import Desk
from headgate.model import Assignment, TopicPartition
from headgate.packing.least_loaded import onto_members

log = logging.getLogger(__name__)

_FIRST_AGAIN_S = 10.0
"""A first member that ends at once is not started again and again without a breath."""


@dataclass(frozen=True, slots=True)
class Start:
    consumers: frozenset[int]


@dataclass(frozen=True, slots=True)
class Stop:
    consumers: frozenset[int]


@dataclass(frozen=True, slots=True)
class Rejoin:
    """A member must join again, so that everybody is placed anew (E-26)."""


@dataclass(frozen=True, slots=True)
class Done:
    as_planned: bool


def next_step(plan: Assignment, current: Assignment, rejoined: bool) -> Start | Stop | Rejoin | Done:
    """New members first, so that leavers' partitions move only once; then leavers; then places.

    Joining and leaving make the group rebalance by themselves. `rejoined`: it has done so since a member was asked to.
    What still differs then, differs for good: members that do not subscribe to everything, or a leader cut off.
    """
    missing, surplus = plan.owners.keys() - current.owners.keys(), current.owners.keys() - plan.owners.keys()
    if missing:
        return Start(frozenset(missing))
    if surplus:
        return Stop(frozenset(surplus))
    same = dict(plan.owners) == dict(current.owners)
    return Done(same) if same or rejoined else Rejoin()


def feasible(
    plan: Assignment, current: Assignment, ours: frozenset[int], rates: Mapping[TopicPartition, float]
) -> Assignment | None:
    """The plan with only such leavers as can be stopped from here (A-15); None if there are too few of them."""
    strangers = frozenset(current.owners) - ours
    if strangers <= plan.owners.keys():
        return plan
    spared = len(plan) - len(strangers)
    if spared < 0:
        return None
    staying = strangers | frozenset(sorted(frozenset(plan.owners) & ours & current.owners.keys())[:spared])
    return onto_members(tuple(plan.owners.values()), Assignment({n: current[n] for n in staying}), rates)


@dataclass(slots=True)
class _Underway:
    plan: Assignment
    since_s: float
    starting: dict[int, float] = field(default_factory=dict)
    """Members asked for and not seen in the group yet, and since when."""
    asked: list[str] = field(default_factory=list)
    """Members asked to join again, the last one at `asked_s`, when the generation was `generation`."""
    asked_s: float = 0.0
    generation: int = -1


class Carrier:
    """Carries out one plan at a time, a step a turn; gives up when that takes too long."""

    def __init__(
        self,
        desk: Desk,
        fleet: Fleet | None,
        tell: Callable[[str], None],
        deadline_s: float = 60.0,
        ask_again_s: float = 5.0,
    ) -> None:
        """A member asked to join again has `ask_again_s` before another one is asked."""
        self._desk, self._fleet, self._tell = desk, fleet, tell
        self._deadline_s, self._ask_again_s = deadline_s, ask_again_s
        self._underway: _Underway | None = None
        self._starts_s: deque[float] = deque(maxlen=50)
        self._first_s = 0.0

    @property
    def is_busy(self) -> bool:
        return self._underway is not None

    @property
    def start_s(self) -> float | None:
        """From asking for a member to its being in the group, the longest of late; None before the first."""
        return max(self._starts_s) if self._starts_s else None

    @property
    def ours(self) -> frozenset[int]:
        """Members that can be stopped from here."""
        return self._fleet.running() if self._fleet else frozenset()

    def begin(self, plan: Assignment, why: str, now_s: float) -> None:
        self._tell(f"plan {self._desk.publish(plan)}: {why}")
        self._underway = _Underway(plan, now_s)

    def start_first(self, now_s: float) -> None:
        """Somebody must be there before anything can be decided (E-21)."""
        if self._fleet is None or self._fleet.running() or now_s - self._first_s < _FIRST_AGAIN_S:
            return
        if self._first_s > 0:
            self._tell("the first member ended; see its log. It is started again")
        self._first_s = now_s
        self._start(self._fleet, 1)

    def step(self, current: Assignment, numbers: Mapping[str, int], now_s: float) -> None:
        underway = self._underway
        if underway is None:
            return
        for n in underway.starting.keys() & current.owners.keys():
            self._starts_s.append(now_s - underway.starting.pop(n))
        if now_s - underway.since_s > self._deadline_s:
            self._give_up(underway, f"not carried out within {self._deadline_s:g} s")
            return
        rejoined = bool(underway.asked) and self._desk.generation > underway.generation
        try:
            match next_step(underway.plan, current, rejoined):
                case Start(consumers):
                    self._start_all(underway, consumers, now_s)
                case Stop(consumers):
                    self._stop_all(consumers & self.ours)
                case Rejoin():
                    self._rejoin(underway, numbers, now_s)
                case Done(as_planned):
                    self._underway = None
                    self._desk.forget_rejoin()
                    rest = "" if as_planned else "; not everything is where it was planned"
                    self._tell(f"done: {len(current)} members, generation {self._desk.generation}{rest}")
        except FleetError as error:
            self._give_up(underway, str(error))

    def _start_all(self, underway: _Underway, consumers: frozenset[int], now_s: float) -> None:
        if self._fleet is None:
            self._give_up(underway, f"member {min(consumers)} left")
            return
        ended = consumers & underway.starting.keys() - self._fleet.running()
        if ended:
            self._give_up(underway, f"member {min(ended)} ended before it joined the group; see its log")
            return
        for n in sorted(consumers - underway.starting.keys()):
            underway.starting[n] = now_s
            self._start(self._fleet, n)

    def _start(self, fleet: Fleet, n: int) -> None:
        fleet.start(n)
        self._tell(f"starting member {n}")

    def _stop_all(self, consumers: frozenset[int]) -> None:
        for n in sorted(consumers):
            if self._fleet is not None:
                self._fleet.stop(n)
                self._tell(f"stopping member {n}")

    def _rejoin(self, underway: _Underway, numbers: Mapping[str, int], now_s: float) -> None:
        if underway.asked and now_s - underway.asked_s < self._ask_again_s:
            return
        if not underway.asked:
            underway.generation = self._desk.generation
        chosen = self._desk.ask_to_rejoin(numbers.keys(), underway.asked)
        if chosen is None:
            self._give_up(underway, "no member listens that could make the group rebalance: use PlannedConsumer")
            return
        underway.asked.append(chosen)
        underway.asked_s = now_s
        log.info("asked %s to join again; the generation is %d", chosen, underway.generation)

    def _give_up(self, underway: _Underway, why: str) -> None:
        self._tell(f"plan given up: {why}")
        self._underway = None
        self._desk.forget_rejoin()
        for n in underway.starting:
            if self._fleet is not None:
                self._fleet.stop(n, force=True)
