"""Consumers that serve records one after the other, exact to the record (E-44).

A consumer polls what has arrived in its partitions (up to 500 records), processes the records one by one in order of
arrival, commits after the last one and polls again. Completion times of such a queue follow
c[i] = max(a[i], c[i-1]) + s[i], which is a running maximum and so needs no loop over records.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headgate.simulation.arrivals import Arrivals, Floats, Ints

MAX_POLL_RECORDS = 500
"""Kafka's default."""
_TINY_S = 1e-9


def completions(arrivals: Floats, free_s: float, service_s: float | Floats) -> Floats:
    """When each record is done, if the consumer is free from `free_s` on: the fast form of the loop below.

    `service_s` is one time for all records, or one for each.
    """
    if len(arrivals) == 0:
        return arrivals
    if isinstance(service_s, np.ndarray):
        spent = np.cumsum(service_s)
        began = np.maximum(np.maximum.accumulate(arrivals - (spent - service_s)), free_s)
        return np.asarray(began + spent)
    index = np.arange(len(arrivals))
    begun = np.maximum(np.maximum.accumulate(arrivals - service_s * index), free_s)
    done: Floats = begun + service_s * (index + 1)
    return done


def completions_one_by_one(arrivals: Sequence[float], free_s: float, services_s: Sequence[float]) -> list[float]:
    """The same, as the definition says it."""
    done = []
    for arrival, service_s in zip(arrivals, services_s, strict=True):
        free_s = max(arrival, free_s) + service_s
        done.append(free_s)
    return done


class Topic:
    """All records of a run: when they came, how far each partition is served and committed, when each was done."""

    def __init__(self, arrivals: Arrivals) -> None:
        self.arrivals = arrivals
        self.served = [0] * arrivals.partitions
        self.committed = [0] * arrivals.partitions
        self.done_s = [np.full(len(t), np.nan) for t in arrivals.times_s]
        self.owner = [np.zeros(len(t), dtype=np.int32) for t in arrivals.times_s]

    def arrived(self, partition: int, until_s: float) -> int:
        return int(self.arrivals.times_s[partition].searchsorted(until_s, "right"))

    def cost(self, partition: int, count: int) -> float:
        """Of the next so many records."""
        costs, at = self.arrivals.costs, self.served[partition]
        return count if costs is None else float(costs[partition][at : at + count].sum())

    def lag(self, partition: int, at_s: float) -> int:
        """E-4: end offset minus committed offset, so polled records count until their batch is committed."""
        return self.arrived(partition, at_s) - self.committed[partition]


