"""Assignments worth considering: other sizes, packed anew or reached by as few moves as possible.

With few consumers every size is offered. With many, the steps away from the present size grow as one goes: a size that
is off by a little is mended at the next look, and the number of candidates stays small whatever the group's size.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

from headgate.model import Assignment, TopicPartition

Shares = Mapping[TopicPartition, float]

EVERY_SIZE = 12
"""Up to this many consumers every size is offered."""
PLACED_ANEW = 30_000
"""Partitions placed anew in one decision, all sizes together; with very many of them only some sizes are."""


def steps() -> Iterator[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, 24, …: two for each doubling."""
    yield 1
    step = 2
    while True:
        yield step
        yield step * 3 // 2
        step *= 2


def sizes(here: int, largest: int) -> list[int]:
    """Sizes from 1 to `largest` worth a look from a group of `here` consumers."""
    if largest <= EVERY_SIZE:
        return list(range(1, largest + 1))
    found = {1, min(here, largest), largest} - {0}
    for step in steps():
        if step > largest:
            return sorted(found)
        found.update(size for size in (here - step, here + step) if 1 <= size <= largest)
    raise AssertionError("steps never end")


def candidates(current: Assignment, shares: Shares, largest: int) -> list[Assignment]:
    """Other sizes up to `largest`, packed anew; and steps up, down and aside from the present assignment."""
    offered = sizes(len(current), largest)
    return _distinct(
        (
            *packings(current, shares, _some(offered, len(shares))),
            *splits(current, shares, offered),
            *merges(current, shares, _near(offered, current)),
            *evened(current, shares),
        )
    )


def fewer(current: Assignment, shares: Shares) -> list[Assignment]:
    """Only those with fewer consumers: all that can be worth it while nothing is late."""
    offered = [size for size in sizes(len(current), len(current)) if size < len(current)]
    anew = _some(offered, len(shares))
    return _distinct((*packings(current, shares, anew), *merges(current, shares, _near(offered, current))))


