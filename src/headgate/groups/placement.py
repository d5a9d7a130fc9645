"""A plan fitted to the members a group has right now: every partition owned, by one member, that subscribes to it.

Pure. The controller answers with it, and members fall back on it when nobody answers (E-25).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headgate.model import Assignment, TopicPartition
from headgate.packing.least_loaded import Bins, Item, Room, least_loaded, onto_members

_SILENT = 1e-6
"""Rate of a partition without one: silent partitions are spread by number instead of piled onto one member."""

_ROOM_FOR_ALL = Room(float("inf"), float("inf"))
"""Then only balance counts."""

Placement = Mapping[str, frozenset[TopicPartition]]
"""member id → partitions"""


@dataclass(frozen=True, slots=True)
class Joining:
    """What one member says of itself when it joins a rebalance."""

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    """The one in which it owned them."""
    handle: int | None = None
    """Which of the fleet's consumers it is; None if somebody else started it."""


def held_by(members: Mapping[str, Joining], numbers: Mapping[str, int]) -> Assignment:
    """What members owned last, by number. Of two that claim a partition, the newer generation is right."""
    owner: dict[TopicPartition, str] = {}
    for member in sorted(members, key=lambda m: (members[m].generation, m)):
        owner |= dict.fromkeys(members[member].owned, member)
    held: dict[int, set[TopicPartition]] = {n: set() for n in numbers.values()}
    for partition, member in owner.items():
        held[numbers[member]].add(partition)
    return Assignment({n: frozenset(partitions) for n, partitions in held.items()})


def fitted(
    plan: Assignment, current: Assignment, loads: Mapping[TopicPartition, Item], room: Room | None
) -> Assignment:
    """The plan as given if it is for these members; else its bins, or as many as there are members, moving little."""
    if plan.owners.keys() == current.owners.keys():
        return plan
    bins = tuple(plan.owners.values())
    if len(bins) != len(current):
        bins = repacked(loads, len(current), room)
    return onto_members(bins, current, {p: item.rate for p, item in loads.items()})


def repacked(loads: Mapping[TopicPartition, Item], count: int, room: Room | None) -> Bins:
    """Exactly this many bins; if they cannot hold everything, all are filled beyond their room alike (E-25 i)."""
    items = {p: Item(max(item.rate, _SILENT), item.lag) for p, item in loads.items()}
    bins = least_loaded(items, room or _ROOM_FOR_ALL, min_bins=count)
    return bins if len(bins) == count else least_loaded(items, _ROOM_FOR_ALL, min_bins=count)


def settled(
    proposal: Mapping[str, Collection[TopicPartition]],
    members: Mapping[str, Joining],
    partitions: frozenset[TopicPartition],
    loads: Mapping[TopicPartition, Item],
) -> tuple[Placement, tuple[str, ...]]:
    """The proposal with everything wrong put right, and what was wrong.

    Whatever the proposal is, the result gives each partition to exactly one member that subscribes to its topic, if
    one does.
    """
    faults = [f"{member} is no member" for member in sorted(proposal.keys() - members.keys())]
    placed: dict[str, set[TopicPartition]] = {member: set() for member in sorted(members)}
    left = set(partitions)
    for member, held in placed.items():
        for partition in sorted(proposal.get(member, ())):
            if partition not in left:
                faults.append(f"{partition} has two owners" if partition in partitions else f"{partition} is not there")
            elif partition.topic not in members[member].topics:
                faults.append(f"{member} does not subscribe to {partition.topic}")
            else:
                held.add(partition)
                left.discard(partition)
    sizes = {p: max(loads.get(p, Item(0.0)).rate, _SILENT) for p in partitions}
    carried = {member: sum(sizes[p] for p in held) for member, held in placed.items()}
    for partition in sorted(left, key=lambda p: (-sizes[p], p)):
        able = [m for m in placed if partition.topic in members[m].topics]
        if not able:
            continue
        faults.append(f"{partition} has no owner")
        target = min(able, key=lambda m: (carried[m], m))
        placed[target].add(partition)
        carried[target] += sizes[partition]
    return {member: frozenset(held) for member, held in placed.items()}, tuple(faults)
