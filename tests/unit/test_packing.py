"""Packers and their scores on cases small enough to pack by hand."""

import math
from importlib.metadata import entry_points

import pytest

from headgate.errors import ConfigError
from headgate.model import Assignment, TopicPartition
from headgate.packing import Packer
from headgate.packing.classical import (
    AlmostWorstFit,
    BestFit,
    BestFitDecreasing,
    FirstFit,
    FirstFitDecreasing,
    NextFit,
    NextFitDecreasing,
    WorstFit,
    WorstFitDecreasing,
)
from headgate.packing.modified_any_fit import (
    ModifiedBestFit,
    ModifiedBestFitByPartition,
    ModifiedWorstFit,
    ModifiedWorstFitByPartition,
)
from headgate.packing.protocol import Capacity
from headgate.packing.registry import GROUP, build_packer
from headgate.packing.repair import Repair
from headgate.packing.scores import rscore

A, B, C, D, E, F = (TopicPartition("t", n) for n in range(6))
NOBODY = Assignment()
ALL: list[Packer] = [
    BestFitDecreasing(),
    ModifiedWorstFit(),
    ModifiedBestFit(),
    ModifiedWorstFitByPartition(),
    ModifiedBestFitByPartition(),
    FirstFitDecreasing(),
    WorstFitDecreasing(),
    Repair(),
]
"""Those that treat consumers alike where the cases below do not say otherwise."""


def owned(**partitions: set[TopicPartition]) -> Assignment:
    """owned(c1={A}, c2={B, C})"""
    return Assignment({int(name[1:]): frozenset(held) for name, held in partitions.items()})


def test_a_light_consumer_disappears_into_the_emptiest_one_under_mwf_and_into_the_fullest_under_mbf() -> None:
    # Visited by sum: 1 (9), 2 (5), 3 (1). D=2 does not fit beside 9; E=1 fits both.
    rates = {A: 5, B: 4, C: 3, D: 2, E: 1}
    before = owned(c1={A, B}, c2={C, D}, c3={E})
    assert ModifiedWorstFit().pack(rates, Capacity(10), before) == owned(c1={A, B}, c2={C, D, E})
    assert ModifiedBestFit().pack(rates, Capacity(10), before) == owned(c1={A, B, E}, c2={C, D})


def test_an_overloaded_consumer_keeps_its_biggest_partitions_up_to_the_first_misfit() -> None:
    # 6 stays, 5 does not fit beside it, and 1 is given away with it although it would fit.
    rates = {A: 6, B: 5, C: 1}
    before = owned(c1={A, B, C})
    assert ModifiedWorstFit().pack(rates, Capacity(10), before) == owned(c1={A}, c2={B, C})
    assert ModifiedBestFit().pack(rates, Capacity(10), before) == owned(c1={A, C}, c2={B})


def test_the_variants_by_partition_visit_the_consumer_with_the_fastest_partition_first() -> None:
    # By sum consumer 1 (8) comes first and nothing moves; by largest consumer 2 (5) does, and takes one 4.
    rates = {A: 4, B: 4, C: 5}
    before = owned(c1={A, B}, c2={C})
    assert ModifiedWorstFit().pack(rates, Capacity(9), before) == before
    assert ModifiedBestFit().pack(rates, Capacity(9), before) == before
    assert ModifiedWorstFitByPartition().pack(rates, Capacity(9), before) == owned(c1={A}, c2={B, C})
    assert ModifiedBestFitByPartition().pack(rates, Capacity(9), before) == owned(c1={A}, c2={B, C})


def test_consumers_are_visited_from_the_heaviest_to_the_lightest() -> None:
    # Ascending, consumer 2 (3) would be first and stay; descending it goes into consumer 1 (6).
    assert ModifiedWorstFit().pack({A: 6, B: 3}, Capacity(10), owned(c1={A}, c2={B})) == owned(c1={A, B})
    assert ModifiedWorstFit().pack({A: 3, B: 6}, Capacity(10), owned(c1={A}, c2={B})) == owned(c2={A, B})


def test_bfd_puts_each_partition_where_least_room_is_left() -> None:
    # 7 | 6 | 3 joins the 7 (10) | 2 joins the 6 (8) | 2 joins it too (10).
    rates = {A: 6, B: 2, C: 7, D: 3, E: 2}
    assert BestFitDecreasing().pack(rates, Capacity(10), NOBODY) == owned(c1={C, D}, c2={A, B, E})


