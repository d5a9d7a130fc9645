"""What a run came to: latency of every record, cost, actions, and why records were late (E-38 … E-41)."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headgate.model import Decision
from headgate.simulation.arrivals import Floats
from headgate.simulation.group import Change, Group, Pause

CAUSES = ("overload", "start-up", "scale-up rebalance", "scale-down stall", "reassignment")


TIME_BINS = 240
"""Points of a curve over the whole run."""


class Result(Protocol):
    """What every way to simulate can tell, so that they can be shown alike."""

    @property
    def sla_percent(self) -> float: ...
    @property
    def replica_minutes(self) -> float: ...
    @property
    def moves(self) -> int: ...
    @property
    def ups(self) -> int: ...
    @property
    def downs(self) -> int: ...
    @property
    def max_latency_s(self) -> float: ...
    def quantile_s(self, q: float) -> float: ...
    def replicas_at(self, at_s: Floats) -> Floats: ...
    def p99_over_time(self, duration_s: float) -> Floats:
        """Of the records that arrived in each of TIME_BINS equal parts of the run; NaN where none did."""
        ...

    def late_percent(self) -> Mapping[str, float]:
        """Late records in percent of all, by cause (E-41)."""
        ...


class Changing:
    """A run's changes, added up."""

    changes: tuple[Change, ...]

    @property
    def ups(self) -> int:
        """Replicas added (A-6)."""
        return sum(c.added for c in self.changes)

    @property
    def downs(self) -> int:
        return sum(c.removed for c in self.changes)

    @property
    def moves(self) -> int:
        return sum(c.moved for c in self.changes)


@dataclass(frozen=True)
class Outcome(Changing):
    arrived_s: tuple[Floats, ...]
    latency_s: tuple[Floats, ...]
    """Per partition and record: completion minus arrival (E-38)."""
    slo_s: float
    replica_minutes: float
    changes: tuple[Change, ...]
    pauses: tuple[Pause, ...]
    lives: tuple[tuple[int, float, float | None], ...]
    """(consumer id, created, deleted)."""
    owners: tuple[npt.NDArray[np.int32], ...]
    members_at_end: int
    log: tuple[tuple[float, Decision], ...]

    @classmethod
    def of(
        cls, group: Group, slo_s: float, replica_minutes: float, members: int, log: list[tuple[float, Decision]]
    ) -> "Outcome":
        times = group.topic.arrivals.times_s
        latency = tuple(done - t for done, t in zip(group.topic.done_s, times, strict=True))
        lives = tuple((c.consumer_id, c.created_s, c.deleted_s) for c in group.ever)
        return cls(
            times,
            latency,
            slo_s,
            replica_minutes,
            tuple(group.changes),
            tuple(group.pauses),
            lives,
            tuple(group.topic.owner),
            members,
            tuple(log),
        )

    @cached_property
    def all_latencies_s(self) -> Floats:
        return np.concatenate(self.latency_s)

    @property
    def sla_percent(self) -> float:
        """Share of all events done within the SLO, those a rebalance delayed included."""
        return 100.0 * (1 - self.violations / max(1, len(self.all_latencies_s)))

    @property
    def violations(self) -> int:
        return int(np.count_nonzero(self.all_latencies_s > self.slo_s + 1e-6))

    @property
    def actions(self) -> Counter[str]:
        return Counter(c.kind for c in self.changes)

    @property
    def max_latency_s(self) -> float:
        return float(self.all_latencies_s.max(initial=0.0))

    def quantile_s(self, q: float) -> float:
        return float(np.quantile(self.all_latencies_s, q)) if len(self.all_latencies_s) else 0.0

    def replicas_at(self, at_s: Floats) -> Floats:
        """How many replicas were billed at these moments."""
        count = np.zeros(len(at_s))
        for _, created_s, deleted_s in self.lives:
            count += (at_s >= created_s) & (at_s < (np.inf if deleted_s is None else deleted_s))
        return count

    def p99_over_time(self, duration_s: float) -> Floats:
        arrived = np.concatenate(self.arrived_s)
        order = np.argsort(arrived, kind="stable")
        edges = arrived[order].searchsorted(np.linspace(0.0, duration_s, TIME_BINS + 1)).tolist()
        parts = [self.all_latencies_s[order[a:b]] for a, b in pairwise(edges)]
        return np.array([float(np.quantile(part, 0.99)) if len(part) else math.nan for part in parts])

    def late_percent(self) -> Mapping[str, float]:
        found = self.causes()
        return {cause: 100 * found[cause] / len(self.all_latencies_s) for cause in CAUSES if found[cause]}

    def causes(self) -> Counter[str]:
        """E-41: why each late record was late.

        A pause explains the late records of its partition from those it caught waiting up to the first record that
        arrived afterwards and was in time again. Of the rest, those waiting while a replica was starting are put
        down to start-up, all others to overload.
        """
        found: Counter[str] = Counter()
        for p, (arrived, latency) in enumerate(zip(self.arrived_s, self.latency_s, strict=True)):
            is_late = latency > self.slo_s + 1e-6
            came, done, in_time = arrived[is_late], (arrived + latency)[is_late], arrived[~is_late]
            cause = np.zeros(len(came), dtype=np.int8)
            for change in self.changes:
                if change.ready_s > change.at_s:
                    cause[(came < change.ready_s) & (done > change.at_s)] = CAUSES.index("start-up")
            for pause in (x for x in self.pauses if x.partition == p):
                next_in_time = int(in_time.searchsorted(pause.end_s))
                recovered_s = in_time[next_in_time] if next_in_time < len(in_time) else np.inf
                cause[(done > pause.start_s) & (came < max(recovered_s, pause.end_s))] = CAUSES.index(pause.cause)
            for n, count in enumerate(np.bincount(cause, minlength=len(CAUSES)).tolist()):
                if count:
                    found[CAUSES[n]] += count
        return found
