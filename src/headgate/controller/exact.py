"""The live controller on virtual time with consumers that are exact to the record.

The state machine, its commands, acknowledgements and handovers are the ones that run in production; consumers process
records as the simulator's do, obey commands between two batches and land what they have done. So a policy's run here
includes everything the controller adds to it: waiting for acknowledgements and for consumers to be ready.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from headgate.controller.machine import Controller
from headgate.controller.settings import Settings
from headgate.controller.virtual_behaviour import Behaviour
from headgate.controller.virtual_channel import MemoryChannel
from headgate.controller.virtual_clock import VirtualClock
from headgate.controller.virtual_consumer import SimulatedConsumer
from headgate.controller.virtual_fleet import MemoryFleet
from headgate.model import TopicPartition
from headgate.model.capacity import CapacityMeter, Estimate
from headgate.model.messages import DecisionRecord, Measurement, PartitionRate, Position
from headgate.policies import Policy
from headgate.simulation.arrivals import Arrivals
from headgate.simulation.group import CAUSE_OF, Change, GroupSettings, Pause, partition_of
from headgate.simulation.outcome import Outcome
from headgate.simulation.service import Consumer, Topic

_LANDS_AT_ONCE = GroupSettings(pause_s=0.0)
_FINDING_S = 2.0
"""Before records come: time for a controller to find who is there."""
TICK_S = 0.05
"""How often a consumer looks for commands; a live one does between two cycles."""
_TAIL_S = 600.0
"""So long after the last arrival the controller goes on deciding; a longer backlog is left to those who own it then."""
_OWNERLESS_S = 86_400.0
"""A partition that nobody has taken by then gets no owner any more."""


@dataclass(slots=True, eq=False)
class ExactConsumer(SimulatedConsumer):
    """A simulated consumer whose cycles are batches of real arrivals."""

    topic: Topic = field(kw_only=True)
    engine: Consumer = field(kw_only=True)
    began_s: float = field(kw_only=True)
    """When the clock of the arrivals was at 0."""
    record_bytes: float = field(kw_only=True)
    meter: CapacityMeter = field(kw_only=True)
    metered: tuple[int, float] = (0, 0.0)
    """Records and working time that the meter knows of."""

    def _plan_cycle(self) -> None:
        self.clock.after(TICK_S, self._finish_cycle)

    def _announce(self) -> None:
        """Serves up to now and lands what is committed; with commands waiting, no further batch is begun."""
        now = self.clock.now_s() - self.began_s
        if len(self.channel.commands[self.consumer_id]) > self.next_command:
            self.engine.finish(self.topic, now)
        else:
            self.engine.advance(self.topic, now)
        for partition in self.positions:
            done = self.topic.committed[partition.partition]
            if done > self.positions[partition]:
                self.positions[partition] = done
                self._land(partition, done)

    def _beat(self) -> None:
        records, busy_s = self.metered
        self.meter.add(self.engine.records - records, self.engine.busy_s - busy_s)
        self.metered = self.engine.records, self.engine.busy_s
        self.capacity_bytes_per_s = (self.meter.per_s or 0.0) * self.record_bytes
        SimulatedConsumer._beat(self)

    def _obey(self) -> None:
        if not self.engine.polled:  # a batch in hand is finished first
            SimulatedConsumer._obey(self)

    def _position(self, partitions: frozenset[TopicPartition], reached: Iterable[Position] = ()) -> None:
        SimulatedConsumer._position(self, partitions, reached)
        wanted = {p.partition for p in partitions}
        if wanted - self.engine.partitions:
            self.engine.free_s = max(self.engine.free_s, self.clock.now_s() - self.began_s)
        self.engine.partitions = wanted


class ExactFleet(MemoryFleet):
    """Starts exact consumers and keeps their bills."""

    def __init__(
        self,
        clock: VirtualClock,
        channel: MemoryChannel,
        behaviour: Behaviour,
        new_engine: Callable[[int, float], Consumer],
        topic: Topic,
        began_s: float,
        record_bytes: float,
        capacity_estimate: Estimate,
    ) -> None:
        super().__init__(clock, channel, behaviour)
        self._new_engine = new_engine
        self._topic = topic
        self._began_s = began_s
        self._record_bytes = record_bytes
        self._capacity_estimate = capacity_estimate
        self.ever: list[tuple[float, ExactConsumer]] = []
        self.ended_s: dict[str, float] = {}

    def _new_life(self, consumer_id: int) -> ExactConsumer:
        now = self._clock.now_s() - self._began_s
        life = ExactConsumer(
            *self._given(consumer_id),
            topic=self._topic,
            engine=self._new_engine(consumer_id, now),
            began_s=self._began_s,
            record_bytes=self._record_bytes,
            meter=CapacityMeter(self._capacity_estimate),
        )
        self.ever.append((now, life))
        return life

    def resume(self, consumer_id: int, partitions: frozenset[TopicPartition]) -> None:
        """Starts a consumer that owned these before."""
        self._channel.prepare(consumer_id)
        self._volumes[consumer_id].partitions = partitions
        self.start(consumer_id)

    def note_ends(self) -> None:
        """Remembers when lives ended; asked often, so exact to a step."""
        now = self._clock.now_s() - self._began_s
        for _, life in self.ever:
            if not life.is_alive:
                self.ended_s.setdefault(life.incarnation, now)

    def alive(self) -> list[ExactConsumer]:
        return [life for _, life in self.ever if life.is_alive]

    def work_off(self) -> None:
        """Everything that its owners have left, at once."""
        for life in self.alive():
            life.engine.advance(self._topic, math.inf)

    def bills(self) -> tuple[tuple[int, float, float | None], ...]:
        """(consumer id, created, ended), of those that lived when records came: nobody is billed before."""
        found = [(life.consumer_id, max(0.0, began), self.ended_s.get(life.incarnation)) for began, life in self.ever]
        return tuple((n, began, ended) for n, began, ended in found if ended is None or ended > 0)


class ExactPipeline:
    """Arrivals, a fleet of exact consumers, a monitor that measures every second, and the controller."""

    def __init__(
        self,
        arrivals: Arrivals,
        policy: Policy,
        group: GroupSettings = _LANDS_AT_ONCE,
        *,
        record_bytes: int = 100,
        settings: Settings | None = None,
        measure_s: float = 1.03,
        first_s: float = 0.0,
        rate_window_s: float = 1.0,
        capacity_estimate: Estimate = "worst_case",
        consumers: int = 0,
        seed: int = 0,
    ) -> None:
        """`group.pause_s` is how long what is done takes to land, which every handover waits for. So many `consumers`
        run already and share the partitions; the controller finds them as one does that was restarted. The monitor
        measures every `measure_s`, and says nothing before `first_s`."""
        rng = np.random.default_rng([seed, 77])
        self.clock = VirtualClock()
        self._began_s = self.clock.now_s() + (_FINDING_S if consumers else 0.0)
        behaviour = Behaviour(
            start_s=lambda _: 0.0 if self.clock.now_s() < self._began_s else group.start_s(rng),
            heartbeat_s=0.5,
            commit_s=lambda: group.pause_s,
        )
        self.channel = MemoryChannel(self.clock, behaviour)
        self.topic = Topic(arrivals)
        self._record_bytes, self._rate_window_s = record_bytes, rate_window_s
        self._measure_s, self._first_s = measure_s, first_s
        service_s = 1 / group.capacity_records_per_s
        self.fleet = ExactFleet(
            self.clock,
            self.channel,
            behaviour,
            lambda n, now: Consumer(n, now, service_s, now, max_poll_records=group.max_poll_records),
            self.topic,
            self._began_s,
            record_bytes,
            capacity_estimate,
        )
        self._at_first = {partition_of(p): 1 + p % consumers for p in range(arrivals.partitions if consumers else 0)}
        for n in range(1, consumers + 1):
            self.fleet.resume(n, frozenset(p for p, owner in self._at_first.items() if owner == n))
        self._measure()
        capacity = group.capacity_records_per_s * record_bytes
        self._settings = settings or Settings(capacity, capacity, poll_s=0.1)
        self.controller = Controller(policy, self.channel, self.fleet, self.clock, self._settings)

    def _measure(self) -> None:
        self.clock.after(self._measure_s, self._measure)
        now = self.clock.now_s() - self._began_s
        if now < self._first_s:
            return
        window_s = min(self._rate_window_s, max(now, self._measure_s))
        rates = []
        for p in range(self.topic.arrivals.partitions):
            end = self.topic.arrived(p, now)
            rate = (end - self.topic.arrived(p, now - window_s)) / window_s
            name = partition_of(p)
            rates.append(PartitionRate(name.topic, name.partition, rate * self._record_bytes, rate, end, window_s))
        self.channel.put_measurement(Measurement(self.clock.now_ms(), window_s, "exact", tuple(rates)))

    def _is_owned(self) -> bool:
        """Whatever has records left is somebody's, and no batch of a partition that was given up is in hand."""
        owned = {p: life for life in self.fleet.alive() for p in life.engine.partitions}
        in_hand = {p: life for life in self.fleet.alive() for p in life.engine.polled}
        left = {p for p, served in enumerate(self.topic.served) if served < len(self.topic.arrivals.times_s[p])}
        return left <= owned.keys() and all(owned[p] is life for p, life in in_hand.items())

    def run(self, slo_s: float = 0.5, told: Callable[[float], None] = lambda share: None) -> Outcome:
        """To the end of the arrivals, then until the last record is done."""
        end_s, members_at_end = self.topic.arrivals.duration_s, 0
        for turn in itertools.count():
            self.controller.step()
            self.clock.wait(self._settings.poll_s)
            self.fleet.note_ends()
            now = self.clock.now_s() - self._began_s
            if now < end_s:
                members_at_end = len(self.fleet.running())
                if turn % 256 == 0:
                    told(max(0.0, now / end_s))
                continue
            done = all(s == len(t) for s, t in zip(self.topic.served, self.topic.arrivals.times_s, strict=True))
            if done:
                break
            if now > end_s + _TAIL_S and self._is_owned():
                self.fleet.work_off()
                break
            if now > end_s + _OWNERLESS_S:
                raise RuntimeError("records were left without an owner")
        changes, pauses = _from_journal(self.channel.records, self._began_s, self._at_first)
        times = self.topic.arrivals.times_s
        lives = self.fleet.bills()
        billed_s = sum(max(0.0, min(end_s if ended is None else ended, end_s) - began) for _, began, ended in lives)
        return Outcome(
            times,
            tuple(d - t for d, t in zip(self.topic.done_s, times, strict=True)),
            slo_s,
            billed_s / 60,
            changes,
            pauses,
            lives,
            tuple(self.topic.owner),
            members_at_end,
            (),
        )


def _from_journal(
    records: Iterable[DecisionRecord], began_s: float, owners: Mapping[TopicPartition, int]
) -> tuple[tuple[Change, ...], tuple[Pause, ...]]:
    """What the controller wrote down, as the simulator tells it: changes, and whom they stopped.

    The journal times a handover as a whole, so every partition that moved counts as paused for all of it.
    """
    changes, pauses = [], []
    for record in records:
        if record.outcome != "applied":
            continue
        done_s = record.at_ms / 1000 - began_s
        ready_s = done_s - record.handover_s
        following = {p: each.consumer_id for each in record.assignment for p in each.partitions}
        moved = [p for p, n in following.items() if owners.get(p, n) != n]
        gone, came = set(owners.values()) - set(following.values()), set(following.values()) - set(owners.values())
        kind = "up" if came else "down" if gone else "reassign"
        if owners:  # the first assignment is no change
            changes.append(Change(ready_s - record.ready_s, ready_s, kind, len(came), len(gone), len(moved)))
            pauses += [Pause(p.partition, ready_s, done_s, CAUSE_OF[kind]) for p in moved]
        owners = following
    return tuple(changes), tuple(pauses)
