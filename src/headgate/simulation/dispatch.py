"""Jobs from several dispatchers to several queues, event by event (B-45).

Queues are nodes, dispatchers producers, jobs records. Arrivals are Poisson, work is exponential, a job is never moved
to another queue; one that its queue loses is sent again. All policies run on this one engine.
"""

import math
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

import numpy as np

from headgate.errors import ConfigError

_DRAWN_AT_ONCE = 1 << 16

Sets = tuple[tuple[int, ...], ...]
"""By dispatcher, the queues it may use; they may overlap in part."""


class DispatchPolicy(Protocol):
    """Who gets the next job. `messages` counts what it said and heard beside the jobs themselves."""

    messages: int
    period_s: float | None
    """How often `refresh` is called; None: never."""
    listens: bool
    """Whether it wants to be told of every job that is done."""

    def begin(self, lengths: list[int], sets: Sets, seed: int) -> None:
        """`lengths` is always true; only policies that ask may look at it, and must count their questions."""

    def choose(self, dispatcher: int, now_s: float) -> int | None:
        """None: hold the job until a queue is idle."""

    def refresh(self, now_s: float) -> None: ...

    def idle(self, queue: int, now_s: float) -> None:
        """The queue has nothing left to do."""

    def left(self, dispatcher: int, queue: int, latency_s: float) -> None: ...

    def follow(self, sets: Sets) -> None:
        """Queues failed or came back."""


@dataclass(frozen=True, slots=True)
class Change:
    """From `at_s` on the queue works this fast. At speed 0 it has failed: what it held is sent again elsewhere."""

    at_s: float
    queue: int
    speed: float


@dataclass(frozen=True, slots=True)
class World:
    queues: int
    arrivals_per_s: float
    """Of all dispatchers together (N λ)."""
    service_per_s: float = 1.0
    """Of one queue at speed 1 (μ)."""
    sets: Sets | None = None
    """None: one dispatcher that may use every queue."""
    changes: tuple[Change, ...] = ()

    def __post_init__(self) -> None:
        if self.queues < 1 or not self.arrivals_per_s > 0 or not self.service_per_s > 0:
            raise ConfigError("a simulation needs at least one queue, and rates above 0")
        for queues in self.sets or ():
            if not queues or not all(0 <= q < self.queues for q in queues):
                raise ConfigError(f"a dispatcher's queues must be some of 0 to {self.queues - 1}, not {queues}")
        for change in self.changes:
            if not 0 <= change.queue < self.queues or change.speed < 0 or change.at_s < 0:
                raise ConfigError(f"{change} does not fit a world of {self.queues} queues")


@dataclass(frozen=True, slots=True)
class Outcome:
    latencies_s: np.ndarray[tuple[int], np.dtype[np.float64]]
    """From the job's arrival to its end, in the order of their ends."""
    waits_s: np.ndarray[tuple[int], np.dtype[np.float64]]
    """The same without the work itself."""
    served: tuple[int, ...]
    """Jobs done by each queue."""
    busy_s: tuple[float, ...]
    """Work done by each queue."""
    duration_s: float
    messages: int
    resends: int
    unfinished: int
    """Held, or in a queue that never came back."""

    @property
    def throughput_per_s(self) -> float:
        return len(self.latencies_s) / self.duration_s

    @property
    def mean_length(self) -> float:
        """Jobs in the system, averaged over time (Little)."""
        return float(self.latencies_s.sum()) / self.duration_s

    @property
    def messages_per_job(self) -> float:
        return self.messages / max(1, len(self.latencies_s))

    def mean_wait_s(self, warm_up: float = 0.1, batches: int = 20) -> tuple[float, float]:
        """Mean and half-width of its 99 % interval, from batch means after the first `warm_up` share."""
        kept = self.waits_s[int(len(self.waits_s) * warm_up) :]
        size = len(kept) // batches
        means = kept[: size * batches].reshape(batches, size).mean(axis=1)
        return float(means.mean()), T_99[batches] * float(means.std(ddof=1)) / math.sqrt(batches)


T_99 = {10: 3.250, 20: 2.861, 30: 2.756}
"""Student's t, two-sided 99 %, by number of batches (one degree of freedom less)."""


def run(world: World, policy: DispatchPolicy, jobs: int, seed: int = 0) -> Outcome:
    return _Engine(world, policy, seed).run(jobs)


