"""What `headgate explain` makes of journals: which decisions, when they were taken, lag and latency around them."""

import io
import time
from dataclasses import replace

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from headgate.cli.explain import left_out, lines
from headgate.cli.main import app
from headgate.cli.moments import moment_s
from headgate.cli.run import sentence
from headgate.cli.view import _decisions, render
from headgate.controller.explaining import Answer, Explanation, Moment, Question, moment, triggered_ms
from headgate.controller.status import PipelineStatus
from headgate.model.messages import (
    CommitRecord,
    ConsumerCapacity,
    DecisionRecord,
    Measurement,
    PartitionMove,
    PartitionRate,
)

NOON_MS = 1_772_366_400_000  # 2026-03-01 12:00 UTC


def decision(at_ms: int, outcome: str = "applied", **fields: object) -> DecisionRecord:
    plain = DecisionRecord(at_ms, 1, 1, "overload", "why", outcome, 1, 2, 1, 0, 0, (), (), (), (), ())
    return replace(plain, **fields)  # type: ignore[arg-type]


def commit(at_ms: int, table: str, reached: dict[str, int], rows: int, latency_ms: int) -> CommitRecord:
    return CommitRecord(table, at_ms, "c", 1, 1, 1, 0, 1, rows, 0, 0, 0, 0, 0.1, 0, (latency_ms,) * 21, reached)


def measurement(at_ms: int, *ends: tuple[str, int, int]) -> Measurement:
    return Measurement(at_ms, 30.0, "offsets", tuple(PartitionRate(t, p, 100.0, 1.0, end, 30.0) for t, p, end in ends))


def test_a_decision_was_taken_before_it_was_carried_out() -> None:
    carried_out = decision(NOON_MS, measure_s=30.0, decide_s=0.5, ready_s=4.0, handover_s=1.5)
    assert triggered_ms(carried_out) == NOON_MS - 6000


def test_the_decision_in_force_at_a_time_is_the_last_one_taken_by_then() -> None:
    first, second = decision(NOON_MS), decision(NOON_MS + 60_000, handover_s=10.0)
    started = decision(NOON_MS + 40_000, "started")
    journal = [first, started, second]
    for count in (None, 1):
        assert Question(count, NOON_MS + 49_000).chosen(journal) == (first,)
        assert Question(count, NOON_MS + 50_000).chosen(journal) == (second,)
        assert Question(count, NOON_MS - 1).chosen(journal) == ()
    assert Question(9).chosen(journal) == (first, second)


def test_what_was_kept_told_failed_or_rehearsed_since_puts_no_decision_out_of_force() -> None:
    first, second = decision(NOON_MS), decision(NOON_MS + 1000)
    alert, kept = decision(NOON_MS + 2000, "alert", trigger="alert"), decision(NOON_MS + 3000, "kept")
    failed = decision(NOON_MS + 4000, "out of sync: consumer 3 was not ready")
    rehearsed, warned = decision(NOON_MS + 5000, "dry-run"), decision(NOON_MS + 6000, "dry-run", trigger="alert")
    journal = [first, second, alert, kept, failed, rehearsed, warned]
    assert Question(None, NOON_MS + 9000).chosen(journal) == (second,)
    assert Question(None, NOON_MS + 9000).is_answered((second,))
    assert Question(3).chosen(journal) == (alert, kept, failed)
    assert Question(None, NOON_MS + 9000, rehearsed=True).chosen(journal) == (rehearsed,)
    assert Question(9, rehearsed=True).chosen(journal) == (rehearsed, warned)
    assert not Question(3, NOON_MS + 1000).is_answered((first, second))


def test_lag_is_what_was_written_minus_what_the_slowest_table_held() -> None:
    measured = [measurement(NOON_MS - 1000, ("a", 0, 100), ("a", 1, 50), ("b", 0, 30), ("new", 0, 7))]
    commits = [
        commit(NOON_MS - 5000, "t1", {"a": 100, "b": 10}, 10, 400),
        commit(NOON_MS - 2000, "t1", {"a": 140, "b": 30}, 30, 400),
        commit(NOON_MS - 3000, "t2", {"a": 120}, 60, 2000),
        commit(NOON_MS + 1, "t2", {"a": 150}, 60, 9000),  # later than asked about
    ]
    seen = moment(NOON_MS, measured, commits)
    # a: 150 written, 120 in t2 (the slower one); b: 30 written, 30 there; of the new topic no commit says anything yet.
    assert seen.lag_records == 30
    assert seen.bytes_per_s == 400.0
    # 40 records took 0.4 s and 60 took 2 s, so the median one took 2 s.
    assert (seen.latency_p50_s, seen.latency_p99_s) == (2.0, 2.0)


