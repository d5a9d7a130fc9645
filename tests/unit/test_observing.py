"""What a live observation carries beyond the newest measurement, and what a plan makes of a pipeline's topics."""

from collections.abc import Mapping

import pytest

from headgate.controller.observing import (
    PAUSE_FLOOR_S,
    ArrivalSlots,
    Measurements,
    Recent,
    cost_of_changes,
    in_records,
    lags_of_tables,
    observe,
)
from headgate.controller.planning import Answer, Heard, alive_at, situation
from headgate.controller.virtual_behaviour import Behaviour
from headgate.controller.virtual_channel import MemoryChannel
from headgate.controller.virtual_clock import VirtualClock
from headgate.errors import HeadgateError
from headgate.model import Alert, Alternative, Assignment, ConsumerLoad, Decision, Observation, TopicPartition
from headgate.model.messages import (
    ConsumerLeft,
    ConsumerState,
    DecisionRecord,
    Landed,
    LedgerState,
    Measurement,
    PartitionRate,
)
from headgate.policies.forecast import Forecast

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def measured(at_s: float, *ends: int, bytes_per_s: float = 1000.0, records_per_s: float = 10.0) -> Measurement:
    rates = tuple(PartitionRate("t", n, bytes_per_s, records_per_s, end, 30.0) for n, end in enumerate(ends))
    return Measurement(round(at_s * 1000), 30.0, "test", rates)


def decided(
    outcome: str = "applied",
    moved: int = 1,
    created: tuple[int, ...] = (),
    ready_s: float = 0.0,
    pause_s: float = 0.0,
) -> DecisionRecord:
    return DecisionRecord(
        500_000, 1, 1, "overload", "", outcome, 1, 1, moved, 0.0, 0.0, (), created, (), (), (),
        ready_s=ready_s, handover_s=2 * pause_s, pause_s=pause_s,
    )  # fmt: skip


def beat(
    consumer_id: int, at_s: float, partitions: tuple[TopicPartition, ...], capacity: float = 0.0, life: str = "x"
) -> ConsumerState:
    return ConsumerState(
        "", consumer_id, life, partitions, round(at_s * 1000), 1, 1, 1, 0, 0.0, 0.5, capacity, ""
    )  # fmt: skip


def test_slots_are_differences_of_end_offsets_and_told_once() -> None:
    slots = ArrivalSlots(1.0)
    slots.add(measured(10.0, 100, 50))
    assert slots.take() == {A: (), B: ()}  # one measurement is no difference
    slots.add(measured(11.02, 130, 50))
    slots.add(measured(11.98, 130, 57))
    assert slots.take() == {A: (30, 0), B: (0, 7)}
    assert slots.take() == {A: (), B: ()}
    slots.add(measured(13.0, 131, 58))
    assert slots.take() == {A: (1,), B: (1,)}


def test_what_came_over_a_missed_measurement_is_spread_over_the_slots_that_passed() -> None:
    slots = ArrivalSlots(1.0)
    slots.add(measured(10.0, 0))
    slots.add(measured(13.0, 11))
    assert slots.take() == {A: (4, 4, 3)}


def test_what_comes_is_counted_once_where_two_monitors_are_at_work() -> None:
    slots = ArrivalSlots(1.0)
    for second in range(5):
        slots.add(measured(second, 10 * second))
        slots.add(measured(second + 0.4, 10 * second + 4))
    assert slots.take() == {A: (10,) * 4}
    slots.add(measured(4.4, 44, 7))  # of a partition that came with the other's
    slots.add(measured(5.0, 50, 9))
    assert slots.take() == {A: (10,), B: (2,)}


def test_a_topic_made_anew_and_a_new_partition_count_from_where_they_are() -> None:
    slots = ArrivalSlots(1.0)
    slots.add(measured(10.0, 500))
    slots.add(measured(11.0, 3, 900))
    slots.add(measured(12.0, 5, 901))
    assert slots.take() == {A: (0, 2), B: (0, 1)}


def test_after_a_long_silence_counting_begins_again() -> None:
    slots = ArrivalSlots(1.0)
    slots.add(measured(10.0, 0))
    slots.add(measured(11.0, 5))
    slots.add(measured(1000.0, 5000))
    assert slots.take() == {A: ()}


def test_only_the_newest_two_minutes_of_slots_are_kept() -> None:
    slots = ArrivalSlots(1.0)
    for second in range(300):
        slots.add(measured(second, 2 * second))
    assert slots.take() == {A: (2,) * 120}


