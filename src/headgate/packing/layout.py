"""An assignment while it is repaired: who holds what, how much room each consumer has left, and what already moved.

Every move can be taken back, so that a repair can be tried. Rooms are kept in order, which makes looking for a place a
bisection.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import NamedTuple

from headgate.model import Assignment, TopicPartition
from headgate.packing.any_fit import Rates
from headgate.packing.protocol import Capacity


class Item(NamedTuple):
    """A partition where it is now; sorts from light to heavy, equals by name."""

    size: float
    topic: str
    number: int
    weight: float
    """What moving it costs: its rate, or nothing if it is new or changes hands anyway."""
    partition: TopicPartition
    consumer: int


@dataclass(frozen=True, slots=True)
class _Done:
    """A move and what it changed, to take it back."""

    partition: TopicPartition
    old: int
    new: int
    old_room: float
    new_room: float
    old_kept: float
    weight: float


class Layout:
    def __init__(self, sizes: Rates, capacity: Capacity) -> None:
        self.sizes = sizes
        self.capacity = capacity
        self.held: dict[int, Set[TopicPartition]] = {}
        self.room: dict[int, float] = {}
        self.kept: dict[int, float] = {}
        """What each consumer holds of what it held before: the least that closing it moves."""
        self.by_room: list[tuple[float, int]] = []
        """Consumers that may be given something, by (room, id)."""
        self.moved: set[TopicPartition] = set()
        """Partitions that are new or change hands anyway: moving them once more costs nothing."""
        self._done: list[_Done] = []
        self._items: dict[int, list[Item]] = {}

    def keep(self, consumer: int, partitions: Set[TopicPartition], load: float) -> None:
        """Takes over a consumer as it is; `sort` must follow."""
        self.held[consumer] = partitions
        self.room[consumer] = self.capacity[consumer] - load
        self.kept[consumer] = load

    def sort(self) -> None:
        self.by_room = sorted((room, consumer) for consumer, room in self.room.items())

    def weight(self, partition: TopicPartition) -> float:
        return 0.0 if partition in self.moved else self.sizes[partition]

    def items(self, consumer: int) -> list[Item]:
        """What it holds, in any order; remembered until it changes."""
        if consumer not in self._items:
            self._items[consumer] = [
                Item(size := self.sizes[p], p.topic, p.partition, 0.0 if p in self.moved else size, p, consumer)
                for p in self.held[consumer]
            ]
        return self._items[consumer]

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
        consumer = self.capacity.unused_for(size, self.held)
        self.held[consumer] = set()
        self.room[consumer] = self.capacity[consumer]
        self.kept[consumer] = 0.0
        insort(self.by_room, (self.room[consumer], consumer))
        return consumer

    def place(self, partition: TopicPartition, consumer: int) -> None:
        """A partition that nobody holds."""
        self._change(consumer, self.room[consumer] - self.sizes[partition]).add(partition)
        self.moved.add(partition)

    def move(self, partition: TopicPartition, old: int, new: int) -> None:
        weight, size = self.weight(partition), self.sizes[partition]
        self._done.append(_Done(partition, old, new, self.room[old], self.room[new], self.kept[old], weight))
        self._change(old, self.room[old] + size).remove(partition)
        self._change(new, self.room[new] - size).add(partition)
        self.kept[old] -= weight
        self.moved.add(partition)

    def mark(self) -> int:
        return len(self._done)

    def weight_moved_since(self, mark: int) -> float:
        return sum(done.weight for done in self._done[mark:])

    def undo(self, mark: int) -> None:
        """Takes back every move since `mark`."""
        while len(self._done) > mark:
            done = self._done.pop()
            self._change(done.new, done.new_room).remove(done.partition)
            self._change(done.old, done.old_room).add(done.partition)
            self.kept[done.old] = done.old_kept
            if done.weight:
                self.moved.remove(done.partition)

    def shut(self, consumer: int) -> None:
        """Nothing more is given to it."""
        del self.by_room[bisect_left(self.by_room, (self.room[consumer], consumer))]

    def reopen(self, consumer: int) -> None:
        insort(self.by_room, (self.room[consumer], consumer))

    def drop(self, consumers: Iterable[int]) -> None:
        """Shut consumers that hold nothing any more disappear."""
        for consumer in consumers:
            del self.held[consumer], self.room[consumer], self.kept[consumer]

    def assignment(self) -> Assignment:
        return Assignment({consumer: frozenset(self.held[consumer]) for consumer in sorted(self.held)})

    def _change(self, consumer: int, room: float) -> set[TopicPartition]:
        """Sets its room and hands out what it holds for changing; only what changes is ever copied."""
        at = bisect_left(self.by_room, (self.room[consumer], consumer))
        if at < len(self.by_room) and self.by_room[at][1] == consumer:
            del self.by_room[at]
            insort(self.by_room, (room, consumer))
        self.room[consumer] = room
        self._items.pop(consumer, None)
        held = self.held[consumer]
        if not isinstance(held, set):
            held = self.held[consumer] = set(held)
        return held
