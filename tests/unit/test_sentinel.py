"""The sentinel policy's triggers, limits and sentences, with capacities of 2.0 (trigger) and 1.5 MB/s (packing)."""

import pytest

from headgate.errors import ConfigError
from headgate.model import Assignment, Decision, Observation, PartitionLoad, TopicPartition
from headgate.packing.modified_any_fit import ModifiedWorstFit
from headgate.policies.folding import fold
from headgate.policies.registry import build_policy
from headgate.policies.sentinel import Sentinel, TimeoutPolicy

A, B, C, D, E = (TopicPartition("t", n) for n in range(5))
MB = 1e6


def owned(**partitions: set[TopicPartition]) -> Assignment:
    return Assignment({int(name[1:]): frozenset(held) for name, held in partitions.items()})


def policy(
    max_consumers: int = 10, timeout_policy: TimeoutPolicy = "only_if_fewer_consumers", max_sentinel_s: float = 10
) -> Sentinel:
    return Sentinel(ModifiedWorstFit(), 2 * MB, 1.5 * MB, max_sentinel_s, timeout_policy, max_consumers, 5)


def seen(
    rates_mb: dict[TopicPartition, float], assignment: Assignment, watched_s: float = 1, age_s: float = 0.5
) -> Observation:
    partitions = {p: PartitionLoad(rate * MB) for p, rate in rates_mb.items()}
    return Observation(100, 100 - age_s, partitions, assignment, {}, 100 - watched_s)


def abouts(decision: Decision) -> list[str]:
    return [alert.about for alert in decision.alerts]


def instead(decision: Decision) -> dict[str, str]:
    return {other.what: other.why_not for other in decision.rejected}


def test_nothing_fires_between_packing_and_consumer_capacity() -> None:
    decision = policy().decide(seen({A: 1.2, B: 0.7}, owned(c1={A, B})))
    assert decision.keeps
    assert decision.trigger == ""
    assert "1.9 MB/s" in decision.reason


def test_the_overload_trigger_is_strict() -> None:
    assert policy().decide(seen({A: 1.25, B: 0.75}, owned(c1={A, B}))).trigger == ""
    decision = policy().decide(seen({A: 1.25, B: 0.8}, owned(c1={A, B})))
    assert decision.trigger == "overload"
    assert decision.assignment == owned(c1={A}, c2={B})
    assert decision.inputs["busiest_bytes_per_s"] == pytest.approx(2.05 * MB)
    assert decision.inputs["needed_consumers"] == 2
    assert "consumer 1 has 2.05 MB/s in 2 partitions, more than its 2 MB/s" in decision.reason
    assert instead(decision) == {
        "keep what is, 1 consumer": "the busiest would fall behind by 0.05 MB/s",
        "one consumer fewer, 1": "the busiest would have 2.05 MB/s, more than the 1.5 MB/s that is packed to",
        "one consumer more, 3": "no relief: the busiest would still have 1.25 MB/s",
    }


def test_what_lost_is_told_with_the_load_of_its_busiest() -> None:
    # Packed: A and B (1.4), C (1.1), D (0.7).
    decision = policy().decide(seen({A: 0.8, B: 0.6, C: 1.1, D: 0.7}, owned(c1={A, B}, c2={D})))
    assert decision.assignment is not None
    assert len(decision.assignment) == 3
    said = instead(decision)
    assert said["keep what is, 2 consumers"] == "nobody would read 1.1 MB/s"
    assert said["one consumer fewer, 2"] == (
        "the busiest would have 1.8 MB/s, more than the 1.5 MB/s that is packed to"  # D joins C
    )
    assert said["one consumer more, 4"] == (
        "not needed: the busiest would have 1.1 MB/s instead of 1.4 MB/s"  # A and B part
    )


