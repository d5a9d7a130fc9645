"""The assignor that an ordinary consumer runs: as leader of a rebalance it asks the controller who gets what (E-24).

    KafkaConsumer(..., partition_assignment_strategy=[PlannedAssignor("http://10.0.0.5:8787", "payments")])

`PlannedConsumer` adds what the assignor alone cannot do: hear that a new plan waits, and tell how long pauses were.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from prometheus_client import Counter

from headgate.groups.placement import Joining, Placement, fitted, held_by, settled
from headgate.groups.wire import (
    AssignmentAnswer,
    AssignmentRequest,
    ControllerUnreachable,
    Line,
    MemberData,
    MemberOfGroup,
    by_topic,
    decoded,
    encoded,
    partitions_of,
)
from headgate.model import Assignment, TopicPartition
from headgate.packing.least_loaded import Item

log = logging.getLogger(__name__)

NAME = "headgate"
"""The strategy's name in the group protocol; every member must offer it."""

_FALLBACKS = Counter(
    "headgate_group_fallbacks_total", "Assignments made by a leader without the controller", ["group", "by"]
)
_REPAIRED = Counter(
    "headgate_group_answers_repaired_total", "Answers of the controller that had to be mended", ["group"]
)


def member_data(user_data: bytes | None) -> MemberData:
    """Of whoever joined; a member with another assignor of the same name, or none, says nothing."""
    try:
        return decoded(MemberData, user_data or b"")
    except ValueError:
        return MemberData()


class PlannedAssignor(AbstractPartitionAssignor):  # type: ignore[misc]  # kafka-python has no types
    """One per consumer. Never raises and never waits longer than `timeout_s`: a group without plan is still a group."""

    name = NAME
    version = 0

    def __init__(self, controller: str, group: str, handle: int | None = None, timeout_s: float = 1.0) -> None:
        self._line = Line(controller, timeout_s)
        self._group, self._handle = group, handle
        self._owned: frozenset[TopicPartition] = frozenset()
        self._generation = -1
        self._last: Placement = {}
        self._loads: Mapping[TopicPartition, Item] = {}
        self.fallbacks = 0
        """Assignments made here without the controller."""

    def metadata(self, topics: Iterable[str]) -> Any:
        data = MemberData(by_topic(self._owned), self._generation, self._handle)
        return ConsumerProtocolSubscription(self.version, sorted(topics), encoded(data))

    def on_assignment(self, assignment: Any, generation: int) -> None:
        self._owned = frozenset(TopicPartition(p.topic, p.partition) for p in assignment.partitions())
        self._generation = generation

    def assign(self, cluster: Any, members: Iterable[Any]) -> dict[str, Any]:
        joining = {m.member_id: member_data(m.metadata.user_data).joining(m.metadata.topics) for m in members}
        topics = frozenset().union(*(j.topics for j in joining.values()))
        partitions = frozenset(TopicPartition(t, n) for t in topics for n in cluster.partitions_for_topic(t) or ())
        placement = self.place(joining, partitions)
        return {
            member: ConsumerProtocolAssignment(self.version, list(by_topic(held).items()), b"")
            for member, held in placement.items()
        }

    def place(self, members: Mapping[str, Joining], partitions: frozenset[TopicPartition]) -> Placement:
        """The controller's answer, or what comes closest to it; in any case each partition exactly once."""
        try:
            answer = self._ask(members, partitions)
        except ControllerUnreachable as error:
            placement, _ = settled(self._fallen_back(members, partitions, error), members, partitions, self._loads)
        else:
            self._loads = answer.items()
            proposal = {member: partitions_of(held) for member, held in answer.assignment.items()}
            placement, faults = settled(proposal, members, partitions, self._loads)
            if faults:
                _REPAIRED.labels(self._group).inc()
                log.warning("group %s: the controller's answer was mended: %s", self._group, "; ".join(faults[:5]))
        self._last = placement
        return placement

    def _ask(self, members: Mapping[str, Joining], partitions: frozenset[TopicPartition]) -> AssignmentAnswer:
        described = {
            m: MemberOfGroup(sorted(j.topics), MemberData(by_topic(j.owned), j.generation, j.handle))
            for m, j in members.items()
        }
        request = AssignmentRequest(self._group, self._generation, described, by_topic(partitions))
        return self._line.ask("/v1/assignment", request, AssignmentAnswer)

    def _fallen_back(
        self, members: Mapping[str, Joining], partitions: frozenset[TopicPartition], why: Exception
    ) -> Placement:
        """E-25 ii: the last plan this process saw; without one that fits, Least-Loaded on the last rates."""
        numbers = {member: n for n, member in enumerate(sorted({*members, *self._last}), start=1)}
        present = {member: numbers[member] for member in members}
        plan = Assignment({numbers[member]: held for member, held in self._last.items()})
        by = "last_plan" if self._last and len(self._last) == len(members) else "local"
        self.fallbacks += 1
        _FALLBACKS.labels(self._group, by).inc()
        log.warning(
            "group %s: assigned without the controller, by %s: %s",
            self._group,
            "the last plan" if by == "last_plan" else "the last rates known here",
            why,
        )
        loads = {p: self._loads.get(p, Item(0.0)) for p in partitions}
        fallback = fitted(plan, held_by(members, present), loads, None)
        return {member: fallback[n] for member, n in present.items()}
