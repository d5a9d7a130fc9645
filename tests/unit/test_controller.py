"""The controller on virtual parts: its states, its handovers, its liveness and its journal. Time is virtual."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.config.loader import load_pipeline
from headgate.controller.assembly import settings_of
from headgate.controller.dry_run import DryRun
from headgate.controller.journal import Journal
from headgate.controller.machine import Controller
from headgate.controller.ports import Command, Event
from headgate.controller.reassign import Change
from headgate.controller.settings import Settings
from headgate.controller.virtual_behaviour import Behaviour
from headgate.controller.virtual_channel import TABLE
from headgate.controller.virtual_pipeline import VirtualPipeline
from headgate.errors import Superseded
from headgate.model import Assignment, Decision, Observation, TopicPartition
from headgate.model.messages import (
    ConsumerState,
    ConsumingStarted,
    ConsumingStopped,
    DecisionRecord,
    StartConsuming,
    StateQuery,
    StopConsuming,
)
from headgate.packing.modified_any_fit import ModifiedWorstFit
from headgate.policies.kubernetes import Hpa
from headgate.policies.sentinel import Sentinel

A, B, C, D = (TopicPartition("t", n) for n in range(4))
CAPACITY, PACKING = 2.0, 1.5
SETTINGS = Settings(
    CAPACITY,
    PACKING,
    start_deadline_s=30,
    ready_deadline_s=60,
    ack_deadline_s=20,
    heartbeat_deadline_s=5,
    stuck_deadline_s=30,
    stop_deadline_s=10,
    down_deadline_s=60,
)


def controller(world: VirtualPipeline, settings: Settings = SETTINGS) -> Controller:
    return Controller(_policy(), world.channel, world.fleet, world.clock, settings)


def _policy() -> Sentinel:
    return Sentinel(ModifiedWorstFit(), CAPACITY, PACKING, max_sentinel_s=10, max_consumers=8, stale_after_s=5)


def settled(world: VirtualPipeline, running: Controller) -> Callable[[], bool]:
    """In Sentinel, and consumers own exactly what it believes, which is everything that is measured."""
    return lambda: (
        running.state == "Sentinel"
        and world.owned() == dict(running.assignment.owners)
        and running.assignment.partitions == world.rates.keys()
    )


def decisions(world: VirtualPipeline, outcome: str = "applied") -> list[DecisionRecord]:
    return [r for r in world.channel.records if r.outcome == outcome]


def sent(world: VirtualPipeline) -> list[Command]:
    return [command for _, command in world.channel.sent]


def stops(world: VirtualPipeline) -> list[StopConsuming]:
    """Those of a handover; not those a new consumer finds."""
    return [c for _, c in world.channel.sent if isinstance(c, StopConsuming) and c.incarnation]


def two_consumers(
    behaviour: Behaviour | None = None, settings: Settings = SETTINGS
) -> tuple[VirtualPipeline, Controller]:
    """1 owns A and B (1.4 in all), 2 owns C (1.2)."""
    world = VirtualPipeline({A: 0.9, B: 0.5, C: 1.2}, behaviour)
    running = controller(world, settings)
    world.run_until(running, settled(world, running))
    assert world.owned() == {1: {C}, 2: {A, B}}
    return world, running


def test_an_empty_group_grows_to_what_the_packing_needs_through_exactly_the_published_states() -> None:
    world, running = two_consumers()
    assert list(running.history) == ["Synchronize", "Sentinel", "Reassign", "GroupManagement", "Sentinel"]
    (record,) = decisions(world)
    assert record.trigger == "unassigned"
    assert record.created == (1, 2)
    assert (record.consumers_before, record.consumers_after, record.moved) == (0, 2, 0)
    assert record.rscore_packing == 0.0
    # t1 is the window and the age of the measurement, t3 the start time of 5 s and the polls around it.
    assert record.measure_s == pytest.approx(30, abs=1.1)
    assert record.ready_s == pytest.approx(5, abs=0.5)
    assert 0 < record.handover_s <= 2.4  # two cycles of 1 s (L-46), seen by polling


def test_why_nothing_changes_is_written_down_once_and_again_after_a_change() -> None:
    world, running = two_consumers()
    world.run(running, 65)  # six timeouts
    (kept,) = decisions(world, "kept")
    assert (kept.trigger, kept.moved, kept.consumers_before, kept.consumers_after) == ("timeout", 0, 2, 2)
    assert kept.reason.endswith("the packing stays as it is")
    assert [text.partition(":")[0] for text in kept.rejected] == ["one consumer fewer, 1", "one consumer more, 3"]

    world.rates[A] = 1.7  # with B more than consumer 2 can do
    world.run_until(running, lambda: len(decisions(world)) == 2)
    world.run_until(running, lambda: len(decisions(world, "kept")) == 2)
    world.run(running, 65)
    assert len(decisions(world, "kept")) == 2


@pytest.mark.parametrize("max_sentinel_s", [10, 1200])
def test_timeouts_however_far_apart_are_one_reason_to_keep_what_is(tmp_path: Path, max_sentinel_s: int) -> None:
    file = tmp_path / "pipeline.yaml"
    policy = f"policy: {{max_sentinel_s: {max_sentinel_s}}}"
    file.write_text(f"name: p\nkafka: {{brokers: 'b:1'}}\ntopics: [a]\ntables: [{{name: lake.t}}]\n{policy}\n")
    world = VirtualPipeline({})
    journal = Journal(world.channel, world.clock, settings_of(load_pipeline(file, {})), 1)
    seen = Observation(0.0, 0.0, {}, Assignment(), {}, 0.0)
    timeout = Change(seen, Decision(None, "it stays", "timeout"), Assignment(), Assignment(), 30.0, 0.0)
    for _ in range(3):
        journal.kept(timeout)
        world.clock.wait(max_sentinel_s + 1)
    assert len(decisions(world, "kept")) == 1


def test_an_overload_moves_only_what_has_to_move() -> None:
    world, running = two_consumers()
    before = len(world.channel.sent)
    world.rates[B] = 1.2  # A and B are 2.1 now: B, the bigger one, stays
    world.run_until(running, lambda: len(decisions(world)) == 2)
    commands = [c for _, c in world.channel.sent[before:]]
    assert [(type(c), c.consumer_id, c.partitions) for c in commands if not isinstance(c, StateQuery)] == [
        (StopConsuming, 3, (A, B, C)),  # forget whatever your folder remembers
        (StopConsuming, 2, (A,)),
        (StartConsuming, 3, (A,)),
    ]
    record = decisions(world)[1]
    assert record.trigger == "overload"
    assert record.created == (3,)
    assert record.moved == 1
    assert record.rscore_packing == pytest.approx(0.9 / 1.5)
    assert record.rscore_consumer == pytest.approx(0.9 / 2.0)
    assert world.owned() == {1: {C}, 2: {B}, 3: {A}}


def test_old_owners_keep_reading_until_the_new_consumer_is_ready() -> None:
    world, running = two_consumers(Behaviour(start_s=lambda n: 40.0 if n == 3 else 1.0))
    world.rates[B] = 1.2
    world.run(running, 25)
    assert running.state == "GroupManagement"
    assert world.owned() == {1: {C}, 2: {A, B}}
    assert not stops(world)


def test_a_partition_is_never_started_before_its_old_owner_stopped() -> None:
    world, running = two_consumers(Behaviour(cycle_s=lambda n: 4.0))
    world.rates[B] = 1.2
    world.run_until(running, lambda: bool(stops(world)))
    before = [c for _, c in world.channel.sent if isinstance(c, StartConsuming)]
    while A in world.fleet.lives[2].owns:
        assert [c for _, c in world.channel.sent if isinstance(c, StartConsuming)] == before
        world.run(running, 0.2)
    world.run_until(running, lambda: len(decisions(world)) == 2)
    assert world.owned() == {1: {C}, 2: {B}, 3: {A}}


def test_a_partition_goes_on_behind_what_its_old_owner_announced_before_the_lake_holds_it() -> None:
    world, running = two_consumers(Behaviour(commit_s=lambda: 6.0))
    said: list[Event] = []

    def listen(event: Event) -> bool:
        said.append(event)
        return False

    world.behaviour.loses = listen
    world.rates[B] = 1.2
    world.run_until(running, lambda: any(isinstance(c, StartConsuming) and c.consumer_id == 3 for c in sent(world)))
    (stopped,) = [e for e in said if isinstance(e, ConsumingStopped) and e.consumer_id == 2]
    (announced,) = stopped.announced
    assert world.channel.ledgers()[TABLE].get(A, 0) < announced.next
    (start,) = [c for c in sent(world) if isinstance(c, StartConsuming) and c.consumer_id == 3]
    assert start.reached == (announced,)
    world.run_until(running, lambda: world.fleet.lives[3].positions.get(A, 0) > announced.next)
    assert world.fleet.lives[3].positions[A] == announced.next + 10  # a cycle of the simulated consumer, no gap


def test_a_lake_that_stands_still_does_not_delay_a_handover() -> None:
    world, running = two_consumers()
    world.behaviour.commit_s = lambda: 1e6
    world.rates[B] = 1.2
    world.run(running, 3)
    world.run_until(running, lambda: len(decisions(world)) == 2, deadline_s=30)
    assert world.owned() == {1: {C}, 2: {B}, 3: {A}}
    assert decisions(world)[1].handover_s < 5


def test_scaling_down_drains_before_it_deletes() -> None:
    world, running = two_consumers()
    world.rates.update({A: 0.3, B: 0.3, C: 0.3})
    leaving = world.fleet.lives[1]
    world.run_until(running, lambda: leaving.asked_to_stop, deadline_s=40)
    assert leaving.owns == frozenset()
    assert world.owned() == {2: {A, B, C}}
    record = decisions(world)[1]
    assert record.trigger == "timeout"
    assert record.deleted == (1,)
    world.run(running, 20)
    assert world.fleet.running() == {2}


def test_partitions_that_are_no_longer_measured_are_stopped() -> None:
    world, running = two_consumers()
    del world.rates[C]
    world.run_until(running, settled(world, running))
    assert world.owned() == {2: {A, B}}
    assert decisions(world)[1].trigger == "vanished"


def test_a_silent_monitor_holds_everything() -> None:
    world, running = two_consumers()
    world.monitor_is_silent = True
    world.run(running, 120)
    assert world.owned() == {1: {C}, 2: {A, B}}
    assert len(decisions(world)) == 1


# Liveness


@pytest.mark.parametrize("harm", ["kill", "freeze", "hang"])
def test_a_dead_silent_or_stuck_consumer_is_replaced_and_resumes_its_partitions(harm: str) -> None:
    world, running = two_consumers()
    harmed = world.fleet.lives[2]
    if harm == "kill":
        world.fleet.kill(2)
    elif harm == "freeze":
        harmed.is_frozen = True
    else:
        harmed.is_stuck = True
    limit = {"kill": 1, "freeze": 7, "hang": 33}[harm]
    world.run_until(running, lambda: world.fleet.lives[2] is not harmed, deadline_s=limit)
    world.run_until(running, settled(world, running), deadline_s=10)
    assert world.owned() == {1: {C}, 2: {A, B}}
    assert not harmed.is_alive
    assert list(running.history)[-1] == "Sentinel"
    assert running.history.count("Synchronize") == 1  # it resumed exactly what it owned: nothing to ask
    assert len(decisions(world)) == 1


def test_nothing_is_decided_while_an_owner_is_being_replaced() -> None:
    world, running = two_consumers()
    world.behaviour.start_s = lambda consumer_id: 20.0
    world.fleet.kill(2)
    world.rates[B] = 1.2
    world.run(running, 15)
    assert running.state == "Sentinel"
    assert world.fleet.running() == {1, 2}
    world.run_until(running, lambda: len(decisions(world)) == 2)
    assert world.owned() == {1: {C}, 2: {B}, 3: {A}}


def test_a_consumer_that_comes_back_with_other_partitions_makes_the_controller_synchronise() -> None:
    world, running = two_consumers()
    world.fleet.kill(2)
    world.fleet.lives[2].volume.partitions = frozenset({B})
    world.run_until(running, lambda: running.history.count("Synchronize") == 2)
    world.run_until(running, settled(world, running))
    assert world.owned()[2] >= {B}


@pytest.mark.parametrize("measured", ["nor measurements", "but measurements"])
def test_where_nobody_is_heard_it_is_not_held_against_the_consumers(measured: str) -> None:
    world, running = two_consumers()
    lives = dict(world.fleet.lives)
    world.monitor_is_silent = measured == "nor measurements"
    world.channel.is_cut = True
    world.run(running, 60)
    world.channel.is_cut = world.monitor_is_silent = False
    world.behaviour.loses = lambda event: True
    world.run(running, 2)  # the controller hears itself a little before the consumers
    world.behaviour.loses = lambda event: False
    world.run(running, 10)
    assert world.fleet.lives == lives


@pytest.mark.parametrize(
    ("rates", "then", "asks"),
    [({B: 1.2}, {1: {C}, 2: {B}, 3: {A}}, 0), ({B: 1.2, C: 0.1}, {1: {A, C}, 2: {B}}, 1)],
    ids=["a new consumer", "a move"],
)
def test_where_nobody_is_heard_in_the_middle_of_a_handover_nobody_is_replaced_either(
    rates: dict[TopicPartition, float], then: dict[int, set[TopicPartition]], asks: int
) -> None:
    world, running = two_consumers()
    lives = dict(world.fleet.lives)
    world.channel.is_cut = True  # commands and measurements have other ways
    world.rates |= rates
    world.run(running, 300)
    assert running.history.count("Synchronize") == 1 + asks, "what was not acknowledged has to be asked for"
    world.channel.is_cut = False
    world.run_until(running, lambda: world.owned() == then)
    assert {n: world.fleet.lives[n] for n in lives} == lives


def test_a_controller_that_slept_does_not_hold_it_against_the_consumers() -> None:
    world, running = two_consumers()
    lives = dict(world.fleet.lives)
    world.clock.wait(300)
    world.run(running, 10)
    assert world.fleet.lives == lives
    assert running.history.count("Synchronize") == 1


def test_a_consumer_that_cannot_be_restarted_gives_its_partitions_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world, running = two_consumers()
    monkeypatch.setattr(world.fleet, "last_words", lambda consumer_id: f"no room for {consumer_id}")
    world.fleet.refused[2] = 1000
    world.fleet.kill(2)
    world.run_until(running, lambda: running.assignment.partitions == {A, B, C} and 2 not in running.assignment.owners)
    world.run_until(running, settled(world, running))
    # 1.2 and 1.4 need two consumers, and 2 is avoided.
    assert sorted(world.owned()) == [1, 3]
    alerts = [r for r in world.channel.records if r.outcome == "alert"]
    assert len(alerts) == 1
    assert alerts[0].alerts[0].startswith("consumer 2 was given up after 4 lives in a row")
    assert alerts[0].alerts[0].endswith("its partitions go to others. It said: no room for 2")


def test_an_owner_that_does_not_come_back_holds_decisions_up_for_a_bounded_time_only() -> None:
    world, running = two_consumers()
    world.behaviour.start_s = lambda n: 1e6 if n == 2 else 5.0  # starts, and then nothing
    world.fleet.kill(2)
    world.run_until(running, lambda: 3 in running.assignment.owners, deadline_s=SETTINGS.down_deadline_s + 20)
    world.run_until(running, settled(world, running))
    assert sorted(world.owned()) == [1, 3]
    (alert,) = decisions(world, "alert")
    assert alert.alerts[0].startswith("consumer 2 did not come back within 60 s; its partitions go to others")


def test_starts_are_retried_with_growing_pauses() -> None:
    world = VirtualPipeline({A: 1.0})
    world.fleet.refused[1] = 2
    running = controller(world)
    world.run_until(running, settled(world, running))
    (record,) = decisions(world)
    # Refused at once, again at once, then a pause of 2 s and 5 s to start.
    assert record.ready_s == pytest.approx(7, abs=1)
    assert record.created == (1,)


def test_new_consumers_that_never_get_ready_end_in_out_of_sync_with_their_names() -> None:
    world, running = two_consumers(Behaviour(start_s=lambda n: 1e6 if n == 3 else 1.0))
    world.rates[B] = 1.2
    world.run_until(running, lambda: running.history.count("Synchronize") == 2, deadline_s=100)
    failed = [r for r in world.channel.records if r.outcome.startswith("out of sync")]
    assert [r.outcome for r in failed] == ["out of sync: waited 60 s for consumers 3 to be ready"]
    assert world.owned() == {1: {C}, 2: {A, B}}
    world.run_until(running, settled(world, running))
    world.run_until(running, lambda: 4 in running.assignment.owners)  # the next attempt passes over 3
    world.run_until(running, settled(world, running))


def test_an_owner_that_dies_before_it_acknowledges_a_stop_does_not_block_the_group() -> None:
    world, running = two_consumers(Behaviour(cycle_s=lambda n: 3.0))
    world.rates[B] = 1.2
    world.run_until(running, lambda: bool(stops(world)))
    created = world.fleet.lives[3]
    world.fleet.kill(2)
    world.run_until(running, lambda: running.history.count("Synchronize") == 2, deadline_s=25)
    failed = [r.outcome for r in world.channel.records if r.outcome.startswith("out of sync")]
    assert failed == ["out of sync: consumer 2 was replaced meanwhile"]
    world.run_until(running, lambda: len(decisions(world)) == 2)
    world.run_until(running, settled(world, running))
    assert world.owned()[2] == {B}
    assert world.fleet.lives[3] is created  # it was needed all the time, so it was not stopped meanwhile


def test_a_lost_acknowledgement_ends_in_out_of_sync_and_the_real_state_is_found() -> None:
    world, running = two_consumers()
    world.behaviour.loses = lambda event: isinstance(event, ConsumingStarted)
    world.rates[B] = 1.2
    world.run_until(running, lambda: running.history.count("Synchronize") == 2, deadline_s=60)
    world.behaviour.loses = lambda event: False
    failed = [r.outcome for r in world.channel.records if r.outcome.startswith("out of sync")]
    assert failed == ["out of sync: waited 20 s for consumer 3 to start 1 partitions"]
    world.run_until(running, settled(world, running))
    assert world.owned() == {1: {C}, 2: {B}, 3: {A}}
    assert len(decisions(world)) == 1  # nothing was left to decide


# Synchronize


def test_a_restarted_controller_finds_the_owners_and_pauses_nobody() -> None:
    world, _ = two_consumers()
    lives, before = dict(world.fleet.lives), len(world.channel.sent)
    world.clock.wait(5)
    second = controller(world)
    world.run_until(second, settled(world, second), deadline_s=5)
    assert second.assignment == Assignment({1: frozenset({C}), 2: frozenset({A, B})})
    assert {type(c) for _, c in world.channel.sent[before:]} == {StateQuery}
    assert world.fleet.lives == lives


def test_a_controller_restarted_in_the_middle_of_a_handover_finishes_the_job() -> None:
    world, running = two_consumers(Behaviour(cycle_s=lambda n: 3.0))
    world.rates[B] = 1.2
    world.run_until(running, lambda: bool(stops(world)))
    second = controller(world)
    world.run_until(second, settled(world, second))
    assert {frozenset(p) for p in world.owned().values()} == {frozenset({A}), frozenset({B}), frozenset({C})}


def test_a_heartbeat_is_no_answer_because_commands_may_still_be_on_their_way() -> None:
    world, running = two_consumers()
    world.behaviour.cycle_s = lambda consumer_id: 8.0
    world.rates[B] = 1.2
    world.run_until(running, lambda: any(isinstance(c, StartConsuming) and c.consumer_id == 3 for c in sent(world)))
    known = len(world.channel.sent)
    second = controller(world)
    world.run(second, 5)  # the new owner reports several times that it owns nothing before it obeys
    assert second.state == "Synchronize"
    world.run_until(second, settled(world, second))
    assert world.owned() == {1: {C}, 2: {B}, 3: {A}}
    assert not any(isinstance(c, StartConsuming | StopConsuming) for c in sent(world)[known:])


def test_an_older_controller_ends_when_a_newer_one_took_over() -> None:
    world, first = two_consumers()
    second = controller(world)
    with pytest.raises(Superseded, match="a newer controller took over"):
        first.step()
    world.run_until(second, settled(world, second))


def test_a_consumer_that_does_not_answer_is_replaced_and_answers_for_what_it_restored() -> None:
    world, _ = two_consumers()
    frozen = world.fleet.lives[2]
    frozen.is_frozen = True
    second = controller(world)
    world.run_until(second, settled(world, second), deadline_s=40)
    assert world.fleet.lives[2] is not frozen
    assert second.assignment == Assignment({1: frozenset({C}), 2: frozenset({A, B})})


def test_a_partition_claimed_twice_is_stopped_everywhere_but_at_one_consumer() -> None:
    world, _ = two_consumers()
    claimant = world.fleet.lives[2]
    claimant.volume.partitions |= {C}
    claimant.positions[C] = 0
    before = len(world.channel.sent)
    second = controller(world)
    world.run_until(second, settled(world, second), deadline_s=20)
    assert world.owned() == {1: {C}, 2: {A, B}}
    assert [(c.consumer_id, c.partitions) for c in stops(world)] == [(2, (C,))]
    assert not any(isinstance(c, StartConsuming) for _, c in world.channel.sent[before:])


def test_a_consumer_nobody_asked_for_is_adopted() -> None:
    world, running = two_consumers()
    world.channel.prepare(7)
    world.fleet.start(7)
    world.run_until(running, lambda: 7 not in world.fleet.running(), deadline_s=60)  # it owns nothing: surplus
    world.run_until(running, settled(world, running))


# Zombies and garbage


def _report(consumer_id: int, incarnation: str, started_at_ms: int, *partitions: TopicPartition) -> ConsumerState:
    return ConsumerState("", consumer_id, incarnation, partitions, 0, started_at_ms, 0, 0, 0, 0.0, 0.0, 0.0, "")


def test_a_zombie_is_ignored_and_told_to_end() -> None:
    world, running = two_consumers()
    zombie = world.fleet.lose(2)
    world.run_until(running, lambda: 2 in world.fleet.lives and world.fleet.lives[2].is_up)
    world.run_until(running, lambda: not zombie.is_alive)
    assert running.history.count("Synchronize") == 1
    assert world.fleet.lives[2].is_alive
    world.run_until(running, settled(world, running))


def test_a_zombie_of_a_consumer_that_is_no_longer_wanted_is_told_to_end() -> None:
    world, running = two_consumers()
    zombie = world.fleet.lose(2)
    world.run_until(running, lambda: 2 in world.fleet.lives and world.fleet.lives[2].is_up)
    zombie.is_frozen = True
    world.rates.update({A: 0.1, B: 0.1, C: 0.1})
    world.run_until(running, lambda: len(world.owned()) == 1)
    world.run_until(running, lambda: world.fleet.running() == set(world.owned()))
    zombie.is_frozen = False
    world.run_until(running, lambda: not zombie.is_alive)
    world.run_until(running, settled(world, running))


def test_garbage_on_the_event_channel_changes_nothing() -> None:
    world, running = two_consumers()
    now = world.clock.now_ms()
    garbage: list[Event] = [
        _report(99, "99/1", now, A),
        _report(2, "2/0", 5, C),
        _report(2, "nobody", now + 10**9, C),
        ConsumingStopped("0-1", 2, world.fleet.lives[2].incarnation, (A, B), now, ()),
        ConsumingStarted("who", 1, "1/0", (A, B), now),
    ]
    for event in garbage:
        world.channel.put(event)
    world.run(running, 20)
    assert running.history.count("Synchronize") == 1
    assert world.owned() == {1: {C}, 2: {A, B}}


def test_one_odd_heartbeat_is_a_late_one_and_two_are_a_difference() -> None:
    world, running = two_consumers()
    life = world.fleet.lives[1]
    world.channel.put(_report(1, life.incarnation, life.started_at_ms))
    world.run(running, 5)
    assert running.history.count("Synchronize") == 1
    life.volume.partitions = frozenset()
    world.run_until(running, lambda: running.history.count("Synchronize") == 2, deadline_s=5)
    world.run_until(running, settled(world, running))


def test_a_restarted_controller_ends_a_lost_consumer_whose_id_nobody_has_any_more() -> None:
    world, _ = two_consumers()
    zombie = world.fleet.lose(2)
    world.rates.update({A: 0.3, B: 0.3, C: 0.3})  # one consumer is enough now
    second = controller(world)
    world.run_until(second, lambda: not zombie.is_alive)
    world.run_until(second, settled(world, second))
    assert world.owned() == {1: {A, B, C}}


# Spares


def test_a_warm_spare_takes_over_without_waiting_for_a_start() -> None:
    settings = Settings(CAPACITY, PACKING, warm=1, ack_deadline_s=20, heartbeat_deadline_s=5)
    world, running = two_consumers(settings=settings)
    world.run(running, 8)
    assert world.fleet.running() == {1, 2, 3}
    world.rates[B] = 1.2
    world.run_until(running, lambda: len(decisions(world)) == 2)
    record = decisions(world)[1]
    assert record.created == ()
    assert record.ready_s == 0.0
    assert world.owned() == {1: {C}, 2: {B}, 3: {A}}
    world.run(running, 8)
    assert world.fleet.running() == {1, 2, 3, 4}
    world.rates.update({A: 0.3, B: 0.3, C: 0.3})
    world.run_until(running, lambda: len(decisions(world)) == 3)
    world.run(running, 5)
    (owner,) = world.owned()
    assert len(world.fleet.running()) == 2
    assert owner in world.fleet.running()


def test_a_spare_that_never_comes_up_holds_nobody_up() -> None:
    settings = replace(SETTINGS, warm=1)
    world, running = two_consumers(Behaviour(start_s=lambda n: 1e6 if n == 3 else 5.0), settings)
    world.run_until(running, lambda: 3 in world.fleet.running())
    world.behaviour.loses = lambda event: isinstance(event, ConsumingStopped)
    world.rates[B] = 1.2  # a decision that ends in out of sync
    world.run_until(running, lambda: running.history.count("Synchronize") == 2)
    world.behaviour.loses = lambda event: False
    world.run_until(running, lambda: running.state == "Sentinel", deadline_s=5)


def test_the_lowest_free_id_is_reused() -> None:
    world, running = two_consumers()
    world.rates.update({A: 0.3, B: 0.3, C: 0.3})
    world.run_until(running, lambda: world.owned() == {2: {A, B, C}})
    world.run(running, 12)
    world.rates.update({A: 0.9, B: 0.5, C: 1.2})
    world.run_until(running, lambda: len(decisions(world)) == 3)
    assert sorted(world.owned()) == [1, 2]


def test_a_new_consumer_forgets_what_an_earlier_life_of_its_id_owned() -> None:
    world, running = two_consumers()
    world.fleet.start(3)
    world.fleet.lives[3].volume.partitions = frozenset({A, D})
    world.fleet.kill(3)
    world.rates[B] = 1.2
    world.run_until(running, lambda: world.owned() == {1: {C}, 2: {B}, 3: {A}})
    world.run_until(running, settled(world, running))


# Journal


def test_an_alert_is_told_once_while_it_lasts_and_again_when_it_comes_back() -> None:
    world = VirtualPipeline({A: 3.0})
    running = controller(world)

    def alerts() -> list[DecisionRecord]:
        return decisions(world, "alert")

    for rate in (3.0, 3.1, 3.2):
        world.rates[A] = rate
        world.run(running, 60)
    assert len(alerts()) == 1
    assert "t-0 is written at 3e-06 MB/s" in alerts()[0].alerts[0]
    world.rates[A] = 1.0
    world.run(running, 100)
    world.rates[A] = 3.0
    world.run(running, 5)
    assert len(alerts()) == 2


def test_an_oversize_partition_does_not_send_the_controller_into_a_loop() -> None:
    world = VirtualPipeline({A: 3.0, B: 0.1})
    running = controller(world)
    world.run(running, 300)
    assert len(decisions(world)) == 1
    assert world.owned() == {1: {A}, 2: {B}}


def test_why_a_policy_that_weighs_at_every_look_changes_nothing_is_written_down_once_for_each_size_it_wants() -> None:
    """Six partitions of 50 records/s, then of 20; a replica is to be busy to 70 of 100. Measurements are of a minute,
    so a group of five goes down to two by and by; within five minutes the HPA does none of it."""
    parts = [TopicPartition("t", n) for n in range(6)]
    world = VirtualPipeline(dict.fromkeys(parts, 5000.0))
    policy = Hpa(capacity_records_per_s=100.0)
    running = Controller(policy, world.channel, world.fleet, world.clock, Settings(20_000.0, 15_000.0))
    world.run(running, 300)
    world.rates = dict.fromkeys(parts, 2000.0)
    world.run(running, 280)
    kept = [r for r in world.channel.records if r.outcome == "kept"]
    assert [(r.inputs["wanted"], r.consumers_before, r.consumers_after) for r in kept] == [
        (4, 5, 5),
        (3, 5, 5),
        (2, 5, 5),
    ]
    assert {r.rejected[0].partition(": ")[2] for r in kept} == {"the stabilisation window is not over"}


def test_a_dry_run_writes_decisions_down_and_sends_nothing() -> None:
    world, _ = two_consumers()
    before, records = len(world.channel.sent), len(world.channel.records)
    rehearsal = DryRun(_policy(), world.channel, world.clock, SETTINGS)
    world.rates[B] = 1.2
    world.run(rehearsal, 30)
    assert len(world.channel.sent) == before
    written = world.channel.records[records:]
    assert [(r.outcome, r.trigger, r.created, r.moved) for r in written] == [("dry-run", "overload", (3,), 1)]
    world.rates.update({A: 0.3, B: 0.3, C: 0.3})
    world.run(rehearsal, 15)
    last = world.channel.records[-1]
    assert (last.outcome, last.trigger, last.consumers_before, last.consumers_after) == ("dry-run", "timeout", 3, 1)
    assert world.owned() == {1: {C}, 2: {A, B}}


def test_a_dry_run_goes_by_what_those_consumers_measure_that_are_there() -> None:
    world, _ = two_consumers()
    world.behaviour.speed_bytes_per_s = lambda consumer_id: 2.0
    rehearsal = DryRun(_policy(), world.channel, world.clock, SETTINGS)
    world.run(rehearsal, 10)
    world.fleet.kill(2)
    world.rates[B] = 1.2
    world.run(rehearsal, 1)
    world.rates.update({A: 0.3, B: 0.3, C: 0.3})
    world.run(rehearsal, 15)
    soon, later = (r for r in world.channel.records if r.outcome == "dry-run")
    assert {one.consumer_id: one.measured_bytes_per_s for one in soon.capacities} == {1: 2.0, 2: 2.0}
    assert {one.consumer_id: one.measured_bytes_per_s for one in later.capacities} == {1: 2.0, 2: 0.0, 3: 0.0}


def test_a_dry_run_does_not_supersede_the_controller_in_charge() -> None:
    world, running = two_consumers()
    rehearsal = DryRun(_policy(), world.channel, world.clock, SETTINGS)
    world.rates[B] = 1.2
    world.run(rehearsal, 10)
    world.run_until(running, settled(world, running))


def test_the_controller_shows_every_few_seconds_that_it_lives_and_how_many_consumers_it_knows() -> None:
    world = VirtualPipeline({A: 0.9, B: 0.9})
    running = controller(world)
    world.run_until(running, settled(world, running))
    world.run(running, 10)
    shown = world.channel.heartbeat
    assert shown is not None
    assert world.clock.now_s() - shown.at_ms / 1000 <= 6
    assert (shown.epoch, shown.consumers) == (running.epoch, len(world.owned()))
