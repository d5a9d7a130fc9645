"""The controller's desk answers leaders, remembers members, and knows what to do next (E-24, E-26, E-29)."""

import pytest

from headgate.groups.carrying import Done, Rejoin, Start, Stop, feasible, next_step
from headgate.groups.desk import Desk
from headgate.groups.wire import AssignmentRequest, Beat, MemberData, MemberOfGroup, decoded, encoded
from headgate.model import Assignment, TopicPartition
from headgate.packing.least_loaded import Item

HIGH, ALSO_HIGH, LOW = (TopicPartition("t", n) for n in range(3))


class Now:
    def __init__(self) -> None:
        self.at_s = 1000.0

    def __call__(self) -> float:
        return self.at_s


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def desk(now: Now) -> Desk:
    return Desk("g", floor_s=0.05, clock=now)


def request(**members: MemberData) -> AssignmentRequest:
    return AssignmentRequest("g", 1, {m: MemberOfGroup(["t"], data) for m, data in members.items()}, {"t": [0, 1, 2]})


def beat(member: str, generation: int = 1, **more: object) -> Beat:
    return Beat("g", member, generation, **more)  # type: ignore[arg-type]


# --- the plan --------------------------------------------------------------------------------------------------------


def test_the_leader_gets_the_plan_for_the_members_it_was_made_for(desk: Desk) -> None:
    desk.publish(Assignment({1: frozenset([HIGH, LOW]), 2: frozenset([ALSO_HIGH])}))
    answer = desk.assignment(request(a=MemberData(handle=2), b=MemberData(handle=1)))
    assert answer.assignment == {"a": {"t": [1]}, "b": {"t": [0, 2]}}
    assert answer.plan == 1


def test_before_any_plan_load_is_spread_over_whoever_is_there(desk: Desk) -> None:
    desk.measured({HIGH: Item(90), ALSO_HIGH: Item(80), LOW: Item(10)}, None, ())
    answer = desk.assignment(request(a=MemberData(), b=MemberData()))
    assert sorted(owned["t"] for owned in answer.assignment.values()) == [[0], [1, 2]]
    assert (answer.plan, answer.loads["t"][0]) == (0, (90, 0))


def test_a_member_that_joins_before_the_others_gets_its_share_and_nothing_is_left_over(desk: Desk) -> None:
    desk.publish(Assignment({1: frozenset([HIGH]), 2: frozenset([ALSO_HIGH]), 3: frozenset([LOW])}))
    desk.measured({HIGH: Item(90), ALSO_HIGH: Item(80), LOW: Item(10)}, None, ())
    answer = desk.assignment(request(a=MemberData(handle=1, owned={"t": [0, 1, 2]}), b=MemberData(handle=2)))
    assert sorted(owned["t"] for owned in answer.assignment.values()) == [[0], [1, 2]]


def test_numbers_are_handles_first_and_never_those_of_members_still_starting(desk: Desk) -> None:
    desk.measured({}, None, taken=[1, 2])
    assert desk.numbers({"mine": 2, "stranger": None}) == {"mine": 2, "stranger": 3}
    assert desk.numbers({"another": None, "stranger": None}) == {"stranger": 3, "another": 4}


def test_a_new_life_of_a_member_has_its_number_and_the_zombie_another(desk: Desk, now: Now) -> None:
    desk.beat(beat("zombie", handle=1))
    now.at_s += 3
    desk.beat(beat("alive", handle=1))
    assert desk.numbers({"zombie": 1, "alive": 1}) == {"alive": 1, "zombie": 2}


def test_a_question_of_another_group_is_refused(desk: Desk) -> None:
    with pytest.raises(ValueError, match="plans the group 'g', not 'h'"):
        desk.beat(Beat("h", "m", 1))


# --- beats -----------------------------------------------------------------------------------------------------------


def test_one_member_is_asked_to_rejoin_until_its_generation_rises(desk: Desk) -> None:
    desk.beat(beat("a", 4))
    desk.beat(beat("b", 4))
    assert desk.ask_to_rejoin(["a", "b"], tried=[]) == "a"
    assert desk.beat(beat("a", 4)).rejoin
    assert not desk.beat(beat("b", 4)).rejoin
    assert not desk.beat(beat("a", 5)).rejoin
    assert desk.generation == 5


