"""What the report finds, and what it says about failures, spares and planned changes."""

import re
from dataclasses import replace

import pytest

from headgate.errors import ConfigError
from headgate.kafka.topology import with_rates
from headgate.model import TopicPartition
from headgate.topology.advice import advise, judged
from headgate.topology.checks import Thresholds, findings_of
from headgate.topology.cluster import ConsumerGroup, Move, Node, Partition, Topic, Topology
from headgate.topology.failures import failed, recovered, replaced, returned
from headgate.topology.findings import Severity
from headgate.topology.groups import Group
from headgate.topology.lints import Lint
from headgate.topology.overlaps import Overlaps
from headgate.topology.page import page
from headgate.topology.potential import potential_overlaps
from headgate.topology.reassignment import Reassignment, difference, read_reassignment, reassigned
from headgate.topology.report import make_report
from headgate.topology.round_robin import preconditions
from headgate.topology.safety import objections, refuse_moving
from headgate.topology.simulate import Failures, simulate, spares_of
from headgate.topology.standing import Standing
from tests.topologies import cluster, topic

EVEN = {"A": [[1, 2], [2, 3], [3, 1]], "B": [[1, 3], [2, 1], [3, 2]]}


def kinds(topology: Topology, thresholds: Thresholds = Thresholds()) -> dict[str, Severity]:  # noqa: B008
    return {finding.kind: finding.severity for finding in findings_of(Standing(topology), thresholds)}


def test_an_even_cluster_is_healthy() -> None:
    report = make_report(Standing(cluster(EVEN)), "here")
    assert report.findings == ()
    assert report.verdict == "HEALTHY: no node carries more than its share (3 nodes, 2 topics, 6 partitions)"


def test_four_partitions_on_three_nodes_are_uneven_though_nothing_overlaps() -> None:
    """B-15: two of four on node 3, so 2 * 3 / 4 = 1.5 times an even share."""
    topology = cluster({"A": [[1, 2], [2, 3], [3, 1], [3, 2]]})
    standing = Standing(topology)
    assert not standing.overlaps.partial
    assert standing.topics["A"].spread.skew == 1.5
    assert kinds(topology)["uneven"] is Severity.warning
    assert "uneven" not in kinds(topology, Thresholds(uneven_skew=1.5))


def test_a_node_that_leads_nothing_is_seen() -> None:
    """B-16: averages over nodes that lead would hide it."""
    assert "idle-node" in kinds(cluster({"A": [[1, 2], [2, 1]]}))


def test_a_cluster_with_topics_that_nobody_measured_is_not_called_healthy() -> None:
    """`orders` is even; `clicks`, on node 1 alone, may carry ten times as much for all anybody knows."""
    rows = {"orders": EVEN["A"], "clicks": [[1, 2]]}
    measured = with_rates(cluster(rows), {"orders": 1e6})
    report = make_report(Standing(measured), "here")
    assert report.verdict.startswith("WARNING: 1 topic without a measured rate")
    (finding,) = (f for f in report.findings if f.kind == "unmeasured")
    assert finding.evidence == ("clicks: led by node 1",)
    assert report.unmeasured == ("clicks",)
    balanced = next(c for c in report.preconditions if "by traffic" in c.what)
    assert (balanced.holds, balanced.evidence) == (None, "nobody measured 1 topic")
    assert any("Nobody measured 1 topic" in word for word in advise(Standing(measured)).words)
    # Of orders node 1 has a third of 1e6, of clicks all of 1e7: 31/33 of the traffic of three nodes is 2.82 shares.
    known = make_report(Standing(with_rates(cluster(rows), {"orders": 1e6, "clicks": 1e7})), "here")
    assert known.verdict.startswith("WARNING: node 1 carries 2.82 times its fair share of the traffic;")
    assert known.unmeasured == ()


