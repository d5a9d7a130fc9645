"""What consumers are believed to do, from what they measure (L-26): noise, one that is slow, all of them, crowding."""

import random
from collections.abc import Callable, Mapping

import pytest

from headgate.model import Abilities, ConsumerLoad
from headgate.policies.believing import CONFIRMED, CYCLES, FORGET_S, Believing
from headgate.policies.crowding import SETTLE_S

MB = 1e6
CONFIGURED = 2 * MB


class World:
    """Consumers that have a full cycle every second, as fast as it is said."""

    def __init__(self) -> None:
        self.believing = Believing(CONFIGURED)
        self.now_s = 1000.0
        self.cycles: dict[int, int] = {}
        self.speeds: dict[int, float] = {}
        self.told: list[str] = []
        """What each alert was about, in the order they began to hold."""

    def run(self, seconds: int, speeds_mb: Mapping[int, float | None] | Callable[[], Mapping[int, float]]) -> Abilities:
        """None is a consumer that keeps up with its load: it has no full cycles, and reports what it last had."""
        for _ in range(seconds):
            speeds = speeds_mb() if callable(speeds_mb) else speeds_mb
            self.now_s += 1
            for c, speed in speeds.items():
                if speed is not None:
                    self.speeds[c] = speed * MB
                    self.cycles[c] = self.cycles.get(c, 0) + 1
            loads = {
                c: ConsumerLoad(capacity_bytes_per_s=self.speeds.get(c), full_cycles=self.cycles.get(c, 0))
                for c in speeds
            }
            held = {alert.about for alert in self.believing.alerts}
            self.believing.look(self.now_s, loads, speeds.keys())
            self.told += [a.about for a in self.believing.alerts if a.about not in held]
        return self.believing.believed

    def share(self, consumer: int | None) -> float:
        return self.believing.believed.share(consumer, CONFIGURED)


def test_without_full_cycles_everybody_has_what_is_configured() -> None:
    world = World()
    assert world.run(100, {1: None, 2: None}) == Abilities()
    assert world.share(1) == world.share(None) == 1
    world.run(CYCLES - 1, {1: 0.1, 2: 0.1})  # too few to tell
    assert world.share(1) == 1
    assert not world.told


def test_noise_changes_nothing_in_an_hour() -> None:
    draw = random.Random(7)
    world = World()
    world.run(3600, lambda: {c: 2.2 * draw.uniform(0.85, 1.15) for c in (1, 2, 3)})
    assert [world.share(c) for c in (1, 2, 3, None)] == [1, 1, 1, 1]
    assert not world.told


def settled(speeds_mb: Mapping[int, float | None]) -> World:
    """These consumers, long enough for what they measure to count."""
    world = World()
    world.run(round(SETTLE_S) + CYCLES, speeds_mb)
    return world


def test_a_consumer_at_40_percent_counts_for_that_and_the_others_in_full() -> None:
    world = settled({1: 2.0, 2: 2.0, 3: 2.0})
    world.run(CONFIRMED, {1: 2.0, 2: 0.8, 3: 2.0})
    assert world.share(2) == 1
    world.run(1, {1: 2.0, 2: 0.8, 3: 2.0})
    assert world.share(2) == pytest.approx(0.4)
    assert world.share(1) == world.share(None) == 1
    assert world.told == ["slow consumer 2"]
    (alert,) = world.believing.alerts
    assert "consumer 2 does 0.8 MB/s where 2 MB/s is usual" in alert.text


def test_it_is_slow_too_if_the_others_keep_up_and_so_measure_nothing() -> None:
    world = settled({1: None, 2: None})
    world.run(CYCLES + CONFIRMED, {1: None, 2: 0.8})
    assert world.share(2) == pytest.approx(0.4)
    assert world.share(1) == world.share(None) == 1


def test_a_recovery_is_told_once_and_needs_more_than_the_fall_did() -> None:
    world = settled({1: 2.0, 2: 2.0, 3: 2.0})
    world.run(10, {1: 2.0, 2: 0.8, 3: 2.0})
    world.run(10, {1: 2.0, 2: 1.7, 3: 2.0})  # 85 %: not slow enough to begin to be slow, too slow to have recovered
    assert world.share(2) == pytest.approx(0.85)
    world.run(10, {1: 2.0, 2: 1.9, 3: 2.0})
    assert world.share(2) == 1
    assert world.told == ["slow consumer 2", "recovered consumer 2"]


def test_a_slow_consumer_that_was_relieved_is_tried_again_and_later_each_time_in_vain() -> None:
    world = settled({1: 2.0, 2: 2.0, 3: 2.0})
    world.run(10, {1: 2.0, 2: 0.8, 3: 2.0})
    for waits_s in (FORGET_S, 2 * FORGET_S):
        world.run(round(waits_s), {1: 2.0, 2: None, 3: 2.0})
        assert world.share(2) == pytest.approx(0.4)
        world.run(1, {1: 2.0, 2: None, 3: 2.0})
        assert world.share(2) == 1
        world.run(1 + CONFIRMED, {1: 2.0, 2: 0.8, 3: 2.0})
        assert world.share(2) == pytest.approx(0.4)