def _some(offered: list[int], partitions: int) -> list[int]:
    """As many of the sizes as may be packed anew, from the first to the last."""
    count = max(3, PLACED_ANEW // max(1, partitions))
    if len(offered) <= count:
        return offered
    return [offered[round(n * (len(offered) - 1) / (count - 1))] for n in range(count)]


def _near(offered: list[int], current: Assignment) -> list[int]:
    """Sizes worth merging down to: from a large group no further than half of it, the rest is for the next look."""
    return [size for size in offered if len(current) <= EVERY_SIZE or size >= len(current) // 2]


def _distinct(options: Iterable[Assignment]) -> list[Assignment]:
    return list({frozenset(option.owners.items()): option for option in options}.values())


def packings(current: Assignment, shares: Shares, offered: Iterable[int]) -> Iterator[Assignment]:
    """The load spread evenly over so many consumers, with the bins given to whom they resemble."""
    falling = sorted(shares, key=lambda p: (-shares[p], p))
    weights = [shares[p] for p in falling]
    owner = current.by_partition()
    owners = [owner.get(p) for p in falling]
    for size in offered:
        given = onto_owners(spread(weights, size), owners, weights, current)
        yield Assignment({c: frozenset([falling[n] for n in given[c]]) for c in sorted(given)})


def spread(falling: Sequence[float], size: int) -> list[list[int]]:
    """Least-Loaded (E-10) without limits to a bin's room: each partition, fullest first, to the least loaded bin.

    Partitions are numbered by falling load: hashing their names thousands of times is what takes time.
    """
    bins: list[list[int]] = [[] for _ in range(size)]
    loads = [(0.0, n) for n in range(size)]
    for partition, share in enumerate(falling):
        load, n = loads[0]
        bins[n].append(partition)
        heapq.heapreplace(loads, (load + share, n))
    return [b for b in bins if b]


def onto_owners(
    bins: list[list[int]], owners: Sequence[int | None], weights: Sequence[float], current: Assignment
) -> dict[int, list[int]]:
    """As `onto_members` of the packers (E-25): bins to those who hold most of their load, each partition seen once."""
    overlap: dict[tuple[int, int], float] = {}
    for n, held in enumerate(bins):
        for p in held:
            consumer = owners[p]
            if consumer is not None:
                overlap[consumer, n] = overlap.get((consumer, n), 0.0) + weights[p] + 1e-9
    given: dict[int, int] = {}
    taken: set[int] = set()
    for _, consumer, n in sorted((-load, c, n) for (c, n), load in overlap.items()):
        if n not in given and consumer not in taken:
            given[n] = consumer
            taken.add(consumer)
    new = (c for c in range(1, len(bins) + len(current) + 1) if c not in current.owners)
    idle = iter([*(c for c in current if c not in taken), *(next(new) for _ in bins)])
    return {given[n] if n in given else next(idle): held for n, held in enumerate(bins)}


class _Group:
    """A group in the making, with the load of every consumer at hand."""

    def __init__(self, current: Assignment, shares: Shares) -> None:
        self.shares = shares
        self.owners = {c: set(current[c]) for c in current}
        self._frozen = dict(current.owners)
        """Of consumers that nothing happened to since: building sets anew is what takes time."""
        self.loads = {c: sum(shares[p] for p in current[c]) for c in current}

    def __len__(self) -> int:
        return len(self.owners)

    @property
    def busiest(self) -> int:
        return max(self.loads, key=lambda c: (self.loads[c], -c))

    @property
    def idlest(self) -> int:
        return min(self.loads, key=lambda c: (self.loads[c], c))

    def move(self, p: TopicPartition, old: int, new: int) -> None:
        self.owners[old].discard(p)
        self.loads[old] -= self.shares[p]
        self._frozen.pop(old, None)
        self.give(p, new)

    def give(self, p: TopicPartition, new: int) -> None:
        self.owners[new].add(p)
        self.loads[new] += self.shares[p]
        self._frozen.pop(new, None)

    def fullest_first(self, consumer: int) -> list[TopicPartition]:
        return sorted(self.owners[consumer], key=lambda p: (-self.shares[p], p))

    def assignment(self) -> Assignment:
        for c, held in self.owners.items():
            if c not in self._frozen:
                self._frozen[c] = frozenset(held)
        return Assignment({c: self._frozen[c] for c in sorted(self.owners)})


def splits(current: Assignment, shares: Shares, offered: Iterable[int]) -> Iterator[Assignment]:
    """The busiest consumer gives its smallest half of load to a new one; again and again up to the largest offered."""
    group, wanted = _Group(current, shares), set(offered)
    while group.owners and len(group) < max(wanted, default=0):
        busiest = group.busiest
        if len(group.owners[busiest]) < 2:
            return
        new = next(n for n in range(1, len(group) + 2) if n not in group.owners)
        group.owners[new], group.loads[new] = set(), 0.0
        goal = group.loads[busiest] / 2
        falling = group.fullest_first(busiest)
        for p in falling:
            if len(group.owners[busiest]) > 1 and group.loads[new] + shares[p] <= goal * (1 + 1e-9):
                group.move(p, busiest, new)
        if not group.owners[new]:
            group.move(min(falling, key=lambda p: (shares[p], p)), busiest, new)
        if len(group) in wanted:
            yield group.assignment()


def merges(current: Assignment, shares: Shares, offered: Iterable[int]) -> Iterator[Assignment]:
    """The least loaded consumer gives all it has to the then least loaded others; again and again down to the least."""
    group, wanted = _Group(current, shares), set(offered)
    while len(group) > max(1, min(wanted, default=len(group))):
        smallest = min(group.loads, key=lambda c: (group.loads[c], -c))
        given = group.fullest_first(smallest)
        del group.owners[smallest], group.loads[smallest]
        others = [(load, c) for c, load in group.loads.items()]
        heapq.heapify(others)
        for p in given:
            _, c = others[0]
            group.give(p, c)
            heapq.heapreplace(others, (group.loads[c], c))
        if len(group) in wanted:
            yield group.assignment()


def evened(current: Assignment, shares: Shares) -> Iterator[Assignment]:
    """A partition of the busiest consumer moves to the least loaded, if that lowers the higher of the two; repeated."""
    group, offered = _Group(current, shares), steps()
    next_offered = next(offered)
    for moves in range(1, len(shares) + 1):
        if len(group) < 2:
            return
        busiest, idlest = group.busiest, group.idlest
        gap = group.loads[busiest] - group.loads[idlest]
        movable = [p for p in group.owners[busiest] if shares[p] < gap * (1 - 1e-9)]
        if not movable or len(group.owners[busiest]) < 2:
            return
        group.move(min(movable, key=lambda p: (abs(shares[p] - gap / 2), p)), busiest, idlest)
        if moves == next_offered:
            next_offered = next(offered)
            yield group.assignment()


def relieved(current: Assignment, shares: Shares, speed: Mapping[int, float], largest: int) -> list[Assignment]:
    """Slow consumers give partitions, smallest first, to the then least loaded others, until they have their share; or
    all they have to a new one each (L-26)."""
    slow = [c for c in current if c in speed and current[c]]
    if not slow:
        return []
    found = [_replaced(current, slow)] if len(current) <= largest else []
    group = _Group(current, shares)
    fair = sum(group.loads.values()) / sum(speed.get(c, 1.0) for c in current)
    others = [c for c in current if c not in speed]
    for c in slow if others else ():
        for p in reversed(group.fullest_first(c)):
            if group.loads[c] > fair * speed[c]:
                group.move(p, c, min(others, key=lambda other: (group.loads[other], other)))
    given = group.assignment()
    return [*found, Assignment({c: given[c] for c in given if given[c]})]


def _replaced(current: Assignment, slow: Sequence[int]) -> Assignment:
    """Each of them replaced by a new consumer; ids of those that go are not used again."""
    new = (n for n in range(1, 2 * len(current) + 1) if n not in current.owners)
    return Assignment({next(new) if c in slow else c: held for c, held in current.owners.items()})
