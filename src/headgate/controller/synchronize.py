"""Synchronize (L-48): ask every living consumer what it owns; the answers are the current assignment.

Consumers keep reading meanwhile. One that does not answer is replaced; its next life answers for what it restored.
"""

import logging
from collections import defaultdict
from dataclasses import replace

from headgate.controller.commands import Commander
from headgate.controller.ports import Event
from headgate.controller.roster import Roster
from headgate.controller.settings import Settings
from headgate.model import Assignment, TopicPartition
from headgate.model.messages import ConsumerState, ConsumingStopped, StopConsuming

log = logging.getLogger(__name__)


class Synchronize:
    def __init__(self, roster: Roster, commander: Commander, settings: Settings, believed: Assignment) -> None:
        self._roster = roster
        self._commander = commander
        self._settings = settings
        self._believed = believed.by_partition()
        self._queries: dict[int, set[str]] = defaultdict(set)
        self._query_again_s: dict[int, float] = {}
        self._answer_by_s: dict[int, tuple[str, float]] = {}
        """Per consumer the life that was asked, and until when it must have answered."""
        self._answers: dict[int, ConsumerState] = {}
        self._stops: dict[str, StopConsuming] = {}
        self._stops_by_s = 0.0

    def step(self, events: list[Event]) -> Assignment | None:
        """The assignment once everybody answered and nobody claims what another one owns."""
        for stranger in sorted(self._roster.strangers()):
            self._roster.adopt(stranger)
        for event in events:
            self._take(event)
        self._answers = {n: answer for n, answer in self._answers.items() if self._is_alive(n, answer.incarnation)}
        self._stops = {n: stop for n, stop in self._stops.items() if self._is_alive(stop.consumer_id, stop.incarnation)}
        waiting = {n for n in self._roster.ids - self._answers.keys() if not self._roster[n].is_unborn}
        for consumer_id in sorted(waiting):
            self._ask(consumer_id)
        if waiting:
            return None
        return self._settle_claims()

    def _is_alive(self, consumer_id: int, life: str) -> bool:
        return consumer_id in self._roster and self._roster[consumer_id].life == life

    def _take(self, event: Event) -> None:
        if isinstance(event, ConsumerState) and event.command_id in self._queries[event.consumer_id]:
            self._answers[event.consumer_id] = event
        if isinstance(event, ConsumingStopped) and event.command_id in self._stops:
            stopped = self._stops.pop(event.command_id)
            answer = self._answers.get(event.consumer_id)
            if answer is not None and answer.incarnation == event.incarnation:
                self._answers[event.consumer_id] = _without(answer, stopped.partitions)

    def _ask(self, consumer_id: int) -> None:
        now, member = self._roster.listened_s, self._roster[consumer_id]
        life, answer_by_s = self._answer_by_s.get(consumer_id, (None, 0.0))
        if life != member.life:  # not asked yet, or another life than the one that was asked
            self._answer_by_s[consumer_id] = (member.life, now + self._settings.ack_deadline_s)
        elif member.is_ready and now > answer_by_s:
            self._roster.replace(consumer_id, "did not say what it owns")
            return
        elif now < self._query_again_s[consumer_id]:
            return
        self._query_again_s[consumer_id] = now + self._settings.ack_deadline_s / 4
        self._queries[consumer_id].add(self._commander.query(consumer_id))

    def _settle_claims(self) -> Assignment | None:
        """A partition claimed twice is stopped everywhere but at one consumer: the one we knew of, or the lowest id."""
        if self._stops:
            if self._roster.listened_s > self._stops_by_s:
                for stop in self._stops.values():
                    self._roster.replace(stop.consumer_id, "did not let go of partitions another one owns")
                self._stops.clear()
            return None
        claims: dict[TopicPartition, list[int]] = defaultdict(list)
        for consumer_id in sorted(self._answers):
            for partition in self._answers[consumer_id].partitions:
                claims[partition].append(consumer_id)
        surplus: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition, claimants in claims.items():
            known = self._believed.get(partition)
            keeper = known if known in claimants else claimants[0]
            for consumer_id in claimants:
                if consumer_id != keeper:
                    surplus[consumer_id].append(partition)
        if not surplus:
            return Assignment({n: frozenset(a.partitions) for n, a in self._answers.items() if a.partitions})
        self._stops_by_s = self._roster.listened_s + self._settings.ack_deadline_s
        for consumer_id, partitions in sorted(surplus.items()):
            log.warning("consumer %d also claims %d partitions of others; stopped there", consumer_id, len(partitions))
            stop = self._commander.stop(consumer_id, self._answers[consumer_id].incarnation, partitions)
            self._stops[stop.command_id] = stop
        return None


def _without(answer: ConsumerState, partitions: tuple[TopicPartition, ...]) -> ConsumerState:
    return replace(answer, partitions=tuple(p for p in answer.partitions if p not in partitions))
