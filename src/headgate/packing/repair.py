"""Repair, Headgate's own packer: what fits stays, what must move moves as cheaply as it can, and a consumer is saved
only where that is worth the moves.

1. A consumer that is overloaded gives away the least weight that makes the rest fit.
2. What was given away and what is new, heaviest first, goes to the fullest consumer that keeps some slack; if none has
   room, room is made by a chain of moves; if that costs too much, a new consumer is opened.
3. Consumers are closed, the cheapest first, while what that moves is worth a consumer.
4. When consumers are dear, the emptiest are packed anew together as long as that saves one.

One knob, `consumer_price`: the most write rate that may change hands to save one consumer, in consumers' worth of flow.
0 moves only what must move; infinity needs at most as many consumers as BFD.
"""

from heapq import nsmallest
from math import fsum

from headgate.model import Assignment, TopicPartition
from headgate.packing.any_fit import Rates, descending, usable
from headgate.packing.bounds import least_consumers
from headgate.packing.chains import Staircase
from headgate.packing.eviction import lightest_cover
from headgate.packing.layout import Layout
from headgate.packing.protocol import FASTEST, Capacity
from headgate.packing.repack import repack_some

SLACK = 0.06
"""Share of a consumer left free where there is a choice: filled to the brim, it overflows at the next small rise."""
RESTLESSNESS = 3.0
"""How much less a saved consumer is worth when much had to move: the faster rates change, the sooner it is back."""
OPENING_SHARE = 0.5
"""Of the price, what a chain may cost to avoid a new consumer; it may be cheap to place at the next packing."""
CANDIDATES = 64
"""Consumers looked at in one pass, those that keep least: another pass follows if all that looked cheap were closed."""
FAILURES = 3
"""Attempts to close a consumer in a row that may fail before the rest, which look dearer, are not tried."""
REPACK_FROM = 4.0
"""Price from which packing anew is tried: on E3 it hardly ever saves a consumer for less, and it takes time."""
ROUNDING = 1e-9
"""A load above the capacity by less than this share is rounding, not overload."""


class Repair:
    """For each published packer there is a price with fewer consumers and fewer moves on E3; see docs/packers.md."""

    def __init__(self, consumer_price: float = 1.25) -> None:
        if not consumer_price >= 0:
            raise ValueError(f"consumer_price is a number from 0 to infinity, not {consumer_price}")
        self._consumer_price = float(consumer_price)

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        sizes = rates if all(0 <= rate <= FASTEST for rate in rates.values()) else usable(rates)
        largest = max([capacity.default_bytes_per_s, *capacity.of.values()])
        layout = Layout(sizes, capacity)
        homeless = _keep_what_fits(layout, previous, largest)
        total = fsum(min(size, largest) for size in sizes.values())
        evicted = fsum(min(sizes[p], largest) for p in homeless)
        price = self._consumer_price * capacity.default_bytes_per_s
        slack = SLACK * capacity.default_bytes_per_s

        if len(homeless) + sum(map(len, layout.held.values())) < len(sizes):
            homeless += sizes.keys() - previous.partitions
        for partition in descending(homeless, sizes):
            _place(layout, partition, slack, price * OPENING_SHARE)

        if total:
            price /= 1 + RESTLESSNESS * evicted / total
        _close_consumers(layout, price, slack, total / largest)
        if self._consumer_price >= REPACK_FROM:
            enough = least_consumers(sizes.values(), largest)
            while len(layout.held) > enough and repack_some(layout, price):
                _close_consumers(layout, price, slack, enough)
        return layout.assignment()


def _keep_what_fits(layout: Layout, previous: Assignment, largest: float) -> list[TopicPartition]:
    """Step 1: takes over who holds what and returns the partitions that cannot stay."""
    evicted: list[TopicPartition] = []
    size_of = layout.sizes.__getitem__
    for consumer, partitions in previous.owners.items():
        try:
            load = fsum(map(size_of, partitions))
        except KeyError:  # some have vanished
            partitions = frozenset(p for p in partitions if p in layout.sizes)
            load = fsum(map(size_of, partitions))
        limit = layout.capacity[consumer]
        if load > limit * (1 + ROUNDING):
            surplus = _surplus({p: layout.sizes[p] for p in partitions}, load - limit, largest)
            evicted += surplus
            partitions -= frozenset(surplus)
            load = fsum(layout.sizes[p] for p in partitions)
        if partitions:
            layout.keep(consumer, partitions, load)
    layout.sort()
    return evicted


