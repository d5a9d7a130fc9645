"""The dispatch simulator against queueing theory, its messages, failures, and the real partitioners inside it."""

import math

import pytest

from headgate.errors import ConfigError
from headgate.producers.inflight import SqfInflight
from headgate.producers.node import NodeRoundRobin
from headgate.producers.protocol import Partitioner
from headgate.producers.registry import build_partitioner
from headgate.producers.round_robin import DefaultRoundRobin
from headgate.producers.sqf import ShortestQueueFirst
from headgate.simulation import dispatch_theory as theory
from headgate.simulation.dispatch import Change, DispatchPolicy, World, run
from headgate.simulation.dispatch_policies import (
    ByPartitioner,
    Fallback,
    JoinIdle,
    JoinShortest,
    JoinShortestAdaptive,
    JoinShortestOfD,
    JoinShortestStale,
    RandomQueue,
    RoundRobin,
    Update,
)
from tests.topologies import cluster

JOBS = 100_000
MANY_JOBS = 1_000_000

ORACLES = [
    # B-49: queues, load, policy, mean wait, half-width of the oracle's own interval (0: a formula)
    (4, 0.8, RandomQueue(), 4.0, 0.0),
    (4, 0.8, RoundRobin(), 2.267, 0.0),
    (4, 0.8, JoinShortest(), 0.947, 0.010),
    (4, 0.8, JoinShortestOfD(2), 1.331, 0.011),
    (4, 0.8, JoinIdle(Fallback.hold), 0.7455, 0.0),
    (4, 0.8, JoinIdle(Fallback.random), 1.320, 0.012),
    (10, 0.9, RandomQueue(), 9.0, 0.0),
    (10, 0.9, RoundRobin(), 4.660, 0.0),
    (10, 0.9, JoinShortest(), 0.905, 0.016),
    (10, 0.9, JoinShortestOfD(2), 1.979, 0.014),
    (10, 0.9, JoinIdle(Fallback.hold), 0.6687, 0.0),
    (10, 0.9, JoinIdle(Fallback.random), 1.390, 0.029),
]


@pytest.mark.parametrize(("queues", "load", "policy", "wait_s", "half_s"), ORACLES)
def test_waiting_times_are_those_of_theory(
    queues: int, load: float, policy: DispatchPolicy, wait_s: float, half_s: float
) -> None:
    """Within the interval of the run, and close enough that an error of a tenth would be seen."""
    mean_s, our_half_s = run(World(queues, queues * load), policy, MANY_JOBS, seed=7).mean_wait_s()
    assert abs(mean_s - wait_s) <= our_half_s + half_s
    assert abs(mean_s - wait_s) <= 0.05 * wait_s + half_s


def test_formulas_give_the_published_numbers() -> None:
    assert theory.mm1_wait_s(0.8, 1) == pytest.approx(4.0)
    assert theory.pooled_wait_s(4, 0.8, 1) == pytest.approx(1.0)
    assert theory.round_robin_wait_s(4, 0.8, 1) == pytest.approx(2.267, abs=5e-4)
    assert theory.round_robin_wait_s(10, 0.9, 1) == pytest.approx(4.660, abs=5e-4)
    assert theory.mmn_wait_s(4, 0.8, 1) == pytest.approx(0.7455, abs=5e-5)
    assert theory.mmn_wait_s(10, 0.9, 1) == pytest.approx(0.6687, abs=5e-5)
    assert theory.jsq_d_sojourn_s(1, 0.5, 1) == pytest.approx(2.0)
    # rho = 1/2, d = 2: 1 + 1/4 + 1/64 + 1/16384 + ...
    assert theory.jsq_d_sojourn_s(2, 0.5, 1) == pytest.approx(1.265686, abs=1e-6)


def test_jsq_d_nears_its_limit_with_many_queues() -> None:
    outcome = run(World(100, 100 * 0.7), JoinShortestOfD(2), JOBS, seed=3)
    mean_s, half_s = outcome.mean_wait_s()
    assert mean_s + 1.0 == pytest.approx(theory.jsq_d_sojourn_s(2, 0.7, 1), abs=half_s + 0.02)


