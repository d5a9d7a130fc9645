"""A consumer on virtual time that obeys commands as a live one does, and can die, freeze, hang or be replaced."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from headgate.controller.ports import Event
from headgate.controller.virtual_behaviour import Behaviour
from headgate.controller.virtual_channel import TABLE, MemoryChannel
from headgate.controller.virtual_clock import VirtualClock
from headgate.model import TopicPartition
from headgate.model.capacity import CapacityMeter
from headgate.model.messages import (
    ConsumerLeft,
    ConsumerState,
    ConsumingStarted,
    ConsumingStopped,
    Position,
    StartConsuming,
    StateQuery,
    StopConsuming,
)


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
            self._land(partition, self.positions[partition])

    def _land(self, partition: TopicPartition, following: int) -> None:
        """The ledger moves when the commit is done, whatever has become of this consumer by then."""
        self.clock.after(self.behaviour.commit_s(), lambda: self.channel.land(partition, following))

    def _measure(self) -> None:
        speed = self.behaviour.speed_bytes_per_s(self.consumer_id) if self.positions else 0.0
        if speed > 0:
            self._speed.add(speed, 1.0)
            self.capacity_bytes_per_s = self._speed.per_s or 0.0
            self.full_cycles += 1

    def _position(self, partitions: frozenset[TopicPartition], reached: Iterable[Position] = ()) -> None:
        """It goes on with what it has, where others left off, or where the ledger is."""
        told = {TopicPartition(at.topic, at.partition): at.next for at in reached}
        begins = {p: self.channel.ledgers()[TABLE].get(p, 0) for p in partitions} | told
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
