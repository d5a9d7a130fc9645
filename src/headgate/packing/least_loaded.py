"""Least-Loaded: packing by rate and lag at once that also balances (E-10 … E-12), and its exact yardstick (E-8).

A fixed number of bins is filled, each item into the least loaded one that takes it; if one item fits nowhere, all
starts again with one more bin. So load is spread over the bins that are needed, not poured into the first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.model import Assignment, TopicPartition
from headgate.packing.any_fit import usable
from headgate.packing.protocol import Capacity


@dataclass(frozen=True, slots=True)
class Item:
    """One partition as the packer sees it."""

    rate: float
    lag: float = 0.0


@dataclass(frozen=True, slots=True)
class Room:
    """What one bin takes: a rate, and the lag it can work off in time (E-9)."""

    rate: float
    lag: float

    def __post_init__(self) -> None:
        if not (self.rate > 0 and self.lag > 0):
            raise ValueError(f"a bin needs room for rate and lag, not {self.rate:g} and {self.lag:g}")

    @classmethod
    def of(cls, capacity_records_per_s: float, slo_s: float, share: float = 1.0) -> "Room":
        """(mu·f, mu·f·w_sla): f scales both, because it multiplies mu (E-9)."""
        return cls(capacity_records_per_s * share, capacity_records_per_s * share * slo_s)


@dataclass(slots=True)
class _Bin:
    room: Room
    held: list[TopicPartition]
    rate: float = 0.0
    lag: float = 0.0
    closed: bool = False
    """Holds a partition larger than one replica, which stays alone (E-7)."""

    def takes(self, item: Item, is_big: bool) -> bool:
        if self.closed or (is_big and self.held):
            return False
        return self.rate + item.rate <= self.room.rate and self.lag + item.lag <= self.room.lag

    def put(self, partition: TopicPartition, item: Item, is_big: bool) -> None:
        self.held.append(partition)
        self.rate += item.rate
        self.lag += item.lag
        self.closed = is_big


Bins = tuple[frozenset[TopicPartition], ...]


def least_loaded(
    items: Mapping[TopicPartition, Item],
    rooms: Room | Sequence[Room],
    min_bins: int = 1,
    sort_key: str = "rate",
) -> Bins:
    """E-10: partitions by falling rate, each to the least loaded bin that takes it; one more bin when one finds none.

    `rooms` is one room for all bins, or the bins that may be used, in order (E-46); the last is repeated. Items are
    never changed (E-11): clipping happens on copies. `sort_key` "dominant" orders by the fuller dimension instead,
    for working off a backlog at a low rate.
    """
    if sort_key not in ("rate", "dominant"):
        raise ValueError(f"sort_key is rate or dominant, not {sort_key!r}")
    offered = (rooms,) if isinstance(rooms, Room) else tuple(rooms)
    largest = Room(max(r.rate for r in offered), max(r.lag for r in offered))
    clipped = {p: Item(min(i.rate, largest.rate), min(i.lag, largest.lag)) for p, i in items.items()}
    big = {p for p, i in items.items() if i.rate > largest.rate or i.lag > largest.lag}

    def first(p: TopicPartition) -> tuple[float, float, TopicPartition]:
        item = clipped[p]
        if sort_key == "dominant":
            return -max(item.rate / largest.rate, item.lag / largest.lag), -item.lag, p
        return -item.rate, -item.lag, p

    order = sorted(clipped, key=first)
    count = max(1, min_bins)
    while True:
        bins = [_Bin(offered[min(n, len(offered) - 1)], []) for n in range(count)]
        if all(_place(p, clipped[p], p in big, bins) for p in order) or count > len(order) + len(offered):
            return tuple(frozenset(b.held) for b in bins)
        count += 1


def at_most_bins(bins: Bins, items: Mapping[TopicPartition, Item], limit: int) -> Bins:
    """At most `limit` bins, beyond their room if need be: the least loaded give theirs to the least loaded others."""
    kept = sorted(bins, key=lambda held: -sum(items[p].rate for p in held))[:limit]
    if len(kept) == len(bins):
        return bins
    loads = [sum(items[p].rate for p in held) for held in kept]
    left = frozenset(items).difference(*kept)
    for p in sorted(left, key=lambda p: (-items[p].rate, p)):
        n = loads.index(min(loads))
        kept[n] |= {p}
        loads[n] += items[p].rate
    return tuple(kept)


def _place(partition: TopicPartition, item: Item, is_big: bool, bins: list[_Bin]) -> bool:
    for _, _, _, target in sorted((b.rate, b.lag, n, b) for n, b in enumerate(bins) if b.takes(item, is_big)):
        target.put(partition, item, is_big)
        return True
    return False


def fewest_bins(items: Mapping[TopicPartition, Item], room: Room) -> int:
    """E-8 solved exactly by branch and bound, to measure the heuristic's gap; meant for a dozen partitions.

    An item larger than the room takes a bin of its own, as in E-7.
    """
    alone = [i for i in items.values() if i.rate > room.rate or i.lag > room.lag]
    rest = sorted((i for i in items.values() if i.rate <= room.rate and i.lag <= room.lag), key=lambda i: -i.rate)
    best = len(rest)

    def descend(index: int, bins: list[tuple[float, float]]) -> None:
        nonlocal best
        if len(bins) >= best:
            return
        if index == len(rest):
            best = len(bins)
            return
        item, tried = rest[index], set()
        for n, (rate, lag) in enumerate(bins):
            if (rate, lag) in tried or rate + item.rate > room.rate or lag + item.lag > room.lag:
                continue
            tried.add((rate, lag))
            descend(index + 1, [*bins[:n], (rate + item.rate, lag + item.lag), *bins[n + 1 :]])
        descend(index + 1, [*bins, (item.rate, item.lag)])

    descend(0, [])
    return max(1, len(alone) + best)


def choose_types(
    items: Mapping[TopicPartition, Item], types: Sequence[tuple[Room, float]]
) -> tuple[tuple[int, ...], Bins]:
    """E-46: bins of several types, cheap: which type each bin has (index into `types`), and the bins.

    Each further bin is the cheapest type that holds all load still unpacked, else the one with most room per price.
    """
    if not types:
        raise ValueError("name at least one type of replica")
    chosen: list[int] = []
    while True:
        if chosen:
            bins = least_loaded(items, [types[n][0] for n in chosen], min_bins=len(chosen))
            if len(bins) == len(chosen):
                return tuple(chosen), bins
        used_rate = sum(types[n][0].rate for n in chosen)
        used_lag = sum(types[n][0].lag for n in chosen)
        left_rate = sum(i.rate for i in items.values()) - used_rate
        left_lag = sum(i.lag for i in items.values()) - used_lag
        enough = [n for n, (room, _) in enumerate(types) if room.rate >= left_rate and room.lag >= left_lag]
        if enough:
            chosen.append(min(enough, key=lambda n: types[n][1]))
        else:
            chosen.append(max(range(len(types)), key=lambda n: types[n][0].rate / types[n][1]))
        if len(chosen) > len(items) + 1:  # every partition alone: more bins cannot help
            return tuple(chosen), least_loaded(items, [types[n][0] for n in chosen], min_bins=len(chosen))


def onto_members(bins: Bins, current: Assignment, weights: Mapping[TopicPartition, float]) -> Assignment:
    """Bins given to the consumers that already hold most of their load, so that little moves (E-25, A-15).

    Bins left over become new consumers with the lowest unused ids; consumers left over get nothing and go.
    """
    overlaps = sorted(
        (-sum(weights.get(p, 0.0) + 1e-9 for p in bins[n] & current[c]), c, n)
        for c in current
        for n in range(len(bins))
    )
    owner: dict[int, int] = {}
    for _, consumer, n in overlaps:
        if n not in owner and consumer not in owner.values():
            owner[n] = consumer
    for n in range(len(bins)):
        if n not in owner:
            taken = {*owner.values(), *current.owners}
            owner[n] = next(i for i in range(1, len(taken) + 2) if i not in taken)
    return Assignment({owner[n]: bins[n] for n in sorted(range(len(bins)), key=lambda n: owner[n])})


class LeastLoaded:
    """Least-Loaded as a packer of rates alone; the latency policies pack rate and lag with `least_loaded` itself."""

    def pack(self, rates: Mapping[TopicPartition, float], capacity: Capacity, previous: Assignment) -> Assignment:
        sizes = usable(rates)
        if not sizes:
            return Assignment()
        room = Room(capacity.default_bytes_per_s, float("inf"))
        return onto_members(least_loaded({p: Item(r) for p, r in sizes.items()}, room), previous, sizes)
