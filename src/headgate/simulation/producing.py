"""One producer at full speed, batch by batch: what its client, the nodes and the copies make of a partitioner (E-5).

As Kafka's clients work: records gather in a batch per partition, a request to a node carries at most one batch of each
partition it leads, so many requests are under way to a node at once, and the producer waits while its buffer is full.
A node does one thing after the other, requests and copies alike. A follower fetches from a leader whatever is new
there, one fetch at a time, partition by partition; with acks `all` a request is answered when its copies are there.
Everything is deterministic: what is not modelled is what makes real clusters vary.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np


@dataclass(frozen=True, slots=True)
class Client:
    """With the defaults of the Java client at the time of the published benchmark."""

    bytes_per_s: float
    """How fast the program makes records."""
    batch_bytes: int = 16_384
    buffer_bytes: int = 33_554_432
    in_flight: int = 5
    fetch_bytes: int = 1_048_576
    """The most that a fetch brings of a partition."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Of a node's time."""

    request_s: float
    byte_s: float
    fetch_s: float
    """Not of the node's own time, but of its fetcher's: for each partition of which a fetch brings something."""
    copied_byte_s: float


@dataclass(frozen=True, slots=True)
class Produced:
    bytes_per_s: float
    latencies_s: "np.typing.NDArray[np.float64]"
    """From when a record was made to its acknowledgement."""
    busy: tuple[float, ...]
    """Of each node, the share of its time."""
    batch_bytes: float
    """Mean size of those that were sent."""

    @property
    def mean_latency_s(self) -> float:
        return float(self.latencies_s.mean())


@dataclass(slots=True)
class _Request:
    node: int
    batches: list[tuple[int, list[float]]]
    """Partitions, and when their grains were made."""
    copies_left: int = 0


@dataclass(slots=True)
class _Fetcher:
    """Of one follower, from one leader."""

    waiting: deque[tuple[_Request, int, int]] = field(default_factory=deque)
    """Requests with a partition and its grains, as they were written."""
    works: bool = False


@dataclass(slots=True)
class _Node:
    jobs: deque[tuple[float, Callable[[float], None]]] = field(default_factory=deque)
    """How long each takes, and what comes after it."""
    works: bool = False
    busy_s: float = 0.0
    in_flight: int = 0


