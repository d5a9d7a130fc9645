"""Our policy when it goes badly: overload, backlog, a start without measurements, and very many partitions."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from headgate.model import Assignment, ConsumerLoad, Decision, Observation, PartitionLoad, TopicPartition
from headgate.policies.backlog import grown, late_by_backlog, owners_of, standing
from headgate.policies.candidates import candidates, fewer, sizes
from headgate.policies.forecast import Load
from headgate.policies.slo import Slo

P = tuple(TopicPartition("t", n) for n in range(6))
SMOOTH, BURST = np.ones(10), np.array([10.0] + [0.0] * 9)


def owned(*groups: list[int]) -> Assignment:
    return Assignment({n + 1: frozenset(P[i] for i in group) for n, group in enumerate(groups)})


def load(level: float, partitions: int, shape: np.ndarray = SMOOTH) -> Load:
    return Load(P[:partitions], np.full(partitions, 1 / partitions), level, 0, 0, shape, 0.1, 1, 0, level)


def seen(lags: list[int], assignment: Assignment) -> Observation:
    partitions = {P[n]: PartitionLoad(0, 0, lag) for n, lag in enumerate(lags)}
    return Observation(0, 0, partitions, assignment, {}, 0)


@dataclass
class Queues:
    """Six queues served by whoever owns them, 200 records/s each; what the policy decides happens at once."""

    policy: Slo
    assignment: Assignment
    lags: dict[TopicPartition, float] = field(default_factory=lambda: dict.fromkeys(P, 0.0))
    at_s: float = 0.0
    sizes: list[int] = field(default_factory=list)

    def second(self, each: int) -> Decision:
        self.at_s += 1
        for p in P:
            self.lags[p] += each
        for c in self.assignment:
            waiting = sum(self.lags[p] for p in self.assignment[c])
            for p in self.assignment[c]:
                self.lags[p] *= max(0.0, waiting - 200) / waiting if waiting else 0.0
        slots = tuple((each * (n + 1)) // 10 - (each * n) // 10 for n in range(10))
        partitions = {p: PartitionLoad(0, float(each), round(self.lags[p]), 0, slots) for p in P}
        consumers = {c: ConsumerLoad(capacity_records_per_s=200.0) for c in self.assignment}
        decision = self.policy.decide(
            Observation(self.at_s, self.at_s, partitions, self.assignment, consumers, 0, 0.1, 0.05, 3.0)
        )
        self.assignment = decision.assignment or self.assignment
        self.sizes.append(len(self.assignment))
        return decision


# Jumps


def test_headroom_is_kept_for_jumps_like_those_seen_and_let_go_with_time() -> None:
    queues = Queues(Slo(budget_s=300.0), owned([0, 1, 2, 3, 4, 5]))
    for each, seconds in ((10, 60), (100, 15), (10, 60), (100, 15), (10, 60)):
        for _ in range(seconds):
            queues.second(each)
    assert queues.sizes[59] == 1  # 60 records/s need no more, and nothing else was seen yet
    assert queues.sizes[-1] > 1
    calm_since_s = queues.at_s
    while queues.sizes[-1] > 1:
        queues.second(10)
        assert queues.at_s - calm_since_s < 1200


# Overload


def test_a_group_that_cannot_keep_up_even_at_its_largest_does_not_shrink() -> None:
    queues = Queues(Slo(), owned([0], [1], [2], [3], [4], [5]))
    for _ in range(60):
        queues.second(300)
    assert set(queues.sizes) == {6}


def test_a_group_that_falls_behind_grows_though_no_size_would_keep_up() -> None:
    queues = Queues(Slo(max_consumers=4), owned([0, 1, 2], [3, 4, 5]))
    for _ in range(10):
        queues.second(300)
    assert queues.sizes[-1] == 4


# Backlog


def test_a_backlog_is_worked_off_by_more_consumers_than_the_rate_needs_which_then_go() -> None:
    queues = Queues(Slo(), owned([0, 1, 2, 3, 4, 5]))
    for _ in range(10):
        queues.second(20)  # 120 of 200: one is enough
    assert set(queues.sizes) == {1}
    queues.lags = dict.fromkeys(P, 2000.0)  # one consumer would take 12,000 / 80 = 150 s
    started_s = queues.at_s
    while sum(queues.lags.values()) > 100:
        queues.second(20)
        assert queues.at_s - started_s < 50
    assert max(queues.sizes) > 1
    for _ in range(300):
        queues.second(20)
    assert queues.sizes[-1] == 1


def test_what_a_burst_leaves_in_its_own_second_is_no_backlog() -> None:
    group = owned([0, 1], [2, 3], [4, 5])
    # 6 partitions with 60 each at once: 120 on a consumer, though only 100 are done within 500 ms.
    bursts, smooth = load(360, 6, BURST), load(360, 6)
    after_a_burst = seen([60] * 6, group)
    assert standing(after_a_burst, owners_of(group, bursts), bursts, 200, 0.5, 0).sum() == 0
    # Evenly spaced arrivals leave nothing like that: all beyond 100 a consumer waits too long.
    assert standing(after_a_burst, owners_of(group, smooth), smooth, 200, 0.5, 0).sum() == pytest.approx(60)
    # Unless records wait for a commit anyway: 120 records/s for 1 s are 120 on each consumer.
    assert standing(after_a_burst, owners_of(group, smooth), smooth, 200, 0.5, 1).sum() == 0


def test_a_backlog_makes_late_what_comes_until_it_is_gone_and_one_for_each_that_stays() -> None:
    rates = np.array([[100.0, 100.0, 300.0, 100.0]])
    stands = np.array([500.0, 2000.0, 500.0, 0.0])
    # 500 at 100/s to spare: gone after 5 s. 2000: all 1000 of 10 s late, 1000 left. 300/s: 500 and 10 x 100 left.
    assert late_by_backlog(rates, stands, 200, 10.0) == pytest.approx([500, 2000, 1500, 0])


def test_until_a_change_is_in_effect_a_backlog_grows_or_shrinks_under_the_present_owners() -> None:
    seen_load = load(600, 3)  # 200 records/s each
    owners = owners_of(Assignment({1: frozenset(P[:2])}), seen_load)
    # Two on one consumer: 200 too many a second for 2 s. The third has no owner: all 400 stay.
    assert grown(np.zeros(3), owners, seen_load, 200, 2.0) == pytest.approx([200, 200, 400])
    alone = owners_of(Assignment({1: frozenset(P[:1]), 2: frozenset(P[1:2]), 3: frozenset(P[2:3])}), seen_load)
    assert grown(np.array([90.0, 0, 0]), alone, load(300, 3), 200, 0.5) == pytest.approx([40, 0, 0])


def test_partitions_that_share_a_backlog_are_parted() -> None:
    queues = Queues(Slo(), owned([0, 1], [2, 3], [4, 5]))
    for _ in range(5):
        queues.second(60)  # 120 of 200 on each consumer
    queues.lags.update({P[0]: 3000.0, P[1]: 3000.0})
    for _ in range(3):
        queues.second(60)
    owner = queues.assignment.by_partition()
    assert owner[P[0]] != owner[P[1]]


# Start


def test_without_any_measurement_every_partition_still_gets_an_owner() -> None:
    decision = Slo().decide(seen([0] * 6, Assignment()))
    assert decision.trigger == "unassigned"
    assert decision.assignment == Assignment({1: frozenset(P)})


def test_before_the_forecast_is_ready_orphans_go_to_who_has_the_fewest_and_nothing_else_moves() -> None:
    decision = Slo(capacity_records_per_s=200).decide(seen([0] * 6, owned([0, 1, 2], [3])))
    assert decision.trigger == "unassigned"
    assert decision.assignment == owned([0, 1, 2], [3, 4, 5])


def test_a_group_larger_than_allowed_shrinks_to_what_is_allowed() -> None:
    queues = Queues(Slo(max_consumers=2, warm=1), owned([0, 1], [2, 3], [4, 5]))
    for _ in range(3):
        queues.second(60)
    assert queues.sizes[-1] == 2


# Many partitions


def test_a_small_group_is_offered_every_size_and_a_large_one_few_near_and_far() -> None:
    assert sizes(3, 5) == [1, 2, 3, 4, 5]
    assert sizes(20, 40) == [1, 4, 8, 12, 14, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 28, 32, 36, 40]
    assert sizes(0, 20) == [1, 2, 3, 4, 6, 8, 12, 16, 20]


def test_a_thousand_partitions_on_fifty_consumers_have_few_candidates() -> None:
    partitions = [TopicPartition("t", n) for n in range(1000)]
    shares = {p: (1 + p.partition % 7) / 4000 for p in partitions}
    group = Assignment({c + 1: frozenset(partitions[c::25]) for c in range(25)})
    offered = candidates(group, shares, 50)
    # 21 sizes packed anew, each once more by splits or merges, and aside 1, 2, 3, 4, 6, … 768 moves.
    assert 21 < len(offered) <= 2 * 21 + 19
    assert all(option.partitions == frozenset(partitions) for option in offered)
    assert len(fewer(group, shares)) <= 2 * 11
