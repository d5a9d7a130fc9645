"""Looking on: who lives, how far the lake is, and whether a ledger that was published ever went backwards."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.errors import KafkaUnavailable
from headgate.kafka.channel import BEGINNING, Received, Tail
from headgate.kafka.internal_topics import Topics
from headgate.model import TopicPartition
from headgate.model.messages import CommitRecord, ConsumerLeft, ConsumerState, LedgerState

_TURN_S = 0.2
FORGED = "chaos"
"""The committer that ledgers made up by the tests name; nobody is to believe them."""


@dataclass
class _Seen:
    lives: dict[int, ConsumerState] = field(default_factory=dict)
    """The newest life of each consumer, as it last reported."""
    all_lives: set[str] = field(default_factory=set)
    ledgers: dict[str, dict[int, dict[TopicPartition, int]]] = field(default_factory=dict)
    """Per table and sequence, the positions."""
    committers: dict[str, int] = field(default_factory=dict)
    """How many ledgers each committer published."""
    backwards: list[str] = field(default_factory=list)
    commits: list[CommitRecord] = field(default_factory=list)


class Watch:
    """Follows the control, ledger and commits topics in a thread of its own, from their beginning."""

    def __init__(self, settings: Mapping[str, Any], topics: Topics) -> None:
        self._topics = topics
        self._lock = threading.Lock()
        self._seen = _Seen()
        self._stop = threading.Event()
        places = (topics.control, topics.ledger, topics.commits)
        self._tail = Tail(settings, {(topic, 0): BEGINNING for topic in places})
        self._thread = threading.Thread(target=self._follow, name="watch", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                received = self._tail.poll(_TURN_S)
            except KafkaUnavailable:
                continue  # the broker is away, on purpose
            with self._lock:
                for one in received:
                    self._take(one)

    def _take(self, received: Received) -> None:
        message = received.message
        if isinstance(message, ConsumerState):
            self._seen.all_lives.add(message.incarnation)
            known = self._seen.lives.get(message.consumer_id)
            if known is None or message.incarnation >= known.incarnation:
                self._seen.lives[message.consumer_id] = message
        elif isinstance(message, ConsumerLeft):
            known = self._seen.lives.get(message.consumer_id)
            if known is not None and known.incarnation == message.incarnation:
                del self._seen.lives[message.consumer_id]
        elif isinstance(message, LedgerState) and message.committer != FORGED and message.exists:
            self._take_ledger(message)
        elif isinstance(message, CommitRecord):
            self._seen.commits.append(message)

    def _take_ledger(self, state: LedgerState) -> None:
        """The one invariant, as far as it shows from outside: with the sequence every position stays or grows."""
        self._seen.committers[state.committer] = self._seen.committers.get(state.committer, 0) + 1
        positions = {TopicPartition(p.topic, p.partition): p.next for p in state.positions}
        by_sequence = self._seen.ledgers.setdefault(state.table, {})
        earlier = max((n for n in by_sequence if n <= state.sequence), default=None)
        later = min((n for n in by_sequence if n >= state.sequence), default=None)
        for low, high in ((by_sequence.get(earlier or -1), positions), (positions, by_sequence.get(later or -1))):
            for partition, at in (low or {}).items():
                if high is not None and high.get(partition, -1) < at:
                    self._seen.backwards.append(
                        f"{state.table}, sequence {state.sequence} by {state.committer}: {partition} went from {at} "
                        f"back to {high.get(partition)}"
                    )
        by_sequence[state.sequence] = positions

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)
        self._tail.close()

    # What the run asks

    def lives(self) -> dict[int, str]:
        """Consumer id → incarnation of the newest life that reported."""
        with self._lock:
            return {n: state.incarnation for n, state in self._seen.lives.items()}

    def owners(self) -> dict[int, tuple[TopicPartition, ...]]:
        with self._lock:
            return {n: state.partitions for n, state in self._seen.lives.items() if state.partitions}

    def state(self, consumer_id: int) -> ConsumerState | None:
        with self._lock:
            return self._seen.lives.get(consumer_id)

    def heard(self, incarnation: str) -> bool:
        with self._lock:
            return incarnation in self._seen.all_lives

    def committers(self) -> dict[str, int]:
        """How many ledgers each committer published so far."""
        with self._lock:
            return dict(self._seen.committers)

    def commits(self) -> tuple[CommitRecord, ...]:
        with self._lock:
            return tuple(self._seen.commits)

    def positions(self, table: str) -> dict[TopicPartition, int]:
        """The newest ledger of the table."""
        with self._lock:
            by_sequence = self._seen.ledgers.get(table, {})
            return dict(by_sequence[max(by_sequence)]) if by_sequence else {}

    def backwards(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._seen.backwards)

    def holds(self, tables: Iterable[str], ends: Mapping[TopicPartition, int], of: Mapping[str, str]) -> bool:
        """Whether the lake holds everything before these offsets; `of` says which table a topic goes to."""
        at = {table: self.positions(table) for table in tables}
        return all(at[of[p.topic]].get(p, 0) >= end for p, end in ends.items())