class _Engine:
    """`events` holds (time, what, generation): what < queues is a job's end, = queues a refresh, beyond that a change.

    Ends are known when a job joins, since queues are first come, first served. A change of speed makes them wrong:
    then the queue's generation goes up and the ends are computed anew.
    """

    def __init__(self, world: World, policy: DispatchPolicy, seed: int) -> None:
        n = world.queues
        self.world, self.policy, self.seed = world, policy, seed
        self.all_sets: Sets = world.sets or (tuple(range(n)),)
        self.lengths = [0] * n
        self.free_s = [0.0] * n
        self.speed = [1.0] * n
        self.generation = [0] * n
        self.waiting: list[deque[tuple[float, float, int]]] = [deque() for _ in range(n)]
        """By queue: arrival, work and dispatcher of each job, first come first."""
        self.head_work: list[float | None] = [None] * n
        """What was left of the first job when its queue stopped."""
        self.held: deque[tuple[float, float, int]] = deque()
        self.events: list[tuple[float, int, int]] = []
        self.latencies, self.waits = array("d"), array("d")
        self.served, self.busy_s = [0] * n, [0.0] * n
        self.resends = 0

    def run(self, jobs: int) -> Outcome:
        events, lengths, waiting, free_s, speed = self.events, self.lengths, self.waiting, self.free_s, self.speed
        generation, choose, n = self.generation, self.policy.choose, self.world.queues
        self.policy.begin(lengths, self.all_sets, self.seed)
        if self.policy.period_s is not None:
            heappush(events, (self.policy.period_s, n, 0))
        for number, change in enumerate(self.world.changes):
            heappush(events, (change.at_s, n + 1 + number, 0))
        now_s = 0.0
        for gap_s, work, dispatcher in self._arrivals(jobs):
            now_s += gap_s
            while events and events[0][0] <= now_s:
                self._happen(*heappop(events))
            queue = choose(dispatcher, now_s)
            if queue is None:
                self.held.append((now_s, work, dispatcher))
                continue
            begun_s = free_s[queue]
            if begun_s < now_s:
                begun_s = now_s
            done_s = begun_s + work / speed[queue] if speed[queue] else math.inf
            free_s[queue] = done_s
            lengths[queue] += 1
            waiting[queue].append((now_s, work, dispatcher))
            heappush(events, (done_s, queue, generation[queue]))
        while events and (sum(lengths) or self.held) and events[0][0] < math.inf:
            at_s, what, life = heappop(events)
            if what != n or any(lengths):  # nobody refreshes for jobs that can never end
                self._happen(at_s, what, life)
            now_s = max(now_s, at_s)
        return Outcome(
            np.frombuffer(self.latencies),
            np.frombuffer(self.waits),
            tuple(self.served),
            tuple(self.busy_s),
            now_s,
            self.policy.messages,
            self.resends,
            sum(lengths) + len(self.held),
        )

    def _arrivals(self, jobs: int) -> Iterator[tuple[float, float, int]]:
        draw, left = np.random.default_rng(self.seed), jobs
        while left > 0:
            size = min(left, _DRAWN_AT_ONCE)
            gaps = draw.exponential(1 / self.world.arrivals_per_s, size).tolist()
            works = draw.exponential(1 / self.world.service_per_s, size).tolist()
            yield from zip(gaps, works, draw.integers(len(self.all_sets), size=size).tolist(), strict=True)
            left -= size

    def _happen(self, at_s: float, what: int, life: int) -> None:
        if what < self.world.queues:
            if life == self.generation[what]:
                self._end(at_s, what)
        elif what == self.world.queues:
            self.policy.refresh(at_s)
            assert self.policy.period_s is not None
            heappush(self.events, (at_s + self.policy.period_s, what, 0))
        else:
            self._change(self.world.changes[what - self.world.queues - 1])

    def _end(self, at_s: float, queue: int) -> None:
        arrived_s, work, dispatcher = self.waiting[queue].popleft()
        self.lengths[queue] -= 1
        self.served[queue] += 1
        self.busy_s[queue] += work
        latency_s = at_s - arrived_s
        self.latencies.append(latency_s)
        self.waits.append(latency_s - work)
        self.head_work[queue] = None
        if self.policy.listens:
            self.policy.left(dispatcher, queue, latency_s)
        if not self.lengths[queue]:
            self.policy.idle(queue, at_s)
            if self.held:
                self._offer_held(at_s)

    def _offer_held(self, now_s: float) -> bool:
        """The job that has waited longest of those that can go somewhere now goes; whether one did."""
        for place, job in enumerate(self.held):
            queue = self.policy.choose(job[2], now_s)
            if queue is not None:
                del self.held[place]
                self._join(queue, job, now_s)
                return True
        return False

    def _join(self, queue: int, job: tuple[float, float, int], now_s: float) -> None:
        speed = self.speed[queue]
        done_s = max(self.free_s[queue], now_s) + job[1] / speed if speed else math.inf
        self.free_s[queue] = done_s
        self.lengths[queue] += 1
        self.waiting[queue].append(job)
        heappush(self.events, (done_s, queue, self.generation[queue]))

    def _change(self, change: Change) -> None:
        """Another speed; at 0 the queue is gone and its jobs are sent again, from whatever else there is."""
        queue, now_s, before = change.queue, change.at_s, self.speed[change.queue]
        jobs = list(self.waiting[queue])
        if jobs and before:
            later_s = sum(work for _, work, _ in jobs[1:]) / before
            self.head_work[queue] = min(jobs[0][1], (self.free_s[queue] - later_s - now_s) * before)
        self.generation[queue] += 1
        self.waiting[queue].clear()
        self.lengths[queue] = 0
        self.speed[queue], self.free_s[queue] = change.speed, now_s
        if bool(before) != bool(change.speed):
            up = {q for q in range(self.world.queues) if self.speed[q]}
            self.policy.follow(tuple(tuple(q for q in queues if q in up) for queues in self.all_sets))
        if change.speed:
            rest = self.head_work[queue]
            for n, job in enumerate(jobs):
                self.waiting[queue].append(job)
                self.lengths[queue] += 1
                self.free_s[queue] += (rest if n == 0 and rest is not None else job[1]) / change.speed
                heappush(self.events, (self.free_s[queue], queue, self.generation[queue]))
            if not jobs:
                self.policy.idle(queue, now_s)
            while self.held and self._offer_held(now_s):
                pass
            return
        for job in jobs:
            self.resends += 1
            chosen = self.policy.choose(job[2], now_s)
            if chosen is None:
                self.held.append(job)
            else:
                self._join(chosen, job, now_s)
