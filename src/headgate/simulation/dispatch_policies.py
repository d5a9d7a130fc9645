"""Dispatching policies (B-46, B-47, B-48), each with the messages it costs. A question and its answer are two."""

import random
from collections import deque
from collections.abc import Sequence
from enum import StrEnum

from headgate.errors import ConfigError
from headgate.producers.protocol import ClusterView, Partitioner
from headgate.simulation.dispatch import Sets
from headgate.topology.cluster import Topology
from headgate.topology.failures import failed


class _Blind:
    """Knows its queues and nothing else."""

    period_s: float | None = None
    listens = False

    def __init__(self) -> None:
        self.messages = 0
        self.lengths: list[int] = []
        self.sets: Sets = ()
        self.random = random.Random()

    def begin(self, lengths: list[int], sets: Sets, seed: int) -> None:
        self.lengths, self.sets, self.random, self.messages = lengths, sets, random.Random(seed), 0

    def refresh(self, now_s: float) -> None:
        pass

    def idle(self, queue: int, now_s: float) -> None:
        pass

    def left(self, dispatcher: int, queue: int, latency_s: float) -> None:
        pass

    def follow(self, sets: Sets) -> None:
        self.sets = sets

    def shortest(self, queues: Sequence[int], lengths: Sequence[int]) -> int:
        """Any one of the shortest: always the first would load it more than its twins."""
        least = min([lengths[queue] for queue in queues])
        equal = [queue for queue in queues if lengths[queue] == least]
        return equal[0] if len(equal) == 1 else equal[int(self.random.random() * len(equal))]


class RandomQueue(_Blind):
    def choose(self, dispatcher: int, now_s: float) -> int | None:
        queues = self.sets[dispatcher]
        return queues[int(self.random.random() * len(queues))] if queues else None


class RoundRobin(_Blind):
    """Each dispatcher's job counter, modulo its queues."""

    def begin(self, lengths: list[int], sets: Sets, seed: int) -> None:
        super().begin(lengths, sets, seed)
        self._sent = [0] * len(sets)

    def choose(self, dispatcher: int, now_s: float) -> int | None:
        queues = self.sets[dispatcher]
        number = self._sent[dispatcher]
        self._sent[dispatcher] = number + 1
        return queues[number % len(queues)] if queues else None


class JoinShortest(_Blind):
    """JSQ with perfect information: asks every queue before every job."""

    def choose(self, dispatcher: int, now_s: float) -> int | None:
        queues, lengths = self.sets[dispatcher], self.lengths
        if not queues:
            return None
        self.messages += 2 * len(queues)
        return self.shortest(queues, lengths)


class JoinShortestOfD(_Blind):
    """JSQ(d): asks d queues drawn at random; which of equal ones is drawn first is random, so ties are, too."""

    def __init__(self, d: int = 2) -> None:
        super().__init__()
        if d < 1:
            raise ConfigError(f"JSQ(d) asks at least 1 queue, not {d}")
        self._d = d

    def choose(self, dispatcher: int, now_s: float) -> int | None:
        queues = self.sets[dispatcher]
        if not queues:
            return None
        self.messages += 2 * min(self._d, len(queues))
        if self._d == 2 and len(queues) > 2:  # the usual case without a list: two different ones
            a = int(self.random.random() * len(queues))
            b = int(self.random.random() * (len(queues) - 1))
            first, second = queues[a], queues[b if b < a else b + 1]
            return second if self.lengths[second] < self.lengths[first] else first
        return self.shortest(self.random.sample(queues, min(self._d, len(queues))), self.lengths)


class Update(StrEnum):
    """How dispatchers learn what the others and the queues did."""

    poll = "poll"
    """Each asks every one of its queues: 2 messages for each pair."""
    gossip = "gossip"
    """Dispatchers tell each other what they have sent; of what has left nobody speaks."""
    both = "both"
    """Polls, and half a period later gossip about what was sent since."""


class JoinShortestStale(_Blind):
    """JSQ on what was known at the last update, plus what the dispatcher itself has sent since."""

    def __init__(self, period_s: float, update: Update = Update.poll) -> None:
        super().__init__()
        if not period_s > 0:
            raise ConfigError(f"the update period must be above 0, not {period_s}")
        self._update = update
        self._begin_period_s = period_s / 2 if update is Update.both else period_s

    def begin(self, lengths: list[int], sets: Sets, seed: int) -> None:
        super().begin(lengths, sets, seed)
        self.period_s, self._turn = self._begin_period_s, 0
        self._believed = [[0] * len(lengths) for _ in sets]
        self._sent = [[0] * len(lengths) for _ in sets]
        """By dispatcher and queue, since the others last heard of it."""

    def choose(self, dispatcher: int, now_s: float) -> int | None:
        queues, believed = self.sets[dispatcher], self._believed[dispatcher]
        if not queues:
            return None
        queue = self.shortest(queues, believed)
        believed[queue] += 1
        self._sent[dispatcher][queue] += 1
        return queue

    def refresh(self, now_s: float) -> None:
        self._turn += 1
        if self._update is Update.poll or (self._update is Update.both and self._turn % 2):
            for dispatcher, queues in enumerate(self.sets):
                self.messages += 2 * len(queues)
                for queue in queues:
                    self._believed[dispatcher][queue] = self.lengths[queue]
        else:
            self.messages += len(self.sets) * (len(self.sets) - 1)
            for hearer, believed in enumerate(self._believed):
                for teller, sent in enumerate(self._sent):
                    if teller != hearer:
                        for queue, jobs in enumerate(sent):
                            believed[queue] += jobs
        self._sent = [[0] * len(self.lengths) for _ in self.sets]


