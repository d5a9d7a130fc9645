"""Scheduling disciplines of one server, by hand and by their laws."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError
from headgate.simulation.disciplines import (
    Discipline,
    Fifo,
    Job,
    Level,
    MultiLevel,
    Priority,
    RoundRobin,
    ShortestFirst,
    ShortestRemaining,
    simulate,
)


def jobs(*rows: tuple[float, float]) -> list[Job]:
    """Arrival and work of each."""
    return [Job(id, *row) for id, row in enumerate(rows)]


def test_fifo_serves_in_order_of_arrival() -> None:
    result = simulate(jobs((0, 3), (1, 2), (2, 1)), Fifo())
    assert result.ended == (0, 1, 2)
    assert result.latencies_s == {0: 3, 1: 4, 2: 4}
    assert result.starvation_s == 3


def test_priority_serves_the_urgent_first_and_ageing_ends_starvation() -> None:
    """Urgent jobs of a second each come every second; the patient one waits for all ten, or until it has aged."""
    rows = [Job(0, 0, 1, priority=1), *(Job(n, n - 1, 1, priority=0) for n in range(1, 11))]
    assert simulate(rows, Priority()).ended[-1] == 0
    aged = simulate(rows, Priority(age_s=3))
    # After 3 s of waiting it is of the same class as the others, and came before those.
    assert aged.ended.index(0) == 3
    assert aged.starvation_s < 10


def test_a_job_that_uses_up_its_turn_is_demoted() -> None:
    """Both begin in class 0; the long one falls to class 1 after its turn, so the second goes next."""
    rows = [Job(0, 0, 3), Job(1, 0, 1), Job(2, 1, 1)]
    assert simulate(rows, Priority(turn_s=1)).ended == (1, 2, 0)


def test_round_robin_takes_turns() -> None:
    """Turns of 1: 0 1 2 0 1 0."""
    result = simulate(jobs((0, 3), (0, 2), (0, 1)), RoundRobin(1))
    assert result.latencies_s == {2: 3, 1: 5, 0: 6}


def test_switching_costs_time() -> None:
    """0 1 0 1: three switches of half a second."""
    result = simulate(jobs((0, 2), (0, 2)), RoundRobin(1), switch_s=0.5)
    assert (result.switching_s, result.duration_s) == (1.5, 5.5)
    assert result.utilisation == pytest.approx(4 / 5.5)


def test_a_turn_may_follow_the_jobs_seen() -> None:
    adaptive = RoundRobin(100, samples=3)
    for job in jobs((0, 9), (0, 1), (0, 2), (0, 4)):
        adaptive.add(job, 0)
    assert adaptive.turn_s == 2


@pytest.mark.parametrize("make", [lambda: RoundRobin(0), lambda: Priority(age_s=0), lambda: MultiLevel([])])
def test_nonsense_is_refused(make: Callable[[], Discipline]) -> None:
    with pytest.raises(ConfigError):
        make()


def test_shortest_first_believes_estimates() -> None:
    rows = [Job(0, 0, 1), Job(1, 0, 5, estimate_s=2), Job(2, 0, 3, estimate_s=4)]
    assert simulate(rows, ShortestFirst()).ended == (0, 1, 2)


def test_alternating_picks_the_largest_every_second_time() -> None:
    assert simulate(jobs((0, 1), (0, 2), (0, 3), (0, 4)), ShortestFirst(alternate=True)).ended == (0, 3, 1, 2)


def test_shortest_remaining_interrupts() -> None:
    """The first has 4 left when the second comes with 1."""
    result = simulate(jobs((0, 5), (1, 1), (2, 4)), ShortestRemaining())
    assert result.latencies_s == {1: 1, 0: 6, 2: 8}


def test_levels_demote_what_is_served_beyond_their_limit() -> None:
    """Job 0 uses 2 of its 5 on level 0, then 3 on level 1; job 1 comes at 3 and goes first."""
    levels = [Level(2, Fifo), Level(4, lambda: RoundRobin(1))]
    result = simulate(jobs((0, 5), (3, 1)), MultiLevel(levels))
    assert result.latencies_s == {1: 1, 0: 6}
    with pytest.raises(ConfigError):
        MultiLevel([Level(4, Fifo), Level(2, Fifo)])


def test_jobs_treated_alike_are_fair() -> None:
    assert simulate(jobs((0, 1), (5, 1)), Fifo()).fairness == pytest.approx(1.0)
    assert simulate(jobs((0, 9), (0, 1)), Fifo()).fairness < 0.7


DISCIPLINES: list[Callable[[], Discipline]] = [
    Fifo,
    Priority,
    lambda: RoundRobin(1.5),
    lambda: RoundRobin(1, samples=3),
    ShortestFirst,
    lambda: ShortestFirst(alternate=True),
    ShortestRemaining,
    lambda: MultiLevel([Level(1, Fifo), Level(2, lambda: RoundRobin(1)), Level(4, Fifo)]),
]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=12))
def test_no_discipline_loses_work_and_none_beats_shortest_remaining(rows: list[tuple[int, int]]) -> None:
    results = [simulate(jobs(*rows), make()) for make in DISCIPLINES]
    for result in results:
        assert sorted(result.ended) == list(range(len(rows)))
        assert result.busy_s == pytest.approx(sum(work for _, work in rows))
        assert result.duration_s == pytest.approx(results[0].duration_s)
        assert min(result.waits_s.values()) >= -1e-9
        assert result.mean_latency_s >= results[6].mean_latency_s - 1e-9


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=12))
def test_endless_turns_are_first_come_first_served(rows: list[tuple[int, int]]) -> None:
    assert simulate(jobs(*rows), RoundRobin(math.inf)) == simulate(jobs(*rows), Fifo())
