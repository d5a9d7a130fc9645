"""The live controller on virtual time with consumers that are exact to the record.

The state machine, its commands, acknowledgements and handovers are the ones that run in production; consumers process
records as the simulator's do, obey commands between two batches and land what they have done. So a policy's run here
includes everything the controller adds to it: waiting for acknowledgements, for the ledger, for consumers to be ready.
"""

import itertools
from dataclasses import dataclass, field

import numpy as np

from headgate.controller.machine import Controller
from headgate.controller.settings import Settings
from headgate.controller.virtual import TABLE, Behaviour, MemoryChannel, MemoryFleet, SimulatedConsumer, VirtualClock
from headgate.model import TopicPartition
from headgate.model.messages import Measurement, PartitionRate
from headgate.policies import Policy
from headgate.simulation.arrivals import Arrivals, Floats
from headgate.simulation.group import partition_of
from headgate.simulation.service import Consumer, Topic

TICK_S = 0.05
"""How often a consumer looks for commands; a live one does between two cycles."""


@dataclass(slots=True, eq=False)
class ExactConsumer(SimulatedConsumer):
    """A simulated consumer whose cycles are batches of real arrivals."""

    topic: Topic = field(kw_only=True)
    engine: Consumer = field(kw_only=True)
    began_s: float = field(kw_only=True)

    def _plan_cycle(self) -> None:
        self.clock.after(TICK_S, self._finish_cycle)

    def _announce(self) -> None:
        """Serves up to now and lands what is committed."""
        now = self.clock.now_s() - self.began_s
        self.engine.advance(self.topic, now)
        for partition in self.positions:
            done = self.topic.committed[partition.partition]
            self.positions[partition] = done
            self.channel.land(partition, done)

    def _obey(self) -> None:
        if not self.engine.polled:  # a batch in hand is finished first
            SimulatedConsumer._obey(self)

    def _position(self, partitions: frozenset[TopicPartition]) -> None:
        self.positions = {p: self.channel.ledger().get((TABLE, p), 0) for p in partitions}
        wanted = {p.partition for p in partitions}
        if wanted - self.engine.partitions:
            self.engine.free_s = max(self.engine.free_s, self.clock.now_s() - self.began_s)
        self.engine.partitions = wanted


class ExactFleet(MemoryFleet):
    """Starts exact consumers and keeps their bills."""

    def __init__(
        self, clock: VirtualClock, channel: MemoryChannel, behaviour: Behaviour, topic: Topic, service_s: float
    ) -> None:
        super().__init__(clock, channel, behaviour)
        self._topic = topic
        self._service_s = service_s
        self._began_s = clock.now_s()
        self.ever: list[tuple[float, ExactConsumer]] = []
        self.ended_s: dict[str, float] = {}

    def _new_life(self, consumer_id: int) -> ExactConsumer:
        now = self._clock.now_s() - self._began_s
        life = ExactConsumer(
            consumer_id,
            next(self._numbers),
            self._clock,
            self._channel,
            self._behaviour,
            self._volumes[consumer_id],
            topic=self._topic,
            engine=Consumer(consumer_id, now, self._service_s, now),
            began_s=self._began_s,
        )
        self.ever.append((now, life))
        return life

    def note_ends(self) -> None:
        """Remembers when lives ended; asked often, so exact to a step."""
        now = self._clock.now_s() - self._began_s
        for _, life in self.ever:
            if not life.is_alive:
                self.ended_s.setdefault(life.incarnation, now)

    def replica_seconds(self, end_s: float) -> float:
        return sum(min(self.ended_s.get(life.incarnation, end_s), end_s) - began for began, life in self.ever)


@dataclass(frozen=True)
class ExactOutcome:
    latency_s: tuple[Floats, ...]
    slo_s: float
    replica_minutes: float
    decisions: int
    moves: int

    @property
    def sla_percent(self) -> float:
        latency = np.concatenate(self.latency_s)
        return 100.0 * float(np.mean(latency <= self.slo_s + 1e-6)) if len(latency) else 100.0


class ExactPipeline:
    """Arrivals, a fleet of exact consumers, a monitor that measures every second, and the controller."""

    def __init__(
        self,
        arrivals: Arrivals,
        policy: Policy,
        capacity_records_per_s: float = 200.0,
        start_s: float = 3.0,
        record_bytes: int = 100,
        warm: int = 0,
    ) -> None:
        self.clock = VirtualClock()
        self._began_s = self.clock.now_s()
        behaviour = Behaviour(start_s=lambda consumer_id: start_s, heartbeat_s=0.5, commit_s=lambda: 0.0)
        self.channel = MemoryChannel(self.clock, behaviour)
        self.topic = Topic(arrivals)
        self.fleet = ExactFleet(self.clock, self.channel, behaviour, self.topic, 1 / capacity_records_per_s)
        self._record_bytes = record_bytes
        self._measure()
        capacity = capacity_records_per_s * record_bytes
        self.controller = Controller(
            policy, self.channel, self.fleet, self.clock, Settings(capacity, capacity, warm=warm, poll_s=0.1)
        )

    def _measure(self) -> None:
        now = self.clock.now_s() - self._began_s
        rates = []
        for p in range(self.topic.arrivals.partitions):
            end = self.topic.arrived(p, now)
            rate = float(end - self.topic.arrived(p, now - 1.0))
            name = partition_of(p)
            rates.append(PartitionRate(name.topic, name.partition, rate * self._record_bytes, rate, end, 1.0))
        self.channel.put_measurement(Measurement(self.clock.now_ms(), 1.0, "exact", tuple(rates)))
        self.clock.after(1.03, self._measure)

    def run(self, slo_s: float = 0.5) -> ExactOutcome:
        """To the end of the arrivals, then until the last record is done."""
        end_s = self.topic.arrivals.duration_s
        for _ in itertools.count():
            self.controller.step()
            self.clock.wait(0.1)
            self.fleet.note_ends()
            now = self.clock.now_s() - self._began_s
            done = all(s == len(t) for s, t in zip(self.topic.served, self.topic.arrivals.times_s, strict=True))
            if now >= end_s and (done or now > end_s + 3600):
                break
        latency = tuple(d - t for d, t in zip(self.topic.done_s, self.topic.arrivals.times_s, strict=True))
        applied = [r for r in self.channel.records if r.outcome == "applied"]
        moves = sum(r.moved for r in applied)
        return ExactOutcome(latency, slo_s, self.fleet.replica_seconds(end_s) / 60, len(applied), moves)
