"""One server, many jobs, and the order in which it takes them (B-51 to B-56).

For comparing disciplines; the records of a Kafka partition are equal and ordered, so none of this applies to them.
"""

import math
import statistics
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate.errors import ConfigError

_DONE_S = 1e-12


@dataclass(slots=True)
class Job:
    id: int
    arrived_s: float
    work_s: float
    priority: int = 0
    """Smaller is more urgent."""
    estimate_s: float | None = None
    """What somebody believes its work to be; None: they know."""
    left_s: float = math.nan
    """Work that is still to be done; filled in by the simulation."""

    @property
    def believed_s(self) -> float:
        return self.work_s if self.estimate_s is None else self.estimate_s


class Discipline(Protocol):
    def add(self, job: Job, now_s: float) -> None:
        """A new job."""

    def back(self, job: Job, now_s: float) -> None:
        """A job whose turn is over and that is not done."""

    def pick(self, now_s: float) -> tuple[Job, float] | None:
        """Who is next, and for how long at most."""

    def interrupts(self, newcomer: Job, running: Job) -> bool:
        """Whether a job that has just come takes the server from the running one."""


@dataclass(frozen=True, slots=True)
class Result:
    latencies_s: dict[int, float]
    """By job, from arrival to end."""
    waits_s: dict[int, float]
    ended: tuple[int, ...]
    """Jobs in the order of their ends."""
    busy_s: float
    switching_s: float
    duration_s: float

    @property
    def mean_latency_s(self) -> float:
        return statistics.fmean(self.latencies_s.values())

    @property
    def starvation_s(self) -> float:
        """The longest wait."""
        return max(self.waits_s.values())

    @property
    def utilisation(self) -> float:
        return self.busy_s / self.duration_s

    @property
    def fairness(self) -> float:
        """Jain's index of the jobs' slowdowns: 1 if all were slowed down alike."""
        slowdowns = [latency / max(_DONE_S, latency - self.waits_s[id]) for id, latency in self.latencies_s.items()]
        return sum(slowdowns) ** 2 / (len(slowdowns) * sum(s * s for s in slowdowns))


def simulate(jobs: Sequence[Job], discipline: Discipline, switch_s: float = 0.0) -> Result:
    """`switch_s`: what it costs to go from one job to another."""
    if not jobs or any(job.work_s <= 0 for job in jobs) or switch_s < 0:
        raise ConfigError("there must be jobs, each with work above 0, and switching must not cost less than nothing")
    coming = deque(sorted(jobs, key=lambda job: (job.arrived_s, job.id)))
    ends: dict[int, float] = {}
    now_s, busy_s, switching_s, last = 0.0, 0.0, 0.0, None
    for job in jobs:
        job.left_s = job.work_s
    while len(ends) < len(jobs):
        while coming and coming[0].arrived_s <= now_s:
            discipline.add(coming.popleft(), now_s)
        picked = discipline.pick(now_s)
        if picked is None:
            now_s = coming[0].arrived_s
            continue
        job, turn_s = picked
        if last is not None and last is not job:
            now_s, switching_s = now_s + switch_s, switching_s + switch_s
        last, until_s = job, now_s + min(turn_s, job.left_s)
        while coming and coming[0].arrived_s < until_s:
            newcomer = coming.popleft()
            at_s = max(now_s, newcomer.arrived_s)
            job.left_s, busy_s, now_s = job.left_s - (at_s - now_s), busy_s + at_s - now_s, at_s
            discipline.add(newcomer, now_s)
            if discipline.interrupts(newcomer, job):
                until_s = now_s
        job.left_s, busy_s, now_s = job.left_s - (until_s - now_s), busy_s + until_s - now_s, until_s
        if job.left_s <= _DONE_S:
            ends[job.id] = now_s
        else:
            discipline.back(job, now_s)
    latencies = {job.id: ends[job.id] - job.arrived_s for job in jobs}
    waits = {job.id: latencies[job.id] - job.work_s for job in jobs}
    return Result(latencies, waits, tuple(ends), busy_s, switching_s, now_s)


