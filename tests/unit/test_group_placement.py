"""A plan is fitted to the members there are, and nothing is ever unowned or owned twice (E-25)."""

import pytest

from headgate.groups.placement import Joining, fitted, held_by, repacked, settled
from headgate.model import Assignment, TopicPartition
from headgate.packing.least_loaded import Item, Room

P = [TopicPartition("t", n) for n in range(6)]
OTHER = TopicPartition("other", 0)


def owners(**held: list[int]) -> dict[str, list[TopicPartition]]:
    return {member: [P[n] for n in numbers] for member, numbers in held.items()}


def members(*names: str, topics: str = "t") -> dict[str, Joining]:
    return {name: Joining(frozenset([topics])) for name in names}


def test_a_plan_for_exactly_these_members_is_followed_as_given() -> None:
    plan = Assignment({1: frozenset(P[:5]), 2: frozenset(P[5:])})
    assert fitted(plan, Assignment({1: frozenset(), 2: frozenset(P)}), {p: Item(1) for p in P}, None) == plan


def test_with_other_members_of_the_same_number_bins_go_where_most_of_their_load_is() -> None:
    plan = Assignment({1: frozenset(P[:3]), 2: frozenset(P[3:])})
    current = Assignment({7: frozenset(P[3:5]), 8: frozenset(P[:2])})
    found = fitted(plan, current, {p: Item(10) for p in P}, None)
    assert found == Assignment({7: frozenset(P[3:]), 8: frozenset(P[:3])})


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_with_more_or_fewer_members_it_is_repacked_to_exactly_as_many(count: int) -> None:
    plan = Assignment({n: frozenset([P[n]]) for n in range(1, 6)})
    current = Assignment({n: frozenset() for n in range(11, 11 + count)})
    found = fitted(plan, current, {p: Item(10) for p in P}, Room(20, 100))
    assert set(found) == set(current)
    assert found.partitions == frozenset(P)


def test_members_that_are_too_few_are_overloaded_alike() -> None:
    # Bins of 100 would be three. With two: 90 and 80 apart, 50 to the 80, then 40 to the 90; 130 each.
    loads = {P[0]: Item(90), P[1]: Item(80), P[2]: Item(50), P[3]: Item(40)}
    assert set(repacked(loads, 2, Room(100, 1e9))) == {frozenset([P[0], P[3]]), frozenset([P[1], P[2]])}


def test_silent_partitions_are_spread_by_number() -> None:
    bins = repacked({p: Item(0.0) for p in P}, 3, None)
    assert sorted(len(b) for b in bins) == [2, 2, 2]


def test_of_two_members_that_claim_a_partition_the_newer_generation_is_right() -> None:
    zombie = Joining(frozenset("t"), frozenset(P[:3]), generation=4)
    fresh = Joining(frozenset("t"), frozenset(P[1:2]), generation=9)
    held = held_by({"a": fresh, "b": zombie}, {"a": 1, "b": 2})
    assert held == Assignment({1: frozenset([P[1]]), 2: frozenset([P[0], P[2]])})


def test_a_right_answer_is_taken_as_it_is() -> None:
    placement, faults = settled(owners(a=[0, 1, 2, 3, 4], b=[5]), members("a", "b"), frozenset(P), {})
    assert placement == {"a": frozenset(P[:5]), "b": frozenset(P[5:])}
    assert faults == ()


def test_a_wrong_answer_is_mended_and_told() -> None:
    wrong = {"a": [P[0], P[1], TopicPartition("t", 99)], "b": [P[1]], "ghost": [P[2]]}
    placement, faults = settled(wrong, members("a", "b"), frozenset(P[:4]), {P[2]: Item(5)})
    # a has two, b none of what is left: 2 (5 records/s) goes to b, then 3 to a, whose partitions are silent.
    assert placement == {"a": frozenset([P[0], P[1], P[3]]), "b": frozenset([P[2]])}
    assert faults == (
        "ghost is no member",
        "t-99 is not there",
        "t-1 has two owners",
        "t-2 has no owner",
        "t-3 has no owner",
    )


def test_nobody_gets_a_topic_it_does_not_subscribe_to() -> None:
    group = {**members("a"), **members("b", topics="other")}
    placement, faults = settled({"a": [OTHER], "b": [P[0]]}, group, frozenset([OTHER, P[0]]), {})
    assert placement == {"a": frozenset([P[0]]), "b": frozenset([OTHER])}
    assert faults[0] == "a does not subscribe to other"
