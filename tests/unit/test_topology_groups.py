"""Groups and overlaps: the worked examples of the paper, its worst cases, and what its algorithms cost."""

import operator
from collections.abc import Callable
from itertools import pairwise

import pytest

from headgate.topology import worst_cases
from headgate.topology.cluster import Topology
from headgate.topology.groups import NodeSet, Question, dpo, dpo2, get_max_groups, leader_sets, meet, overlap_exists
from headgate.topology.history import History
from headgate.topology.overlaps import Overlaps
from tests.topologies import cluster


def names(groups: object) -> list[str]:
    return [str(group) for group in groups]  # type: ignore[attr-defined]


def test_the_worked_example_has_three_groups_and_two_overlaps() -> None:
    """B-14: A on {1,2,3}, B and C on {2,3}, D on {1}."""
    topology = cluster({"A": [[1], [2], [3]], "B": [[2], [3]], "C": [[3], [2]], "D": [[1]]})
    groups = get_max_groups(leader_sets(topology))
    assert names(groups) == ["{A}", "{B, C}", "{D}"]
    found = [(str(o.first), str(o.second), set(o.shared)) for o in dpo(groups)]
    assert found == [("{A}", "{B, C}", {2, 3}), ("{A}", "{D}", {1})]
    by_node = {node: names(users) for node, users in dpo2(groups)}
    assert by_node == {1: ["{A}", "{D}"], 2: ["{A}", "{B, C}"], 3: ["{A}", "{B, C}"]}


def test_cluster_z_overlaps_on_node_2_while_x_and_y_do_not() -> None:
    z = Overlaps.of(cluster({"A": [[1], [2]], "B": [[2]], "C": [[2], [1]]}))
    assert (z.partial, names(z.groups())) == (True, ["{A, C}", "{B}"])
    assert [node for node, _ in z.shared()] == [2]
    x = Overlaps.of(cluster({"A": [[1], [2]], "B": [[1], [2]], "C": [[2], [1]]}))
    assert (x.partial, names(x.groups())) == (False, ["{A, B, C}"])
    y = Overlaps.of(cluster({"A": [[1], [2]], "B": [[3]], "C": [[2], [1]]}))
    assert (y.partial, names(y.groups())) == (False, ["{A, C}", "{B}"])


def test_replicas_that_follow_do_not_count() -> None:
    assert not Overlaps.of(cluster({"A": [[1, 2]], "B": [[2, 1]]})).partial


@pytest.mark.parametrize(("nodes", "pairs"), [(2, 2), (3, 15), (4, 80), (5, 375)])
@pytest.mark.parametrize("topics_per_group", [1, 3])
def test_maximum_overlap_finds_what_the_closed_forms_say(nodes: int, pairs: int, topics_per_group: int) -> None:
    topology = worst_cases.maximum_overlap(nodes, topics_per_group * (2**nodes - 1))
    assert worst_cases.pairs_at_maximum_overlap(nodes) == pairs
    overlaps = Overlaps.of(topology)
    assert overlaps.count == len(get_max_groups(leader_sets(topology))) == 2**nodes - 1
    assert len(overlaps.pairs()) == pairs
    assert [(node, len(users)) for node, users in overlaps.shared()] == [
        (node, 2 ** (nodes - 1)) for node in range(1, nodes + 1)
    ]


def test_three_nodes_make_at_most_seven_groups() -> None:
    assert worst_cases.groups_at_maximum_overlap(3) == 7


class Looked:
    """Counts the nodes that an algorithm looks at: as many as the smaller of two sets has."""

    def __init__(self, question: Question) -> None:
        self._question, self.nodes = question, 0

    def __call__(self, a: NodeSet, b: NodeSet) -> bool:
        self.nodes += min(len(a), len(b))
        return self._question(a, b)


def cost_of_groups(topology: Topology) -> int:
    looked = Looked(operator.eq)
    get_max_groups(leader_sets(topology), looked)
    return looked.nodes


def cost_of_dpo(topology: Topology) -> int:
    looked = Looked(meet)
    dpo(get_max_groups(leader_sets(topology)), looked)
    return looked.nodes


def test_one_group_costs_a_comparison_of_all_nodes_per_further_topic() -> None:
    """B-13: O(1) for one topic, O(#topics #nodes) for more; overlap is never looked for."""
    assert cost_of_groups(worst_cases.one_group(8)) == 0
    assert cost_of_groups(worst_cases.one_group(8, topics=100)) == 99 * 8
    assert cost_of_dpo(worst_cases.one_group(8, topics=100)) == 0


def test_disjoint_groups_cost_the_square_of_the_nodes() -> None:
    """B-13: topic k of the first n is compared with the k - 1 before it; later ones with the groups up to their own."""
    assert cost_of_groups(worst_cases.disjoint_groups(10)) == 45
    assert cost_of_groups(worst_cases.disjoint_groups(20)) == 190
    even = 45 + 9 * sum(range(1, 11))
    assert cost_of_groups(worst_cases.disjoint_groups(10, topics=100)) == even
    assert cost_of_dpo(worst_cases.disjoint_groups(10)) == 45
    assert cost_of_dpo(worst_cases.disjoint_groups(10, topics=100)) == 45


