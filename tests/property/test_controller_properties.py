"""The controller against a hostile virtual world: whatever dies, hangs, lies or is lost, no partition is ever given to
one consumer while another one of the fleet reads it, and once the world is kind again everything is read exactly once.
"""

import random
from itertools import pairwise

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.controller.machine import Controller
from headgate.controller.ports import Command, Event
from headgate.controller.settings import Settings
from headgate.controller.virtual_behaviour import Behaviour
from headgate.controller.virtual_channel import MemoryChannel
from headgate.controller.virtual_fleet import MemoryFleet
from headgate.controller.virtual_pipeline import VirtualPipeline
from headgate.model import TopicPartition
from headgate.model.messages import ConsumerState, ConsumingStarted, ConsumingStopped, StartConsuming, StopConsuming
from headgate.packing.modified_any_fit import ModifiedWorstFit
from headgate.policies.sentinel import Sentinel

PARTITIONS = [TopicPartition("t", n) for n in range(6)]
TRANSITIONS = {
    ("Synchronize", "Sentinel"),
    ("Sentinel", "Reassign"),
    ("Reassign", "GroupManagement"),
    ("Reassign", "Sentinel"),
    ("GroupManagement", "Sentinel"),
    ("Synchronize", "Synchronize"),
    ("Sentinel", "Synchronize"),
    ("GroupManagement", "Synchronize"),
}


class GuardedChannel(MemoryChannel):
    """Refuses to carry a start for a partition that another living consumer of the fleet reads."""

    fleet: MemoryFleet

    def send(self, command: Command) -> None:
        if isinstance(command, StartConsuming):
            for partition in command.partitions:
                others = self.fleet.owners(partition) - {command.consumer_id}
                assert not others, f"{partition} is read by {others} and was given to {command.consumer_id}"
        super().send(command)


