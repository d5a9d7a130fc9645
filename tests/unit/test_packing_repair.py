"""The repairing packer, its parts and its price, on cases small enough to work out by hand."""

import math

import pytest

from headgate.model import Assignment, TopicPartition
from headgate.packing.eviction import lightest_cover
from headgate.packing.protocol import Capacity
from headgate.packing.repair import Repair
from headgate.packing.scores import cardinal_bin_scores, forced_rscore, pareto_front

A, B, C, D, E, F, G = (TopicPartition("t", n) for n in range(7))
FEWEST_MOVES, FEWEST_CONSUMERS = Repair(0), Repair(math.inf)


def owned(**partitions: set[TopicPartition]) -> Assignment:
    """owned(c1={A}, c2={B, C})"""
    return Assignment({int(name[1:]): frozenset(held) for name, held in partitions.items()})


def test_what_fits_stays_whatever_the_price() -> None:
    before = owned(c1={A, B}, c4={C, D})
    for packer in (FEWEST_MOVES, Repair(), FEWEST_CONSUMERS):
        assert packer.pack({A: 6, B: 3, C: 5, D: 5}, Capacity(10), before) == before


def test_an_overloaded_consumer_gives_away_the_least_weight_that_helps() -> None:
    # 13 on 10: the 3 helps, the 2 does not, and 2 + 3 or the 8 would be more than needed.
    before = owned(c1={A, B, C}, c2={D})
    assert FEWEST_MOVES.pack({A: 8, B: 3, C: 2, D: 5}, Capacity(10), before) == owned(c1={A, C}, c2={B, D})


def test_room_is_left_for_growth_where_there_is_a_choice() -> None:
    # 3 fits beside 7 exactly, but beside 6 leaves 1.0 (slack is 0.6); of those with slack the fullest is taken.
    before = owned(c1={A}, c2={B}, c3={C})
    packed = FEWEST_MOVES.pack({A: 70, B: 60, C: 20, D: 30}, Capacity(100), before)
    assert packed == owned(c1={A}, c2={B, D}, c3={C})
    # With no slack anywhere the emptiest that fits is taken.
    assert FEWEST_MOVES.pack({A: 70, B: 69, D: 30}, Capacity(100), owned(c1={A}, c2={B})) == owned(c1={A}, c2={B, D})


def test_a_chain_of_moves_makes_room_instead_of_a_new_consumer_if_that_is_cheap_enough() -> None:
    # A new 5 fits nowhere. The 3 beside 4 can go to the 7, after which the 5 fits beside the 4: cost 3.
    before = owned(c1={A}, c2={B, C})
    rates = {A: 7.0, B: 4.0, C: 3.0, D: 5.0}
    assert Repair(0.6).pack(rates, Capacity(10), before) == owned(c1={A, C}, c2={B, D})  # pays up to 0.6 / 2 of 10
    assert Repair(0.2).pack(rates, Capacity(10), before) == owned(c1={A}, c2={B, C}, c3={D})


def test_a_consumer_is_closed_only_if_that_is_worth_its_moves() -> None:
    before = owned(c1={A}, c2={B})
    rates = {A: 5.0, B: 3.0}
    assert Repair(0.3).pack(rates, Capacity(10), before) == owned(c1={A, B})
    assert Repair(0.29).pack(rates, Capacity(10), before) == before


def test_a_saved_consumer_is_worth_less_while_much_has_to_move() -> None:
    # The 2 may move for up to 0.25 of 11, which is 2.75. When 4 of 20 must move, that is 2.75 / (1 + 3 / 5) = 1.72.
    before = owned(c1={A}, c2={B}, c3={C, D})
    calm = Repair(0.25).pack({A: 2.0, B: 3.0, C: 7.0, D: 4.0}, Capacity(11), before)
    assert calm == owned(c2={A, B}, c3={C, D})
    restless = Repair(0.25).pack({A: 2.0, B: 3.0, C: 11.0, D: 4.0}, Capacity(11), before)
    assert restless == owned(c1={A}, c2={B, D}, c3={C})


