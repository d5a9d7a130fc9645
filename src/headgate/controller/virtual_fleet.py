"""A fleet in memory: starts and stops simulated consumers, and lets the world kill or lose them."""

import itertools
from collections import defaultdict

from headgate.controller.virtual_behaviour import Behaviour
from headgate.controller.virtual_channel import MemoryChannel
from headgate.controller.virtual_clock import VirtualClock
from headgate.controller.virtual_consumer import SimulatedConsumer, Volume
from headgate.errors import FleetError
from headgate.model import TopicPartition


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
        return SimulatedConsumer(*self._given(consumer_id))

    def _given(self, consumer_id: int) -> tuple[int, int, VirtualClock, MemoryChannel, Behaviour, Volume]:
        """What every new life is given, whatever else its kind needs."""
        volume = self._volumes[consumer_id]
        return consumer_id, next(self._numbers), self._clock, self._channel, self._behaviour, volume

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

    def last_words(self, consumer_id: int) -> str:
        return ""

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
