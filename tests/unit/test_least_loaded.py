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


def test_the_exact_solver_beats_the_heuristic_where_balancing_wastes_room() -> None:
    # 5 + 5 and 4 + 4 + 2 fill two bins of 10. Least-Loaded spreads: 5 | 5, then 5 + 4 | 5 + 4, and 2 fits neither.
    # So it starts again with three: 5 | 5 | 4, then 4 beside 4 and 2 beside the first 5.
    tight = {P[n]: Item(r) for n, r in enumerate((5, 5, 4, 4, 2))}
    assert fewest_bins(tight, Room(10, 1)) == 2
    assert least_loaded(tight, Room(10, 1)) == (frozenset({P[0], P[4]}), frozenset({P[1]}), frozenset({P[2], P[3]}))


def test_what_fits_no_bin_is_alone_in_the_largest_empty_one() -> None:
    # The only bin of 300 takes one of the two and the 10; the next has 100, so the other overloads it, alone.
    bins = least_loaded({P[0]: Item(250), P[1]: Item(250), P[2]: Item(10)}, [Room(300, 1), Room(100, 1)])
    assert bins == (frozenset({P[0], P[2]}), frozenset({P[1]}))


def test_replicas_of_several_types_are_chosen_by_price() -> None:
    small, large = (Room(100, 50), 1.0), (Room(400, 200), 3.0)
    types, bins = choose_types({p: Item(40, 10) for p in P[:2]}, [small, large])
    assert (types, len(bins)) == ((0,), 1)
    types, bins = choose_types({p: Item(90, 10) for p in P[:4]}, [small, large])  # 360: one large one holds it
    assert types == (1,)
    assert sizes(bins) == [4]


def test_a_type_that_cannot_hold_a_partition_is_no_choice_for_it_however_cheap() -> None:
    types, bins = choose_types({P[0]: Item(250), P[1]: Item(250)}, [(Room(100, 1), 1.0), (Room(300, 1), 10.0)])
    assert (types, sizes(bins)) == ((1, 1), [1, 1])
    types, bins = choose_types({P[0]: Item(500)}, [(Room(100, 1), 1.0), (Room(300, 1), 10.0)])  # none holds it
    assert (types, bins) == ((1,), (frozenset({P[0]}),))


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


def test_as_a_packer_it_fills_every_consumer_to_its_own_capacity() -> None:
    # Two consumers of 5 and 20: 7 fits only the larger; 4 goes where nothing is yet.
    own = Capacity(10.0, {1: 5.0, 2: 20.0})
    before = Assignment({1: frozenset({P[0]}), 2: frozenset({P[1]})})
    packed = LeastLoaded().pack({P[0]: 7.0, P[1]: 4.0}, own, before)
    assert packed == Assignment({1: frozenset({P[1]}), 2: frozenset({P[0]})})
    assert LeastLoaded().pack({P[0]: 15.0}, own, Assignment()) == Assignment({2: frozenset({P[0]})})
