"""When a table's announcements are committed, which of them, and what is settled then."""

import time
from concurrent.futures import Future
from typing import Any

import pytest

from headgate.kafka.channel import Received
from headgate.lake import table_state
from headgate.lake.commit import CommitResult
from headgate.lake.intake import Intake
from headgate.lake.table_state import TableState
from headgate.model import Announcement, Ledger, TopicPartition
from tests.announcements import announce

NOTHING: Any = None


class Named:
    name = "lake.t"


def state(*pending: Announcement, placed: bool = True, ledger: dict[TopicPartition, int] | None = None) -> TableState:
    committer: Any = Named()
    last = CommitResult(Ledger(ledger or {}), 0, exists=True)
    return TableState(committer, NOTHING, list(pending), placed=placed, last=last)


def test_announcements_are_committed_once_an_interval_and_together() -> None:
    one, other = state(announce(("t", 0, 0, 1))), state(announce(("t", 0, 0, 1)))
    for table in (one, other):
        assert table.due_s(5.0) <= 1000.0
        table.begins(Future(), table.pending, 7, 1000.0)
        assert table.due_s(5.0) > 2000.0, "one at a time"
        table.ends()
        table.pending = [announce(("t", 0, 1, 2))]
        assert table.due_s(5.0) > 1004.9
        assert table.due_s(5.0) <= 1005.0


def test_a_heartbeat_does_not_put_off_a_commit() -> None:
    table = state(announce(("t", 0, 0, 1)))
    table.begins(Future(), table.pending, 7, 1000.0)
    table.ends()
    table.pending = [announce(("t", 0, 1, 2))]
    assert table.is_heartbeat_due(1004.0)
    table.begins(Future(), (), 8, 1004.0)
    assert table.ends().settled_to == table.settled_to, "an announcement is pending still"
    assert table.due_s(5.0) <= 1005.0


def test_nothing_is_told_of_a_table_before_it_is_known_where_its_partitions_begin() -> None:
    waiting = announce(("t", 0, 0, 1))
    unseen = state(waiting)
    unseen.last = None
    assert unseen.may_look(1000.0)
    assert unseen.due_s(0.0) > 1000.0
    assert not unseen.is_heartbeat_due(1000.0)
    new = state(waiting, placed=False)
    assert new.due_s(0.0) > 1000.0
    assert not new.is_heartbeat_due(1000.0)
    known = state(waiting, placed=False, ledger={TopicPartition("t", 0): 0})
    assert known.due_s(0.0) <= 1000.0, "its ledger knows"


def test_what_names_a_topic_that_nobody_describes_waits_with_all_that_comes_after_it() -> None:
    both = announce(("silent", 0, 0, 5), ("t", 0, 0, 5))
    next_of_t, after_that = announce(("t", 0, 5, 9), ("t", 1, 0, 5)), announce(("t", 1, 5, 9))
    independent = announce(("t", 2, 0, 5))
    table = state(both, next_of_t, independent, after_that)
    assert table.hold_back({"silent": "not authorized", "elsewhere": "?"}) == (independent,)
    assert table.held == {"silent": "not authorized"}
    table.begins(Future(), (independent,), 99, 1000.0)
    assert table.pending == [both, next_of_t, after_that]
    assert table.ends().settled_to == 0, "a successor has to read again what was held back"
    assert table.hold_back({}) == (both, next_of_t, after_that)
    assert table.held == {}
    table.begins(Future(), table.pending, 99, 1000.0)
    assert table.ends().settled_to == 99


def test_a_topic_that_keeps_announcements_waiting_for_long_is_a_problem_and_fills_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = state(announce(("silent", 0, 0, 5)))
    assert table.hold_back({"silent": "not authorized"}) == ()
    assert table.due_s(0.0) > time.monotonic(), "it is not asked for at every moment"
    assert table.is_heartbeat_due(time.monotonic()), "but spoken of"
    assert not table.held_problems
    assert not table.is_stuck
    monkeypatch.setattr(table_state, "SLOW_S", 0.0)
    (problem,) = table.held_problems
    assert "silent wait: the brokers do not describe it: not authorized" in problem
    assert table.is_stuck


def test_a_failed_commit_is_tried_again_in_the_same_order() -> None:
    first, second, third = (announce(("t", 0, n, n + 1)) for n in range(3))
    table = state(first, second)
    table.begins(Future(), table.pending, 7, time.monotonic())
    table.pending.append(third)
    table.failed(table.ends())
    assert table.pending == [first, second, third]
    assert table.due_s(0.0) > time.monotonic(), "after a rest"
    assert table.due_s(0.0) <= time.monotonic() + 60


def test_no_heartbeat_hides_that_a_commit_failed_and_is_to_be_tried_again() -> None:
    table = state(announce(("t", 0, 0, 1)))
    now_s = time.monotonic()
    table.begins(Future(), table.pending, 7, now_s)
    table.failed(table.ends())
    table.rests_until = now_s
    assert not table.is_heartbeat_due(now_s + 60)
    table.pending = []
    assert table.is_heartbeat_due(now_s + 60), "nothing waits, so it says that the committer is there"


def test_announcements_are_taken_in_again_when_their_topic_goes_back() -> None:
    table = state()
    table.settled_to = 10
    intake = Intake("announcements", {}, NOTHING, {"lake.t": table})

    def come(*offsets: int) -> list[Announcement]:
        batch = [Received("announcements", 0, o, announce(("t", 0, o, o + 1))) for o in offsets]
        intake._take(batch)
        return [received.message for received in batch]

    come(8, 9)
    assert table.pending == [], "settled by an earlier committer"
    news = come(10, 11)
    assert table.pending == news
    table.begins(Future(), news, 12, 1000.0)
    anew = come(3, 4)
    assert table.pending == anew
    assert table.ends().settled_to == 3, "what was settled are others"
