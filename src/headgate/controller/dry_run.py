"""What a controller would decide, without acting: it listens, decides, writes down, and sends nothing to anybody."""

import threading

from headgate.controller.journal import Journal, Timings
from headgate.controller.observing import Measurements, load_of, observe
from headgate.controller.ports import DRY_RUN, Channel, Clock
from headgate.controller.reassign import Change
from headgate.controller.settings import Settings
from headgate.model import Assignment, TopicPartition
from headgate.model.messages import ConsumerLeft, ConsumerState
from headgate.policies import Policy
from headgate.policies.believing import Believing


class DryRun:
    """Starts from the owners that heartbeats show, if there are any, and then takes its own decisions for applied, so
    that each one follows from the one before."""

    def __init__(self, policy: Policy, channel: Channel, clock: Clock, settings: Settings) -> None:
        self._policy = policy
        self._channel = channel
        self._clock = clock
        self._settings = settings
        self._journal = Journal(channel, clock, settings, int(clock.now_s() * 1000))
        self._measurements = Measurements(channel, clock, settings.slot_s)
        self._listen_until_s = clock.now_s() + settings.heartbeat_deadline_s
        self._states: dict[int, ConsumerState] = {}
        self._heard_s: dict[int, float] = {}
        """When each of them spoke last."""
        self._news_s = clock.now_s()
        """When anybody was heard last."""
        self._watching_since_s = clock.now_s()
        self._believing = Believing(settings.consumer_capacity_bytes_per_s)
        self.assignment: Assignment | None = None
        """None while it still listens."""

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.step()
            self._clock.wait(self._settings.poll_s)

    def step(self) -> None:
        now = self._clock.now_s()
        self._hear(now)
        self._measurements.refresh()
        measurement = self._measurements.newest
        if self.assignment is None:
            if now < self._listen_until_s:
                return
            self.assignment, self._watching_since_s = shown_owners(self._states), now
        if measurement is None or not self._measurements.is_look_due:
            return
        loads = {n: load_of(state) for n, state in self._states.items()}
        abilities = self._believing.look(now, loads, [c for c in self.assignment if self.assignment[c]])
        seen = observe(
            measurement,
            self._channel.ledgers(),
            self.assignment,
            loads,
            now,
            self._watching_since_s,
            self._settings.tables_of,
            self._measurements.recent(),
            abilities,
        )
        decision = self._policy.decide(seen)
        self._journal.alert(decision.alerts, self.assignment, DRY_RUN)
        if decision.keeps:
            if decision.trigger:
                self._watching_since_s = now
            return
        following = decision.assignment or self.assignment
        change = Change(seen, decision, self.assignment, following, measurement.window_s, now)
        if not change.plan.is_empty:
            timings = Timings(seen.age_s + measurement.window_s, self._clock.now_s() - now)
            self._journal.decided(change, DRY_RUN, timings, change.plan.create, change.plan.delete)
        self.assignment, self._watching_since_s = following, now

    def _hear(self, now: float) -> None:
        """Who is gone says no more what consumers can do."""
        for event in self._channel.events():
            known = self._states.get(event.consumer_id)
            if isinstance(event, ConsumerState) and (known is None or event.started_at_ms >= known.started_at_ms):
                self._states[event.consumer_id], self._heard_s[event.consumer_id] = event, now
            elif isinstance(event, ConsumerLeft) and known is not None and known.incarnation == event.incarnation:
                del self._states[event.consumer_id]
        if self._channel.had_news():
            self._news_s = now
        silent = [n for n in self._states if self._news_s - self._heard_s[n] > self._settings.heartbeat_deadline_s]
        for consumer_id in silent:
            del self._states[consumer_id]


def shown_owners(states: dict[int, ConsumerState]) -> Assignment:
    """Owners according to heartbeats; a partition in the middle of a handover goes to the lowest id."""
    taken: set[TopicPartition] = set()
    owners = {}
    for consumer_id in sorted(states):
        own = frozenset(states[consumer_id].partitions) - taken
        taken |= own
        if own:
            owners[consumer_id] = own
    return Assignment(owners)