class Fifo:
    """B-51."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()

    def add(self, job: Job, now_s: float) -> None:
        self._jobs.append(job)

    def back(self, job: Job, now_s: float) -> None:
        self._jobs.append(job)

    def pick(self, now_s: float) -> tuple[Job, float] | None:
        return (self._jobs.popleft(), math.inf) if self._jobs else None

    def interrupts(self, newcomer: Job, running: Job) -> bool:
        return False


class Priority(Fifo):
    """B-52: the most urgent class first. A job that waits is promoted by a class every `age_s`; one that used up its
    turn is demoted by a class."""

    def __init__(self, age_s: float = math.inf, turn_s: float = math.inf) -> None:
        super().__init__()
        if not age_s > 0 or not turn_s > 0:
            raise ConfigError("ageing and turns must take longer than nothing")
        self._age_s, self._turn_s = age_s, turn_s
        self._demoted: dict[int, int] = {}
        self._since_s: dict[int, float] = {}

    def add(self, job: Job, now_s: float) -> None:
        super().add(job, now_s)
        self._since_s[job.id] = now_s

    def back(self, job: Job, now_s: float) -> None:
        self._demoted[job.id] = self._demoted.get(job.id, 0) + 1
        self.add(job, now_s)

    def pick(self, now_s: float) -> tuple[Job, float] | None:
        if not self._jobs:
            return None
        chosen = min(self._jobs, key=lambda job: (self._class(job, now_s), self._since_s[job.id], job.id))
        self._jobs.remove(chosen)
        return chosen, self._turn_s

    def _class(self, job: Job, now_s: float) -> int:
        promoted = int((now_s - self._since_s[job.id]) / self._age_s)
        return job.priority + self._demoted.get(job.id, 0) - promoted


class RoundRobin(Fifo):
    """B-53: everybody for a turn. `samples`: instead of a fixed turn, the median work of the last so many jobs."""

    def __init__(self, turn_s: float, samples: int = 0) -> None:
        super().__init__()
        if not turn_s > 0:
            raise ConfigError(f"a turn must take longer than nothing, not {turn_s:g} s")
        self._turn_s = turn_s
        self._sampled: deque[float] = deque(maxlen=samples)

    def add(self, job: Job, now_s: float) -> None:
        super().add(job, now_s)
        self._sampled.append(job.believed_s)

    @property
    def turn_s(self) -> float:
        return statistics.median(self._sampled) if self._sampled else self._turn_s

    def pick(self, now_s: float) -> tuple[Job, float] | None:
        return (self._jobs.popleft(), self.turn_s) if self._jobs else None


class ShortestFirst(Fifo):
    """B-54: the smallest estimate first, to its end. `alternate`: every second time the largest, against starvation."""

    def __init__(self, alternate: bool = False) -> None:
        super().__init__()
        self._alternate, self._picked = alternate, 0

    def pick(self, now_s: float) -> tuple[Job, float] | None:
        if not self._jobs:
            return None
        largest = self._alternate and self._picked % 2 == 1
        self._picked += 1
        sign = -1 if largest else 1
        chosen = min(self._jobs, key=lambda job: (sign * job.believed_s, job.arrived_s, job.id))
        self._jobs.remove(chosen)
        return chosen, math.inf


class ShortestRemaining(Fifo):
    """B-55: whoever has the least left, at every instant."""

    def pick(self, now_s: float) -> tuple[Job, float] | None:
        if not self._jobs:
            return None
        chosen = min(self._jobs, key=lambda job: (job.left_s, job.arrived_s, job.id))
        self._jobs.remove(chosen)
        return chosen, math.inf

    def interrupts(self, newcomer: Job, running: Job) -> bool:
        return newcomer.left_s < running.left_s


@dataclass(frozen=True, slots=True)
class Level:
    limit_s: float
    """Service on this level, after which a job falls to the next."""
    discipline: Callable[[], Discipline]


class MultiLevel:
    """B-56: levels of falling priority and growing limits, each with its own discipline."""

    def __init__(self, levels: Sequence[Level]) -> None:
        limits = [level.limit_s for level in levels]
        if not limits or min(limits) <= 0 or limits != sorted(limits):
            raise ConfigError("levels need limits above 0 that do not fall from level to level")
        self._levels = [level.discipline() for level in levels]
        self._limits_s = [*limits[:-1], math.inf]
        self._level: dict[int, int] = {}
        self._served_s: dict[int, float] = {}
        """On the present level."""
        self._left_s: dict[int, float] = {}

    def add(self, job: Job, now_s: float) -> None:
        self._level[job.id], self._served_s[job.id] = 0, 0.0
        self._levels[0].add(job, now_s)

    def back(self, job: Job, now_s: float) -> None:
        self._served_s[job.id] += self._left_s[job.id] - job.left_s
        level = self._level[job.id]
        if self._served_s[job.id] >= self._limits_s[level] - _DONE_S:
            self._level[job.id], self._served_s[job.id] = level + 1, 0.0
            self._levels[level + 1].add(job, now_s)
        else:
            self._levels[level].back(job, now_s)

    def pick(self, now_s: float) -> tuple[Job, float] | None:
        for level, discipline in enumerate(self._levels):
            if picked := discipline.pick(now_s):
                job, turn_s = picked
                self._left_s[job.id] = job.left_s
                return job, min(turn_s, self._limits_s[level] - self._served_s[job.id])
        return None

    def interrupts(self, newcomer: Job, running: Job) -> bool:
        """New jobs begin on the first level, which goes before all others."""
        level = self._level[running.id]
        return level > 0 or self._levels[0].interrupts(newcomer, running)
