"""GroupManagement (L-44, L-45): create what is missing, wait for it, exchange partitions, delete what is surplus."""

import logging

from headgate.controller.commands import Commander
from headgate.controller.exchange import Exchange
from headgate.controller.journal import Journal, Timings
from headgate.controller.ports import Clock, Event
from headgate.controller.reassign import Change
from headgate.controller.roster import Roster
from headgate.controller.sentinel import by_readiness
from headgate.controller.settings import Settings
from headgate.errors import KafkaUnavailable, OutOfSync
from headgate.failpoints import reach
from headgate.model import Assignment

log = logging.getLogger(__name__)


class GroupManagement:
    """Old owners keep reading while new consumers start; partitions that do not move are never touched."""

    def __init__(
        self,
        change: Change,
        roster: Roster,
        commander: Commander,
        clock: Clock,
        settings: Settings,
        journal: Journal,
    ) -> None:
        self._change = change
        self._roster = roster
        self._commander = commander
        self._clock = clock
        self._settings = settings
        self._journal = journal
        self._owners = {n: roster[n].life for n in change.current}
        """Lives of the present owners; another life knows nothing of commands to this one."""
        self._created = sorted(change.plan.create - roster.ids)
        for consumer_id in self._created:
            roster.start(consumer_id, change.current.partitions | change.following.partitions)
        if self._created:
            reach("handover.consumers-created")
        self._asked_s = clock.now_s()
        self._ready_by_s = roster.listened_s + settings.ready_deadline_s
        self._ready_s: float | None = None
        self._exchange: Exchange | None = None

    def step(self, events: list[Event]) -> Assignment | None:
        """The assignment once it is reached; OutOfSync, with what is missing, if that cannot be."""
        try:
            return self._step(events)
        except (OutOfSync, KafkaUnavailable) as error:
            self._journal.decided(self._change, f"out of sync: {error}", self._timings(), self._created)
            raise

    def _step(self, events: list[Event]) -> Assignment | None:
        self._check_lives()
        if self._exchange is None:
            new = self._change.plan.create
            if not new <= self._roster.ready:
                self._check_deadline(sorted(new - self._roster.ready))
                return None
            for consumer_id in sorted(new):
                if self._roster[consumer_id].partitions:
                    raise OutOfSync(f"consumer {consumer_id} came with partitions nobody gave it")
            self._ready_s = self._clock.now_s()
            self._owners |= {n: self._roster[n].life for n in new}
            self._exchange = Exchange(
                self._change.plan.moves,
                self._change.current.by_partition(),
                self._owners,
                self._commander,
                self._clock,
                self._settings,
            )
        self._exchange.step(events)
        return self._finish() if self._exchange.is_done else None

    def _check_lives(self) -> None:
        for consumer_id in self._owners.keys() | self._change.plan.create:
            if consumer_id not in self._roster:
                raise OutOfSync(f"consumer {consumer_id} cannot be started")
            if self._roster[consumer_id].life != self._owners.get(consumer_id, self._roster[consumer_id].life):
                raise OutOfSync(f"consumer {consumer_id} was replaced meanwhile")

    def _check_deadline(self, missing: list[int]) -> None:
        deadline_s = self._settings.ready_deadline_s
        if self._roster.listened_s <= self._ready_by_s:
            return
        for consumer_id in missing:
            self._roster.drop(consumer_id, f"was not ready after {deadline_s:g} s")
        raise OutOfSync(f"waited {deadline_s:g} s for consumers {', '.join(map(str, missing))} to be ready")

    def _finish(self) -> Assignment:
        timings, following = self._timings(), self._change.following
        idle = self._roster.ids - following.owners.keys()
        deleted = by_readiness(idle, self._roster)[self._settings.warm :]
        for consumer_id in deleted:
            self._roster.stop(consumer_id)
        if deleted:
            reach("handover.consumers-deleted")
        self._journal.decided(self._change, "applied", timings, self._created, deleted)
        return following

    def _timings(self) -> Timings:
        seen, now = self._change.seen, self._clock.now_s()
        ready_s = now if self._ready_s is None else self._ready_s
        return Timings(
            measure_s=seen.age_s + self._change.window_s,
            decide_s=self._asked_s - self._change.triggered_s,
            ready_s=ready_s - self._asked_s,
            handover_s=now - ready_s,
            pause_s=0.0 if self._exchange is None else self._exchange.pause_s,
        )
