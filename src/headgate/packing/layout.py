"""An assignment while it is repaired: who holds what, how much room each consumer has left, and what already moved.

Every change can be taken back, so that a repair can be tried. Rooms are kept in order, which makes looking for a
place a bisection.
"""

from bisect import bisect_left, insort
from itertools import count

from headgate.model import Assignment, TopicPartition
from headgate.packing.any_fit import Rates
from headgate.packing.protocol import Capacity


class Layout:
    def __init__(self, sizes: Rates, capacity: Capacity) -> None:
        self.sizes = sizes
        self.capacity = capacity
        self.held: dict[int, set[TopicPartition]] = {}
        self.room: dict[int, float] = {}
        self.by_room: list[tuple[float, int]] = []
        """Consumers that may be given something, by (room, id)."""
        self.moved: dict[TopicPartition, int] = {}
        """Partitions that are new or change hands anyway: moving them once more costs nothing."""
        self._done: list[tuple[TopicPartition, int, int, float, float, bool]] = []

    def weight(self, partition: TopicPartition) -> float:
        """What moving it costs: its rate, unless it moves anyway."""
        return 0.0 if partition in self.moved else self.sizes[partition]

    def tightest(self, size: float, slack: float) -> int | None:
        """The fullest consumer that keeps `slack` free; if there is none, the emptiest one that fits."""
        at = bisect_left(self.by_room, (size + slack,))
        if at == len(self.by_room):
            if not self.by_room or self.by_room[-1][0] < size:
                return None
            at = bisect_left(self.by_room, (self.by_room[-1][0],))
        return self.by_room[at][1]

    def open_for(self, size: float) -> int:
        """A new consumer: the lowest unused id whose capacity suffices, or the lowest if none does."""
        unused = (n for n in count(1) if n not in self.held)
        if size <= self.capacity.default_bytes_per_s:
            consumer = next(n for n in unused if self.capacity[n] >= size)
        else:
            large = (n for n in sorted(self.capacity.of) if n > 0 and n not in self.held and self.capacity[n] >= size)
            consumer = next(large, None) or next(unused)
        self.held[consumer] = set()
        self.room[consumer] = self.capacity[consumer]
        insort(self.by_room, (self.room[consumer], consumer))
        return consumer

    def place(self, partition: TopicPartition, consumer: int) -> None:
        """A partition that nobody holds."""
        self.held[consumer].add(partition)
        self._set_room(consumer, self.room[consumer] - self.sizes[partition])
        self.moved[partition] = consumer

    def move(self, partition: TopicPartition, old: int, new: int) -> None:
        self._done.append((partition, old, new, self.room[old], self.room[new], partition in self.moved))
        size = self.sizes[partition]
        self.held[old].remove(partition)
        self.held[new].add(partition)
        self._set_room(old, self.room[old] + size)
        self._set_room(new, self.room[new] - size)
        self.moved[partition] = new

    def mark(self) -> int:
        return len(self._done)

    def weight_moved_since(self, mark: int) -> float:
        return sum(self.sizes[partition] for partition, *_, had_moved in self._done[mark:] if not had_moved)

    def undo(self, mark: int) -> None:
        """Takes back every move since `mark`."""
        while len(self._done) > mark:
            partition, old, new, old_room, new_room, had_moved = self._done.pop()
            self.held[new].remove(partition)
            self.held[old].add(partition)
            self._set_room(old, old_room)
            self._set_room(new, new_room)
            if had_moved:
                self.moved[partition] = old
            else:
                del self.moved[partition]

    def shut(self, consumer: int) -> None:
        """Nothing more is given to it."""
        del self.by_room[bisect_left(self.by_room, (self.room[consumer], consumer))]

    def reopen(self, consumer: int) -> None:
        insort(self.by_room, (self.room[consumer], consumer))

    def drop(self, consumer: int) -> None:
        """A shut consumer that holds nothing any more disappears."""
        del self.held[consumer], self.room[consumer]

    def assignment(self) -> Assignment:
        return Assignment({consumer: frozenset(self.held[consumer]) for consumer in sorted(self.held)})

    def _set_room(self, consumer: int, room: float) -> None:
        at = bisect_left(self.by_room, (self.room[consumer], consumer))
        if at < len(self.by_room) and self.by_room[at][1] == consumer:
            del self.by_room[at]
            insort(self.by_room, (room, consumer))
        self.room[consumer] = room
