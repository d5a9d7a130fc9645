"""The controller: four states and the transitions between them (L-33), one small step at a time.

Synchronize ──everyone answered──► Sentinel ──a trigger fired──► Reassign ──► GroupManagement
     ▲                                ▲ ▲─────nothing changes (L-42)──┘               │
     │                                └───────────────state reached──────────────────┤
     └────────────────────────────out of sync─────────────────────────────────────────┘
"""

import logging
import threading
from collections import deque

from headgate.controller.commands import Commander
from headgate.controller.group_management import GroupManagement
from headgate.controller.journal import Journal
from headgate.controller.observing import Measurements, capacities, cost_of_changes
from headgate.controller.ports import Channel, Clock
from headgate.controller.reassign import Change
from headgate.controller.roster import Roster
from headgate.controller.sentinel import Sentinel
from headgate.controller.settings import Settings
from headgate.controller.synchronize import Synchronize
from headgate.errors import FleetError, KafkaUnavailable, OutOfSync, Superseded
from headgate.fleet import Fleet
from headgate.model import Assignment
from headgate.model.messages import ControllerState
from headgate.policies import Policy
from headgate.policies.believing import Believing

log = logging.getLogger(__name__)

HEARTBEAT_S = 5.0
"""At most; eight of them at least fit into the time that a consumer may be silent, as they tell whether it is."""


class Controller:
    """Live or simulated: that depends on the clock, channel and fleet alone."""

    def __init__(
        self,
        policy: Policy,
        channel: Channel,
        fleet: Fleet,
        clock: Clock,
        settings: Settings,
        epoch: int | None = None,
    ) -> None:
        self.epoch = max(int(clock.now_s() * 1000), channel.newest_epoch() + 1) if epoch is None else epoch
        self._policy = policy
        self._channel = channel
        self._clock = clock
        self._settings = settings
        self._commander = Commander(channel, self.epoch)
        self._journal = Journal(channel, clock, settings, self.epoch)
        self._measurements = Measurements(channel, clock, settings.slot_s)
        self._roster = Roster(fleet, self._commander, channel, clock, settings)
        self._believing = Believing(settings.consumer_capacity_bytes_per_s)
        self.assignment = Assignment()
        """Who owns what as far as this controller knows; certain only in Sentinel."""
        self.history: deque[str] = deque(maxlen=100)
        """The states entered lately, the present one last."""
        self._started_s = clock.now_s()
        self._heartbeat_s = min(HEARTBEAT_S, settings.heartbeat_deadline_s / 8)
        self._beat_s = -HEARTBEAT_S
        self._journal.open()
        self._state: Synchronize | Sentinel | GroupManagement
        self._synchronize()

    @property
    def state(self) -> str:
        return self.history[-1]

    def run(self, stop: threading.Event) -> None:
        """Steps until `stop`; consumers are left as they are."""
        while not stop.is_set():
            self.step()
            self._clock.wait(self._settings.poll_s)

    def step(self) -> None:
        """Takes in what arrived, looks after the consumers, and lets the present state do what it can without waiting.

        Whatever goes wrong with the brokers or the fleet ends in Synchronize; only Superseded leaves.
        """
        if self._channel.newest_epoch() > self.epoch:
            raise Superseded("a newer controller took over this pipeline; this one ends and leaves the consumers to it")
        try:
            self._step()
        except (OutOfSync, KafkaUnavailable, FleetError) as error:
            log.warning("out of sync in %s: %s", self.state, error)
            self._synchronize()

    def _step(self) -> None:
        self._beat()
        self._journal.alert(self._channel.refused(), self.assignment)
        events = self._channel.events()
        self._measurements.refresh()
        if self._channel.had_news():
            self._roster.news()
        heard = self._roster.hear(events)
        self._roster.tend()
        self._let_go_of_lost()
        match self._state:
            case Synchronize() as state:
                self._arrive(state.step(heard))
            case Sentinel() as state:
                self._reassign(state.step(heard))
            case GroupManagement() as state:
                self._arrive(state.step(heard))

    def _beat(self) -> None:
        now = self._clock.now_s()
        if now - self._beat_s >= self._heartbeat_s:
            self._beat_s = now
            self._channel.beat(self._describe(now))

    def _describe(self, now: float) -> ControllerState:
        configured, believed = self._settings.consumer_capacity_bytes_per_s, self._believing.believed
        return ControllerState(
            epoch=self.epoch,
            at_ms=int(now * 1000),
            started_at_ms=int(self._started_s * 1000),
            state=self.state,
            consumers=len(self.assignment),
            configured_bytes_per_s=configured,
            capacities=capacities(self.assignment, self._roster.loads(), believed, configured),
            crowding=believed.crowding,
            pause_s=cost_of_changes(self._channel.decisions())[0] or 0.0,
        )

    def _arrive(self, assignment: Assignment | None) -> None:
        if assignment is not None:
            self.assignment = assignment
            self._watch()

    def _reassign(self, change: Change | None) -> None:
        if change is None:
            return
        self.history.append("Reassign")
        if change.plan.is_empty:
            self._journal.kept(change)
            self._watch()
            return
        self._state = GroupManagement(change, self._roster, self._commander, self._clock, self._settings, self._journal)
        self.history.append("GroupManagement")
        self._arrive(self._state.step([]))  # with spares at hand there is nothing to wait for

    def _watch(self) -> None:
        self._state = Sentinel(
            self._policy,
            self._measurements,
            self._roster,
            self._channel,
            self._clock,
            self._settings,
            self._journal,
            self.assignment,
            self._believing,
        )
        self.history.append("Sentinel")

    def _synchronize(self) -> None:
        self._state = Synchronize(self._roster, self._commander, self._settings, self.assignment)
        self.history.append("Synchronize")

    def _let_go_of_lost(self) -> None:
        """Consumers that were given up own nothing any more; their partitions count as unassigned."""
        lost = [n for n in self._roster.given_up if n in self.assignment.owners]
        self._roster.given_up.clear()
        if lost:
            self.assignment = Assignment({n: self.assignment[n] for n in self.assignment if n not in lost})
            raise OutOfSync(f"consumers {', '.join(map(str, lost))} were given up")
