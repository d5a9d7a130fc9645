"""A pipeline in virtual time: clock, channel and a fleet of simulated consumers that obey commands as live ones do.

The controller that runs here is the live one. Consumers can be slow, die, freeze, hang or get lost, replies can be
delayed and dropped, and anything can be put on the channel.
"""

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headgate.controller.ports import Command, Event
from headgate.errors import FleetError
from headgate.model import Alert, TopicPartition
from headgate.model.capacity import CapacityMeter
from headgate.model.messages import (
    ConsumerLeft,
    ConsumerState,
    ConsumingStarted,
    ConsumingStopped,
    ControllerState,
    DecisionRecord,
    Measurement,
    PartitionRate,
    Position,
    StartConsuming,
    StateQuery,
    StopConsuming,
)

TABLE = "lake.virtual"


class VirtualClock:
    """Time that passes only while someone waits; what was planned for a moment happens at that moment."""

    def __init__(self, start_s: float = 1000.0) -> None:
        self._now_s = start_s
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def now_s(self) -> float:
        return self._now_s

    def now_ms(self) -> int:
        return int(self._now_s * 1000)

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._planned, (self._now_s + seconds, next(self._order), act))

    def wait(self, seconds: float) -> None:
        until = self._now_s + seconds
        while self._planned and self._planned[0][0] <= until:
            self._now_s, _, act = heapq.heappop(self._planned)
            act()
        self._now_s = until


@dataclass(slots=True)
class Behaviour:
    """How simulated consumers and their channel behave; each number is asked for anew every time."""

    start_s: Callable[[int], float] = lambda consumer_id: 5.0
    """From the request to the first report."""
    cycle_s: Callable[[int], float] = lambda consumer_id: 1.0
    heartbeat_s: float = 1.0
    commit_s: Callable[[], float] = lambda: 0.5
    """From an announcement to the ledger."""
    reply_s: Callable[[], float] = lambda: 0.0
    """How long an event travels; a consumer's events keep their order."""
    loses: Callable[[Event], bool] = lambda event: False
    speed_bytes_per_s: Callable[[int], float] = lambda consumer_id: 0.0
    """What a full cycle measures; 0 for a cycle that is not full."""


class MemoryChannel:
    def __init__(self, clock: VirtualClock, behaviour: Behaviour) -> None:
        self._clock = clock
        self._behaviour = behaviour
        self.commands: dict[int, list[Command]] = defaultdict(list)
        self.sent: list[tuple[float, Command]] = []
        self.records: list[DecisionRecord] = []
        self.heartbeat: ControllerState | None = None
        """The controller's newest."""
        self._events: list[Event] = []
        self._arrives_s: dict[int, float] = defaultdict(float)
        self._measurement: Measurement | None = None
        self._ledger: dict[tuple[str, TopicPartition], int] = {}
        self.prepared = 0

    # The controller's side

    def prepare(self, highest_consumer_id: int) -> int:
        self.prepared = max(self.prepared, highest_consumer_id)
        return self.prepared

    def send(self, command: Command) -> None:
        if command.consumer_id > self.prepared:
            raise LookupError(f"no partition for commands to consumer {command.consumer_id} (L-29)")
        self.sent.append((self._clock.now_s(), command))
        self.commands[command.consumer_id].append(command)

    def events(self) -> list[Event]:
        arrived, self._events = self._events, []
        return arrived

    def latest_measurement(self) -> Measurement | None:
        return self._measurement

    def ledger(self) -> Mapping[tuple[str, TopicPartition], int]:
        return self._ledger

    def record(self, record: DecisionRecord) -> None:
        self.records.append(record)

    def decisions(self) -> Iterable[DecisionRecord]:
        return self.records

    def newest_epoch(self) -> int:
        return max((r.epoch for r in self.records if r.outcome != "dry-run"), default=0)

    def beat(self, state: ControllerState) -> None:
        self.heartbeat = state

    def refused(self) -> Iterable[Alert]:
        return ()

    # The world's side

    def put(self, event: Event) -> None:
        """Straight onto the channel, whoever wrote it."""
        self._events.append(event)

    def say(self, event: Event) -> None:
        """A consumer's reply, with the delays and losses of its behaviour."""
        if self._behaviour.loses(event):
            return
        now = self._clock.now_s()
        arrives_s = max(self._arrives_s[event.consumer_id], now + self._behaviour.reply_s())
        self._arrives_s[event.consumer_id] = arrives_s
        self._clock.after(arrives_s - now, lambda: self._events.append(event))

    def put_measurement(self, measurement: Measurement) -> None:
        """Straight onto the channel, as a monitor wrote it."""
        self._measurement = measurement

    def measure(self, rates: Mapping[TopicPartition, float], window_s: float = 30.0) -> None:
        """A measurement taken now, in bytes per second."""
        self._measurement = Measurement(
            self._clock.now_ms(),
            window_s,
            "virtual",
            tuple(PartitionRate(p.topic, p.partition, rate, rate / 100, 0, window_s) for p, rate in rates.items()),
        )

    def land(self, partition: TopicPartition, following: int) -> None:
        self._ledger[TABLE, partition] = max(following, self._ledger.get((TABLE, partition), 0))