def test_an_overload_among_measured_topics_is_said_to_be_one_of_what_was_measured() -> None:
    measured = with_rates(cluster({"A": [[1, 2]], "B": EVEN["B"]}), {"A": 5.0})
    whats = {finding.kind: finding.what for finding in findings_of(Standing(measured))}
    assert whats["overloaded-node"] == "node 1 carries 3.00 times its fair share of the traffic that was measured"


def test_lints_of_single_topics() -> None:
    one_node = cluster({"A": [[1], [1]]}, nodes=2)
    assert {"one-node", "no-replication", "crowded", "idle-node"} <= kinds(one_node).keys()
    assert {"single-node", "no-replication"} <= kinds(cluster({"A": [[1]]}, nodes=1)).keys()
    offline = failed(cluster({"A": [[1], [2, 1]]}, nodes=2), [1])
    assert kinds(offline)["offline"] is Severity.critical
    assert kinds(offline)["under-replicated"] is Severity.warning


def test_too_few_in_sync_for_all_acknowledgements_is_critical() -> None:
    topology = Topology.of([Node(1), Node(2)], [topic("A", [[1, 2]], min_insync_replicas=2)])
    assert "unwritable" not in kinds(topology)
    assert kinds(failed(topology, [2]))["unwritable"] is Severity.critical


def test_overlap_is_a_warning_only_where_it_costs_balance() -> None:
    level = {"A": [[1, 2], [2, 1]], "B": [[2, 3], [3, 2]], "C": [[3, 1], [1, 3]]}
    assert kinds(cluster(level))["overlap"] is Severity.note
    assert kinds(cluster(level, rates={"A": 4}))["overlap"] is Severity.warning


def test_an_overlap_names_its_topics_and_only_the_groups_that_share() -> None:
    """B-9, B-10, on cluster Z of B-14 beside three topics that share nothing."""
    alone = {name: [[node]] for name, node in (("D", 4), ("E", 5), ("F", 6))}
    topology = cluster({"A": [[1], [2]], "B": [[2]], "C": [[2], [1]], **alone}, nodes=6)
    (found,) = (f for f in findings_of(Standing(topology)) if f.kind == "overlap")
    assert found.what.startswith("2 of 5 groups of topics share 1 node in part")
    assert found.evidence == ("node 2: {A, C} and {B}",)


def test_a_node_that_very_many_groups_share_names_some_and_counts_the_rest() -> None:
    """Twelve topics, each on node 1 and one more."""
    topology = cluster({f"t{n:02}": [[1], [n]] for n in range(2, 14)}, nodes=13)
    shared = Overlaps.of(topology).most_shared(most_nodes=10, most_groups=3)
    assert [str(s) for s in shared] == ["node 1: {t02}, {t03}, {t04} and 9 more groups"]
    assert Group(tuple("abcdefg"), frozenset()).short() == "{a, b, c, d, e, … (7 topics)}"


def test_consumer_groups_that_do_not_fit_are_noted() -> None:
    """B-17: 6 partitions of two topics for 4 members and for 3, 3 partitions for 5, for 3 and for nobody."""
    groups = (
        ConsumerGroup("few", 4, ("A", "B")),
        ConsumerGroup("halves", 3, ("A", "B")),
        ConsumerGroup("idle", 5, ("A",)),
        ConsumerGroup("fits", 3, ("A",)),
        ConsumerGroup("nobody", 0, ("A",)),
    )
    found = findings_of(Standing(replace(cluster(EVEN), consumer_groups=groups)))
    assert {f.kind: f.evidence for f in found} == {
        "overloaded-member": (
            "few: 4 members for 6 partitions, some read 2 and some 1",
            "halves: 3 members for 6 partitions, 2 each",
        ),
        "idle-member": ("idle: 5 members for 3 partitions",),
        "empty-group": ("nobody: A",),
    }
    assert {f.severity for f in found} == {Severity.note}


def test_a_leader_away_from_home_is_noted() -> None:
    away = Topic("A", (Partition(0, 2, (1, 2), (1, 2)), Partition(1, 1, (2, 1), (1, 2))))
    assert "leader-away" in kinds(Topology.of([Node(1), Node(2)], [away]))