def test_a_bin_gets_the_id_of_the_present_owner_or_else_the_lowest_unused_one() -> None:
    # L-39: 7 opens its own consumer 5; 6 was there too, 5 is taken, so it opens 1; 8 is at home in 3.
    before = owned(c5={A, B}, c3={C})
    assert BestFitDecreasing().pack({A: 7, B: 6, C: 8}, Capacity(10), before) == owned(c3={C}, c5={A}, c1={B})


def test_of_equally_loaded_bins_the_lowest_id_is_chosen() -> None:
    before = owned(c2={A}, c4={B})
    for packer in (ModifiedWorstFit(), ModifiedBestFit()):
        assert packer.pack({A: 6, B: 6, C: 1}, Capacity(10), before) == owned(c2={A, C}, c4={B})


def test_a_load_of_exactly_the_capacity_fits() -> None:
    for packer in ALL:
        assert len(packer.pack({A: 6, B: 4}, Capacity(10), NOBODY)) == 1


def test_every_bin_has_its_own_capacity() -> None:
    # Consumer 2 may hold 4 only, so 3 stays and 2 goes to consumer 1, which may hold 20.
    capacity = Capacity(10, {1: 20, 2: 4})
    before = owned(c1={A}, c2={B, C})
    assert ModifiedWorstFit().pack({A: 19, B: 3, C: 2}, capacity, before) == owned(c1={A}, c2={B}, c3={C})
    assert ModifiedWorstFit().pack({A: 15, B: 3, C: 2}, capacity, before) == owned(c1={A, B, C})


every_packer = pytest.mark.parametrize("name", sorted(entry.name for entry in entry_points(group=GROUP)))


def registered(name: str) -> Packer:
    if name == "exact":
        pytest.importorskip("ortools", reason="OR-tools is not installed: pip install headgate[exact]")
    return build_packer(name)


@every_packer
def test_no_partition_lands_on_a_consumer_too_slow_for_it_while_another_is_not(name: str) -> None:
    # L-26: consumer 1 can do 4, consumer 7 can do 20, all others 10.
    capacity, packer = Capacity(10, {1: 4, 7: 20}), registered(name)
    (owner,) = packer.pack({A: 8}, capacity, Assignment())
    assert owner != 1
    assert packer.pack({A: 15}, capacity, Assignment()) == owned(c7={A})


@every_packer
def test_only_any_fit_leaves_a_partition_where_it_is_if_that_consumer_got_too_slow(name: str) -> None:
    # L-39 gives the first bin the id of its present owner and L-38 lets an empty bin take anything; NF begins anew.
    moves = name in ("repair", "exact", "ll", "nf", "nfd")
    packed = registered(name).pack({A: 8}, Capacity(10, {1: 4}), owned(c1={A}))
    assert packed == (owned(c2={A}) if moves else owned(c1={A}))


@every_packer
@pytest.mark.parametrize("rate", [1e308, math.inf])
def test_rates_that_cannot_be_added_up_get_a_consumer_each(name: str, rate: float) -> None:
    packed = registered(name).pack({A: rate, B: rate, C: rate}, Capacity(1), owned(c1={A, B}))
    assert sorted(len(packed[consumer]) for consumer in packed) == [1, 1, 1]


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf])
def test_a_capacity_that_is_none_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match=rf"capacity is above 0 .* not {wrong:g}"):
        Capacity(wrong)
    with pytest.raises(ValueError, match="capacity is above 0"):
        Capacity(10, {3: wrong})


@pytest.mark.parametrize("packer", ALL)
def test_an_oversize_partition_gets_a_consumer_of_its_own(packer: Packer) -> None:
    packed = packer.pack({A: 25, B: 1, C: 0}, Capacity(10), owned(c1={A, B, C}))
    assert packed.by_partition()[A] == 1
    assert packed[1] == {A}
    assert len(packed) == 2


@pytest.mark.parametrize("packer", ALL)
def test_rates_that_are_no_rates_count_as_zero(packer: Packer) -> None:
    packed = packer.pack({A: math.nan, B: -3, C: 10, D: 0}, Capacity(10), owned(c1={A}, c2={B}, c3={C}))
    assert packed == owned(c3={A, B, C, D})