@dataclass(slots=True)
class Volume:
    """What a consumer keeps across its lives (L-20)."""

    life: str = ""
    """Who wrote it last; an earlier life that finds another name here has been replaced."""
    partitions: frozenset[TopicPartition] = frozenset()
    next_command: int = 0
    epoch: int = 0


@dataclass(slots=True, eq=False)
class SimulatedConsumer:
    """One life of one consumer: cycles, heartbeats, and commands obeyed between cycles (L-18, L-19)."""

    consumer_id: int
    number: int
    clock: VirtualClock
    channel: MemoryChannel
    behaviour: Behaviour
    volume: Volume
    """Shared by all lives of an id."""
    started_at_ms: int = 0
    is_alive: bool = True
    is_up: bool = False
    is_frozen: bool = False
    """Like SIGSTOP: neither cycles nor heartbeats."""
    is_stuck: bool = False
    """Heartbeats, but its cycle never ends."""
    asked_to_stop: bool = False
    cycle: int = 0
    cycle_finished_at_ms: int = 0
    next_command: int = 0
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    capacity_bytes_per_s: float = 0.0
    """What it reports of itself; 0 until it knows."""
    full_cycles: int = 0
    _speed: CapacityMeter = field(default_factory=lambda: CapacityMeter("mean"))

    @property
    def incarnation(self) -> str:
        return f"{self.consumer_id}/{self.number:06d}"  # later lives sort after earlier ones

    @property
    def is_replaced(self) -> bool:
        return self.volume.life != self.incarnation

    @property
    def owns(self) -> frozenset[TopicPartition]:
        return self.volume.partitions if self.is_alive and self.is_up else frozenset()

    def come_up(self) -> None:
        if not self.is_alive:
            return
        self.is_up = True
        self.volume.life, self.next_command = self.incarnation, self.volume.next_command
        self.started_at_ms = self.cycle_finished_at_ms = self.clock.now_ms()
        self._position(self.volume.partitions)
        self._beat()
        self._obey()
        self._plan_cycle()

    def _beat(self) -> None:
        if not self.is_alive:
            return
        if not self.is_frozen:
            self.channel.say(self._state(""))
        self.clock.after(self.behaviour.heartbeat_s, self._beat)

    def _plan_cycle(self) -> None:
        self.clock.after(self.behaviour.cycle_s(self.consumer_id), self._finish_cycle)

    def _finish_cycle(self) -> None:
        if not self.is_alive:
            return
        if not (self.is_frozen or self.is_stuck):
            self._announce()
            self._measure()
            self.cycle += 1
            self.cycle_finished_at_ms = self.clock.now_ms()
            self._obey()
            if self.asked_to_stop:
                self._leave("asked to stop")
        self._plan_cycle()

    def _announce(self) -> None:
        for partition in self.positions:
            self.positions[partition] += 10
            following = self.positions[partition]
            self.clock.after(
                self.behaviour.commit_s(),
                lambda p=partition, n=following: self.channel.land(p, n),  # type: ignore[misc]
            )

    def _measure(self) -> None:
        speed = self.behaviour.speed_bytes_per_s(self.consumer_id) if self.positions else 0.0
        if speed > 0:
            self._speed.add(speed, 1.0)
            self.capacity_bytes_per_s = self._speed.per_s or 0.0
            self.full_cycles += 1

    def _position(self, partitions: frozenset[TopicPartition], reached: Iterable[Position] = ()) -> None:
        """It goes on with what it has, where others left off, or where the ledger is."""
        told = {TopicPartition(at.topic, at.partition): at.next for at in reached}
        begins = {p: self.channel.ledger().get((TABLE, p), 0) for p in partitions} | told
        self.positions = {p: self.positions.get(p, begins[p]) for p in partitions}

    def _obey(self) -> None:
        queued = self.channel.commands[self.consumer_id][self.next_command :]
        if not queued:
            return
        if self.is_replaced:
            self._leave("replaced")
            return
        self.next_command += len(queued)
        replies: list[Event] = []
        for command in queued:
            if command.epoch < self.volume.epoch:
                continue
            self.volume.epoch = command.epoch
            if isinstance(command, StateQuery):
                replies.append(self._state(command.command_id))
            elif command.incarnation > self.incarnation:
                self.is_alive = False  # replaced, and told so
                return
            elif command.incarnation in ("", self.incarnation):
                replies.append(self._apply(command))
        self.volume.next_command = self.next_command
        for reply in replies:
            self.channel.say(reply)

    def _apply(self, command: StartConsuming | StopConsuming) -> Event:
        now = self.clock.now_ms()
        named = frozenset(command.partitions)
        if isinstance(command, StartConsuming):
            self.volume.partitions |= named
            self._position(self.volume.partitions, command.reached)
            return ConsumingStarted(command.command_id, self.consumer_id, self.incarnation, command.partitions, now)
        announced = tuple(
            Position(TABLE, p.topic, p.partition, self.positions[p]) for p in command.partitions if p in self.positions
        )
        self.volume.partitions -= named
        self._position(self.volume.partitions)
        return ConsumingStopped(
            command.command_id, self.consumer_id, self.incarnation, command.partitions, now, announced
        )

    def _leave(self, reason: str) -> None:
        if reason == "asked to stop" and not self.is_replaced:
            self.volume.partitions = frozenset()
        self.is_alive = False
        self.channel.say(ConsumerLeft(self.consumer_id, self.incarnation, self.clock.now_ms(), reason))

    def _state(self, command_id: str) -> ConsumerState:
        return ConsumerState(
            command_id=command_id,
            consumer_id=self.consumer_id,
            incarnation=self.incarnation,
            partitions=tuple(sorted(self.positions if self.is_replaced else self.volume.partitions)),
            at_ms=self.clock.now_ms(),
            started_at_ms=self.started_at_ms,
            cycle=self.cycle,
            cycle_finished_at_ms=self.cycle_finished_at_ms,
            uncommitted_cycles=0,
            throughput_bytes_per_s=0.0,
            busy_share=0.0,
            capacity_bytes_per_s=self.capacity_bytes_per_s,
            last_error="",
            full_cycles=self.full_cycles,
        )


