"""Least-Loaded: packing by rate and lag at once that also balances (E-10 … E-12), and its exact yardstick (E-8).

A fixed number of bins is filled, each item into the least loaded one that takes it; if one item fits nowhere, all
starts again with one more bin. So load is spread over the bins that are needed, not poured into the first.
"""

import math
from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice

from headgate.model import Assignment, TopicPartition
from headgate.packing.any_fit import usable
from headgate.packing.protocol import FASTEST, Capacity


@dataclass(frozen=True, slots=True)
class Item:
    """One partition as the packer sees it."""

    rate: float
    lag: float = 0.0

    def clipped(self, most_rate: float = math.inf, most_lag: float = math.inf) -> "Item":
        """At most that; what is no number or negative is 0."""
        return Item(
            min(self.rate, most_rate) if self.rate > 0 else 0.0, min(self.lag, most_lag) if self.lag > 0 else 0.0
        )


@dataclass(frozen=True, slots=True)
class Room:
    """What one bin takes: a rate, and the lag it can work off in time (E-9)."""

    rate: float
    lag: float

    def __post_init__(self) -> None:
        if not (self.rate > 0 and self.lag > 0):
            raise ValueError(f"a bin needs room for rate and lag, not {self.rate:g} and {self.lag:g}")

    def holds(self, item: Item) -> bool:
        return item.rate <= self.rate and item.lag <= self.lag

    @classmethod
    def of(cls, capacity_records_per_s: float, slo_s: float, share: float = 1.0) -> "Room":
        """(mu·f, mu·f·w_sla): f scales both, because it multiplies mu (E-9)."""
        return cls(capacity_records_per_s * share, capacity_records_per_s * share * slo_s)


class _Filling:
    """A fixed number of bins while they are filled, kept in order from the least loaded on."""

    def __init__(self, rooms: Sequence[Room]) -> None:
        self.rooms = rooms
        self.held: list[list[TopicPartition]] = [[] for _ in rooms]
        self._open = [(0.0, 0.0, n) for n in range(len(rooms))]
        """(rate, lag, bin), sorted, of the bins that may take more."""

    def put(self, partition: TopicPartition, item: Item) -> bool:
        """Into the least loaded bin that takes it; says whether there was one."""
        for at, (rate, lag, n) in enumerate(self._open):
            room = self.rooms[n]
            if rate + item.rate <= room.rate and lag + item.lag <= room.lag:
                del self._open[at]
                insort(self._open, (rate + item.rate, lag + item.lag, n))
                self.held[n].append(partition)
                return True
        return False

    def put_alone(self, partition: TopicPartition) -> bool:
        """Into the largest empty bin, which then takes nothing else (E-7); says whether there was one."""
        free = [(-self.rooms[n].rate, -self.rooms[n].lag, n) for _, _, n in self._open if not self.held[n]]
        if not free:
            return False
        n = min(free)[2]
        self._open.remove((0.0, 0.0, n))
        self.held[n].append(partition)
        return True

    def bins(self) -> "Bins":
        return tuple(map(frozenset, self.held))


Bins = tuple[frozenset[TopicPartition], ...]


def least_loaded(
    items: Mapping[TopicPartition, Item],
    rooms: Room | Sequence[Room],
    min_bins: int = 1,
    sort_key: str = "rate",
) -> Bins:
    """E-10: partitions by falling rate, each to the least loaded bin that takes it; one more bin when one finds none.

    `rooms` is one room for all bins, or the bins that may be used, in order (E-46); the last is repeated. What fits
    none of them is alone in the largest that is empty (E-7). Items are never changed (E-11): clipping happens on
    copies, and what is no number or negative counts as 0. `sort_key` "dominant" orders by the fuller dimension instead,
    for working off a backlog at a low rate.
    """
    if sort_key not in ("rate", "dominant"):
        raise ValueError(f"sort_key is rate or dominant, not {sort_key!r}")
    offered = [rooms] if isinstance(rooms, Room) else list(rooms)
    while len(offered) > 1 and offered[-1] == offered[-2]:  # the last is repeated anyway
        offered.pop()
    largest = Room(max(r.rate for r in offered), max(r.lag for r in offered))
    different = set(offered)
    oversize = {p for p, i in items.items() if not any(room.holds(i.clipped()) for room in different)}
    clipped = {p: i.clipped(largest.rate, largest.lag) for p, i in items.items()}
    order = _in_order(clipped, largest, sort_key)
    # Growing one by one from min_bins gives the same: fewer bins than this cannot hold the sum (E-10).
    size = max(1, min_bins, _bins_for(clipped, offered[0]) if len(offered) == 1 else 1)
    while True:
        filling = _Filling([offered[min(n, len(offered) - 1)] for n in range(size)])
        if all(_place(filling, p, clipped[p], p in oversize, offered) for p in order):
            return filling.bins()
        size += 1


def _in_order(clipped: Mapping[TopicPartition, Item], largest: Room, sort_key: str) -> list[TopicPartition]:
    def first(p: TopicPartition) -> tuple[float, float, TopicPartition]:
        item = clipped[p]
        if sort_key == "dominant":
            return -max(item.rate / largest.rate, item.lag / largest.lag), -item.lag, p
        return -item.rate, -item.lag, p

    return sorted(clipped, key=first)


