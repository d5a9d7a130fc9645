"""What a producer asks for every record: the next choice of a topic, on the newest view of the cluster."""

from dataclasses import dataclass
from itertools import islice

from headgate.producers.protocol import Bindable, Choice, ClusterView, Foreseeing, Forgiving, Listening, Partitioner


class Choices:
    """`next_of` is made when the view changes and swapped as a whole; reading it takes no lock (B-38)."""

    def __init__(self, partitioner: Partitioner) -> None:
        self.partitioner = partitioner
        self.view: ClusterView | None = None
        self.next_of: dict[str, Choice] = {}
        self._foresees = partitioner if isinstance(partitioner, Foreseeing) else None
        self._forgives = partitioner if isinstance(partitioner, Forgiving) else None
        self._listens = partitioner if isinstance(partitioner, Listening) else None

    def follow(self, view: ClusterView) -> None:
        next_of = {}
        if isinstance(self.partitioner, Bindable):
            for topic in view.partitions:
                choice = self.partitioner.bound(topic, view)
                if choice is not None:
                    next_of[topic] = choice
        self.view, self.next_of = view, next_of

    def ahead(self, topic: str, records: int) -> list[int] | None:
        """The next so many of a topic, without a line of Python for each where that can be. None: not in `next_of`."""
        view, next_of = self.view, self.next_of
        if topic not in next_of:
            return None
        first: list[int] = []
        while len(first) < records and isinstance(next_of[topic], _Again):
            first.append(next_of[topic]())
        if self._foresees is not None and view is not None and view.leaders.get(topic):
            return [*first, *self._foresees.ahead(topic, view, records - len(first))]
        return [*first, *islice(iter(next_of[topic], None), records - len(first))]

    def chosen(self, topic: str, key: bytes | None, value: bytes | None) -> int | None:
        """For records that must be seen to be placed. None while nobody knows the topic."""
        view = self.view
        if view is None or topic not in view.partitions:
            return None
        return self.partitioner.partition(topic, key, value, view)

    def found_no_room(self, topic: str, key: bytes | None, value: bytes | None, partition: int) -> None:
        """A record that `chosen` has placed there."""
        if self.view is None:
            return
        if self._forgives is not None:
            self._forgives.taken_back(topic, key, value, partition, self.view)
        else:
            self.given_up(topic, partition)

    def given_up(self, topic: str, partition: int) -> None:
        """A record placed there will not be sent."""
        if self._listens is not None and self.view is not None:
            self._listens.acknowledged(topic, partition, None, self.view)


@dataclass(frozen=True, slots=True)
class _Again:
    """A turn that was given back, for one record; then it goes on as before."""

    next_of: dict[str, Choice]
    topic: str
    partition: int
    after: Choice

    def __call__(self) -> int:
        self.next_of[self.topic] = self.after
        return self.partition


def give_back(next_of: dict[str, Choice], topic: str, partition: int) -> None:
    """The record could not be taken, so its turn is the next record's."""
    next_of[topic] = _Again(next_of, topic, partition, next_of[topic])
