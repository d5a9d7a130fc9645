"""Ejection chains: room for a partition by moving a lighter one on, which may move a still lighter one on, and so on.

The cheapest chain for every size is a shortest path. Partitions are taken from the lightest to the heaviest; each
offers the room of its consumer plus its own size, at its own weight plus the cheapest room for itself. Only offers that
no other one beats in both room and price are kept: a staircase, whose first step that is high enough is the cheapest.
"""

from bisect import bisect_left
from dataclasses import dataclass
from math import inf

from headgate.model import TopicPartition
from headgate.packing.layout import Item, Layout

REACH = 256
"""Partitions that may take part, those of the emptiest consumers: the search must not grow with the fleet."""


@dataclass(frozen=True, slots=True)
class Step:
    """Room for something on `consumer` once `partition` has gone where `onward` makes room, or directly elsewhere."""

    cost: float
    partition: TopicPartition
    consumer: int
    onward: "Step | None"


class Staircase:
    """The cheapest room for every size up to `limit`; what is heavier need not take part."""

    def __init__(self, layout: Layout, limit: float = inf) -> None:
        self._rooms: list[float] = []
        self._steps: list[Step] = []
        top, second = ([*layout.by_room[-2:][::-1], (-1.0, 0), (-1.0, 0)])[:2]
        self._free_room = top[0]
        for size, _, _, weight, partition, consumer in _reachable(layout):
            if size >= limit:
                break
            onward = None
            if size > (second[0] if consumer == top[1] else top[0]):
                onward = self._step(size, consumer)
                if onward is None:
                    continue
                weight += onward.cost
            room = layout.room[consumer] + size
            if room > self._free_room:
                self._offer(room, weight, partition, consumer, onward)

    def cost(self, size: float) -> float:
        """The least weight that must move to make room; infinite if there is no chain."""
        if size <= self._free_room:
            return 0.0
        step = self._step(size, None)
        return step.cost if step else inf

    def chain(self, size: float) -> list[Step]:
        """The cheapest chain for a partition of that size, or nothing if there is none or it runs in a circle."""
        steps: list[Step] = []
        step = self._step(size, None)
        while step is not None:
            steps.append(step)
            step = step.onward
        return steps if len({s.consumer for s in steps}) == len(steps) else []

    def _step(self, size: float, leaving: int | None) -> Step | None:
        at = bisect_left(self._rooms, size)
        while at < len(self._steps) and self._steps[at].consumer == leaving:
            at += 1
        return self._steps[at] if at < len(self._steps) else None

    def _offer(self, room: float, cost: float, partition: TopicPartition, consumer: int, onward: Step | None) -> None:
        """A new step, unless another one offers as much for no more; it replaces those that offer less for no less."""
        end = bisect_left(self._rooms, room)
        if end < len(self._steps) and self._steps[end].cost <= cost:
            return
        begin = end
        while begin > 0 and self._steps[begin - 1].cost >= cost:
            begin -= 1
        if end < len(self._rooms) and self._rooms[end] == room:
            end += 1
        self._rooms[begin:end] = [room]
        self._steps[begin:end] = [Step(cost, partition, consumer, onward)]


def _reachable(layout: Layout) -> list[Item]:
    found: list[Item] = []
    for _, consumer in reversed(layout.by_room):
        if len(found) >= REACH:
            break
        found += layout.items(consumer)
    return sorted(found)