def _bins_for(clipped: Mapping[TopicPartition, Item], room: Room) -> int:
    """No fewer bins can hold the sum of rates and the sum of lags; what exceeds whole bins by rounding is left out."""
    by_rate = math.fsum(i.rate / room.rate for i in clipped.values()) if room.rate < math.inf else 0.0
    by_lag = math.fsum(i.lag / room.lag for i in clipped.values()) if room.lag < math.inf else 0.0
    return math.ceil(max(by_rate, by_lag) * (1 - 1e-9))


def _place(
    filling: _Filling, partition: TopicPartition, item: Item, is_oversize: bool, offered: Sequence[Room]
) -> bool:
    if not is_oversize and filling.put(partition, item):
        return True
    # A further bin would be like the last one offered: what that cannot hold, more bins do not help.
    helpless = is_oversize or not offered[-1].holds(item)
    return helpless and len(filling.rooms) >= len(offered) and filling.put_alone(partition)


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

    Each further bin is of a type that holds the partition that found no place: the cheapest that holds all load still
    unpacked, else the one with most room per price. What no type holds gets the largest type alone (E-7). For library
    use: no policy chooses among types yet.
    """
    if not types:
        raise ValueError("name at least one type of replica")
    rooms, prices = [room for room, _ in types], [price for _, price in types]
    sane = {p: items[p].clipped() for p in sorted(items)}
    rest = {p: i for p, i in sane.items() if any(room.holds(i) for room in rooms)}
    alone = [frozenset({p}) for p in sane if p not in rest]
    largest = max(range(len(types)), key=lambda n: (rooms[n].rate, rooms[n].lag, -prices[n]))
    order = _in_order(rest, rooms[largest], "rate")
    chosen: list[int] = []
    while True:
        filling = _Filling([rooms[n] for n in chosen])
        stuck = next((p for p in order if not filling.put(p, rest[p])), None)
        if stuck is None:
            break
        left_rate = sum(i.rate for i in rest.values()) - sum(rooms[n].rate for n in chosen)
        left_lag = sum(i.lag for i in rest.values()) - sum(rooms[n].lag for n in chosen)
        possible = [n for n, room in enumerate(rooms) if room.holds(rest[stuck])]
        enough = [n for n in possible if rooms[n].holds(Item(left_rate, left_lag))]
        if enough:
            chosen.append(min(enough, key=lambda n: prices[n]))
        else:
            chosen.append(max(possible, key=lambda n: rooms[n].rate / prices[n]))
    used = [(n, held) for n, held in zip(chosen, filling.bins(), strict=True) if held]
    if not used and not alone:
        used = [(min(range(len(types)), key=lambda n: prices[n]), frozenset())]
    return (*(n for n, _ in used), *(largest for _ in alone)), (*(held for _, held in used), *alone)


def onto_members(
    bins: Bins, current: Assignment, weights: Mapping[TopicPartition, float], unused: Iterable[int] | None = None
) -> Assignment:
    """Bins given to the consumers that already hold most of their load, so that little moves (E-25, A-15).

    Bins left over become new consumers with the lowest unused ids, or those of `unused` in order; consumers left over
    get nothing and go.
    """
    home = current.by_partition()
    shared: dict[tuple[int, int], list[float]] = {}
    for n, held in enumerate(bins):
        for p in held:
            if p in home:
                shared.setdefault((home[p], n), []).append(min(weights.get(p, 0.0), FASTEST) + 1e-9)
    overlap = {pair: math.fsum(of_pair) for pair, of_pair in shared.items()}  # the same in whatever order
    owner: dict[int, int] = {}
    staying: set[int] = set()
    for consumer, n in sorted(overlap, key=lambda pair: (-overlap[pair], pair)):
        if n not in owner and consumer not in staying:
            owner[n] = consumer
            staying.add(consumer)
    new = (i for i in count(1) if i not in current.owners) if unused is None else iter(unused)
    free = chain((c for c in current if c not in staying), new)
    for n in range(len(bins)):
        if n not in owner:
            owner[n] = next(free)
    return Assignment({owner[n]: bins[n] for n in sorted(range(len(bins)), key=lambda n: owner[n])})


class LeastLoaded:
    """Least-Loaded as a packer of rates alone; the latency policies pack rate and lag with `least_loaded` itself.

    Consumers that are there come first, then those known to be larger than usual, then new ones; each is filled up to
    its own capacity (L-26).
    """

    def pack(self, rates: Mapping[TopicPartition, float], capacity: Capacity, previous: Assignment) -> Assignment:
        sizes = usable(rates)
        larger = (c for c in sorted(capacity.of) if c > 0 and capacity[c] > capacity.default_bytes_per_s)
        known = list(dict.fromkeys([*previous, *larger]))
        unknown = (c for c in count(1) if c not in previous.owners and c not in capacity.of)
        ids = [*known, *islice(unknown, len(sizes) + 1)]
        rooms = [Room(capacity[c], math.inf) for c in ids]
        bins = least_loaded({p: Item(r) for p, r in sizes.items()}, rooms[: len(known) + 1])
        owners: dict[int, frozenset[TopicPartition]] = {}
        for room in set(rooms):  # consumers of equal capacity may exchange their bins
            alike = [c for c in ids if capacity[c] == room.rate]
            filled = tuple(held for held, its in zip(bins, rooms, strict=False) if held and its == room)
            staying = Assignment({c: previous[c] for c in alike if c in previous.owners})
            owners |= onto_members(filled, staying, sizes, (c for c in alike if c not in previous.owners)).owners
        return Assignment({c: owners[c] for c in sorted(owners)})