def test_a_table_that_stands_still_does_not_pass_for_one_without_lag() -> None:
    """Commits are looked for in the ten minutes before, so one that stood still for longer is not among them."""
    measured = [measurement(NOON_MS - 1000, ("a", 0, 1000))]
    commits = [commit(NOON_MS - 2000, "t1", {"a": 1000}, 10, 400), commit(NOON_MS + 1, "t2", {"a": 0}, 1, 400)]
    seen = moment(NOON_MS, measured, commits, ["t1", "t2"])
    assert (seen.lag_records, seen.silent) == (0, ("t2",))
    console = Console(width=200, record=True, file=io.StringIO())
    for line in lines(Explanation(decision(NOON_MS), seen, ()), 2e6):
        console.print(line)
    text = console.export_text()
    assert "at least 0 records" in text
    assert "t2: no commit in the ten minutes before, so more may have waited there" in text


def test_what_is_not_known_is_not_made_up() -> None:
    nothing = moment(NOON_MS, [], [])
    assert (nothing.bytes_per_s, nothing.lag_records, nothing.latency_p50_s) == (None, None, None)
    no_commits = moment(NOON_MS, [measurement(NOON_MS, ("a", 0, 100))], [])
    assert (no_commits.bytes_per_s, no_commits.lag_records) == (100.0, None)


def test_moves_alternatives_and_times_are_all_told() -> None:
    told = decision(
        NOON_MS,
        reason="consumer 1 gets 240 kB/s",
        rejected=("keep: it would stay overloaded",),
        inputs={"needed_consumers": 2.0},
        created=(2,),
        moves=(PartitionMove("a", 3, 1, 2), PartitionMove("a", 4, 0, 1)),
        measure_s=30.0,
        ready_s=4.0,
    )
    text = "\n".join(str(line) for line in lines(Explanation(told, moment(NOON_MS, [], []), ()), 2e6))
    for part in ("consumer 1 gets 240 kB/s", "keep: it would stay overloaded", "needed_consumers 2", "started 2",
                 "a-3 1 → 2", "a-4 – → 1", "t1 measure up to 30.0 s", "t3 consumers ready 4.0 s"):  # fmt: skip
        assert part in text


def test_what_came_of_a_decision_is_told_beside_how_it_was_before() -> None:
    def seen(at_ms: int, reached: int, latency_ms: int) -> Moment:
        return moment(at_ms, [measurement(at_ms, ("a", 0, 9000))], [commit(at_ms, "t", {"a": reached}, 5, latency_ms)])

    afterwards = (seen(NOON_MS + 60_000, 8500, 3000), seen(NOON_MS + 300_000, 9000, 1200))
    console = Console(width=200, record=True, file=io.StringIO())
    for line in lines(Explanation(decision(NOON_MS), seen(NOON_MS, 1000, 40_000), afterwards), 2e6):
        console.print(line)
    course = [" ".join(line.split()) for line in console.export_text().splitlines() if "records" in line]
    assert course == [
        "when it was taken 100 B/s 8,000 records 40.0 s 40.0 s",
        "1 min after 100 B/s 500 records 3.0 s 3.0 s",
        "5 min after 100 B/s 0 records 1.2 s 1.2 s",
    ]


def test_what_consumers_count_for_is_told_beside_what_is_configured() -> None:
    slow = decision(NOON_MS, capacities=(ConsumerCapacity(1, 0.8e6, 0.8e6), ConsumerCapacity(2, 0.7e6, 0.7e6)))
    told = "\n".join(str(line) for line in lines(Explanation(slow, moment(NOON_MS, [], []), ()), 2e6))
    assert "each counts for 0.8 MB/s (configured 2 MB/s); measured 1: 0.8 MB/s, 2: 0.7 MB/s (counts for" in told


