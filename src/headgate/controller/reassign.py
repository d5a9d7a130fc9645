"""Reassign: from a policy's decision to the change that carries it out (L-37, L-42, L-44)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from headgate.model import Assignment, Decision, Observation, Plan, TopicPartition


@dataclass(frozen=True)
class Change:
    """A decision, what it starts from and what it leads to."""

    seen: Observation
    decision: Decision
    current: Assignment
    following: Assignment
    window_s: float
    """Over how long the rates were measured that led here."""
    triggered_s: float

    @cached_property
    def plan(self) -> Plan:
        return Plan.between(self.current, self.following)


def reassign(
    decision: Decision, current: Assignment, spares: Sequence[int], free_id: Callable[[set[int]], int]
) -> Assignment:
    """The next assignment with real ids for new consumers: spares in their order, then the lowest free ids (L-49).

    A policy cannot know which ids are warm, still leaving or just failed; which of them holds a new bin is all the
    same to the packing.
    """
    if decision.assignment is None:
        return current
    waiting = list(spares)
    owners: dict[int, frozenset[TopicPartition]] = {}
    for consumer in decision.assignment:
        partitions = decision.assignment[consumer]
        if not partitions:
            continue
        if consumer in current.owners:
            owners[consumer] = partitions
        else:
            owners[waiting.pop(0) if waiting else free_id({*owners, *current.owners})] = partitions
    return Assignment(owners)
