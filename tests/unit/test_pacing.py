"""When the committer has its turns, on a clock of the test's own."""

from concurrent.futures import Future
from itertools import pairwise

import pytest

from headgate.lake.pacing import IDLE_S, next_turn_s
from headgate.lake.table_state import TableState
from tests.announcements import announce
from tests.unit.test_table_state import state

LATE_S = 0.003
"""What a turn does before it begins commits, and what it is too late for."""


def commits_s(*tables: TableState, every_s: float, seconds: float, arrivals_s: float = 0.0) -> list[float]:
    """When turns that begin commits begin, where announcements wait always, or arrive `arrivals_s` after a commit."""
    now_s, last_turn_s, found = 1000.0, 999.9, list[float]()
    while now_s < 1000.0 + seconds:
        for table in tables:
            if not table.pending and now_s >= table.begun_s + arrivals_s:
                table.pending = [announce(("t", 0, 0, 1))]
        at_s = next_turn_s(tables, now_s, every_s, last_turn_s)
        if at_s > now_s:
            now_s = min(at_s, now_s + 0.1)
            continue
        last_turn_s = now_s
        due = [table for table in tables if table.is_due(last_turn_s, every_s)]
        now_s += LATE_S
        for table in due:
            table.begins(Future(), table.pending, 7, last_turn_s)
            table.ends()
        found += [last_turn_s] if due else []
    return found


@pytest.mark.parametrize("every_s", [0.2, 0.5, 1.0, 2.0, 5.0])
def test_where_announcements_wait_always_there_is_a_commit_every_interval(every_s: float) -> None:
    found = commits_s(state(), every_s=every_s, seconds=20 * every_s)
    gaps = [after - before for before, after in pairwise(found)]
    assert len(found) >= 19
    assert max(gaps) <= every_s + 2 * LATE_S


@pytest.mark.parametrize("every_s", [0.2, 1.0, 3.0])
def test_what_comes_after_a_quiet_interval_is_committed_at_once(every_s: float) -> None:
    found = commits_s(state(), every_s=every_s, seconds=10 * every_s, arrivals_s=1.7 * every_s)
    gaps = [after - before for before, after in pairwise(found)]
    assert len(gaps) >= 4
    assert max(gaps) <= 1.7 * every_s + 0.1 + LATE_S  # it is looked for every tenth of a second


def test_tables_keep_in_step() -> None:
    """One that waits while another was just committed has its turn with that one again."""
    first, second = state(announce(("t", 0, 0, 1))), state()
    first.begins(Future(), first.pending, 7, 1000.0)
    first.ends()
    second.pending = [announce(("u", 0, 0, 1))]
    assert next_turn_s((first, second), 1000.4, 0.5, 1000.0) == 1000.5


def test_turns_come_also_where_nothing_waits() -> None:
    assert next_turn_s((state(),), 1000.4, 5.0, 1000.0) == 1000.0 + IDLE_S
    assert next_turn_s((), 1000.4, 5.0, 1000.0) == 1000.0 + IDLE_S