def test_the_preconditions_of_round_robin_are_told_apart() -> None:
    """B-18."""
    a = replace(topic("A", EVEN["A"]), record_size_variation=0.5, producer_rates=(1.0, 3.0))
    topology = Topology.of([Node(1), Node(2), Node(3)], [a, topic("B", [[1, 2], [2, 1]])])
    holds = [c.holds for c in preconditions(Standing(topology), Thresholds())]
    # Sizes vary by half; node 1 has 5/6 of 2/3; two of three nodes are shared; one producer sends three times as much.
    assert holds == [False, False, False, False]
    unmeasured = preconditions(Standing(cluster(EVEN)), Thresholds())
    assert [c.holds for c in unmeasured] == [None, True, True, None]
    assert "give record_size_variation in a file" in unmeasured[0].evidence
    assert "give producer_rates in a file" in unmeasured[3].evidence


# --- failures ---------------------------------------------------------------------------------------------------------


def test_leaders_are_elected_in_list_order_among_replicas_in_sync() -> None:
    """B-20."""
    row = Partition(0, 1, (1, 2, 3), (1, 3))
    topology = Topology.of([Node(1), Node(2), Node(3)], [Topic("A", (row,))])
    (after,) = failed(topology, [1]).topics[0].partitions
    assert (after.leader, after.isr) == (3, (3,))
    (lost,) = failed(topology, [1, 3]).topics[0].partitions
    assert (lost.leader, lost.isr) == (None, (1, 3))
    (unclean,) = failed(topology, [1, 3], unclean=True).topics[0].partitions
    assert (unclean.leader, unclean.isr) == (2, (2,))
    (there,) = returned(failed(topology, [1]), [1]).topics[0].partitions
    assert (there.leader, there.isr) == (3, (1, 3))
    (back,) = recovered(failed(topology, [1]), [1]).topics[0].partitions
    assert (back.leader, back.isr) == (1, (1, 3))


def test_a_replica_that_was_behind_does_not_lead_because_it_is_back_first() -> None:
    """Node 1 alone was in sync when both went away: its records are only there."""
    row = Partition(0, 1, (1, 2), (1,))
    gone = failed(Topology.of([Node(1), Node(2)], [Topic("A", (row,))]), [1, 2])
    (still,) = recovered(gone, [2]).topics[0].partitions
    assert (still.leader, still.isr) == (None, (1,))
    (first,) = recovered(gone, [1]).topics[0].partitions
    assert (first.leader, first.isr) == (1, (1,))
    (both,) = recovered(gone, [1, 2]).topics[0].partitions
    assert (both.leader, both.isr) == (1, (1, 2))


def test_failures_are_ranked_and_compared_with_the_healthy_cluster() -> None:
    """Node 1 alone holds B; without node 2 its leader of A goes to node 3, which then leads two of three."""
    topology = cluster({"A": [[1, 2], [2, 3], [3, 1]], "B": [[1]]})
    seen = simulate(Standing(topology))
    assert seen.complete
    assert seen.consequences[0].failed == (1,)
    assert seen.consequences[0].new[Lint.OFFLINE] == ("B",)
    without_2 = next(c for c in seen.consequences if c.failed == (2,))
    assert without_2.new[Lint.UNEVEN] == ("A",)
    assert without_2.default is not None
    # Rates are 1 each: node 1 carries 1/3 + 1, node 3 carries 2/3; a fair share of 2 is 1.
    assert without_2.default.busiest == 1
    assert without_2.default.skew == pytest.approx(4 / 3)
    # Balanced over nodes, A gives each a half and node 1 carries 1.5; one SQF for all sends A to node 3 alone.
    assert without_2.node is not None
    assert without_2.node.skew == pytest.approx(1.5)
    assert without_2.shared_sqf is not None
    assert without_2.shared_sqf.skew == pytest.approx(1.0)