def _surplus(held: dict[TopicPartition, float], excess: float, largest: float) -> list[TopicPartition]:
    """The least weight to give away. A partition that is too fast for any consumer keeps this one for itself (L-35)."""
    ascending = sorted(held, key=lambda p: (held[p], p))
    if held[ascending[-1]] > largest:
        return ascending[:-1]
    return [ascending[at] for at in lightest_cover([held[p] for p in ascending], excess)]


def _place(layout: Layout, partition: TopicPartition, slack: float, budget: float) -> None:
    """Step 2 for one partition."""
    size = layout.sizes[partition]
    consumer = layout.tightest(size, slack)
    if consumer is None:
        consumer = _make_room(layout, size, slack, budget)
    layout.place(partition, layout.open_for(size) if consumer is None else consumer)


def _make_room(layout: Layout, size: float, slack: float, budget: float) -> int | None:
    """Moves partitions along the cheapest chain and says who has room now; None if that costs more than the budget."""
    stairs = Staircase(layout, size)
    chain = stairs.chain(size) if stairs.cost(size) <= budget else []
    if not chain:
        return None
    # From the far end, so that every partition finds the room that the one after it has left.
    mark = layout.mark()
    to = layout.tightest(layout.sizes[chain[-1].partition], slack)
    for step in reversed(chain):
        if to is None or to == step.consumer or layout.room[to] < layout.sizes[step.partition]:
            break
        layout.move(step.partition, step.consumer, to)
        to = step.consumer
    else:
        if to is not None and layout.room[to] >= size:
            return to
    layout.undo(mark)  # the far end went to a consumer of the chain itself
    return None


def _close_consumers(layout: Layout, price: float, slack: float, enough: float) -> None:
    """Step 3: passes over the consumers whose closing may be worth the price, the cheapest first."""
    while len(layout.held) - 1 >= enough:
        failures = closed = 0
        for _, consumer in _closable(layout, price):
            if failures == FAILURES or len(layout.held) - 1 < enough:
                return
            if _close(layout, consumer, price, slack):
                failures, closed = 0, closed + 1
            else:
                failures += 1
        if not closed:
            return


def _closable(layout: Layout, price: float) -> list[tuple[float, int]]:
    """(cost, consumer) by rising cost, where the cost is what closing it moves at least. Of equals the highest id comes
    first: new consumers get the lowest free one, so low ones are old and warm."""
    stairs, free = Staircase(layout), layout.by_room[-1][0]
    found = []
    for kept, opposite in nsmallest(CANDIDATES, ((kept, -consumer) for consumer, kept in layout.kept.items())):
        consumer = -opposite
        cost = kept + sum(stairs.cost(item.size) for item in layout.items(consumer) if item.size > free)
        if cost <= price:
            found.append((cost, consumer))
    return sorted(found, key=lambda one: (one[0], -one[1]))


def _close(layout: Layout, consumer: int, price: float, slack: float) -> bool:
    """Moves everything off the consumer if that costs at most the price; otherwise nothing."""
    mark, budget = layout.mark(), price - layout.kept[consumer]
    layout.shut(consumer)
    for partition in descending(layout.held[consumer], layout.sizes):
        size = layout.sizes[partition]
        to = layout.tightest(size, slack)
        if to is None and budget >= 0:
            before = layout.mark()
            to = _make_room(layout, size, slack, budget)
            budget -= layout.weight_moved_since(before)
        if to is None or budget < 0:
            layout.undo(mark)
            layout.reopen(consumer)
            return False
        layout.move(partition, consumer, to)
    layout.drop([consumer])
    return True
