"""When the committer has its turns, and which tables are committed to then, on a clock of the test's own."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import pairwise

import pytest

from headgate.lake.pacing import IDLE_S, Pacing
from headgate.lake.table_state import TableState
from tests.announcements import announce
from tests.unit.test_table_state import state

LATE_S = 0.003
"""What a turn does before it begins commits."""
BEGAN_S = 1000.0


def commits_s(
    tables: Sequence[TableState],
    every_s: float,
    intervals: float,
    first_s: Mapping[int, float] | None = None,
    arrivals_s: float = 0.0,
    takes_s: Mapping[int, float] | None = None,
) -> list[list[float]]:
    """Per table when its commits began, in seconds from the start. Its announcements wait from `first_s` on, always
    or from `arrivals_s` after each commit on; a commit takes `takes_s`."""
    pacing, now_s, found = Pacing(), BEGAN_S, [list[float]() for _ in tables]
    pacing.begin_turn(now_s)
    ends_s = [0.0] * len(tables)
    while now_s < BEGAN_S + intervals * every_s:
        for n, table in enumerate(tables):
            if table.under_way is not None and now_s >= ends_s[n]:
                table.ends()
                table.took_s = (takes_s or {}).get(n, 0.0)
            if not table.pending and now_s >= max(BEGAN_S + (first_s or {}).get(n, 0.0), table.begun_s + arrivals_s):
                table.pending = [announce(("t", n, 0, 1))]
        at_s = pacing.next_turn_s(tables, every_s)
        if at_s > now_s:
            now_s = min(at_s, now_s + 0.02)
            continue
        pacing.begin_turn(now_s)
        now_s += LATE_S
        for table in pacing.due(tables, every_s):
            n = tables.index(table)
            table.begins(Future(), table.pending, 7, pacing.turn_s)
            ends_s[n] = now_s + (takes_s or {}).get(n, 0.0)
            found[n].append(pacing.turn_s - BEGAN_S)
    return found


def gaps(found: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(found)]


every_interval = pytest.mark.parametrize("every_s", [0.2, 0.5, 1.0, 1.1, 1.5, 2.0, 5.0])


@every_interval
def test_where_announcements_wait_always_there_is_a_commit_every_interval(every_s: float) -> None:
    (found,) = commits_s([state()], every_s, 20)
    assert len(found) >= 19
    assert max(gaps(found)) <= every_s + 2 * LATE_S


@every_interval
def test_what_comes_after_a_quiet_interval_is_committed_at_once(every_s: float) -> None:
    (found,) = commits_s([state()], every_s, 10, arrivals_s=1.7 * every_s)
    assert len(found) >= 5
    assert max(gaps(found)) <= 1.7 * every_s + 0.02 + LATE_S  # it is looked for fifty times a second


@every_interval
@pytest.mark.parametrize("later", [0.13, 0.5, 0.9])
def test_tables_whose_records_begin_at_different_times_are_committed_together_and_in_time(
    every_s: float, later: float
) -> None:
    first, second = commits_s([state(), state()], every_s, 20, first_s={1: later * every_s})
    assert max(gaps(first)) <= every_s + 2 * LATE_S
    assert max(gaps(second)) <= every_s + 2 * LATE_S
    assert second == first[1:], "one turn for both"


def test_a_slow_table_goes_on_as_soon_as_it_ends_and_holds_up_no_other() -> None:
    quick, slow = commits_s([state(), state()], 1.0, 20, takes_s={1: 1.3})
    assert max(gaps(quick)) <= 1.0 + 2 * LATE_S
    assert gaps(slow)[1:] == pytest.approx([1.3] * (len(slow) - 2), abs=0.05)


def test_a_table_that_is_quick_again_is_in_step_again() -> None:
    tables, took_s = [state(), state()], {1: 1.3}
    commits_s(tables, 1.0, 10, takes_s=took_s)
    for table in tables:
        table.begun_s, table.under_way = BEGAN_S - 1.0, None
    quick, slow = commits_s(tables, 1.0, 10)
    assert slow[2:] == quick[-len(slow[2:]) :]


def test_a_table_that_rests_or_waits_for_a_topic_is_due_after_that() -> None:
    resting, held, pacing = state(announce(("t", 0, 0, 1))), state(announce(("t", 0, 0, 1))), Pacing()
    pacing.begin_turn(BEGAN_S)
    resting.rests_until, held.held_until = BEGAN_S + 0.4, BEGAN_S + 0.3
    assert pacing.due((resting, held), 0.2) == []
    assert pacing.next_turn_s((resting, held), 0.2) == BEGAN_S + 0.3
    pacing.begin_turn(BEGAN_S + 0.3)
    assert pacing.due((resting, held), 0.2) == [held]


def test_what_failed_is_tried_again_after_its_rest_and_not_after_an_interval() -> None:
    pacing, table = Pacing(), state(announce(("t", 0, 0, 1)))
    pacing.begin_turn(BEGAN_S)
    assert pacing.due((table,), 600.0) == [table]
    table.begins(Future(), table.pending, 7, BEGAN_S)
    table.failed(table.ends())
    table.rests_until = BEGAN_S + 4.0
    assert pacing.next_turn_s((table,), 600.0) == BEGAN_S + IDLE_S
    pacing.begin_turn(BEGAN_S + 3.9)
    assert pacing.due((table,), 600.0) == []
    pacing.begin_turn(BEGAN_S + 4.0)
    assert pacing.due((table,), 600.0) == [table]


def test_turns_come_also_where_nothing_waits() -> None:
    pacing = Pacing()
    pacing.begin_turn(BEGAN_S)
    assert pacing.next_turn_s((state(),), 5.0) == BEGAN_S + IDLE_S
    assert pacing.next_turn_s((), 5.0) == BEGAN_S + IDLE_S