def test_a_packing_that_stays_as_it_is_says_why_neither_fewer_nor_more() -> None:
    kept = policy(max_consumers=2).decide(seen({A: 0.8, B: 0.8}, owned(c1={A}, c2={B}), watched_s=11))
    assert kept.keeps
    assert instead(kept) == {
        "one consumer fewer, 1": "the busiest would have 1.6 MB/s, more than the 1.5 MB/s that is packed to",
        "one consumer more, 3": "fleet.max_consumers is 2; the busiest would have 0.8 MB/s",
    }


def test_new_partitions_could_go_to_the_least_loaded_without_moves() -> None:
    # Consumer 1 is overloaded and must be relieved; D alone would fit consumer 2: 0.3 + 0.5.
    decision = policy().decide(seen({A: 1.2, B: 1.0, C: 0.3, D: 0.5}, owned(c1={A, B}, c2={C})))
    assert instead(decision)["the new partitions to the least loaded, and no moves"] == (
        "the busiest would have 2.2 MB/s, more than the 1.5 MB/s that is packed to"
    )


def test_after_an_overload_the_packing_goes_down_to_the_packing_capacity() -> None:
    # 2.1 in all: one bin of 1.5 holds 0.9 and 0.6, the other 0.6 (L-2: not just below 2.0).
    decision = policy().decide(seen({A: 0.9, B: 0.6, C: 0.6}, owned(c1={A, B, C})))
    assert decision.assignment == owned(c1={A, B}, c2={C})


def test_a_measured_partition_without_owner_fires() -> None:
    decision = policy().decide(seen({A: 1.0, B: 0.3}, owned(c1={A})))
    assert decision.trigger == "unassigned"
    assert decision.assignment == owned(c1={A, B})
    assert "1 partitions have no owner (t-1)" in decision.reason


def test_an_empty_group_gets_its_first_consumers() -> None:
    decision = policy().decide(seen({A: 1.0, B: 1.0}, Assignment()))
    assert decision.assignment == owned(c1={A}, c2={B})


def test_partitions_that_vanished_are_let_go_and_nothing_else_moves() -> None:
    # Repacking could merge 1 and 3, but that is the timeout's business.
    decision = policy().decide(seen({A: 0.2, D: 0.2}, owned(c1={A, B}, c2={C}, c3={D})))
    assert decision.trigger == "vanished"
    assert decision.assignment == owned(c1={A}, c3={D})


def test_the_timeout_scales_down_only_if_fewer_consumers_suffice() -> None:
    before = owned(c1={A}, c2={B})
    assert policy().decide(seen({A: 0.5, B: 0.5}, before, watched_s=10)).trigger == ""
    fewer = policy().decide(seen({A: 0.5, B: 0.5}, before, watched_s=10.1))
    assert fewer.trigger == "timeout"
    assert fewer.assignment == owned(c1={A, B})
    same = policy().decide(seen({A: 0.8, B: 0.8}, before, watched_s=10.1))
    assert same.trigger == "timeout"
    assert same.keeps


def test_the_timeout_may_be_told_to_apply_any_change() -> None:
    # 1.7 in consumer 1 is above 1.5 and below 2.0: C moves, the number of consumers stays.
    before, rates = owned(c1={A, C}, c2={B}), {A: 1.3, B: 1.0, C: 0.4}
    assert policy(timeout_policy="always").decide(seen(rates, before, watched_s=11)).assignment == owned(
        c1={A}, c2={B, C}
    )
    kept = policy().decide(seen(rates, before, watched_s=11))
    assert kept.keeps
    assert kept.rejected[0].what == "2 consumers with 1 moves"
    assert "not fewer than the 2" in kept.rejected[0].why_not


def test_a_stale_measurement_holds_even_an_overload() -> None:
    decision = policy().decide(seen({A: 3.0, B: 3.0}, owned(c1={A, B}), age_s=5.1))
    assert decision.keeps
    assert decision.trigger == ""
    assert decision.reason == "hold: the newest measurement is 5.1 s old, the limit is 5 s"
    assert policy().decide(seen({A: 3.0, B: 3.0}, owned(c1={A, B}), age_s=5.0)).trigger == "overload"