def test_why_there_are_fewer_decisions_than_asked_for_is_said_in_one_line() -> None:
    one = Explanation(decision(NOON_MS), moment(NOON_MS, [], []), ())
    other = "of another release of Headgate, whose messages this one does not read"
    assert left_out(Answer((one, one), 0), 2, True, False) == ""
    assert left_out(Answer((one, one), 7), 2, True, False) == "", "they are older than what was asked for"
    assert left_out(Answer((one,), 0), 2, True, True) == "1 decision instead of 2: the journal holds no more up to then"
    assert left_out(Answer((one,), 1), 3, False, False) == f"1 record of its journal is {other}"
    assert left_out(Answer((one,), 1), 1, False, True) == f"1 record of its journal is {other}"
    assert left_out(Answer((one,), 1234), 2, True, False) == (
        f"1 decision instead of 2: the journal holds no more; 1,234 records of its journal are {other}"
    )


def test_status_says_that_decisions_are_of_another_release_where_it_can_show_none() -> None:
    def text(unread: int, *decisions: DecisionRecord) -> str:
        status = PipelineStatus(0.0, None, (), (), None, None, None, 0, 0, 0, 0, 0, None, None, unread_decisions=unread)
        console = Console(width=200, record=True, file=io.StringIO())
        console.print(render(status, decisions))
        return console.export_text()

    said = "of another release of Headgate are not shown"
    assert f"12 decisions {said}" in text(12)
    assert said not in text(0)
    assert said not in text(12, decision(NOON_MS, moved=1))


def test_times_are_read_as_utc_or_as_long_ago() -> None:
    assert moment_s("2026-03-01T12:00", NOON_MS / 1000) == NOON_MS / 1000
    assert moment_s("2026-03-01T13:00+01:00", NOON_MS / 1000) == NOON_MS / 1000
    assert moment_s("15min", 1000.0) == 100.0
    for wrong in ("yesterday", "-5min", ""):
        with pytest.raises(typer.BadParameter, match="neither a time"):
            moment_s(wrong, time.time())


def test_measured_capacities_and_the_pause_of_moves_are_told() -> None:
    d = decision(
        NOON_MS,
        moves=(PartitionMove("t", 0, 2, 1),),
        handover_s=2.0,
        pause_s=0.7,
        expected_pause_s=0.5,
        capacities=(ConsumerCapacity(1, 0.0, 2e6), ConsumerCapacity(2, 0.8e6, 0.8e6), ConsumerCapacity(3, 2.4e6, 2e6)),
    )
    told = [str(line) for line in lines(Explanation(d, moment(NOON_MS, [], []), ()), 2e6)]
    assert any(
        "each counts for 2 MB/s; measured 1: not measured, 2: 0.8 MB/s (counts for 0.8 MB/s), 3: 2.4 MB/s" in line
        for line in told
    )
    assert any("no partition paused longer than 0.7 s (expected 0.5 s)" in line for line in told)


@pytest.mark.parametrize(
    ("impossible", "said"),
    [
        ("99999999999d", "before 1970"),
        ("0001-01-01", "before 1970"),
        ("0001-01-01T00:00+23:00", "before 1970"),
        ("2026-03-01T12:02", "in the future"),
        ("9999-12-31T23:59-23:00", "in the future"),
    ],
)
def test_a_time_of_which_no_journal_can_know_is_refused_in_words(impossible: str, said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        moment_s(impossible, NOON_MS / 1000)


def test_more_decisions_than_can_be_explained_at_once_are_refused() -> None:
    refused = CliRunner().invoke(app, ["explain", "pipeline.yaml", "--last", "5000"])
    assert refused.exit_code == 2
    assert "1000" in refused.output


def test_an_alert_is_told_once() -> None:
    said = "consumer 3 was not ready [after 120 s]"
    alert = decision(NOON_MS, outcome="alert", reason=said, alerts=(said,), consumers_before=2, consumers_after=2)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(sentence(alert))
    assert console.export_text() == f"alert: {said}\n"
    console.print(_decisions([alert]))
    assert console.export_text().count(said) == 1
    explained = [str(line) for line in lines(Explanation(alert, moment(NOON_MS, [], []), ()), 2e6)]
    assert sum(said in line for line in explained) == 1


def test_what_a_decision_could_not_help_is_told_beside_its_reason() -> None:
    told = decision(NOON_MS, outcome="applied", reason="why", alerts=("a-0 is hot",))
    assert sentence(told).endswith("why\n  [yellow]a-0 is hot[/]")