@pytest.mark.parametrize("packer", ALL)
def test_partitions_without_a_rate_are_dropped_and_their_consumers_with_them(packer: Packer) -> None:
    assert packer.pack({A: 9}, Capacity(10), owned(c1={A, B}, c2={C, D})) == owned(c1={A})
    assert packer.pack({}, Capacity(10), owned(c1={A})) == NOBODY


@pytest.mark.parametrize("packer", ALL)
def test_consumers_that_own_nothing_are_not_packed_into(packer: Packer) -> None:
    assert packer.pack({A: 9, B: 8}, Capacity(10), owned(c1=set(), c2={A, B})) == owned(c1={B}, c2={A})


def test_the_rscore_is_the_rate_that_changes_hands_over_the_capacity() -> None:
    # B (3) moves; C is new, D vanishes, A stays.
    before, after = owned(c1={A, D}, c2={B}), owned(c1={A, B}, c3={C})
    assert rscore(before, after, {A: 5, B: 3, C: 9}, 1.5) == 2.0
    assert rscore(NOBODY, after, {A: 5, B: 3, C: 9}, 1.5) == 0.0


@pytest.mark.parametrize(
    ("packer", "packed"),
    [
        # 3 opens consumer 1; 6 fits (9); 2 does not, and opens 2; 5 fits there (7); 4 opens 3; 1 fits there.
        (NextFit(), owned(c1={A, B}, c2={C, D}, c3={E, F})),
        # 1 takes the lowest id that fits: consumer 1 (9 + 1).
        (FirstFit(), owned(c1={A, B, F}, c2={C, D}, c3={E})),
        # 1 takes the emptiest, consumer 3 (4).
        (WorstFit(), owned(c1={A, B}, c2={C, D}, c3={E, F})),
        # 1 takes the second-emptiest, consumer 2 (7).
        (AlmostWorstFit(), owned(c1={A, B}, c2={C, D, F}, c3={E})),
        # 1 takes the fullest that fits, consumer 1 (9).
        (BestFit(), owned(c1={A, B, F}, c2={C, D}, c3={E})),
        # 6 | 5 opens 2 | 4 fits (9) | 3 opens 3 | 2 and 1 fit.
        (NextFitDecreasing(), owned(c1={B}, c2={D, E}, c3={A, C, F})),
        # 6 | 5 opens 2 | 4 joins the 6 (10) | 3 joins the 5 (8) | 2 too (10) | 1 opens 3.
        (FirstFitDecreasing(), owned(c1={B, E}, c2={D, A, C}, c3={F})),
        # 6 | 5 opens 2 | 4 joins the 5 (9) | 3 joins the 6 (9) | 2 opens 3 | 1 joins it.
        (WorstFitDecreasing(), owned(c1={B, A}, c2={D, E}, c3={C, F})),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_classical_packers_pick_the_bin_their_rule_says(packer: Packer, packed: Assignment) -> None:
    assert packer.pack({A: 3, B: 6, C: 2, D: 5, E: 4, F: 1}, Capacity(10), NOBODY) == packed


def test_next_fit_begins_with_consumer_1_whoever_owned_the_first_partition() -> None:
    assert NextFit().pack({A: 9, B: 8}, Capacity(10), owned(c2={A, B})) == owned(c1={A}, c2={B})


def test_online_packers_take_partitions_in_the_order_they_are_given() -> None:
    assert NextFit(order=lambda ps: sorted(ps, reverse=True)).pack({A: 3, B: 6, C: 8}, Capacity(10), NOBODY) == owned(
        c1={C}, c2={A, B}
    )


def test_packers_are_found_by_name_and_a_wrong_name_is_answered_with_the_nearest() -> None:
    assert isinstance(build_packer("mwf"), ModifiedWorstFit)
    with pytest.raises(ConfigError, match=r"unknown packer 'repiar': did you mean 'repair'\? known are .*bfd"):
        build_packer("repiar")
    with pytest.raises(ConfigError, match="packer 'bfd' has no parameter 'depth': it takes none"):
        build_packer("bfd", {"depth": 3})