def test_groups_apart_by_leaders_may_meet_after_a_failure() -> None:
    """B-19: A on {1, 2} and B on {3, 4}; A's follower on node 3 leads when node 1 fails."""
    topology = cluster({"A": [[1, 3], [2, 1]], "B": [[3, 4], [4, 3]]}, nodes=4)
    assert not Overlaps.of(topology).partial
    (found,) = potential_overlaps(topology, Overlaps.of(topology)).found
    assert found.witness == (1,)
    assert found.shared_replicas == {3}
    assert Overlaps.of(failed(topology, [1])).partial


def test_pairs_that_nobody_had_time_for_are_counted_and_said() -> None:
    """B-19, B-20: three groups are three pairs; time is over after two of them."""
    topology = cluster({"A": [[1, 3], [2, 1]], "B": [[3, 4], [4, 3]], "C": [[5, 1]]}, nodes=5)
    looks = iter([False, False, True])
    found = potential_overlaps(topology, Overlaps.of(topology), out_of_time=lambda: next(looks))
    assert (found.pairs_seen, found.pairs, found.complete) == (2, 3, False)
    standing = Standing(topology)
    report = make_report(standing, "here", simulation=simulate(standing), potentials=found)
    assert "2 of 3 pairs of groups looked at for overlaps after failures" in page(report, standing)
    (said,) = (f.what for f in report.findings if f.kind == "potential-overlap")
    assert "in a sample: 2 of 3 pairs of groups looked at" in said


def test_a_chain_of_failures_may_be_needed() -> None:
    """A's partition reaches node 4 only after nodes 1 and 2 are gone."""
    topology = cluster({"A": [[1, 2, 4], [5, 6]], "B": [[4, 3], [3, 4]]}, nodes=6)
    (found,) = potential_overlaps(topology, Overlaps.of(topology), most_failures=2).found
    assert found.witness == (1, 2)
    few = potential_overlaps(topology, Overlaps.of(topology), most_failures=1)
    assert [unreached.witness for unreached in few.found] == [None]
    # Whoever tries one failure only is told that there is more to see.
    (finding,) = make_report(Standing(cluster(EVEN)), "here", potentials=few).findings
    assert finding.what == "1 pair of groups share replicas, and no leader after 1 failure: more might do it"
    assert (finding.evidence, finding.do) == (("{A} and {B}: node 4",), "Look further with --failures 2.")


def test_a_replica_that_is_behind_makes_groups_meet_only_if_it_may_lead() -> None:
    """Node 3 is behind on A-0: it leads when nodes 1 and 2 are gone, and only after an unclean election."""
    behind = Topic("A", (Partition(0, 1, (1, 2, 3), (1, 2)), Partition(1, 5, (5,), (5,))))
    topology = Topology.of(map(Node, (1, 2, 3, 4, 5)), [behind, topic("B", [[3], [4]])])
    for unclean, witness in ((False, None), (True, (1, 2))):
        (found,) = potential_overlaps(topology, Overlaps.of(topology), most_failures=2, unclean=unclean).found
        assert found.witness == witness


def test_a_node_that_is_back_leads_nothing_until_leaders_go_home() -> None:
    """B-20: A's three partitions on three nodes. Node 3 fails and node 1 leads two, 2 / 3 of the traffic; fair is 1 / 3
    when node 3 is back, so 2 times its share, until each leads its own."""
    recovery = Failures(Standing(cluster({"A": EVEN["A"]}))).recovery([3])
    assert (recovery.nodes, recovery.idle) == ((3,), (3,))
    assert recovery.back is not None
    assert recovery.home is not None
    assert recovery.back.busiest == 1
    assert recovery.back.skew == pytest.approx(2.0)
    assert recovery.home.skew == pytest.approx(1.0)


def test_spares_stop_when_time_is_over_and_say_what_only_they_keep_going() -> None:
    topology = cluster({"A": [[1], [2, 3]], "B": [[1, 2], [2, 1]]})
    standing = Standing(topology)
    seen = simulate(standing)
    assert [spare.broken_without for spare in spares_of(standing, seen)] == [1, 0, 0]
    assert spares_of(standing, seen, out_of_time=lambda: True) == ()


