"""Turns written down beforehand: equal for nodes, or in favour of those that were sent less."""

from collections import Counter
from itertools import cycle, islice

import pytest

from headgate.producers.protocol import ClusterView
from headgate.producers.turns import MOST_TURNS, NodeTurns, SqfTurns, Turns, poured, rounds, spread
from headgate.topology.failures import failed
from tests.topologies import cluster

U = cluster({"A": [[1, 2], [2, 1], [2, 1]]}, nodes=2)


def rows(turns: Turns, count: int) -> Counter[int]:
    first = list(islice(cycle(turns.first), min(count, turns.rows))) if turns.rows else []
    return Counter(first + list(islice(cycle(turns.rounds), count - len(first))))


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
