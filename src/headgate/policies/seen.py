"""What latency policies read out of an observation: sizes to pack by, who owns nothing, and whether to trust it."""

import math
import sys
from collections.abc import Mapping

from headgate.model import Assignment, ConsumerLoad, Decision, Observation, TopicPartition
from headgate.packing.least_loaded import Item
from headgate.policies.believing import CYCLES


def held(seen: Observation, stale_after_s: float) -> Decision | None:
    """The decision where there is nothing to weigh (E-21, L-36), None where the policy is asked.

    Nothing happens if the observation cannot be trusted: stale, or without partitions. Partitions that vanished are let
    go before anything else, with the consumers that owned nothing else, so that no policy counts those. If there are
    also partitions without owner, the policy is asked: it assigns all anew.
    """
    stale = too_old(seen, stale_after_s)
    if stale:
        return Decision(None, stale)
    if not seen.partitions:
        return Decision(None, "hold: no partition was measured")
    vanished = seen.assignment.partitions - seen.partitions.keys()
    if vanished and not unowned(seen):
        owners = {c: mine - vanished for c, mine in seen.assignment.owners.items() if not mine or mine - vanished}
        return Decision(Assignment(owners), f"{len(vanished)} partitions are no longer wanted: let them go", "vanished")
    return None


def too_old(seen: Observation, stale_after_s: float) -> str:
    """Why the observation is not acted on; empty if it is fresh. A time that is no number is not fresh."""
    if math.isfinite(seen.age_s) and seen.age_s <= stale_after_s:
        return ""
    return f"hold: the newest measurement is {seen.age_s:.1f} s old, the limit is {stale_after_s:g} s"


def check_above_zero(**settings: float) -> None:
    """ValueError naming the first that is not; NaN is not."""
    for name, value in settings.items():
        if not value > 0:
            raise ValueError(f"{name} must be above 0, not {value:g}")


def check_not_negative(**settings: float) -> None:
    for name, value in settings.items():
        if not value >= 0:
            raise ValueError(f"{name} must not be negative, not {value:g}")


def items(seen: Observation, extra_s: float = 0.0) -> dict[TopicPartition, Item]:
    """Rate and lag per partition; `extra_s` adds the lag that many seconds without service will bring (E-16)."""
    found, extra_s = {}, number(extra_s)
    for p, load in seen.partitions.items():
        rate = number(load.records_per_s)
        found[p] = Item(rate, number(load.lag_records) + rate * extra_s)
    return found


def number(value: float) -> float:
    """What is measured as NaN, infinite or negative counts as 0: a broken meter must not move partitions."""
    return value if math.isfinite(value) and value > 0 else 0.0


def rates(seen: Observation) -> dict[TopicPartition, float]:
    return {p: number(load.records_per_s) for p, load in seen.partitions.items()}


def unowned(seen: Observation) -> frozenset[TopicPartition]:
    return frozenset(seen.partitions) - seen.assignment.partitions


def blind(seen: Observation, lacking: str) -> Decision:
    """Without knowing what to pack by, only partitions without owner are given one: nothing is measured unread."""
    nobody = unowned(seen)
    if not nobody:
        return Decision(None, f"hold: {lacking}")
    return Decision(adopted(seen), f"{len(nobody)} partitions get an owner; otherwise hold: {lacking}", "unassigned")


def adopted(seen: Observation) -> Assignment:
    """Everybody keeps what they have, and partitions without owner go to who has the fewest; one consumer at least."""
    owners = {c: set(seen.assignment[c] & seen.partitions.keys()) for c in seen.assignment} or {1: set()}
    for p in sorted(unowned(seen)):
        owners[min(owners, key=lambda c: (len(owners[c]), c))].add(p)
    return Assignment({c: frozenset(partitions) for c, partitions in owners.items()})


def at_most(max_consumers: int | None) -> int:
    """The largest group allowed; None allows any."""
    if max_consumers is None:
        return sys.maxsize
    if max_consumers < 1:
        raise ValueError(f"max_consumers must be at least 1, not {max_consumers}")
    return max_consumers


def slowest_usual(seen: Observation) -> ConsumerLoad | None:
    """E-3: whose measured capacity in records counts for all; None where nobody measured one.

    Who is known to be slow is no measure of the others (L-26), nor is what was measured long ago, nor are the first
    cycles of a life, where these are counted.
    """
    others = seen.abilities.speed.keys() | seen.abilities.outdated
    usual = [c for n, c in seen.consumers.items() if n not in others]
    grown = [c for c in usual if not 0 < c.full_cycles < CYCLES]
    measured = [c for c in grown if c.capacity_records_per_s]
    return min(measured, key=lambda c: c.capacity_records_per_s or 0.0, default=None)


def records_per_byte(seen: Observation) -> float | None:
    """Of everything that comes now; None where nothing does, or only one of the two is measured."""
    records = sum(number(load.records_per_s) for load in seen.partitions.values())
    volume = sum(number(load.bytes_per_s) for load in seen.partitions.values())
    return records / volume if volume > 0 and records > 0 else None


def lag_of(assignment: Assignment, packed: Mapping[TopicPartition, Item]) -> dict[int, Item]:
    """E-5: rate and lag of each replica."""
    nothing = Item(0.0)
    return {
        c: Item(
            sum(packed.get(p, nothing).rate for p in assignment[c]),
            sum(packed.get(p, nothing).lag for p in assignment[c]),
        )
        for c in assignment
    }


def resized(current: Assignment, count: int) -> list[int]:
    """Ids of a group of this size: the lowest present ones stay, new ones get the lowest unused ids."""
    ids = sorted(current.owners)[:count]
    while len(ids) < count:
        ids.append(next(n for n in range(1, count + 1 + len(ids)) if n not in ids))
    return ids


def contiguous(seen: Observation, count: int) -> Assignment:
    """Kafka's range assignor: equal counts of neighbouring partitions, blind to load (E-34, L-59)."""
    partitions = sorted(seen.partitions)
    ids = resized(seen.assignment, count)
    each, more = divmod(len(partitions), count)
    owners, at = {}, 0
    for n, consumer in enumerate(ids):
        size = each + (n < more)
        owners[consumer] = frozenset(partitions[at : at + size])
        at += size
    return Assignment(owners)
