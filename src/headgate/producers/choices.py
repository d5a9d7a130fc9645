"""What a producer asks for every record: the next choice of a topic, on the newest view of the cluster."""

from itertools import islice

from headgate.producers.protocol import Bindable, Choice, ClusterView, Foreseeing, Partitioner


class Choices:
    """`next_of` is made when the view changes and swapped as a whole; reading it takes no lock (B-38)."""

    def __init__(self, partitioner: Partitioner) -> None:
        self.partitioner = partitioner
        self.view: ClusterView | None = None
        self.next_of: dict[str, Choice] = {}
        self._foresees = partitioner if isinstance(partitioner, Foreseeing) else None

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
        if not records:
            return []
        first = next_of[topic]()  # it may be a turn that was given back, which is for one record only
        if self._foresees is not None and view is not None and view.leaders.get(topic):
            return [first, *self._foresees.ahead(topic, view, records - 1)]
        return [first, *islice(iter(next_of[topic], None), records - 1)]

    def chosen(self, topic: str, key: bytes | None, value: bytes | None) -> int | None:
        """For records that must be seen to be placed. None while nobody knows the topic."""
        view = self.view
        if view is None or topic not in view.partitions:
            return None
        return self.partitioner.partition(topic, key, value, view)


def give_back(next_of: dict[str, Choice], topic: str, partition: int) -> None:
    """The record could not be taken, so its turn is the next record's. Otherwise a producer whose queue is full every
    other time would, with two nodes, send everything to one of them."""
    after = next_of[topic]

    def again() -> int:
        next_of[topic] = after
        return partition

    next_of[topic] = again
