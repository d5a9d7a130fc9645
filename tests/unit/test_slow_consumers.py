"""The live controller on virtual time while consumers become slower: one, all, or all by their own number."""

import random
from collections.abc import Callable

import pytest

from headgate.controller.machine import Controller
from headgate.controller.settings import Settings
from headgate.controller.virtual_behaviour import Behaviour
from headgate.controller.virtual_pipeline import VirtualPipeline
from headgate.model import TopicPartition
from headgate.model.messages import DecisionRecord
from headgate.packing.repair import Repair
from headgate.policies.believing import CONFIRMED, FORGET_S
from headgate.policies.crowding import SETTLE_S
from headgate.policies.sentinel import Sentinel

MB = 1e6
CAPACITY, PACKING = 2 * MB, 1.5 * MB
PARTITIONS = [TopicPartition("t", n) for n in range(13)]
Speed = Callable[["World", int], float]


class World(VirtualPipeline):
    """Partitions of 0.35 MB/s: four fill a consumer, so twelve make three consumers. A cycle takes a second, and is
    full if the consumer has more to do than it can."""

    def __init__(self, speed: Speed, partitions: int = 12, max_consumers: int = 20, rate_mb: float = 0.35) -> None:
        rates = dict.fromkeys(PARTITIONS[:partitions], rate_mb * MB)
        super().__init__(rates, Behaviour(speed_bytes_per_s=self.measured))
        self.speed = speed
        policy = Sentinel(Repair(), CAPACITY, PACKING, max_sentinel_s=10, max_consumers=max_consumers)
        self.controller = Controller(policy, self.channel, self.fleet, self.clock, Settings(CAPACITY, PACKING))

    def measured(self, consumer: int) -> float:
        speed, given = self.speed(self, consumer), sum(self.rates[p] for p in self.fleet.lives[consumer].owns)
        return speed if given >= speed else 0.0

    def go(self, seconds: float) -> None:
        self.run(self.controller, seconds)

    @property
    def changes(self) -> list[DecisionRecord]:
        return [r for r in self.channel.records if r.outcome == "applied"]

    @property
    def told(self) -> list[str]:
        return [r.reason for r in self.channel.records if r.trigger == "alert"]

    def load(self, consumer: int) -> float:
        return sum(self.rates[p] for p in self.owned().get(consumer, ()))


def started(speed: Speed, partitions: int = 12, max_consumers: int = 20, rate_mb: float = 0.35) -> World:
    world = World(speed, partitions, max_consumers, rate_mb)
    world.go(2 * SETTLE_S)
    return world


def slow_ones(slow: set[int]) -> Speed:
    """40 % of the configured capacity for these; a little more than all of it for the others."""
    return lambda _, c: 0.8 * MB if c in slow else 2.2 * MB


def test_partitions_move_off_a_consumer_that_slows_down_to_40_percent_and_it_is_said() -> None:
    slow: set[int] = set()
    world = started(slow_ones(slow), partitions=13)
    assert sorted(len(held) for held in world.owned().values()) == [1, 4, 4, 4]
    victim = next(c for c, held in world.owned().items() if len(held) == 4)
    before = len(world.changes)
    slow.add(victim)
    world.go(3 + CONFIRMED + 5)  # the cycles that a belief takes, and the handover
    (change,) = world.changes[before:]
    # 40 % of the usual 2 MB/s (the others keep up and measure nothing): 0.8, of which 0.6 are packed: one partition.
    # Three go to the consumer that had one, and nobody is started.
    assert len(world.owned()[victim]) == 1
    assert (change.consumers_after, change.created) == (4, ())
    assert change.trigger == "overload"
    assert f"consumer {victim} has 1.4 MB/s in 4 partitions, more than its 0.8 MB/s" in change.reason
    assert change.inputs[f"consumer_{victim}_share"] == pytest.approx(0.4)
    counted = {one.consumer_id: (one.measured_bytes_per_s, one.counted_bytes_per_s) for one in change.capacities}
    assert counted.pop(victim) == pytest.approx((0.8 * MB, 0.8 * MB))
    assert set(counted.values()) == {(0.0, CAPACITY)}
    assert [text for text in world.told if f"consumer {victim} does 0.8 MB/s where 2 MB/s is usual" in text]
    world.go(10)
    heard = world.channel.heartbeat
    assert heard is not None
    assert {c.consumer_id: c.counted_bytes_per_s for c in heard.capacities}[victim] == pytest.approx(0.8 * MB)