@pytest.mark.parametrize("cost", [cost_of_groups, cost_of_dpo])
def test_maximum_overlap_costs_four_to_the_nodes(cost: Callable[[Topology], int]) -> None:
    """B-13: O(4^n n). Pairs are about 4^n / 2, and each looks at no more than n nodes."""
    costs = [cost(worst_cases.maximum_overlap(n)) for n in range(3, 9)]
    assert all(c <= 4**n * n / 2 for n, c in enumerate(costs, 3))
    growth = [b / a for a, b in pairwise(costs)]
    assert all(4 < g < 4 * (n + 1) / n + 1.5 for n, g in enumerate(growth, 3))
    assert growth[-1] < growth[0]


def test_the_cost_of_maximum_overlap_grows_with_topics_for_groups_but_not_for_dpo() -> None:
    """B-13: O(#topics 2^n n) against a cost that does not depend on #topics."""
    small, large = worst_cases.maximum_overlap(5, 31 * 10), worst_cases.maximum_overlap(5, 31 * 20)
    once = cost_of_groups(worst_cases.maximum_overlap(5))
    per_round = (cost_of_groups(large) - cost_of_groups(small)) / 10
    assert cost_of_groups(small) == once + 9 * per_round
    assert cost_of_dpo(small) == cost_of_dpo(large)


def test_the_yes_or_no_question_ends_at_the_first_pair() -> None:
    looked = Looked(meet)
    assert overlap_exists(get_max_groups(leader_sets(worst_cases.maximum_overlap(6))), looked)
    assert cost_of_dpo(worst_cases.maximum_overlap(6)) > 100 * looked.nodes


def test_history_remembers_when_each_pair_was_seen_first_and_last() -> None:
    history = History()
    both = Overlaps.of(cluster({"A": [[1], [2]], "B": [[2], [3]]}))
    apart = Overlaps.of(cluster({"A": [[1]], "B": [[2], [3]]}))
    for epoch, overlaps in ((4, both), (5, apart), (7, both), (8, apart)):
        history.note(epoch, overlaps)
    (seen,) = history.pairs
    assert (seen.first_epoch, seen.last_epoch) == (4, 7)
    assert (set(seen.overlap.first.nodes), set(seen.overlap.second.nodes)) == ({1, 2}, {2, 3})


def test_history_says_how_many_pairs_it_had_no_room_for() -> None:
    history = History(most_pairs=10)
    news = history.note(1, Overlaps.of(worst_cases.maximum_overlap(3)))
    assert (len(history.pairs), news.forgotten) == (10, 5)


def pairs_of(*sets: tuple[int, int]) -> Overlaps:
    """Topics on two nodes each: those that share one overlap."""
    return Overlaps.of(cluster({f"t{n}": [[a], [b]] for n, (a, b) in enumerate(sets)}, nodes=9))


def test_a_full_history_makes_room_for_a_new_overlap_and_forgets_what_is_longest_over() -> None:
    """B-11: room for two; the third pair takes the place of the first, which was over before the second."""
    history = History(most_pairs=2)
    for epoch, sets in enumerate([((1, 2), (2, 3)), ((3, 4), (4, 5)), ((5, 6), (6, 7))]):
        news = history.note(epoch, pairs_of(*sets))
        assert [(set(s.overlap.shared), s.first_epoch) for s in news.begun] == [({sets[0][1]}, epoch)]
        assert [set(s.overlap.shared) for s in news.over] == ([{2 * epoch}] if epoch else [])
        assert news.forgotten == 0
    assert [set(seen.overlap.shared) for seen in history.pairs] == [{4}, {6}]


def test_a_known_overlap_is_not_called_over_because_many_others_came_before_it() -> None:
    """Room for one, two are looked at; the known pair is the last of four."""
    history = History(most_pairs=1)
    history.note(0, pairs_of((7, 8), (8, 9)))
    news = history.note(1, pairs_of((1, 2), (2, 3), (3, 4), (4, 5), (7, 8), (8, 9)))
    assert (news.begun, news.over) == ((), ())
    assert news.forgotten == 2
    (seen,) = history.pairs
    assert (set(seen.overlap.shared), seen.first_epoch, seen.last_epoch) == ({8}, 0, 1)


def test_a_pair_is_over_when_one_of_its_nodes_is_not_there_any_more() -> None:
    history = History()
    history.note(0, pairs_of((1, 2), (2, 9)))
    (over,) = history.note(1, Overlaps.of(cluster({"t0": [[1], [2]], "t1": [[2]]}, nodes=2))).over
    assert set(over.overlap.second.nodes) == {2, 9}
