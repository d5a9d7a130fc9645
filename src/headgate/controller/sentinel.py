"""Sentinel (L-34): watch the newest measurement and the consumers until the policy's trigger fires."""

import logging
from collections.abc import Iterable

from headgate.controller.journal import Journal
from headgate.controller.observing import Measurements, observe
from headgate.controller.ports import Channel, Clock, Event
from headgate.controller.reassign import Change, reassign
from headgate.controller.roster import Roster
from headgate.controller.settings import Settings
from headgate.errors import OutOfSync
from headgate.model import Assignment
from headgate.model.messages import ConsumerState
from headgate.policies import Policy
from headgate.policies.believing import Believing

log = logging.getLogger(__name__)

_ODD_REPORTS = 2
"""A heartbeat may be written down just before a command is acknowledged and sent just after; two in a row may not."""


class Sentinel:
    def __init__(
        self,
        policy: Policy,
        measurements: Measurements,
        roster: Roster,
        channel: Channel,
        clock: Clock,
        settings: Settings,
        journal: Journal,
        assignment: Assignment,
        believing: Believing,
    ) -> None:
        self._policy = policy
        self._measurements = measurements
        self._roster = roster
        self._channel = channel
        self._clock = clock
        self._settings = settings
        self._journal = journal
        self._assignment = assignment
        self._believing = believing
        self._since_s = clock.now_s()
        self._lives = roster.lives()
        self._odd: dict[int, int] = {}

    def step(self, events: list[Event]) -> Change | None:
        """The change to make once a trigger fired; it may turn out to change nothing (L-42)."""
        self._compare(events)
        self._journal.alert(self._roster.alerts.values(), self._assignment)
        measurement = self._measurements.newest
        # While an owner is being replaced its partitions can neither be stopped nor safely given to others.
        if measurement is None or not self._assignment.owners.keys() <= self._roster.ready:
            return None
        if not self._measurements.is_look_due:
            return None
        now, loads = self._clock.now_s(), self._roster.loads()
        working = [c for c in self._assignment if self._assignment[c]]
        abilities = self._believing.look(now, loads, working)
        self._journal.alert(self._believing.alerts, self._assignment)
        seen = observe(
            measurement,
            self._channel.ledgers(),
            self._assignment,
            loads,
            now,
            self._since_s,
            self._settings.tables_of,
            self._measurements.recent(),
            abilities,
        )
        decision = self._policy.decide(seen)
        self._journal.alert(decision.alerts, self._assignment)
        change = None
        if decision.trigger or not decision.keeps:
            idle = by_readiness(self._idle(), self._roster)
            following = reassign(decision, self._assignment, idle, self._roster.free_id)
            change = Change(seen, decision, self._assignment, following, measurement.window_s, now)
        elif decision.rejected:
            self._journal.kept(Change(seen, decision, self._assignment, self._assignment, measurement.window_s, now))
        if change is None or change.plan.is_empty:  # only now is it certain that nobody idle is needed
            self._keep_spares()
        return change

    def _compare(self, events: list[Event]) -> None:
        """What consumers report against what we believe they own."""
        strangers = self._roster.strangers()
        if strangers:
            raise OutOfSync(f"consumer {min(strangers)} runs though nobody asked for it")
        for event in events:
            if not isinstance(event, ConsumerState):
                continue
            consumer_id = event.consumer_id
            is_new = event.incarnation != self._lives.get(consumer_id)
            self._lives[consumer_id] = event.incarnation
            if frozenset(event.partitions) == self._assignment[consumer_id]:
                self._odd.pop(consumer_id, None)
                continue
            self._odd[consumer_id] = self._odd.get(consumer_id, 0) + 1
            if is_new or self._odd[consumer_id] >= _ODD_REPORTS:
                raise OutOfSync(
                    f"consumer {consumer_id} reports {len(event.partitions)} partitions, "
                    f"{len(self._assignment[consumer_id])} are its own"
                )

    def _idle(self) -> frozenset[int]:
        return self._roster.ids - self._assignment.owners.keys()

    def _keep_spares(self) -> None:
        idle = self._idle()
        for consumer_id in by_readiness(idle, self._roster)[self._settings.warm :]:
            self._roster.stop(consumer_id)
        for _ in range(self._settings.warm - len(idle)):
            self._roster.start(self._roster.free_id(), self._assignment.partitions | self._measurements.partitions)


def by_readiness(consumers: Iterable[int], roster: Roster) -> list[int]:
    """Who is ready first, then by id: the order in which spares are put to use, and the opposite of who goes."""
    return sorted(consumers, key=lambda n: (not roster[n].is_ready, n))