def test_a_slow_consumer_is_replaced_where_a_new_one_holds_everything_it_had() -> None:
    slow: set[int] = set()
    world = started(slow_ones(slow))
    assert sorted(world.owned()) == [1, 2, 3]
    slow.add(2)
    world.go(30)
    assert sorted(world.owned()) == [1, 3, 4]
    assert {c: world.load(c) for c in world.owned()} == pytest.approx(dict.fromkeys((1, 3, 4), 1.4 * MB))


def test_a_relieved_consumer_counts_in_full_after_a_while_and_nothing_moves_for_that() -> None:
    slow: set[int] = set()
    world = started(slow_ones(slow), partitions=13)
    victim = next(c for c, held in world.owned().items() if len(held) == 4)
    slow.add(victim)
    world.go(60)
    slow.clear()
    before = len(world.changes)
    world.go(FORGET_S + 60)
    assert [text for text in world.told if f"consumer {victim} had no full cycle" in text]
    assert world.channel.heartbeat is not None
    assert {c.counted_bytes_per_s for c in world.channel.heartbeat.capacities} == {CAPACITY}
    assert len(world.changes) == before


def test_noise_of_fifteen_percent_moves_nothing_in_twenty_minutes() -> None:
    draw = random.Random(3)
    world = started(lambda _, c: 0.0)
    world.behaviour.speed_bytes_per_s = lambda c: 2 * MB * draw.uniform(0.85, 1.15)  # full cycles all the time
    before = len(world.changes)
    world.go(1200)
    assert len(world.changes) == before
    assert not world.told


def test_when_the_lake_slows_everybody_down_consumers_are_added() -> None:
    factor = [1.0]
    world = started(lambda _, c: 2.2 * MB * factor[0])
    factor[0] = 0.5
    world.go(300)
    # 1.1 MB/s measured: 0.825 packed, two partitions each.
    assert len(world.owned()) == 6
    assert max(map(world.load, world.owned())) <= 0.825 * MB
    assert [text for text in world.told if "consumers do 1.1 MB/s each" in text]


def test_consumers_that_share_two_cores_do_not_multiply() -> None:
    """All of them together do 3 MB/s, whatever their number, and 4.2 are written: no number would do."""
    world = World(lambda world, c: 3 * MB / max(1, len(world.owned())))
    sizes = []
    for _ in range(30):
        world.go(60)
        sizes.append(len(world.owned()))
    assert max(sizes) <= 6  # one trial with twice as many, undone
    assert set(sizes[10:]) == {3}
    assert [text for text in world.told if "share cores" in text]
    assert len(world.changes) <= 6


def test_a_slow_consumer_gives_even_its_only_partition_to_one_that_can_read_it() -> None:
    slow: set[int] = set()
    world = started(slow_ones(slow), partitions=2, rate_mb=1.2)
    assert sorted(world.owned()) == [1, 2]
    slow.add(1)
    world.go(30)
    assert sorted(world.owned()) == [2, 3]


def test_where_no_more_consumers_are_allowed_the_slow_one_gets_the_least() -> None:
    slow: set[int] = set()
    world = started(slow_ones(slow), partitions=13, max_consumers=3)
    assert sorted(len(held) for held in world.owned().values()) == [4, 4, 5]
    victim = next(c for c, held in world.owned().items() if len(held) == 5)
    slow.add(victim)
    world.go(60)
    owned = {c: len(held) for c, held in world.owned().items()}
    assert len(owned) == 3
    assert owned.get(victim, 0) <= 2


def test_the_pause_of_a_move_is_measured_and_known_at_the_next_decision() -> None:
    world = World(lambda _, c: 0.0)
    world.go(60)
    world.rates[PARTITIONS[0]] = 1.9 * MB
    world.go(60)
    first = world.changes[-1]
    assert first.moved > 0
    # The new owner may start once the lake holds what the old one announced, half a second later; it answers after the
    # cycle of a second it is in, and the controller looks every 0.2 s.
    assert 0.5 <= first.pause_s <= 0.5 + 1.0 + 3 * 0.2
    assert first.pause_s <= first.handover_s
    world.rates[PARTITIONS[5]] = 1.9 * MB
    world.go(60)
    assert world.changes[-1].expected_pause_s == first.pause_s
    assert world.channel.heartbeat is not None
    assert world.channel.heartbeat.pause_s >= first.pause_s