def test_an_oversize_partition_is_isolated_once_and_reported_but_never_triggers_again() -> None:
    first = policy().decide(seen({A: 2.6, B: 0.1}, owned(c1={A, B})))
    assert first.assignment == owned(c1={A}, c2={B})
    after = policy().decide(seen({A: 2.6, B: 0.1}, first.assignment))
    assert after.keeps
    assert after.trigger == ""
    assert abouts(after) == ["oversize t-0"]
    assert "t-0 is written at 2.6 MB/s" in after.alerts[0].text
    later = policy().decide(seen({A: 2.7, B: 0.1}, first.assignment, watched_s=11))
    assert later.keeps
    assert abouts(later) == ["oversize t-0"]


def test_more_consumers_than_allowed_are_folded_into_the_least_loaded_with_an_alert() -> None:
    # Needed: 1.4, 1.3, 1.2, 1.1 alone. The 1.1 goes to the 1.2, then the 1.3 is the least loaded: onto the 1.4.
    decision = policy(max_consumers=2).decide(seen({A: 1.4, B: 1.3, C: 1.2, D: 1.1}, Assignment()))
    assert decision.assignment == owned(c1={A, B}, c3={C, D})
    assert abouts(decision) == ["max_consumers"]
    assert "fleet.max_consumers reached: 4 needed" in decision.alerts[0].text


def test_at_the_limit_an_overload_does_not_shuffle_partitions_for_ever() -> None:
    limited = policy(max_consumers=2)
    rates = {A: 1.4, B: 1.3, C: 1.2, D: 1.1}
    assignment = owned(c1={A, B, C, D})
    decisions = []
    for _ in range(6):
        decision = limited.decide(seen(rates, assignment))
        decisions.append(decision)
        assignment = decision.assignment or assignment
    assert [d.keeps for d in decisions[:2]] == [False, True]
    assert all(d.keeps and d.trigger == "overload" and abouts(d) == ["max_consumers"] for d in decisions[1:])
    assert max(sum(rates[p] for p in assignment[c]) for c in assignment) == pytest.approx(2.7)


def test_folding_gives_partitions_away_fastest_first() -> None:
    # Consumer 3 (0.5) goes: 0.4 to 2 (1.0, then 1.4), 0.1 to 1 (1.2).
    packed = owned(c1={A}, c2={B}, c3={C, D})
    rates = {A: 1.2, B: 1.0, C: 0.4, D: 0.1}
    assert fold(packed, rates, Assignment(), 2) == owned(c1={A, D}, c2={B, C})


def test_spares_without_partitions_are_not_counted() -> None:
    decision = policy().decide(seen({A: 0.5}, owned(c1={A}, c2=set()), watched_s=11))
    assert decision.keeps


def test_wrong_settings_are_refused_with_the_numbers() -> None:
    with pytest.raises(ValueError, match=r"packing capacity 3 MB/s must be above 0 and at most .* 2 MB/s"):
        Sentinel(ModifiedWorstFit(), 2 * MB, 3 * MB)
    with pytest.raises(ConfigError, match="unknown policy 'sentinal': did you mean 'sentinel'"):
        build_policy("sentinal", "mwf", consumer_capacity_bytes_per_s=2, packing_capacity_bytes_per_s=1)
    with pytest.raises(ConfigError, match="timeout_policy is one of always, only_if_fewer_consumers, not 'never'"):
        build_policy(
            "sentinel", "mwf", consumer_capacity_bytes_per_s=2, packing_capacity_bytes_per_s=1, timeout_policy="never"
        )


def test_a_policy_is_built_from_plain_values() -> None:
    built = build_policy(
        "sentinel", "bfd", consumer_capacity_bytes_per_s=2 * MB, packing_capacity_bytes_per_s=1.5 * MB, max_consumers=3
    )
    assert built.decide(seen({A: 1.0, B: 0.5}, Assignment())).assignment == owned(c1={A, B})