class HostileWorld(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**16), warm=st.integers(0, 1))
    def begin(self, seed: int, warm: int) -> None:
        self.random = random.Random(seed)
        behaviour = Behaviour(
            start_s=lambda n: self.random.uniform(0, 8),
            cycle_s=lambda n: self.random.uniform(0.2, 5),
            commit_s=lambda: self.random.uniform(0, 4),
            reply_s=lambda: self.random.uniform(0, 2),
        )
        self.world = VirtualPipeline(dict.fromkeys(PARTITIONS[:3], 0.5), behaviour)
        channel = GuardedChannel(self.world.clock, behaviour)
        self.world.channel = channel
        self.world.fleet = channel.fleet = MemoryFleet(self.world.clock, channel, behaviour)
        channel.measure(self.world.rates)
        self.settings = Settings(
            2.0,
            1.5,
            warm=warm,
            start_deadline_s=15,
            ready_deadline_s=25,
            ack_deadline_s=20,
            heartbeat_deadline_s=8,
            stuck_deadline_s=30,
            stop_deadline_s=10,
            avoid_s=60,
        )
        self.controller = self._new_controller()

    def _new_controller(self) -> Controller:
        policy = Sentinel(ModifiedWorstFit(), 2.0, 1.5, max_sentinel_s=10, max_consumers=5, stale_after_s=5)
        return Controller(policy, self.world.channel, self.world.fleet, self.world.clock, self.settings)

    @rule(seconds=st.floats(0.2, 3) | st.floats(3, 40))
    def time_passes(self, seconds: float) -> None:
        self.world.run(self.controller, seconds)

    @rule(rates=st.dictionaries(st.sampled_from(PARTITIONS), st.sampled_from([0.0, 0.3, 0.7, 1.1, 2.5]), max_size=6))
    def rates_change(self, rates: dict[TopicPartition, float]) -> None:
        self.world.rates = rates

    def _pick(self, index: int) -> int:
        running = sorted(self.world.fleet.running())
        return running[index % len(running)]

    def _somebody_runs(self) -> bool:
        return bool(self.world.fleet.running())

    @precondition(_somebody_runs)
    @rule(index=st.integers(0, 9))
    def a_consumer_dies(self, index: int) -> None:
        self.world.fleet.kill(self._pick(index))

    @precondition(_somebody_runs)
    @rule(index=st.integers(0, 9))
    def a_consumer_freezes(self, index: int) -> None:
        self.world.fleet.lives[self._pick(index)].is_frozen = True

    @precondition(_somebody_runs)
    @rule(index=st.integers(0, 9))
    def a_consumer_hangs(self, index: int) -> None:
        self.world.fleet.lives[self._pick(index)].is_stuck = True

    @precondition(_somebody_runs)
    @rule(index=st.integers(0, 9))
    def a_consumer_thaws(self, index: int) -> None:
        life = self.world.fleet.lives[self._pick(index)]
        life.is_frozen = life.is_stuck = False

    @precondition(_somebody_runs)
    @rule(index=st.integers(0, 9))
    def a_consumer_becomes_a_zombie(self, index: int) -> None:
        self.world.fleet.lose(self._pick(index))

    @rule(
        shift=st.integers(1, 5),
        delay_s=st.floats(0, 4),
        strike=st.sampled_from(["restart", "kill", "freeze", "lose", "sleep"]),
        index=st.integers(0, 9),
    )
    def something_strikes_in_the_middle_of_a_handover(
        self, shift: int, delay_s: float, strike: str, index: int
    ) -> None:
        """Rates change hands, so that partitions must too, and the blow falls while commands are under way."""
        sizes = [1.4, 1.2, 0.9, 0.6, 0.3, 0.1]
        self.world.rates = {p: sizes[(n + shift) % 6] for n, p in enumerate(PARTITIONS)}
        known = len(self.world.channel.sent)
        for _ in range(200):
            self.world.run(self.controller, 0.2)
            if any(isinstance(c, StartConsuming | StopConsuming) and c.incarnation for c in self._sent_since(known)):
                break
        self.world.run(self.controller, delay_s)
        if strike == "restart":
            self.controller = self._new_controller()
        elif strike == "sleep":
            self.world.clock.wait(30)
        elif self.world.fleet.running():
            consumer_id = self._pick(index)
            if strike == "kill":
                self.world.fleet.kill(consumer_id)
            elif strike == "freeze":
                self.world.fleet.lives[consumer_id].is_frozen = True
            else:
                self.world.fleet.lose(consumer_id)

    def _sent_since(self, known: int) -> list[Command]:
        return [command for _, command in self.world.channel.sent[known:]]

    @rule(consumer_id=st.integers(1, 4), starts=st.integers(1, 5))
    def starts_will_be_refused(self, consumer_id: int, starts: int) -> None:
        self.world.fleet.refused[consumer_id] = starts

    @rule(seconds=st.floats(1, 30), share=st.floats(0.2, 1))
    def replies_get_lost_for_a_while(self, seconds: float, share: float) -> None:
        self.world.behaviour.loses = lambda event: self.random.random() < share
        self.world.run(self.controller, seconds)
        self.world.behaviour.loses = lambda event: False

    @rule()
    def the_controller_restarts(self) -> None:
        self.controller = self._new_controller()

    @rule(seconds=st.floats(1, 60))
    def the_controller_sleeps(self, seconds: float) -> None:
        self.world.clock.wait(seconds)

    @rule(consumer_id=st.integers(1, 6), partitions=st.sets(st.sampled_from(PARTITIONS)), kind=st.integers(0, 4))
    def garbage_arrives(self, consumer_id: int, partitions: set[TopicPartition], kind: int) -> None:
        self.world.channel.put(self._garbage(consumer_id, tuple(sorted(partitions)), kind))

    def _garbage(self, consumer_id: int, partitions: tuple[TopicPartition, ...], kind: int) -> Event:
        now = self.world.clock.now_ms()
        life = self.world.fleet.lives.get(consumer_id)
        incarnation = life.incarnation if life is not None and self.random.random() < 0.5 else f"{consumer_id}/0"
        started_at_ms = self.random.choice([0, now, now + 10**9])
        if kind == 0:
            return ConsumingStopped("stale-1", consumer_id, incarnation, partitions, now, ())
        if kind == 1:
            return ConsumingStarted("stale-2", consumer_id, incarnation, partitions, now)
        query = "" if kind == 2 else "stale-3"
        return ConsumerState(query, consumer_id, incarnation, partitions, now, started_at_ms, 0, 0, 0, 0, 0, 0, "")

    @invariant()
    def only_published_transitions_happen(self) -> None:
        if hasattr(self, "controller"):
            assert set(pairwise(self.controller.history)) <= TRANSITIONS

    def teardown(self) -> None:
        """The world becomes kind, and the group must come to rest with everything read by exactly one consumer."""
        if not hasattr(self, "controller"):
            return
        fleet, controller = self.world.fleet, self.controller
        fleet.refused.clear()
        for life in fleet.lives.values():
            life.is_frozen = life.is_stuck = False
        self.world.run(controller, 150)

        def at_rest() -> bool:
            return (
                controller.state == "Sentinel"
                and self.world.owned() == dict(controller.assignment.owners)
                and controller.assignment.partitions == self.world.rates.keys()
                and len(fleet.running()) == len(controller.assignment) + self.settings.warm
            )

        self.world.run_until(controller, at_rest, deadline_s=600)
        self.world.run(controller, 40)
        assert at_rest()


TestHostileWorld = HostileWorld.TestCase
TestHostileWorld.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_hundreds_of_decisions_under_steady_change_never_give_a_partition_to_two() -> None:
    """The same guard without failures, so that every decision is carried out to its end."""
    chance = random.Random(7)
    behaviour = Behaviour(
        start_s=lambda n: chance.uniform(0, 3),
        cycle_s=lambda n: chance.uniform(0.2, 3),
        reply_s=lambda: chance.random(),
    )
    world = VirtualPipeline(dict.fromkeys(PARTITIONS, 1.0), behaviour)
    channel = GuardedChannel(world.clock, behaviour)
    world.channel = channel
    world.fleet = channel.fleet = MemoryFleet(world.clock, channel, behaviour)
    policy = Sentinel(ModifiedWorstFit(), 2.0, 1.5, max_sentinel_s=3, timeout_policy="always", stale_after_s=5)
    controller = Controller(policy, channel, world.fleet, world.clock, Settings(2.0, 1.5))
    while sum(record.outcome != "kept" for record in channel.records) < 200:
        world.rates = {p: max(0.0, min(2.5, rate + chance.uniform(-0.6, 0.6))) for p, rate in world.rates.items()}
        world.run(controller, 10)
    outcomes = {record.outcome for record in channel.records}
    assert outcomes <= {"started", "applied", "alert", "kept"}
    assert {"applied", "alert"} <= outcomes
    assert set(pairwise(controller.history)) <= TRANSITIONS - {("GroupManagement", "Synchronize")}