def test_a_spare_keeps_the_load_level_and_has_its_price() -> None:
    """B-22: node 3 holds four replicas of topics with three partitions each: 4 / 3 of a topic's rate, all the time."""
    topology = cluster(EVEN, nodes=4)
    cost = Failures(Standing(topology)).spare(3, degree=2)
    assert (cost.affected_topics, cost.shared_spares, cost.separate_spares) == (2, 2, 4)
    assert cost.replica_traffic == pytest.approx(4 / 3)
    assert cost.broken_without == 0
    assert cost.load_without is not None
    # Node 1 then leads 2 of A's partitions and 1 of B's, node 2 1 and 2: 1 each of 2, and node 4 nothing.
    assert cost.load_without.skew == pytest.approx(1.5)
    assert cost.load_with is not None
    assert cost.load_with.skew == pytest.approx(4 / 3)
    seated = Standing(replaced(topology, node=3, spare=4))
    assert seated.loads.default[4] == pytest.approx(Standing(topology).loads.default[3])
    assert seated.topology.online == {1, 2, 4}


# --- planned changes --------------------------------------------------------------------------------------------------


def test_a_planned_change_can_be_looked_at_before_it_is_made() -> None:
    plan = '{"version": 1, "partitions": [{"topic": "A", "partition": 0, "replicas": [3, 2]}]}'
    after = reassigned(cluster(EVEN), read_reassignment(plan, "plan.json"))
    assert after.topics[0].partitions[0] == Partition(0, 3, (3, 2), (3, 2))
    assert after.epoch == 1
    assert kinds(after)["uneven"] is Severity.warning
    assert difference(cluster(EVEN), after).as_document()["partitions"] == [
        {"topic": "A", "partition": 0, "replicas": [3, 2]}
    ]


@pytest.mark.parametrize(
    ("replicas", "complaint"),
    [([9], "unknown nodes \\[9\\]"), ([1, 1], "one replica only"), ([], "no replicas")],
)
def test_an_impossible_change_is_refused(replicas: list[int], complaint: str) -> None:
    change = Reassignment({TopicPartition("A", 0): tuple(replicas)})
    with pytest.raises(ConfigError, match=complaint):
        reassigned(cluster(EVEN), change)


def test_uneven_leaders_are_evened_out_without_copies() -> None:
    topology = cluster({"A": [[1, 2], [1, 3], [1, 2]]})
    (plan,) = advise(Standing(topology)).plans
    assert (plan.name, plan.copies) == ("leaders", 0)
    assert plan.before.default is not None
    assert plan.after.default is not None
    assert (plan.before.default.skew, plan.after.default.skew) == (3.0, 1.0)
    assert sorted(plan.after.load.values()) == pytest.approx([1 / 3] * 3)


def test_a_reassignment_of_ones_own_is_judged() -> None:
    worse = Reassignment({TopicPartition("A", 0): (2, 1)})
    (plan,) = judged(Standing(cluster(EVEN)), worse, "mine.json").plans
    assert not plan.worthwhile
    assert plan.after.uneven_topics == 1


def test_a_change_that_endangers_records_is_refused() -> None:
    safe = Topology.of(
        [Node(1), Node(2), Node(3), Node(4, online=False)], [topic("A", [[1, 2]], min_insync_replicas=2)]
    )
    at = TopicPartition("A", 0)
    assert objections(safe, Reassignment({at: (2, 3)})) == []
    assert "min.insync.replicas is 2" in objections(safe, Reassignment({at: (3,)}))[0]
    assert any("offline or unknown" in o for o in objections(safe, Reassignment({at: (1, 4)})))
    assert "no such partition" in objections(safe, Reassignment({TopicPartition("B", 0): (1,)}))[0]
    assert "under way" in objections(safe, Reassignment({at: (2, 3)}), [at])[0]
    lagging = failed(safe, [2])
    assert any("bring its replicas back first" in o for o in objections(lagging, Reassignment({at: (1, 3)})))