def test_messages_are_counted() -> None:
    """A question and its answer for every queue asked; tokens when queues run empty; periods times pairs."""
    world = World(4, 3.2)
    assert run(world, RandomQueue(), 1000).messages == 0
    assert run(world, JoinShortest(), 1000).messages == 2 * 4 * 1000
    assert run(world, JoinShortestOfD(2), 1000).messages == 2 * 2 * 1000
    three = World(4, 3.2, sets=((0, 1, 2, 3),) * 3)
    for update, per_period in ((Update.poll, 3 * 4 * 2), (Update.gossip, 3 * 2)):
        outcome = run(three, JoinShortestStale(10.0, update), 1000)
        assert outcome.messages % per_period == 0
        assert outcome.messages / per_period == pytest.approx(outcome.duration_s / 10.0, abs=2)
    held = run(world, JoinIdle(Fallback.hold), 1000)
    # One dispatcher and no revocations: 4 tokens at the start, and one whenever a queue runs empty, which is after
    # every job because a held one is handed over only to a queue that said so.
    assert held.messages == 4 + 1000


@pytest.mark.parametrize(
    "policy",
    [
        *(RandomQueue(), RoundRobin(), JoinShortest(), JoinShortestOfD(2), JoinIdle(Fallback.hold)),
        *(JoinIdle(Fallback.random), JoinShortestStale(5.0, Update.both), JoinShortestAdaptive(1.0, 0.2)),
    ],
)
def test_a_policy_begins_anew_with_every_run(policy: DispatchPolicy) -> None:
    world = World(4, 3.2, sets=((0, 1, 2, 3), (0, 1, 2, 3)))
    first, second = (run(world, policy, 1000, seed=1) for _ in range(2))
    assert second.messages == first.messages
    assert second.waits_s.tolist() == first.waits_s.tolist()


def test_information_grows_stale() -> None:
    """Polling every instant is JSQ; polling rarely is worse than asking two queues at random."""
    world = World(10, 9.0, sets=(tuple(range(10)),) * 4)
    fresh, _ = run(world, JoinShortestStale(0.05), 40_000, 1).mean_wait_s()
    rare, _ = run(world, JoinShortestStale(20.0), 40_000, 1).mean_wait_s()
    two, _ = run(world, JoinShortestOfD(2), 40_000, 1).mean_wait_s()
    assert fresh < two < rare


def test_an_adaptive_period_trades_messages_for_tolerance() -> None:
    world = World(10, 9.0, sets=(tuple(range(10)),) * 2)
    strict, lax = (run(world, JoinShortestAdaptive(1.0, tolerance), 20_000, 1) for tolerance in (0.2, 2.0))
    assert strict.messages > 4 * lax.messages
    assert strict.mean_wait_s()[0] < lax.mean_wait_s()[0]


def test_gossip_levels_what_is_sent() -> None:
    """Dispatchers on {0, 1} and {1, 2}: together a third each, while apart each would halve its own."""
    world = World(3, 1.5, sets=((0, 1), (1, 2)))
    told = run(world, JoinShortestStale(1.0, Update.gossip), 30_000, 1)
    assert [served / 30_000 for served in told.served] == pytest.approx([1 / 3] * 3, abs=0.01)
    alone = run(world, RoundRobin(), 30_000, 1)
    assert [served / 30_000 for served in alone.served] == pytest.approx([0.25, 0.5, 0.25], abs=0.01)


def test_a_slow_queue_keeps_work_and_latency_exact() -> None:
    """One queue at half speed has half the rate: M/M/1 with 0.3 and 0.5 waits 3.0 and works 2.0 on average."""
    outcome = run(World(1, 0.3, changes=(Change(0.0, 0, 0.5),)), RoundRobin(), JOBS, 2)
    mean_s, half_s = outcome.mean_wait_s()
    assert mean_s == pytest.approx(3.0 + 2.0 - 1.0, abs=half_s)  # waits count the work at full speed
    assert outcome.unfinished == 0


def test_a_failed_queue_loses_nothing_and_gets_nothing_while_it_is_away() -> None:
    changes = (Change(1000.0, 0, 0.0), Change(2000.0, 0, 1.0))
    for policy in (RoundRobin(), JoinShortest(), JoinShortestOfD(), JoinIdle(Fallback.hold), JoinIdle(Fallback.random)):
        outcome = run(World(4, 2.0, changes=changes), policy, 6000, 5)
        assert sum(outcome.served) == len(outcome.latencies_s) == 6000
        assert outcome.unfinished == 0
        # About 3000 s in all, 1000 of them without queue 0, a quarter of the jobs otherwise.
        assert outcome.served[0] < 0.2 * 6000