class Producing:
    """`replicas` has the nodes of each partition, the leader first, counted from 0."""

    def __init__(
        self,
        replicas: Sequence[Sequence[int]],
        client: Client,
        costs: Costs,
        acks_all: bool,
        next_partition: Callable[[], int],
        grain_bytes: int = 1024,
    ) -> None:
        """Records are made by the grain: many small ones that go to one partition together."""
        self._replicas, self._client, self._costs = replicas, client, costs
        self._acks_all, self._next_partition = acks_all, next_partition
        self._grain_bytes = grain_bytes
        self._most_grains = client.batch_bytes // grain_bytes
        self._nodes = [_Node() for _ in range(1 + max(node for nodes in replicas for node in nodes))]
        self._led: list[list[int]] = [
            [p for p, nodes in enumerate(replicas) if nodes[0] == n] for n in range(len(self._nodes))
        ]
        self._waiting: list[deque[list[float]]] = [deque() for _ in replicas]
        """Batches of each partition, oldest first, as the times at which their grains were made."""
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = count()
        self._fetchers: dict[tuple[int, int], _Fetcher] = {}
        self._buffered = 0
        self._blocked = False
        self._latencies: list[float] = []
        self._batches = 0

    def run(self, grains: int, warm_up: float = 0.5) -> Produced:
        """Until so many are acknowledged; the first part of them is not counted: buffers fill meanwhile."""
        self._later(0.0, self._make)
        began_s = self._until(int(warm_up * grains))
        first, batches, busy_s = len(self._latencies), self._batches, [node.busy_s for node in self._nodes]
        took_s = self._until(grains) - began_s
        counted_bytes = (len(self._latencies) - first) * self._grain_bytes
        return Produced(
            counted_bytes / took_s,
            np.array(self._latencies[first:]),
            tuple((node.busy_s - before) / took_s for node, before in zip(self._nodes, busy_s, strict=True)),
            counted_bytes / (self._batches - batches),
        )

    def _until(self, acknowledged: int) -> float:
        now_s = 0.0
        while len(self._latencies) < acknowledged:
            now_s, _, happen = heapq.heappop(self._events)
            happen(now_s)
        return now_s

    def _later(self, at_s: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._numbers), happen))

    def _make(self, now_s: float) -> None:
        if self._buffered + self._grain_bytes > self._client.buffer_bytes:
            self._blocked = True
            return
        partition = self._next_partition()
        self._buffered += self._grain_bytes
        batches = self._waiting[partition]
        if not batches or len(batches[-1]) >= self._most_grains:
            batches.append([])
        batches[-1].append(now_s)
        self._later(now_s + self._grain_bytes / self._client.bytes_per_s, self._make)
        self._send(self._replicas[partition][0], now_s)

    def _send(self, to: int, now_s: float) -> None:
        node = self._nodes[to]
        while node.in_flight < self._client.in_flight:
            batches = [(p, self._waiting[p].popleft()) for p in self._led[to] if self._waiting[p]]
            if not batches:
                return
            node.in_flight += 1
            self._batches += len(batches)
            request = _Request(to, batches)
            grains = sum(len(made) for _, made in batches)
            takes_s = self._costs.request_s + grains * self._grain_bytes * self._costs.byte_s
            self._do(to, now_s, takes_s, lambda at_s, request=request: self._written(request, at_s))  # type: ignore[misc]

    def _do(self, which: int, now_s: float, takes_s: float, then: Callable[[float], None]) -> None:
        node = self._nodes[which]
        node.jobs.append((takes_s, then))
        if not node.works:
            self._work(node, now_s)

    def _work(self, node: _Node, now_s: float) -> None:
        takes_s, then = node.jobs.popleft()
        node.works = True
        node.busy_s += takes_s

        def done(at_s: float) -> None:
            node.works = False
            then(at_s)
            if node.jobs and not node.works:
                self._work(node, at_s)

        self._later(now_s + takes_s, done)

    def _written(self, request: _Request, now_s: float) -> None:
        fetchers = {}
        for partition, made in request.batches:
            for follower in self._replicas[partition][1:]:
                fetchers[follower] = self._fetchers.setdefault((request.node, follower), _Fetcher())
                fetchers[follower].waiting.append((request, partition, len(made)))
                request.copies_left += 1
        if not self._acks_all or not fetchers:
            self._acknowledge(request, now_s)
        for follower, fetcher in fetchers.items():
            if not fetcher.works:
                self._fetch(fetcher, follower, now_s)

    def _fetch(self, fetcher: _Fetcher, follower: int, now_s: float) -> None:
        most = self._client.fetch_bytes // self._grain_bytes
        taken: list[_Request] = []
        grains: dict[int, int] = {}
        while fetcher.waiting and grains.get(fetcher.waiting[0][1], 0) + fetcher.waiting[0][2] <= most:
            request, partition, copied = fetcher.waiting.popleft()
            grains[partition] = grains.get(partition, 0) + copied
            taken.append(request)
        fetcher.works = bool(taken)
        if not taken:
            return
        takes_s = sum(grains.values()) * self._grain_bytes * self._costs.copied_byte_s

        def copied_at(at_s: float) -> None:
            for request in taken:
                request.copies_left -= 1
                if self._acks_all and not request.copies_left:
                    self._acknowledge(request, at_s)
            self._fetch(fetcher, follower, at_s)

        fetched_s = now_s + len(grains) * self._costs.fetch_s
        self._later(fetched_s, lambda at_s: self._do(follower, at_s, takes_s, copied_at))

    def _acknowledge(self, request: _Request, now_s: float) -> None:
        for _, made in request.batches:
            self._latencies += [now_s - at_s for at_s in made]
            self._buffered -= len(made) * self._grain_bytes
        self._nodes[request.node].in_flight -= 1
        if self._blocked:
            self._blocked = False
            self._later(now_s, self._make)
        self._send(request.node, now_s)