def test_when_consumers_are_dear_the_emptiest_are_packed_anew_together() -> None:
    # 4 + 4, 2 + 3 and 5 + 6 on 12 add up to two full consumers, 3 + 4 + 5 and 2 + 4 + 6; no single chain leads there.
    before = owned(c1={A, B}, c2={C, D}, c3={E, F})
    rates = {A: 4.0, B: 4.0, C: 2.0, D: 3.0, E: 5.0, F: 6.0}
    assert len(Repair(3.9).pack(rates, Capacity(12), before)) == 3
    packed = FEWEST_CONSUMERS.pack(rates, Capacity(12), before)
    assert [sorted(rates[p] for p in packed[c]) for c in packed] == [[3, 4, 5], [2, 4, 6]]
    assert F in packed[3]  # the fastest partition keeps its consumer


def test_an_oversize_partition_keeps_its_consumer_for_itself() -> None:
    assert Repair().pack({A: 25, B: 1}, Capacity(10), owned(c3={A, B})) == owned(c1={B}, c3={A})


def test_a_partition_moves_to_a_consumer_that_is_large_enough() -> None:
    # Consumer 1 can hold 4 only; 8 is too much for it and not for a new one of 10, and 15 only fits consumer 7.
    assert Repair().pack({A: 8}, Capacity(10, {1: 4}), owned(c1={A})) == owned(c2={A})
    assert Repair().pack({A: 15}, Capacity(10, {1: 4, 7: 20}), owned(c1={A})) == owned(c7={A})


def test_rates_too_high_to_be_added_up_get_a_consumer_each() -> None:
    assert Repair().pack({A: 1e308, B: 1e308}, Capacity(1), owned(c1={A, B})) == owned(c1={B}, c2={A})


def test_a_price_that_is_no_price_is_refused() -> None:
    for price in (-1, math.nan):
        with pytest.raises(ValueError, match="from 0 to infinity"):
            Repair(price)


def test_the_lightest_cover_prefers_one_partition_to_many_and_less_weight_to_few() -> None:
    assert lightest_cover([1, 2, 3, 8], 3) == (2,)  # 3, not 1 + 2
    assert lightest_cover([1, 2, 4, 9], 3) == (0, 1)  # 1 + 2, not 4
    assert lightest_cover([2, 2, 2], 5) == (0, 1, 2)
    assert lightest_cover([0, 0, 5], 1) == (2,)


def test_forced_moves_are_those_of_overloaded_consumers_alone() -> None:
    # 12 on 10 must give 3 away, the lightest that is at least 2; 9 on 10 nothing; 11 alone cannot.
    before = owned(c1={A, B}, c2={C, D}, c3={E})
    assert forced_rscore(before, {A: 9, B: 3, C: 5, D: 4, E: 11}, 10) == 0.3


def test_cbs_is_the_mean_share_of_consumers_above_the_best() -> None:
    # Best of x and y: 4, 5. x: 0 and 1/5; y: 1/4 and 0; z, which is not compared with: -1/4 and 0.
    scores = cardinal_bin_scores({"x": [4, 6], "y": [5, 5], "z": [3, 5]}, among=["x", "y"])
    assert scores == {"x": 0.1, "y": 0.125, "z": -0.125}


def test_the_front_holds_what_nothing_else_beats_in_both() -> None:
    points = {"few": (0.0, 9.0), "calm": (0.4, 1.0), "middle": (0.2, 4.0), "beaten": (0.2, 5.0), "same": (0.2, 4.0)}
    assert pareto_front(points) == ["few", "middle", "same", "calm"]


def test_of_consumers_that_do_nothing_the_first_one_stays() -> None:
    after = Repair().pack({A: 0.0, B: 0.0, C: 0.0}, Capacity(10.0), owned(c1={A}, c2={B}, c3={C}))
    assert after == owned(c1={A, B, C})