def test_jobs_wait_while_every_queue_is_away() -> None:
    outcome = run(World(1, 1.0, changes=(Change(10.0, 0, 0.0), Change(50.0, 0, 1.0))), RoundRobin(), 40, 1)
    assert (sum(outcome.served), outcome.unfinished) == (40, 0)
    assert outcome.resends > 0
    gone = run(World(1, 1.0, changes=(Change(10.0, 0, 0.0),)), RoundRobin(), 40, 1)
    assert gone.unfinished == 40 - sum(gone.served) > 0


def test_little_and_the_loads_add_up() -> None:
    outcome = run(World(4, 3.2), RandomQueue(), JOBS, 1)
    assert outcome.throughput_per_s == pytest.approx(3.2, rel=0.02)
    assert outcome.mean_length == pytest.approx(4 * 0.8 / 0.2, rel=0.15)
    assert sum(outcome.busy_s) / outcome.duration_s == pytest.approx(3.2, rel=0.02)


# --- the real partitioners --------------------------------------------------------------------------------------------

UNEVEN = cluster({"A": [[1, 2], [2, 1], [2, 1]]}, nodes=2)


def shares(partitioner: Partitioner, jobs: int = 6000) -> list[float]:
    policy = ByPartitioner([partitioner], UNEVEN, ["A"])
    outcome = run(World(2, 1.0, sets=policy.queue_sets), policy, jobs, 1)
    return [served / jobs for served in outcome.served]


def test_real_partitioners_load_nodes_as_predicted() -> None:
    """B-50 and B-24: a third and two thirds with the default, halves with those that balance nodes."""
    assert shares(DefaultRoundRobin()) == pytest.approx([1 / 3, 2 / 3], abs=1e-3)
    assert shares(NodeRoundRobin()) == pytest.approx([1 / 2, 1 / 2], abs=1e-3)
    assert shares(ShortestQueueFirst()) == pytest.approx([1 / 2, 1 / 2], abs=1e-3)


def test_one_shared_sqf_levels_overlapping_topics() -> None:
    """B-25 and A-5: the prototype cluster with a = b, interleaved."""
    topology = cluster({"A": [[1], [2], [2]], "B": [[2], [3]]})
    shared = ShortestQueueFirst()
    policy = ByPartitioner([shared, shared], topology, ["A", "B"])
    outcome = run(World(3, 1.5, sets=policy.queue_sets), policy, 30_000, 1)
    assert [served / 30_000 for served in outcome.served] == pytest.approx([1 / 3] * 3, abs=0.002)


@pytest.mark.parametrize("name", ["default-rr", "improved", "node", "sqf", "sqf-inflight", "jsq", "latency-weighted"])
def test_a_node_may_fail_under_any_partitioner(name: str) -> None:
    policy = ByPartitioner([build_partitioner(name)], UNEVEN, ["A"])
    changes = (Change(500.0, 0, 0.0), Change(1500.0, 0, 1.0))
    outcome = run(World(2, 0.8, sets=policy.queue_sets, changes=changes), policy, 3000, 1)
    assert (sum(outcome.served), outcome.unfinished) == (3000, 0)
    assert 0 < outcome.served[0] < outcome.served[1]


def test_a_partitioner_that_listens_beats_one_that_does_not_where_a_node_is_slow() -> None:
    """B-40: node 1 works at a third of the speed; a fair half of the records is more than it can do."""
    even = cluster({"A": [[1], [2]]}, nodes=2)
    waits = []
    for partitioner in (NodeRoundRobin(), SqfInflight()):
        policy = ByPartitioner([partitioner], even, ["A"])
        world = World(2, 0.9, sets=policy.queue_sets, changes=(Change(0.0, 0, 1 / 3),))
        waits.append(run(world, policy, 20_000, 1).mean_wait_s()[0])
    assert waits[1] < waits[0] / 5


@pytest.mark.parametrize(
    "make",
    [
        lambda: World(0, 1.0),
        lambda: World(2, 0.0),
        lambda: World(2, 1.0, sets=((0, 2),)),
        lambda: World(2, 1.0, changes=(Change(1.0, 5, 1.0),)),
        lambda: JoinShortestOfD(0),
        lambda: JoinShortestStale(0.0),
        lambda: JoinShortestStale(math.nan),
        lambda: ByPartitioner([NodeRoundRobin()], UNEVEN, ["Z"]),
        lambda: ByPartitioner([NodeRoundRobin()], UNEVEN, []),
    ],
)
def test_worlds_that_make_no_sense_are_refused(make: object) -> None:
    with pytest.raises(ConfigError):
        make()  # type: ignore[operator]