def test_partitions_that_are_being_moved_are_found_and_no_plan_touches_them() -> None:
    """A-0 on its way from nodes 1, 2 to 3, 4: Kafka's metadata has all four, and a plan would keep them."""
    at = TopicPartition("A", 0)
    half = Partition(0, 1, (3, 4, 1, 2), (1, 2))
    topology = Topology.of(map(Node, (1, 2, 3, 4)), [Topic("A", (half, Partition(1, 1, (1, 2), (1, 2))))])
    moving = replace(topology, moves=(Move(at, (1, 2), (3, 4)),))
    (finding,) = (f for f in findings_of(Standing(moving)) if f.kind == "moving")
    assert finding.what.startswith("1 partition being moved")
    assert finding.evidence == ("A-0: from node 1, 2 to 3, 4",)
    assert any("being moved" in word for word in advise(Standing(moving)).words)
    with pytest.raises(ConfigError, match=r"neither written nor applied:\n  A-0: from node 1, 2 to 3, 4"):
        refuse_moving(moving, Reassignment({at: (4, 3, 2, 1)}))
    refuse_moving(moving, Reassignment({TopicPartition("A", 1): (2, 1)}))
    refuse_moving(topology, Reassignment({at: (4, 3, 2, 1)}))
    unknown = replace(topology, moves=None)
    assert kinds(unknown)["moves-unknown"] is Severity.note
    with pytest.raises(ConfigError, match="did not say whether partitions are being moved"):
        refuse_moving(unknown, Reassignment({at: (4, 3, 2, 1)}))


def test_only_a_plan_for_that_and_ones_own_file_add_replicas() -> None:
    change = Reassignment({TopicPartition("A", 0): (1, 2, 3)})
    topology = cluster({"A": [[1, 2], [2]]})
    assert objections(topology, change) == ["A-0: 1 replicas more than now, which this plan is not meant for"]
    assert objections(topology, change, may_add_replicas=True) == []
    (own,) = judged(Standing(topology), change, "mine.json").plans
    advice = advise(Standing(topology))
    replicate, spread = advice.named("replicate"), advice.named("spread")
    assert replicate is not None
    assert spread is not None
    assert [plan.may_add_replicas for plan in (own, replicate, spread)] == [True, True, False]


def test_a_change_that_gathers_replicas_in_one_rack_is_refused() -> None:
    racks = [Node(1, rack="a"), Node(2, rack="b"), Node(3, rack="a")]
    topology = Topology.of(racks, [topic("A", [[1, 2]])])
    assert objections(topology, Reassignment({TopicPartition("A", 0): (3, 2)})) == []
    assert "1 racks instead of 2" in objections(topology, Reassignment({TopicPartition("A", 0): (1, 3)}))[0]


def test_advice_puts_replicas_into_racks_that_have_none_of_the_partition_yet() -> None:
    """Node 1 leads both partitions, with followers 3 and 4. Spread, node 2 leads one of them; node 3 is in its rack and
    leaves, so 1 and 4 follow."""
    racks = [Node(1, rack="a"), Node(2, rack="b"), Node(3, rack="b"), Node(4, rack="c")]
    topology = Topology.of(racks, [topic("A", [[1, 3, 4], [1, 3, 4]])])
    plan = advise(Standing(topology)).named("spread")
    assert plan is not None
    assert plan.change.replicas == {TopicPartition("A", 1): (2, 1, 4)}
    assert any("Racks are known" in words for words in advise(Standing(topology)).words)


def test_a_plan_that_can_only_gather_replicas_in_one_rack_is_named_and_not_advised() -> None:
    """Topic A is on nodes 1 and 2, B on 2 and 3: separate sets would leave one of them with nodes of one rack."""
    racks = [Node(1, rack="a"), Node(2, rack="b"), Node(3, rack="a"), Node(4, rack="a")]
    topology = Topology.of(racks, [topic("A", [[1, 2], [2, 1]]), topic("B", [[2, 3], [3, 2]])])
    advice = advise(Standing(topology))
    assert "separate" not in {plan.name for plan in advice.plans}
    assert "on fewer racks than now" in {plan.name: why for plan, why in advice.rejected}["separate"]