def test_a_member_that_does_not_answer_is_not_asked_and_one_that_failed_is_asked_last(desk: Desk, now: Now) -> None:
    desk.beat(beat("a", 4))
    now.at_s += 10
    desk.beat(beat("b", 4))
    desk.beat(beat("c", 4))
    assert desk.ask_to_rejoin(["a", "b", "c"], tried=["b"]) == "c"
    now.at_s += 10
    assert desk.ask_to_rejoin(["a", "b", "c"], tried=[]) is None


def test_the_pause_is_the_99th_percentile_and_not_below_the_floor(desk: Desk) -> None:
    assert desk.pause_s is None
    desk.beat(beat("a", pauses_s=[0.001]))
    assert desk.pause_s == 0.05
    desk.beat(beat("a", pauses_s=[n / 100 for n in range(1, 101)]))  # with the one before, the 100th of 101
    assert desk.pause_s == 0.99
    desk.beat(beat("a", pauses_s=[float("nan"), -3.0]))
    assert desk.pause_s == 0.99


def test_capacity_is_that_of_large_batches_and_small_ones_do_not_lower_it(desk: Desk) -> None:
    desk.beat(beat("a", records=5, busy_s=0.5))
    assert desk.abilities({"a": 1})[1].capacity_records_per_s is None  # five records say little
    desk.beat(beat("a", records=50, busy_s=0.25))
    assert desk.abilities({"a": 1})[1].capacity_records_per_s == pytest.approx(200)
    for _ in range(100):
        desk.beat(beat("a", records=1, busy_s=0.05))  # a commit for one record
    assert desk.abilities({"a": 1})[1].capacity_records_per_s == pytest.approx(200)
    for _ in range(20):
        desk.beat(beat("a", records=40, busy_s=0.4))  # as large, and slower: believed
    assert desk.abilities({"a": 1})[1].capacity_records_per_s == pytest.approx(100)


def test_messages_survive_the_wire_and_garbage_does_not() -> None:
    asked = request(a=MemberData({"t": [0]}, 3, 7))
    assert decoded(AssignmentRequest, encoded(asked)) == asked
    with pytest.raises(ValueError, match="not a Beat: group"):
        decoded(Beat, b'{"member": "a"}')
    with pytest.raises(ValueError, match="not a Beat"):
        decoded(Beat, b"<html>")


# --- steps -----------------------------------------------------------------------------------------------------------


def plan(**held: list[TopicPartition]) -> Assignment:
    return Assignment({int(n[1:]): frozenset(partitions) for n, partitions in held.items()})


def test_newcomers_come_before_leavers_and_leavers_before_places() -> None:
    wanted, now = plan(n1=[HIGH, LOW], n3=[ALSO_HIGH]), plan(n1=[HIGH, ALSO_HIGH], n2=[LOW])
    assert next_step(wanted, now, rejoined=False) == Start(frozenset([3]))
    now = plan(n1=[HIGH], n2=[LOW], n3=[ALSO_HIGH])
    assert next_step(wanted, now, rejoined=False) == Stop(frozenset([2]))
    now = plan(n1=[HIGH, ALSO_HIGH], n3=[LOW])
    assert next_step(wanted, now, rejoined=False) == Rejoin()
    assert next_step(wanted, now, rejoined=True) == Done(as_planned=False)
    assert next_step(wanted, wanted, rejoined=False) == Done(as_planned=True)


def test_only_members_started_here_are_chosen_to_leave() -> None:
    now = plan(n1=[HIGH], n2=[ALSO_HIGH], n3=[LOW])
    wanted = plan(n1=[HIGH, LOW], n2=[ALSO_HIGH])
    rates = {HIGH: 9.0, ALSO_HIGH: 8.0, LOW: 1.0}
    assert feasible(wanted, now, frozenset([3]), rates) == wanted
    # 3 was started elsewhere, so 2 goes instead. Moving 8 and 1 is less than moving 9 and 8.
    assert feasible(wanted, now, frozenset([1, 2]), rates) == plan(n1=[HIGH, LOW], n3=[ALSO_HIGH])
    assert feasible(plan(n1=[HIGH, ALSO_HIGH, LOW]), now, frozenset([1]), rates) is None