def test_what_was_measured_long_ago_is_outdated_until_the_next_full_cycle_whether_it_was_slow_or_not() -> None:
    world = settled({1: 2.0, 2: 2.0, 3: 2.0})
    world.run(10, {1: 2.0, 2: 0.8, 3: 2.0})
    assert world.run(round(FORGET_S), {1: 2.0, 2: None, 3: None}).outdated == frozenset()
    gone = world.run(1, {1: 2.0, 2: None, 3: None})
    assert (gone.outdated, dict(gone.speed)) == (frozenset({2, 3}), {})
    assert world.run(1, {1: 2.0, 2: None, 3: 2.0}).outdated == {2}


def test_what_was_measured_is_outdated_later_each_time_that_the_next_full_cycle_shows_the_same() -> None:
    world = settled({1: 1.0})
    for waits_s in (FORGET_S, 2 * FORGET_S, 4 * FORGET_S):
        assert world.run(round(waits_s), {1: None}).outdated == frozenset()
        assert world.run(1, {1: None}).outdated == {1}
        assert world.run(1, {1: 1.0}).outdated == frozenset()
    world.run(round(8 * FORGET_S) + 1, {1: None})
    world.run(1, {1: 2.0})  # what is configured: it was not in vain
    assert world.run(round(FORGET_S) + 1, {1: None}).outdated == {1}


def test_another_life_of_a_consumer_begins_with_the_configured_capacity() -> None:
    world = settled({1: 2.0, 2: 2.0, 3: 2.0})
    world.run(10, {1: 2.0, 2: 0.8, 3: 2.0})
    world.cycles[2], world.speeds[2] = 0, 0.0
    world.run(1, {1: 2.0, 2: None, 3: 2.0})
    assert world.share(2) == 1


def test_when_all_fall_all_count_less_and_a_new_one_too() -> None:
    world = settled({1: 2.0, 2: 2.0})
    world.run(1, {1: 1.0, 2: 1.0})
    assert world.share(1) == world.share(2) == world.share(None) == pytest.approx(0.5)
    assert world.told == ["slow fleet"]
    world.run(1, {1: 2.0, 2: 2.0})
    assert world.share(None) == 1
    assert world.told == ["slow fleet", "recovered fleet"]


def test_a_fleet_counts_a_quarter_of_the_configured_capacity_at_least() -> None:
    world = settled({1: 0.02, 2: 0.02})
    assert world.share(None) == 0.25


def test_a_fall_of_all_that_one_of_them_shows_first_makes_nobody_slow() -> None:
    world = settled({1: 2.0, 2: 2.0, 3: 2.0})
    world.run(CONFIRMED, {1: 1.0, 2: 2.0, 3: 2.0})
    world.run(10, {1: 1.0, 2: 1.0, 3: 1.0})
    assert world.told == ["slow fleet"]
    assert not world.believing.believed.speed


def test_growing_that_helps_leaves_the_belief_as_it_is() -> None:
    world = settled({1: 1.0, 2: 1.0})
    world.run(round(SETTLE_S) + 10, dict.fromkeys(range(1, 5), 1.0))
    assert world.share(None) == pytest.approx(0.5)
    assert world.believing.believed.crowding == 1


def test_a_fall_that_came_with_growing_is_not_believed() -> None:
    # Two cores' worth of 4 MB/s: two consumers do 2 each, four do 1 each.
    world = settled({1: 2.0, 2: 2.0})
    for _ in range(round(SETTLE_S) + 10):
        world.run(1, dict.fromkeys(range(1, 5), 1.0))
        assert world.share(None) == 1
    assert world.believing.believed.crowding == pytest.approx(2)
    assert world.told == ["crowded"]
    assert "4 consumers do 1 MB/s each where 2 did 2 MB/s" in world.believing.alerts[0].text
    # Something else slows them all down by half now: that is no work of their own.
    world.run(1, dict.fromkeys(range(1, 5), 0.5))
    assert world.share(None) == pytest.approx(0.5)


def test_growing_in_vain_is_undone_and_not_tried_again() -> None:
    # 2 MB/s for all there are: four do 0.5 each, a quarter of what is configured, and eight would do 0.25.
    world = settled(dict.fromkeys(range(1, 5), 0.5))
    assert world.share(None) == pytest.approx(0.25)
    world.run(round(SETTLE_S) + 10, dict.fromkeys(range(1, 9), 0.25))
    assert world.share(None) == pytest.approx(0.5)  # what eight were to carry at a quarter, four carry at a half
    world.run(600, dict.fromkeys(range(1, 5), 0.5))
    assert world.share(None) == pytest.approx(0.5)
    assert world.believing.believed.crowding == pytest.approx(2)
    world.run(10, dict.fromkeys(range(1, 5), 2.0))  # each has cores of its own now
    assert world.believing.believed.crowding == 1
    assert world.share(None) == 1
    assert not world.believing.alerts
