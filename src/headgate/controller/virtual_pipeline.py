"""A pipeline in virtual time: the controller that runs in it is the live one, everything around it is simulated.

Consumers can be slow, die, freeze, hang or get lost, replies can be delayed and dropped, and anything can be put on the
channel.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from headgate.controller.virtual_behaviour import Behaviour
from headgate.controller.virtual_channel import MemoryChannel
from headgate.controller.virtual_clock import VirtualClock
from headgate.controller.virtual_fleet import MemoryFleet
from headgate.model import TopicPartition


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