def test_a_look_without_a_new_measurement_adds_nothing_to_a_forecast() -> None:
    forecast, slots = Forecast(), ArrivalSlots(1.0)
    for second in range(4):
        slots.add(measured(second, 10 * second))
        for look in range(5):
            at_s = second + look / 5
            seen = observe(
                measured(second, 10 * second), {}, Assignment(), {}, at_s, 0.0, _one, Recent(slots.take(), 1.0)
            )
            forecast.add(seen)
    load = forecast.load(1.0)
    assert load.level == pytest.approx(10.0)
    assert load.mean_level == pytest.approx(10.0)


def test_a_look_is_due_when_something_new_was_measured_and_once_a_slot_without() -> None:
    clock = VirtualClock()
    channel = MemoryChannel(clock, Behaviour())
    measurements = Measurements(channel, clock, 1.0)
    assert not measurements.is_look_due
    channel.put_measurement(measured(clock.now_s(), 10))
    measurements.refresh()
    assert measurements.is_look_due
    measurements.recent()
    clock.wait(0.2)
    assert not measurements.is_look_due
    channel.put_measurement(measured(clock.now_s(), 12))
    measurements.refresh()
    assert measurements.is_look_due
    measurements.recent()
    clock.wait(1.0)
    assert measurements.is_look_due  # timers run on


def test_what_changes_cost_is_the_99th_percentile_of_the_newest_applied_ones() -> None:
    assert cost_of_changes([]) == (None, None)
    moves = [decided(pause_s=float(s)) for s in (100, *range(1, 51))]  # the first is too long ago
    starts = [decided(moved=0, created=(2,), ready_s=4.0, pause_s=9.0), decided(created=(3,), ready_s=6.0)]
    others = [
        decided(outcome="dry-run", pause_s=70.0, created=(1,), ready_s=70.0),
        decided(outcome="out of sync: late", pause_s=80.0),
        decided(moved=0, pause_s=90.0),  # nothing changed hands
        decided(created=(), ready_s=95.0),  # spares were ready
    ]
    assert cost_of_changes([*moves, *starts, *others]) == (50.0, 6.0)
    assert cost_of_changes([decided(pause_s=0.01)]) == (PAUSE_FLOOR_S, None)


def _one(topic: str) -> int:
    return 1


def test_capacity_in_records_follows_from_the_mix_a_consumer_reads() -> None:
    rates = (PartitionRate("t", 0, 1000.0, 10.0, 0, 30.0), PartitionRate("t", 1, 600.0, 30.0, 0, 30.0))
    seen = observe(
        Measurement(10_000, 30.0, "test", rates),
        {},
        Assignment({1: frozenset({A}), 2: frozenset({B})}),
        {
            1: ConsumerLoad(capacity_bytes_per_s=5000.0),
            2: ConsumerLoad(capacity_bytes_per_s=5000.0),
            3: ConsumerLoad(capacity_bytes_per_s=5000.0),
            4: ConsumerLoad(),
        },
        10.0,
        0.0,
        lambda topic: 2,
        Recent({A: (1, 2), B: (3, 4)}, 1.0, pause_s=0.7, start_s=12.0),
    )
    # Two tables: a record of A costs 200 bytes, one of B 40, and one of the whole mix 3200 / 40 = 80.
    assert {n: load.capacity_records_per_s for n, load in seen.consumers.items()} == {1: 25, 2: 125, 3: 62.5, 4: None}
    assert in_records(8000.0, seen.partitions, seen.partitions) == 100
    assert (seen.slot_s, seen.pause_s, seen.start_s) == (1.0, 0.7, 12.0)
    assert seen.partitions[B].arrivals == (3, 4)


@pytest.mark.parametrize(("size", "records"), [(0.0, 0.0), (float("nan"), 1.0), (float("inf"), 1.0), (5.0, 0.0)])
def test_without_usable_rates_nothing_is_said_in_records(size: float, records: float) -> None:
    measurement = measured(1.0, 0, bytes_per_s=size, records_per_s=records)
    loads = {1: ConsumerLoad(capacity_bytes_per_s=5.0)}
    seen = observe(measurement, {}, Assignment(), loads, 1.0, 0.0, _one)
    assert in_records(10.0, seen.partitions, seen.partitions) is None
    assert seen.consumers[1].capacity_records_per_s is None


# What a plan reads


def everything(ledger: LedgerState) -> Mapping[TopicPartition, int]:
    return ledger.following