class MemoryFleet:
    def __init__(self, clock: VirtualClock, channel: MemoryChannel, behaviour: Behaviour) -> None:
        self._clock = clock
        self._channel = channel
        self._behaviour = behaviour
        self._volumes: dict[int, Volume] = defaultdict(Volume)
        self._numbers = itertools.count(1)
        self.lives: dict[int, SimulatedConsumer] = {}
        self.refused: dict[int, int] = defaultdict(int)
        """How many of the next starts of a consumer fail."""

    def start(self, consumer_id: int) -> None:
        if consumer_id in self.running():
            return
        self.stop(consumer_id, force=True)
        if self.refused[consumer_id] > 0:
            self.refused[consumer_id] -= 1
            raise FleetError(f"consumer {consumer_id} was refused")
        life = self._new_life(consumer_id)
        self.lives[consumer_id] = life
        self._clock.after(self._behaviour.start_s(consumer_id), life.come_up)

    def _new_life(self, consumer_id: int) -> SimulatedConsumer:
        return SimulatedConsumer(
            consumer_id,
            next(self._numbers),
            self._clock,
            self._channel,
            self._behaviour,
            self._volumes[consumer_id],
        )

    def stop(self, consumer_id: int, force: bool = False) -> None:
        life = self.lives.get(consumer_id)
        if life is None:
            return
        life.asked_to_stop = True
        if force or not life.is_up:
            life.is_alive = False

    def running(self) -> frozenset[int]:
        return frozenset(n for n, life in self.lives.items() if life.is_alive and not life.asked_to_stop)

    def close(self, force: bool = False) -> None:
        for consumer_id in self.running():
            self.stop(consumer_id, force)

    def hand_over(self) -> None:
        """These consumers outlive their controller."""

    # The world's side

    def kill(self, consumer_id: int) -> None:
        """Dies at once, like kill -9."""
        self.lives[consumer_id].is_alive = False

    def lose(self, consumer_id: int) -> SimulatedConsumer:
        """It lives on where the fleet can neither see nor stop it: a zombie, once it is replaced."""
        return self.lives.pop(consumer_id)

    def owners(self, partition: TopicPartition) -> frozenset[int]:
        """Living consumers of this fleet that read this partition."""
        return frozenset(n for n, life in self.lives.items() if partition in life.owns)


class Stepper(Protocol):
    """A controller, or a dry run of one."""

    def step(self) -> None: ...


class VirtualPipeline:
    """All of it together with a monitor that measures once a second."""

    def __init__(self, rates: Mapping[TopicPartition, float], behaviour: Behaviour | None = None) -> None:
        self.behaviour = behaviour or Behaviour()
        self.clock = VirtualClock()
        self.channel = MemoryChannel(self.clock, self.behaviour)
        self.fleet = MemoryFleet(self.clock, self.channel, self.behaviour)
        self.rates = dict(rates)
        self.monitor_is_silent = False
        self._measure()

    def _measure(self) -> None:
        if not self.monitor_is_silent:
            self.channel.measure(self.rates)
        self.clock.after(1.0, self._measure)

    def run(self, controller: Stepper, seconds: float, poll_s: float = 0.2) -> None:
        until = self.clock.now_s() + seconds
        while self.clock.now_s() < until:
            controller.step()
            self.clock.wait(poll_s)

    def run_until(self, controller: Stepper, holds: Callable[[], bool], deadline_s: float = 600.0) -> float:
        """Steps until the condition holds; how long that took. TimeoutError if it does not by the deadline."""
        began = self.clock.now_s()
        while not holds():
            if self.clock.now_s() - began > deadline_s:
                raise TimeoutError(f"not reached within {deadline_s:g} virtual seconds")
            self.run(controller, 0.2)
        return self.clock.now_s() - began

    def owned(self) -> dict[int, frozenset[TopicPartition]]:
        """What the living consumers really read; who reads nothing is left out."""
        return {n: life.owns for n, life in sorted(self.fleet.lives.items()) if life.owns}
