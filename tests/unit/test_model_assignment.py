"""Assignments and the plan between two of them (L-44)."""

import pytest

from headgate.model import Assignment, Move, Plan, TopicPartition

A, B, C, D = (TopicPartition("t", n) for n in range(4))


def test_a_partition_cannot_have_two_owners() -> None:
    with pytest.raises(ValueError, match="t-1 has two owners"):
        Assignment({1: frozenset({A, B}), 2: frozenset({B})})


def test_consumer_ids_start_at_one() -> None:
    with pytest.raises(ValueError, match="consumer ids start at 1, not 0"):
        Assignment({0: frozenset({A})})


def test_a_plan_names_only_what_changes() -> None:
    before = Assignment({1: frozenset({A, B}), 2: frozenset({C})})
    after = Assignment({1: frozenset({A}), 3: frozenset({B, D})})
    plan = Plan.between(before, after)
    assert plan.create == {3}
    assert plan.delete == {2}
    assert plan.moves == (Move(B, 1, 3), Move(C, 2, None), Move(D, None, 3))
    assert plan.rebalanced == (B,)


def test_the_plan_between_equal_assignments_is_empty() -> None:
    before = Assignment({1: frozenset({A, B})})
    assert Plan.between(before, Assignment({1: frozenset({B, A})})).is_empty
    assert not Plan.between(before, Assignment()).is_empty


def test_an_assignment_knows_owners_and_partitions() -> None:
    owned = Assignment({2: frozenset({C}), 1: frozenset({A, B})})
    assert list(owned) == [1, 2]
    assert owned.partitions == {A, B, C}
    assert owned.by_partition() == {A: 1, B: 1, C: 2}
    assert owned[7] == frozenset()