def test_a_table_that_the_pipeline_has_no_more_is_nobodys_lag() -> None:
    now = situation(heard(), 10.0, 1.0, _one, lambda ledger: {}, now_s=1002.0)
    assert now.seen.partitions[A].lag_records == 0


def test_a_table_lacks_what_is_written_and_not_in_its_ledger() -> None:
    ledgers = {"behind": {A: 90, B: 10}, "level": {A: 100}, "ahead of what was measured": {A: 105, B: 39}}
    assert lags_of_tables(measured(1000, 100, 40), ledgers) == {
        "behind": 10 + 30,
        "level": 0,  # of the other partition its ledger knows nothing
        "ahead of what was measured": 1,
    }


def heard(*events: ConsumerState | ConsumerLeft, measurements: tuple[Measurement, ...] | None = None) -> Heard:
    ledger = LedgerState("x", 1, "c", 1, 1, True, (Landed("t", 0, 90),), (), 0)
    found = (measured(1000, 100, 40), measured(1001, 110, 45)) if measurements is None else measurements
    return Heard(found, events, (ledger,), (decided(pause_s=2.0),))


def test_a_running_pipeline_is_seen_as_it_is_now() -> None:
    now = situation(
        heard(beat(1, 1000.5, (A,), 5000.0), beat(2, 1001, (B,))),
        10.0,
        1.0,
        _one,
        everything,
        now_s=1002.0,
    )
    assert not now.is_past
    assert now.age_s == 1.0
    assert now.seen.at_s == 1002.0
    assert now.seen.assignment == Assignment({1: frozenset({A}), 2: frozenset({B})})
    assert now.seen.partitions[A].lag_records == 20
    assert now.seen.partitions[A].arrivals == (10,)
    assert now.seen.consumers[1].capacity_records_per_s == 50
    assert now.seen.pause_s == 2.0
    assert now.peak_records_per_s == 20.0


def test_a_stopped_pipeline_is_seen_as_of_its_last_measurement_with_the_consumers_of_that_time() -> None:
    said: list[ConsumerState | ConsumerLeft] = [
        beat(1, 990, (A, B), life="crashed"),
        beat(1, 1000, (A, B), life="crashed"),
        beat(2, 900, ()),
        ConsumerLeft(2, "x", 901_000, "stopped"),
        ConsumerLeft(1, "crashed", 1_005_000, "stopped"),  # after the last measurement: it was there then
    ]
    now = situation(heard(*said), 10.0, 1.0, _one, everything, now_s=5000.0)
    assert now.is_past
    assert now.age_s == 3999.0
    assert now.seen.age_s == 0.0
    assert now.seen.assignment == Assignment({1: frozenset({A, B})})


def test_a_consumer_silent_for_long_is_not_there() -> None:
    assert alive_at([beat(1, 980, (A,)), beat(2, 999, (B,))], 1000.0).keys() == {2}


def test_a_newer_life_is_believed() -> None:
    old, new = beat(1, 998, (A,), life="old"), beat(1, 999, (), life="new")
    assert alive_at([old, new, ConsumerLeft(1, "old", 999_500, "replaced")], 1000.0) == {1: new}


def test_nothing_measured_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(HeadgateError, match="start the pipeline"):
        situation(heard(measurements=()), 10.0, 1.0, _one, everything, now_s=1.0)


class Says:
    def __init__(self, decision: Decision) -> None:
        self._decision = decision

    def decide(self, seen: Observation) -> Decision:
        return self._decision


@pytest.mark.parametrize(
    ("following", "action", "after", "moves"),
    [
        (None, "keep", 2, 0),
        (Assignment({1: frozenset({A}), 2: frozenset({B})}), "keep", 2, 0),
        (Assignment({1: frozenset({B}), 2: frozenset({A})}), "move", 2, 2),
        (Assignment({1: frozenset({A, B})}), "down", 1, 1),
        (Assignment({1: frozenset({A, B}), 2: frozenset()}), "down", 1, 1),
        (Assignment(), "down", 0, 0),
    ],
)
def test_an_answer_says_what_would_change(following: Assignment | None, action: str, after: int, moves: int) -> None:
    seen = situation(heard(beat(1, 1001, (A,)), beat(2, 1001, (B,))), 10.0, 1.0, _one, everything, now_s=1002.0).seen
    decision = Decision(following, "why", "t", rejected=(Alternative("x", "y"),), alerts=(Alert("a", "b"),))
    answer = Answer.of("says", Says(decision), seen)
    assert (answer.action, answer.consumers_before, answer.consumers_after, answer.moves) == (action, 2, after, moves)
    assert answer.decision is decision