class JoinShortestAdaptive(JoinShortestStale):
    """Polls as often as it must: sooner when beliefs were off by more than `tolerance` jobs a queue, else later."""

    def __init__(self, period_s: float, tolerance: float = 1.0, factor: float = 1.25) -> None:
        super().__init__(period_s)
        if not tolerance > 0 or not factor > 1:
            raise ConfigError("the tolerance must be above 0 and the factor above 1")
        self._tolerance, self._factor = tolerance, factor

    def refresh(self, now_s: float) -> None:
        pairs = [(believed, q) for believed, queues in zip(self._believed, self.sets, strict=True) for q in queues]
        error = sum(abs(believed[q] - self.lengths[q]) for believed, q in pairs) / max(1, len(pairs))
        assert self.period_s is not None
        self.period_s *= self._factor if error < self._tolerance else 1 / self._factor
        super().refresh(now_s)


class Fallback(StrEnum):
    """What JIQ does when no queue is known to be idle."""

    hold = "hold"
    """Keeps the job, in order of arrival, until one is (the source)."""
    random = "random"
    """Sends it to any (the usual form)."""


class JoinIdle(_Blind):
    """JIQ: a queue that runs empty tells every dispatcher; the first to use it wins, the others' tokens are revoked."""

    def __init__(self, fallback: Fallback = Fallback.hold) -> None:
        super().__init__()
        self._fallback = fallback

    def begin(self, lengths: list[int], sets: Sets, seed: int) -> None:
        super().begin(lengths, sets, seed)
        self._tokens: list[dict[int, None]] = [{} for _ in sets]
        for queue in range(len(lengths)):
            self.idle(queue, 0.0)

    def idle(self, queue: int, now_s: float) -> None:
        for tokens, queues in zip(self._tokens, self.sets, strict=True):
            if queue in queues:
                tokens[queue] = None
                self.messages += 1

    def choose(self, dispatcher: int, now_s: float) -> int | None:
        mine = self._tokens[dispatcher]
        if mine:
            queue = next(iter(mine))
        elif self._fallback is Fallback.hold or not self.sets[dispatcher]:
            return None
        else:
            queues = self.sets[dispatcher]
            queue = queues[int(self.random.random() * len(queues))]
        for tokens in self._tokens:
            if queue in tokens:
                del tokens[queue]
                self.messages += tokens is not mine
        return queue

    def follow(self, sets: Sets) -> None:
        super().follow(sets)
        for tokens, queues in zip(self._tokens, sets, strict=True):
            for queue in tokens.keys() - set(queues):
                del tokens[queue]


class ByPartitioner(_Blind):
    """The very partitioners that producers use (B-50). Queue i is the i-th node; a dispatcher writes to one topic."""

    def __init__(self, partitioners: Sequence[Partitioner], topology: Topology, topics: Sequence[str]) -> None:
        """One partitioner and topic for each dispatcher; dispatchers that share an instance share its knowledge."""
        super().__init__()
        if len(partitioners) != len(topics):
            raise ConfigError(f"{len(partitioners)} partitioners for {len(topics)} topics: give one for each")
        known = {topic.name: topic for topic in topology.topics}
        if strangers := [topic for topic in topics if topic not in known]:
            raise ConfigError(f"topic {strangers[0]} is not in the topology")
        self._partitioners, self._topics, self._healthy = partitioners, topics, topology
        self._nodes = [node.id for node in topology.nodes]
        self._heard = [getattr(partitioner, "acknowledged", None) for partitioner in partitioners]
        self.listens = any(self._heard)
        self._used = {queue for queues in self.queue_sets for queue in queues}

    @property
    def queue_sets(self) -> Sets:
        """For the world: which queues each dispatcher's topic is on."""
        place = {id: queue for queue, id in enumerate(self._nodes)}
        sets = {topic.name: tuple(sorted(place[id] for id in topic.led_by())) for topic in self._healthy.topics}
        return tuple(sets[topic] for topic in self._topics)

    def begin(self, lengths: list[int], sets: Sets, seed: int) -> None:
        super().begin(lengths, sets, seed)
        self._sent: list[dict[int, deque[int]]] = [{} for _ in self._topics]
        """By dispatcher and queue, the partitions of records on their way."""
        self._see(self._healthy)

    def _see(self, topology: Topology) -> None:
        place = {id: queue for queue, id in enumerate(self._nodes)}
        self._view = ClusterView.of(topology)
        leaders = {
            topic.name: [None if p.leader is None else place[p.leader] for p in topic.partitions]
            for topic in topology.topics
        }
        self._queue_of = [leaders[topic] for topic in self._topics]

    def choose(self, dispatcher: int, now_s: float) -> int | None:
        partition = self._partitioners[dispatcher].partition(self._topics[dispatcher], None, b"", self._view)
        queue = self._queue_of[dispatcher][partition]
        if queue is not None and self.listens:
            self._sent[dispatcher].setdefault(queue, deque()).append(partition)
        return queue

    def left(self, dispatcher: int, queue: int, latency_s: float) -> None:
        heard, sent = self._heard[dispatcher], self._sent[dispatcher].get(queue)
        if heard is not None and sent:
            heard(self._topics[dispatcher], sent.popleft(), latency_s, self._view)

    def follow(self, sets: Sets) -> None:
        super().follow(sets)
        up = {queue for queues in sets for queue in queues}
        down = [queue for queue in range(len(self._nodes)) if queue in self._used and queue not in up]
        for dispatcher, heard in enumerate(self._heard):
            for queue in down:
                given_up = self._sent[dispatcher].pop(queue, ())
                if heard is not None:
                    for partition in given_up:
                        heard(self._topics[dispatcher], partition, None, self._view)
        self._see(failed(self._healthy, [self._nodes[queue] for queue in down]))