@dataclass(slots=True)
class Consumer:
    """One replica: what it owns, until when it is busy, and the batch it has polled."""

    consumer_id: int
    created_s: float
    service_s: float
    """For a record of cost 1."""
    free_s: float = 0.0
    """When its last record was done, or until when it is paused."""
    partitions: set[int] = field(default_factory=set)
    polled: dict[int, int] = field(default_factory=dict)
    """Records of the batch in hand that are not processed yet, per partition."""
    uncommitted: dict[int, int] = field(default_factory=dict)
    """Records of the batch in hand that are."""
    deleted_s: float | None = None
    busy_s: float = 0.0
    records: int = 0
    max_poll_records: int = MAX_POLL_RECORDS

    def advance(self, topic: Topic, until_s: float) -> None:
        """Processes everything that is done by `until_s`."""
        if self.polled and not self._finish_batch(topic, until_s):
            return
        if self.partitions:
            self._poll(topic, until_s)

    def finish(self, topic: Topic, until_s: float) -> bool:
        """Goes on with the batch in hand and polls no other; True if nothing is in hand any more."""
        return not self.polled or self._finish_batch(topic, until_s)

    def batch_end_s(self, topic: Topic) -> float:
        """When the batch in hand is processed."""
        return self.free_s + self.service_s * sum(topic.cost(p, n) for p, n in self.polled.items())

    def drop_batch(self, topic: Topic) -> None:
        """Commits what is processed and gives the rest of the batch back; the record in progress is begun anew."""
        self._commit(topic)
        self.polled.clear()

    def let_go(self, topic: Topic, partition: int) -> None:
        """Gives up one partition at a moment when none of its records is in hand."""
        done = self.uncommitted.pop(partition, 0)
        topic.committed[partition] += done

    def _commit(self, topic: Topic) -> None:
        for partition, count in self.uncommitted.items():
            topic.committed[partition] += count
        self.uncommitted.clear()

    def _finish_batch(self, topic: Topic, until_s: float) -> bool:
        """The batch in hand; False if it is not finished by then."""
        parts, times, service_s = self._pending(topic, {p: topic.served[p] + n for p, n in self.polled.items()})
        ends = completions(times, self.free_s, service_s)
        done = self._serve(topic, parts, ends, service_s, until_s)
        for p, n in _counts(parts[:done]).items():
            self.uncommitted[p] = self.uncommitted.get(p, 0) + n
            self.polled[p] -= n
            if not self.polled[p]:
                del self.polled[p]
        if self.polled:
            return False
        self._commit(topic)
        return True

    def _poll(self, topic: Topic, until_s: float) -> None:
        parts, times, service_s = self._pending(topic, {p: topic.arrived(p, until_s) for p in self.partitions})
        if len(times) == 0:
            return
        ends = completions(times, self.free_s, service_s)
        first, last = self._last_batch(times, ends, until_s)
        self._serve(topic, parts[:last], ends[:last], service_s, until_s)
        for p in self.partitions:  # all whole batches are committed, the last one is in hand
            topic.committed[p] = topic.served[p]
        if last > first and ends[last - 1] > until_s + _TINY_S:
            hand = parts[first:last]
            finished = int(np.count_nonzero(ends[first:last] <= until_s + _TINY_S))
            self.uncommitted = _counts(hand[:finished])
            self.polled = _counts(hand[finished:])
            for p, n in self.uncommitted.items():
                topic.committed[p] -= n
            self.free_s = max(self.free_s, float(times[first]))  # busy since then, though no record is done yet

    def _last_batch(self, times: Floats, ends: Floats, until_s: float) -> tuple[int, int]:
        """Where the batch that is in hand at `until_s` begins and ends: [first, last).

        A batch begins with a record that finds the consumer idle, or right after the batch before.
        """
        begun = np.maximum(times, np.concatenate([[self.free_s], ends[:-1]]))
        started = int(np.count_nonzero(begun <= until_s + _TINY_S))
        if started == 0:
            return 0, 0
        idle = np.flatnonzero(times[1:started] > ends[: started - 1] + _TINY_S)
        first = int(idle[-1]) + 1 if len(idle) else 0
        while True:
            last = min(first + self.max_poll_records, int(times.searchsorted(begun[first] + _TINY_S, "right")))
            last = max(last, first + 1)
            if last >= started or last >= len(times):
                return first, last
            first = last

    def _pending(self, topic: Topic, until: dict[int, int]) -> tuple[Ints, Floats, float | Floats]:
        """Records from the served offset up to `until` of each partition, by arrival, ties by partition: whose they
        are, when they came, and how long each takes (one number if all take the same)."""
        slices = {p: slice(topic.served[p], end) for p, end in sorted(until.items()) if end > topic.served[p]}
        if not slices:
            return np.empty(0, dtype=np.int64), np.empty(0), self.service_s
        pieces = [topic.arrivals.times_s[p][these] for p, these in slices.items()]
        parts = np.repeat(list(slices), [len(t) for t in pieces])
        times = np.concatenate(pieces)
        order = np.argsort(times, kind="stable") if len(pieces) > 1 else slice(None)
        service_s: float | Floats = self.service_s
        if topic.arrivals.costs is not None:
            costs = np.concatenate([topic.arrivals.costs[p][these] for p, these in slices.items()])
            service_s = service_s * costs[order]
        return parts[order], times[order], service_s

    def _serve(self, topic: Topic, parts: Ints, ends: Floats, service_s: float | Floats, until_s: float) -> int:
        """Processes in this order what is done by `until_s`; how many that were."""
        count = int(ends.searchsorted(until_s + _TINY_S, "right"))
        if count == 0:
            return 0
        self.free_s = float(ends[count - 1])
        self.busy_s += float(service_s[:count].sum()) if isinstance(service_s, np.ndarray) else service_s * count
        self.records += count
        ends, parts = ends[:count], parts[:count]
        for p, n in _counts(parts).items():
            mine = ends if n == count else ends[parts == p]
            at = topic.served[p]
            topic.done_s[p][at : at + n] = mine
            topic.owner[p][at : at + n] = self.consumer_id
            topic.served[p] = at + n
        return count


def _counts(parts: Ints) -> dict[int, int]:
    return {p: n for p, n in enumerate(np.bincount(parts).tolist()) if n}
