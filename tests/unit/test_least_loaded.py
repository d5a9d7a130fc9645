"""Least-Loaded packs rate and lag, spreads what it packs and leaves its input alone (E-8 … E-12, E-46)."""

import pytest

from headgate.model import Assignment, TopicPartition
from headgate.packing.least_loaded import (
    Item,
    LeastLoaded,
    Room,
    choose_types,
    fewest_bins,
    least_loaded,
    onto_members,
)
from headgate.packing.protocol import Capacity

P = [TopicPartition("t", n) for n in range(9)]


def sizes(bins: tuple[frozenset[TopicPartition], ...]) -> list[int]:
    return sorted((len(b) for b in bins), reverse=True)


def test_five_equal_partitions_over_three_bins_are_spread_two_two_one() -> None:
    # E-12: 5 x 40 in bins of 80 needs three; first fit would fill 2, 2, 1 too, so force three bins of 200 as well.
    assert sizes(least_loaded({p: Item(40) for p in P[:5]}, Room(80, 1))) == [2, 2, 1]
    assert sizes(least_loaded({p: Item(40) for p in P[:5]}, Room(200, 1), min_bins=3)) == [2, 2, 1]


def test_a_bin_is_full_by_rate_or_by_lag() -> None:
    by_rate = least_loaded({p: Item(100, 1) for p in P[:4]}, Room.of(200, 0.5))
    assert len(by_rate) == 2
    by_lag = least_loaded({p: Item(1, 60) for p in P[:4]}, Room.of(200, 0.5))  # room for 100 waiting
    assert len(by_lag) == 4


def test_the_share_scales_both_dimensions() -> None:
    room = Room.of(200, 0.5, 0.9)
    assert (room.rate, room.lag) == (180, 90)


def test_what_exactly_fits_is_packed() -> None:
    assert len(least_loaded({P[0]: Item(100, 50), P[1]: Item(100, 50)}, Room(200, 100))) == 1


def test_an_oversized_partition_gets_a_bin_alone() -> None:
    bins = least_loaded({P[0]: Item(10, 500), P[1]: Item(0, 0), P[2]: Item(5, 1)}, Room(200, 100))
    assert frozenset({P[0]}) in bins
    assert len(bins) == 2


def test_oversized_partitions_never_make_it_loop() -> None:
    bins = least_loaded({p: Item(1000, 1000) for p in P}, Room(200, 100))
    assert sizes(bins) == [1] * 9


def test_items_are_not_changed_by_clipping() -> None:
    items = {P[0]: Item(1000, 1000), P[1]: Item(10, 10)}
    least_loaded(items, Room(200, 100))
    assert items == {P[0]: Item(1000, 1000), P[1]: Item(10, 10)}


def test_no_load_at_all_still_takes_one_bin() -> None:
    assert len(least_loaded({p: Item(0) for p in P}, Room(200, 100))) == 1
    assert len(least_loaded({}, Room(200, 100))) == 1


def test_the_dominant_order_packs_a_backlog_that_the_rate_order_cannot() -> None:
    # Lags 60, 60, 40, 40 at rates 1, 2, 3, 4: by rate the two 40s are spread first and a 60 finds no room in two bins.
    items = {P[0]: Item(1, 60), P[1]: Item(2, 60), P[2]: Item(3, 40), P[3]: Item(4, 40)}
    assert len(least_loaded(items, Room(200, 100), sort_key="dominant")) == 2
    with pytest.raises(ValueError, match="rate or dominant"):
        least_loaded(items, Room(200, 100), sort_key="lag")


def test_the_exact_solver_beats_the_heuristic_where_order_matters() -> None:
    # 6+2+2 and 5+5 fit two bins of 10. By falling rate onto the emptier bin: 6 | 5, then 5 beside 5, 2 and 2 beside 6.
    items = {P[n]: Item(r) for n, r in enumerate((6, 5, 5, 2, 2))}
    assert fewest_bins(items, Room(10, 1)) == 2
    # 4+4+2, 4+3+3: 20 in two bins of 10; least loaded puts 4 | 4, 4 | 3, 3 ... and then 3 and 2 do not both fit.
    tight = {P[n]: Item(r) for n, r in enumerate((4, 4, 4, 3, 3, 2))}
    assert fewest_bins(tight, Room(10, 1)) == 2
    assert len(least_loaded(tight, Room(10, 1))) >= 2


def test_replicas_of_several_types_are_chosen_by_price() -> None:
    small, large = (Room(100, 50), 1.0), (Room(400, 200), 3.0)
    types, bins = choose_types({p: Item(40, 10) for p in P[:2]}, [small, large])
    assert (types, len(bins)) == ((0,), 1)
    types, bins = choose_types({p: Item(90, 10) for p in P[:4]}, [small, large])  # 360: one large one holds it
    assert types == (1,)
    assert sizes(bins) == [4]


def test_bins_go_to_the_members_that_hold_most_of_them() -> None:
    current = Assignment({4: frozenset({P[0], P[1]}), 7: frozenset({P[2]})})
    plan = onto_members((frozenset({P[2]}), frozenset({P[0], P[1]}), frozenset({P[3]})), current, dict.fromkeys(P, 1.0))
    assert plan == Assignment({4: frozenset({P[0], P[1]}), 7: frozenset({P[2]}), 1: frozenset({P[3]})})


def test_the_member_whose_departure_moves_least_leaves() -> None:
    current = Assignment({1: frozenset({P[0]}), 2: frozenset({P[1], P[2]})})
    plan = onto_members((frozenset(P[:3]),), current, {P[0]: 10.0, P[1]: 50.0, P[2]: 50.0})
    assert plan == Assignment({2: frozenset(P[:3])})


def test_as_a_packer_of_rates_it_keeps_everybody_within_capacity() -> None:
    packed = LeastLoaded().pack(dict.fromkeys(P[:4], 0.5), Capacity(1.0), Assignment())
    assert len(packed) == 2
    assert packed.partitions == frozenset(P[:4])