def test_a_node_that_stays_away_is_replaced_even_if_its_rack_has_no_other() -> None:
    """What it held is on one live rack now, and will be."""
    topology = failed(
        Topology.of([Node(1, rack="a"), Node(2, rack="b"), Node(3, rack="a")], [topic("A", [[1, 2]])]), [2]
    )
    assert "replace" in {plan.name for plan in advise(Standing(topology)).plans}
    assert objections(topology, Reassignment({TopicPartition("A", 0): (1, 3)})) == []


def test_advice_for_three_replicas_on_three_nodes_of_which_one_is_away() -> None:
    """There is no node to copy to, so plans keep the replica on node 1 and only reorder. Node 2 leads three of A's four
    partitions and both of B's, 1.75 of the traffic of 2; two and one would be 1."""
    topology = failed(cluster({"A": [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]], "B": [[2, 3, 1], [1, 2, 3]]}), [1])
    advice = advise(Standing(topology))
    assert [plan.copies for plan in advice.plans] == [0] * len(advice.plans)
    assert advice.plans
    for plan in advice.plans:
        assert sorted(plan.before.load.values()) == pytest.approx([0, 0.25, 1.75])
        assert sorted(plan.after.load.values()) == pytest.approx([0, 1, 1])
        assert plan.after.lagging_topics == plan.before.lagging_topics == 2
        assert objections(topology, plan.change) == []
        assert all(sorted(replicas) == [1, 2, 3] for replicas in plan.change.replicas.values())
        assert all(replicas[0] != 1 for replicas in plan.change.replicas.values())


def test_a_node_that_is_away_may_keep_a_replica_and_take_no_new_one() -> None:
    topology = failed(cluster({"A": [[1, 2, 3]], "B": [[2, 3]]}), [1])
    assert objections(topology, Reassignment({TopicPartition("A", 0): (3, 2, 1)})) == []
    (reason,) = objections(topology, Reassignment({TopicPartition("B", 0): (2, 1)}))
    assert "node 1 is offline or unknown and cannot take a replica" in reason


def test_the_page_shows_names_as_text_and_needs_nothing_from_elsewhere() -> None:
    topology = cluster({"<script>": [[1, 2], [2, 1]], "B": [[2], [3]]})
    standing = Standing(topology)
    html = page(make_report(standing, "<here>", simulation=simulate(standing)), standing)
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert not any(word in html for word in ("http:", "https:", "src=", "@import", "url("))


def test_the_page_frames_shared_nodes_and_ranks_failures() -> None:
    """A on nodes 1 and 2, B on 2 and 3: node 2 is shared, and comes first with half of the traffic. Without node 3 a
    part of B has no leader; without node 1 or 2 the other leads three of four partitions."""
    standing = Standing(cluster({"A": [[1, 2], [2, 1]], "B": [[2, 1], [3]]}))
    html = page(make_report(standing, "here", simulation=simulate(standing)), standing)
    matrix = html.partition("Who leads what")[2].partition("</table>")[0]
    assert re.findall(r"<th>(\d)</th>", matrix) == ["2", "1", "3"]
    framed, plain, empty = ("shared", "1"), ("", "1"), ("", "")
    cell = re.compile(r'<td(?: class="(shared)")?(?: style="[^"]*")?>(\d*)</td>')
    assert [cell.findall(row) for row in matrix.split("<tr>")[2:]] == [[framed, plain, empty], [framed, empty, plain]]
    failures = html.partition("If nodes failed, worst first")[2].partition("</table>")[0]
    assert re.findall(r"<tr><td class=name>(\d)</td>", failures) == ["3", "1", "2"]
