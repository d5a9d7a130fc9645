"""Assignments worth considering: other sizes, packed anew or reached by as few moves as possible."""

from collections.abc import Iterable, Mapping

from headgate.model import Assignment, TopicPartition
from headgate.packing.least_loaded import Item, Room, least_loaded, onto_members

Shares = Mapping[TopicPartition, float]


def candidates(current: Assignment, shares: Shares, largest: int) -> list[Assignment]:
    """Every size from 1 to `largest`, packed anew; and one step up, down and aside from the present assignment."""
    found: dict[tuple[tuple[int, frozenset[TopicPartition]], ...], Assignment] = {}
    for option in (
        *(packed_anew(current, shares, size) for size in range(1, largest + 1)),
        *splits(current, shares, largest),
        *merges(current, shares),
        *evened(current, shares),
    ):
        found[tuple((c, option[c]) for c in option)] = option
    return list(found.values())


def fewer(current: Assignment, shares: Shares) -> list[Assignment]:
    """Only those with fewer consumers: all that can be worth it while nothing is late."""
    anew = [packed_anew(current, shares, size) for size in range(1, len(current))]
    return [*anew, *merges(current, shares)]


def packed_anew(current: Assignment, shares: Shares, size: int) -> Assignment:
    """The load spread evenly over so many consumers, with the bins given to whom they resemble."""
    room = Room(2 * sum(shares.values()) + 1.0, 1.0)
    bins = least_loaded({p: Item(share) for p, share in shares.items()}, room, min_bins=size)
    return onto_members(tuple(b for b in bins if b), current, shares)


def splits(current: Assignment, shares: Shares, largest: int) -> Iterable[Assignment]:
    """The busiest consumer gives its smallest half of load to a new one; again and again up to `largest`."""
    owners = {c: set(current[c]) for c in current}
    while owners and len(owners) < largest:
        busiest = max(owners, key=lambda c: (_load(owners[c], shares), -c))
        if len(owners[busiest]) < 2:
            return
        new = next(
            n for n in range(1, len(owners) + len(current.owners) + 2) if n not in owners and n not in current.owners
        )
        owners[new] = set()
        goal = _load(owners[busiest], shares) / 2
        for p in sorted(owners[busiest], key=lambda p: (-shares[p], p)):
            if len(owners[busiest]) > 1 and _load(owners[new], shares) + shares[p] <= goal * (1 + 1e-9):
                owners[busiest].discard(p)
                owners[new].add(p)
        if not owners[new]:
            p = min(owners[busiest], key=lambda p: (shares[p], p))
            owners[busiest].discard(p)
            owners[new].add(p)
        yield _assignment(owners)


def merges(current: Assignment, shares: Shares) -> Iterable[Assignment]:
    """The least loaded consumer gives all it has to the then least loaded others; again and again down to one."""
    owners = {c: set(current[c]) for c in current}
    while len(owners) > 1:
        smallest = min(owners, key=lambda c: (_load(owners[c], shares), -c))
        given = owners.pop(smallest)
        for p in sorted(given, key=lambda p: (-shares[p], p)):
            owners[min(owners, key=lambda c: (_load(owners[c], shares), c))].add(p)
        yield _assignment(owners)


def evened(current: Assignment, shares: Shares) -> Iterable[Assignment]:
    """A partition of the busiest consumer moves to the least loaded, if that lowers the higher of the two; repeated."""
    owners = {c: set(current[c]) for c in current}
    for _ in range(len(shares)):
        if len(owners) < 2:
            return
        busiest = max(owners, key=lambda c: (_load(owners[c], shares), -c))
        idlest = min(owners, key=lambda c: (_load(owners[c], shares), c))
        gap = _load(owners[busiest], shares) - _load(owners[idlest], shares)
        movable = [p for p in owners[busiest] if shares[p] < gap * (1 - 1e-9)]
        if not movable or len(owners[busiest]) < 2:
            return
        p = min(movable, key=lambda p: (abs(shares[p] - gap / 2), p))
        owners[busiest].discard(p)
        owners[idlest].add(p)
        yield _assignment(owners)


def _load(partitions: Iterable[TopicPartition], shares: Shares) -> float:
    return sum(shares[p] for p in partitions)


def _assignment(owners: Mapping[int, set[TopicPartition]]) -> Assignment:
    return Assignment({c: frozenset(partitions) for c, partitions in sorted(owners.items())})
