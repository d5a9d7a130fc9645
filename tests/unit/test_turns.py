"""Turns written down beforehand: equal for nodes, or in favour of those that were sent less."""

from collections import Counter
from itertools import cycle, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.producers.protocol import ClusterView
from headgate.producers.turns import MOST_TURNS, NodeTurns, SqfTurns, Turns, poured, rounds, spread
from headgate.topology.failures import failed
from tests.topologies import cluster

U = cluster({"A": [[1, 2], [2, 1], [2, 1]]}, nodes=2)


def rows(turns: Turns, count: int, tasks: int = 1, known: bool = True) -> Counter[int]:
    """Of so many rows in all, as many for each task, what each partition gets."""
    given = Counter[int]()
    for task in range(tasks):
        own = count // tasks
        first = min(own, turns.first_rows(task, tasks if known else None))
        given.update(islice(cycle(turns.first), first) if first else ())
        given.update(islice(cycle(turns.rounds), own - first))
    return given


def test_a_round_gives_every_node_the_same_and_every_partition_of_a_node() -> None:
    """Node 1 leads partition 0, node 2 leads 1 and 2; three on one and two on the other need six turns of each."""
    assert rounds("A", ClusterView.of(U)) == (0, 1, 0, 2)
    view = ClusterView.of(cluster({"A": [[1], [1], [1], [2], [2]]}, nodes=2))
    assert Counter(rounds("A", view)) == {0: 2, 1: 2, 2: 2, 3: 3, 4: 3}


def test_without_any_leader_all_partitions_take_turns() -> None:
    nobody = ClusterView.of(failed(U, [1, 2]))
    assert NodeTurns().turns("A", nobody) == SqfTurns().turns("A", nobody) == Turns((0, 1, 2))


def test_rounds_stay_short_whatever_the_numbers_of_partitions() -> None:
    """7, 11, 13, 17 and 19 partitions: all equal only after 323,323 turns of each node."""
    counts = (7, 11, 13, 17, 19)
    view = ClusterView.of(cluster({"A": [[n + 1] for n, count in enumerate(counts) for _ in range(count)]}, nodes=5))
    turns = rounds("A", view)
    assert len(turns) <= MOST_TURNS
    per_node = [Counter(p for p in turns if p in led) for led in view.leaders["A"].values()]
    assert len({counter.total() for counter in per_node}) == 1
    assert all(max(counter.values()) - min(counter.values()) <= 1 for counter in per_node)


@pytest.mark.parametrize(
    ("usage", "count", "shares"),
    [
        ([0, 0, 10], 5, [2.5, 2.5, 0]),
        ([0, 10, 20], 30, [20, 10, 0]),
        ([0, 10, 20], 60, [30, 20, 10]),
        ([5], 7, [7]),
    ],
)
def test_rows_are_poured_where_least_is(usage: list[float], count: int, shares: list[float]) -> None:
    assert poured(usage, count) == pytest.approx(shares)


def test_shares_are_spread_evenly() -> None:
    """Two thirds and a third: of any thirty turns in a row twenty and ten, give or take one."""
    turns = spread([2, 1], [(0,), (1, 2)])
    for begin in range(0, len(turns) - 30, 7):
        assert abs(Counter(turns[begin : begin + 30])[0] - 20) <= 1
    assert abs(turns.count(1) - turns.count(2)) <= 1


def test_sinks_that_share_level_nodes_that_their_topics_share() -> None:
    """B-25: A on node 1 and twice on 2, B on 2 and 3, 600 rows each in turn: a third of all for every node."""
    view = ClusterView.of(cluster({"A": [[1], [2], [2]], "B": [[2], [3]]}))
    shared, ends = SqfTurns(), Counter({("A", 0): 500, ("A", 1): 0, ("A", 2): 0, ("B", 0): 0, ("B", 1): 70})
    for _ in range(10):
        for topic in "AB":
            assert shared.counted([topic]) <= {"A", "B"}
            shared.seen(view, ends)
            ends.update({(topic, p): n for p, n in rows(shared.turns(topic, view), 600).items()})
    written = {1: ends["A", 0] - 500, 2: ends["A", 1] + ends["A", 2] + ends["B", 0], 3: ends["B", 1] - 70}
    assert sum(written.values()) == 12_000
    assert list(written.values()) == pytest.approx([4_000] * 3, abs=300)  # half of what one write brings
    assert abs(ends["A", 1] - ends["A", 2]) <= 20  # one for each write, and one where the write changes its turns


def behind(gap: int) -> Turns:
    """Of topic A on two nodes, which got nothing and so many rows in its last write."""
    view, sqf = ClusterView.of(cluster({"A": [[1], [2]]}, nodes=2)), SqfTurns()
    sqf.counted(["A"])
    sqf.seen(view, {("A", 0): 0, ("A", 1): 0})
    sqf.seen(view, {("A", 0): 0, ("A", 1): gap})
    return sqf.turns("A", view)


@pytest.mark.parametrize("tasks", [1, 7, 10, 60])
def test_a_gap_is_made_up_for_once_however_many_tasks_write(tasks: int) -> None:
    """600 rows behind and 6,300 to write: 3,450 for one node and 2,850 for the other, so both end at 3,450."""
    assert rows(behind(600), 6_300, tasks) == pytest.approx({0: 3_450, 1: 2_850}, abs=tasks)


@pytest.mark.parametrize("tasks", [1, 7, 10, 60])
def test_where_the_number_of_tasks_is_not_known_a_gap_gets_smaller_and_is_never_overshot(tasks: int) -> None:
    given = rows(behind(600), 6_300, tasks, known=False)
    assert 0 < given[0] - given[1] <= 600
    assert given[0] - given[1] >= min(300, 6_300 // tasks)


@given(st.integers(0, 10_000), st.integers(1, 300))
def test_tasks_share_the_first_rows(count: int, tasks: int) -> None:
    turns = Turns((0,), (0,), count)
    assert sum(turns.first_rows(task, tasks) for task in range(tasks)) == count
    assert sum(turns.first_rows(task, None) for task in range(tasks)) <= count


def test_a_node_that_comes_back_gets_its_share_and_not_everything() -> None:
    """B-34."""
    topology = cluster({"A": [[1, 2], [2, 1]]}, nodes=2)
    sqf, ends = SqfTurns(), Counter({("A", 0): 0, ("A", 1): 0})
    for now in (topology, failed(topology, [1]), topology):
        view = ClusterView.of(now)
        sqf.counted(["A"])
        sqf.seen(view, ends)
        given = rows(sqf.turns("A", view), 1_000)
        ends.update({("A", p): n for p, n in given.items()})
    assert given == {0: 500, 1: 500}
