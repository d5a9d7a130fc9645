"""Packing some consumers anew: the emptiest few together, then more of them, until one is saved or all were tried."""

from bisect import bisect_left
from collections.abc import Sequence

from headgate.model import TopicPartition
from headgate.packing.any_fit import Rates, descending
from headgate.packing.layout import Layout

FIRST_TRY = 4
Groups = list[list[TopicPartition]]


def repack_some(layout: Layout, price: float) -> bool:
    """Saves consumers if that moves at most `price` for each; says whether it did.

    Only consumers of the default capacity take part: groups are made for that size.
    """
    default = layout.capacity.default_bytes_per_s
    ours = [c for room, c in reversed(layout.by_room) if layout.capacity[c] == default and room >= 0]
    tried = FIRST_TRY
    while ours:
        chosen = ours[:tried]
        partitions = descending((p for c in chosen for p in layout.held[c]), layout.sizes)
        groups = min(
            best_fit_groups(partitions, layout.sizes, default),
            filled_groups(partitions, layout.sizes, default),
            key=len,
        )
        if len(groups) < len(chosen) and _adopt(layout, chosen, groups, price * (len(chosen) - len(groups))):
            return True
        if tried >= len(ours):
            return False
        tried = 2 * tried + 1
    return False


def best_fit_groups(partitions: Sequence[TopicPartition], sizes: Rates, capacity: float) -> Groups:
    """BFD: with all partitions of all consumers, as few groups as BFD's consumers."""
    groups: Groups = []
    by_room: list[tuple[float, int]] = []
    for partition in partitions:
        at = bisect_left(by_room, (sizes[partition],))
        if at == len(by_room):
            groups.append([])
            room, group = capacity, len(groups) - 1
        else:
            room, group = by_room.pop(at)
        groups[group].append(partition)
        left = (room - sizes[partition], group)
        by_room.insert(bisect_left(by_room, left), left)
    return groups


def filled_groups(partitions: Sequence[TopicPartition], sizes: Rates, capacity: float) -> Groups:
    """Each group is begun by the heaviest left and filled up with the one or the two others that leave least room.

    Sometimes beats BFD, which never looks for two that fill a bin together.
    """
    left = [(sizes[p], p) for p in reversed(partitions)]  # lightest first
    groups: Groups = []
    while left:
        size, partition = left.pop()
        group, room = [partition], capacity - size
        while fillers := _fillers(left, room):
            for at in sorted(fillers, reverse=True):
                size, partition = left.pop(at)
                group.append(partition)
                room -= size
        groups.append(group)
    return groups


def _fillers(left: Sequence[tuple[float, TopicPartition]], room: float) -> tuple[int, ...]:
    """Positions of the one or two of `left` (lightest first) that fill `room` best; one of equals."""
    high = bisect_left(left, room, key=lambda item: item[0])
    while high < len(left) and left[high][0] <= room:
        high += 1
    high -= 1
    if high < 0:
        return ()
    best = left[high][0]
    chosen: tuple[int, ...] = (high,)
    low = 0
    while low < high and best < room:
        both = left[low][0] + left[high][0]
        if both > room:
            high -= 1
            continue
        if both > best:
            best, chosen = both, (low, high)
        low += 1
    return chosen


def _adopt(layout: Layout, chosen: Sequence[int], groups: Groups, budget: float) -> bool:
    """Gives every group to the consumer that keeps most of it, unless that still moves more than the budget."""
    owner = {p: c for c in chosen for p in layout.held[c]}
    kept: dict[tuple[int, int], float] = {}
    for number, group in enumerate(groups):
        for p in group:
            kept[number, owner[p]] = kept.get((number, owner[p]), 0.0) + layout.weight(p)
    consumer_of: dict[int, int] = {}
    unused = dict.fromkeys(chosen)
    for number, consumer in sorted(kept, key=lambda pair: (-kept[pair], pair)):
        if number not in consumer_of and consumer in unused:
            consumer_of[number] = consumer
            del unused[consumer]
    spare = iter(list(unused))
    for number in range(len(groups)):
        if number not in consumer_of:
            consumer_of[number] = next(spare)
            del unused[consumer_of[number]]
    moves = [
        (p, owner[p], consumer_of[n]) for n, group in enumerate(groups) for p in group if owner[p] != consumer_of[n]
    ]
    if sum(layout.weight(p) for p, _, _ in moves) > budget:
        return False
    for partition, old, new in moves:
        layout.move(partition, old, new)
    for consumer in unused:
        layout.shut(consumer)
    layout.drop(unused)
    return True
