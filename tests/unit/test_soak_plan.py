"""The plan of a long run: enough harm of every kind, in storms with calm between them, and the same for a seed."""

import pytest

from tests.chaos.faults import FAULTS
from tests.chaos.storms import FIRST_S, ROUND_S, STORM_S, Kind, plan

KINDS = [fault.kind for fault in FAULTS]


def test_an_hour_has_room_for_two_hundred_faults_of_every_kind() -> None:
    planned = plan(KINDS, 60, seed=3)
    assert len(planned) >= 200 * 1.2  # some cannot happen when their time comes
    assert {one.kind for one in planned} == {kind.name for kind in KINDS}
    assert len(KINDS) >= 12


def test_a_seed_repeats_its_plan_and_another_one_does_not() -> None:
    assert plan(KINDS, 20, seed=3) == plan(KINDS, 20, seed=3)
    assert plan(KINDS, 20, seed=3) != plan(KINDS, 20, seed=4)


def test_faults_come_in_storms_and_leave_calm() -> None:
    for one in plan(KINDS, 30, seed=1):
        assert (one.at_s - FIRST_S) % ROUND_S <= STORM_S


def test_in_the_second_half_nothing_ends_a_process_that_is_to_grow_old() -> None:
    ending = {kind.name for kind in KINDS if kind.ends_a_role}
    planned = plan(KINDS, 60, seed=5)
    assert any(one.kind in ending for one in planned if one.at_s < 1800)
    assert [one for one in planned if one.kind in ending and one.at_s >= 1800 + STORM_S] == []


def test_a_kind_comes_no_more_often_than_it_may() -> None:
    planned = plan([Kind("rare", most=2), Kind("common")], 60, seed=2)
    assert sum(one.kind == "rare" for one in planned) == 2


def test_a_plan_without_kinds_left_is_refused() -> None:
    with pytest.raises(ValueError, match="no kind of fault is left"):
        plan([Kind("rare", most=2)], 60, seed=2)
