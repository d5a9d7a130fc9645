"""Repair once more, without anything clever: every question is answered by looking at all consumers.

The tests hold `Repair` to the same answers; the benchmark measures what its sorted rooms, remembered lists and undoing
are worth. The parts that are plain already (eviction, packing anew) are shared.
"""

from math import fsum, inf

from headgate.model import Assignment, TopicPartition
from headgate.packing import chains, repair
from headgate.packing.any_fit import Rates, descending, usable
from headgate.packing.bounds import least_consumers
from headgate.packing.eviction import lightest_cover
from headgate.packing.layout import Layout
from headgate.packing.protocol import Capacity
from headgate.packing.repack import repack_some

Held = dict[int, set[TopicPartition]]
Chain = list[tuple[TopicPartition, int]]
"""(partition that makes room, consumer it leaves), the first one first."""


class RepairReference:
    def __init__(self, consumer_price: float = 1.25) -> None:
        self._consumer_price = consumer_price

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        return _Packing(usable(rates), capacity, previous, self._consumer_price).packed()


class _Packing:
    def __init__(self, sizes: Rates, capacity: Capacity, previous: Assignment, consumer_price: float) -> None:
        self.sizes, self.capacity, self.consumer_price = sizes, capacity, consumer_price
        self.home = previous.by_partition()
        self.held: Held = {c: {p for p in previous[c] if p in sizes} for c in previous}
        self.moved: set[TopicPartition] = set(sizes) - self.home.keys()
        self.slack = repair.SLACK * capacity.default_bytes_per_s
        self.largest = max([capacity.default_bytes_per_s, *capacity.of.values()])

    def packed(self) -> Assignment:
        evicted = [p for c in sorted(self.held) for p in self.surplus(c)]
        for partition in evicted:
            self.held[self.home[partition]].remove(partition)
            self.moved.add(partition)
        self.held = {c: partitions for c, partitions in self.held.items() if partitions}
        price = self.consumer_price * self.capacity.default_bytes_per_s
        for partition in descending(self.moved, self.sizes):
            self.place(partition, price * repair.OPENING_SHARE)

        total = fsum(min(size, self.largest) for size in self.sizes.values())
        if total:
            moved = fsum(min(self.sizes[p], self.largest) for p in evicted)
            price /= 1 + repair.RESTLESSNESS * moved / total
        self.close_consumers(price, total / self.largest)
        if self.consumer_price >= repair.REPACK_FROM:
            enough = least_consumers(self.sizes.values(), self.largest)
            while len(self.held) > enough and self.repack(price):
                self.close_consumers(price, enough)
        return Assignment({c: frozenset(self.held[c]) for c in sorted(self.held)})

    def room(self, consumer: int) -> float:
        return self.capacity[consumer] - fsum(self.sizes[p] for p in self.held[consumer])

    def weight(self, partition: TopicPartition) -> float:
        return 0.0 if partition in self.moved else self.sizes[partition]

    def kept(self, consumer: int) -> float:
        return fsum(self.weight(p) for p in self.held[consumer])

    def surplus(self, consumer: int) -> list[TopicPartition]:
        excess = -self.room(consumer)
        if excess <= self.capacity[consumer] * repair.ROUNDING:
            return []
        ascending = sorted(self.held[consumer], key=lambda p: (self.sizes[p], p))
        if self.sizes[ascending[-1]] > self.largest:
            return ascending[:-1]
        return [ascending[at] for at in lightest_cover([self.sizes[p] for p in ascending], excess)]

    def place(self, partition: TopicPartition, budget: float) -> None:
        size = self.sizes[partition]
        consumer = self.tightest(size, None)
        if consumer is None:
            consumer = self.make_room(size, budget, None)
        if consumer is None:
            consumer = Layout.open_for(self._as_layout(), size)
            self.held[consumer] = set()
        self.held[consumer].add(partition)

    def tightest(self, size: float, closing: int | None) -> int | None:
        rooms = [(self.room(c), c) for c in self.held if c != closing]
        with_slack = [(room, c) for room, c in rooms if room >= size + self.slack]
        if with_slack:
            return min(with_slack)[1]
        return min(((-room, c) for room, c in rooms if room >= size), default=(0.0, None))[1]

    def make_room(self, size: float, budget: float, closing: int | None) -> int | None:
        cost, chain = self.cheapest_chain(size, closing)
        if not chain or cost > budget or len({c for _, c in chain}) < len(chain):
            return None
        before = self.copy()
        to = self.tightest(self.sizes[chain[-1][0]], closing)
        for partition, consumer in reversed(chain):
            if to is None or to == consumer or self.room(to) < self.sizes[partition]:
                break
            self.move(partition, consumer, to)
            to = consumer
        else:
            if to is not None and self.room(to) >= size:
                return to
        self.held, self.moved = before
        return None

    def cheapest_chain(self, size: float, closing: int | None) -> tuple[float, Chain]:
        """Dynamic programming over all partitions from the lightest on, with a list of all offers."""
        rooms = sorted(((self.room(c), c) for c in self.held if c != closing), reverse=True)
        if rooms and rooms[0][0] >= size:
            return 0.0, []
        near: list[tuple[float, TopicPartition, int]] = []
        for _, consumer in rooms:
            if len(near) < chains.REACH:
                near += [(self.sizes[p], p, consumer) for p in self.held[consumer]]
        offers: list[tuple[float, float, int, Chain]] = []
        for own_size, partition, consumer in sorted(n for n in near if n[0] < size):
            elsewhere = [room for room, c in rooms[:2] if not (c == rooms[0][1] == consumer)]
            cost, onward = self.weight(partition), Chain()
            if not elsewhere or own_size > elsewhere[0]:
                possible = [o for o in _undominated(offers) if o[0] >= own_size and o[2] != consumer]
                if not possible:
                    continue
                cost, onward = cost + possible[0][1], possible[0][3]
            offered = self.room(consumer) + own_size
            if offered > rooms[0][0]:
                offers.append((offered, cost, consumer, [(partition, consumer), *onward]))
        enough = [o for o in _undominated(offers) if o[0] >= size]
        return (enough[0][1], enough[0][3]) if enough else (inf, [])

    def close_consumers(self, price: float, enough: float) -> None:
        while len(self.held) - 1 >= enough:
            failures = closed = 0
            for _, consumer in self.closable(price):
                if failures == repair.FAILURES or len(self.held) - 1 < enough:
                    return
                if self.close(consumer, price):
                    failures, closed = 0, closed + 1
                else:
                    failures += 1
            if not closed:
                return

    def closable(self, price: float) -> list[tuple[float, int]]:
        lightest = sorted(self.held, key=lambda c: (self.kept(c), -c))[: repair.CANDIDATES]
        costs = [
            (self.kept(c) + sum(self.cheapest_chain(self.sizes[p], None)[0] for p in self.held[c]), c) for c in lightest
        ]
        return sorted(((cost, c) for cost, c in costs if cost <= price), key=lambda one: (one[0], -one[1]))

    def close(self, consumer: int, price: float) -> bool:
        before = self.copy()
        budget = price - self.kept(consumer)
        for partition in descending(self.held[consumer], self.sizes):
            size = self.sizes[partition]
            to = self.tightest(size, consumer)
            if to is None and budget >= 0:
                unmoved = sum(map(self.kept, self.held))
                to = self.make_room(size, budget, consumer)
                budget -= unmoved - sum(map(self.kept, self.held))
            if to is None or budget < 0:
                self.held, self.moved = before
                return False
            self.move(partition, consumer, to)
        del self.held[consumer]
        return True

    def move(self, partition: TopicPartition, old: int, new: int) -> None:
        self.held[old].remove(partition)
        self.held[new].add(partition)
        self.moved.add(partition)

    def copy(self) -> tuple[Held, set[TopicPartition]]:
        return {c: set(partitions) for c, partitions in self.held.items()}, set(self.moved)

    def repack(self, price: float) -> bool:
        layout = self._as_layout()
        saved = repack_some(layout, price)
        for consumer, partitions in layout.held.items():
            self.moved |= {p for p in partitions if p not in self.held[consumer]}
        self.held = {c: set(partitions) for c, partitions in layout.held.items()}
        return saved

    def _as_layout(self) -> Layout:
        layout = Layout(self.sizes, self.capacity)
        for consumer, partitions in self.held.items():
            layout.keep(consumer, partitions, self.capacity[consumer] - self.room(consumer))
        layout.moved = set(self.moved)
        layout.sort()
        return layout


def _undominated(offers: list[tuple[float, float, int, Chain]]) -> list[tuple[float, float, int, Chain]]:
    """By rising room; of an offer with no more room and no lower cost than another one the earlier stays."""
    kept: list[tuple[float, float, int, Chain]] = []
    for offer in offers:
        if not any(other[0] >= offer[0] and other[1] <= offer[1] for other in kept):
            kept = [other for other in kept if not (other[0] <= offer[0] and other[1] >= offer[1])] + [offer]
    return sorted(kept, key=lambda offer: offer[0])
