"""Least-Loaded loses nothing whatever it is given, and its fast version packs as the printed one does (E-10, E-46)."""

import math

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.model import TopicPartition
from headgate.packing.least_loaded import Bins, Item, Room, choose_types, least_loaded

P = [TopicPartition("t", n) for n in range(12)]
any_size = st.sampled_from([0.0, 1e-9, 0.1, 0.3, 10.0, 90.0, 250.0, 1e308, math.inf, math.nan, -1.0]) | st.floats(
    0, 400
)
any_items = st.dictionaries(st.sampled_from(P), st.builds(Item, any_size, any_size))
room_size = st.sampled_from([1e-3, 0.3, 100.0, 300.0, 1e300, math.inf])
any_rooms = st.builds(Room, room_size, room_size)


def once_each(bins: Bins) -> list[TopicPartition]:
    return sorted(p for held in bins for p in held)


@given(
    any_items,
    any_rooms | st.lists(any_rooms, min_size=1, max_size=4),
    st.integers(0, 5),
    st.sampled_from(["rate", "dominant"]),
)
@example({P[0]: Item(250), P[1]: Item(250), P[2]: Item(10)}, [Room(300, 1e9), Room(100, 1e9)], 1, "rate")
@example({P[0]: Item(50), P[1]: Item(1, math.nan)}, Room(100, 50), 1, "rate")
def test_every_partition_is_in_exactly_one_bin(
    items: dict[TopicPartition, Item], rooms: Room | list[Room], min_bins: int, sort_key: str
) -> None:
    bins = least_loaded(items, rooms, min_bins, sort_key)
    assert once_each(bins) == sorted(items)
    assert len(bins) >= max(1, min_bins)


@given(any_items, any_rooms | st.lists(any_rooms, min_size=1, max_size=4))
def test_a_bin_over_its_room_holds_one_partition_alone(
    items: dict[TopicPartition, Item], rooms: Room | list[Room]
) -> None:
    offered = [rooms] if isinstance(rooms, Room) else rooms
    for n, held in enumerate(least_loaded(items, rooms)):
        rate = sum(items[p].rate for p in held if items[p].rate > 0)
        lag = sum(items[p].lag for p in held if items[p].lag > 0)
        room = offered[min(n, len(offered) - 1)]
        # Sums here are in another order than the packer's, so they may differ by rounding.
        within = rate <= room.rate * (1 + 1e-9) and lag <= room.lag * (1 + 1e-9)
        assert within or len(held) == 1


def as_printed(items: dict[TopicPartition, Item], room: Room, min_bins: int) -> list[set[TopicPartition]]:
    """E-10 word by word for bins that are all alike: from min_bins on one more at a time, every bin looked at."""
    clipped = {p: (min(i.rate, room.rate), min(i.lag, room.lag)) for p, i in items.items()}
    size = max(1, min_bins)
    while True:
        held: list[set[TopicPartition]] = [set() for _ in range(size)]
        load, closed = [(0.0, 0.0)] * size, [False] * size
        for p in sorted(clipped, key=lambda p: (-clipped[p][0], -clipped[p][1], p)):
            is_big = items[p].rate > room.rate or items[p].lag > room.lag
            rate, lag = clipped[p]
            takes = [
                n
                for n in range(size)
                if not closed[n]
                and not (is_big and held[n])
                and load[n][0] + rate <= room.rate
                and load[n][1] + lag <= room.lag
            ]
            if not takes:
                break
            n = min(takes, key=lambda n: (load[n], n))
            held[n].add(p)
            load[n] = load[n][0] + rate, load[n][1] + lag
            closed[n] = is_big
        else:
            return held
        size += 1


# Tenths do not add up exactly and often fill a bin to the brim: where a bound computed in another order could go wrong.
tenths = st.integers(0, 14).map(lambda n: n / 10) | st.floats(0, 2)


@given(st.dictionaries(st.sampled_from(P), st.builds(Item, tenths, tenths)), st.sampled_from([0.3, 0.7, 1.0, 2.1]))
@example({p: Item(0.1) for p in P[:3]}, 0.3)  # 0.1 + 0.1 + 0.1 > 0.3 in floating point
@example({p: Item(0.1) for p in P[:10]}, 1.0)  # and ten of them < 1.0
def test_beginning_where_the_sum_fits_packs_as_beginning_with_one_bin(
    items: dict[TopicPartition, Item], room: float
) -> None:
    for min_bins in (1, 3):
        expected = as_printed(items, Room(room, 1.0), min_bins)
        assert list(map(set, least_loaded(items, Room(room, 1.0), min_bins))) == expected


type_size = st.sampled_from([50.0, 100.0, 300.0])
types = st.lists(st.tuples(st.builds(Room, type_size, type_size), st.sampled_from([0.5, 1.0, 10.0])), min_size=1)


@given(st.dictionaries(st.sampled_from(P), st.builds(Item, any_size, any_size)), types)
@example({P[0]: Item(250), P[1]: Item(250)}, [(Room(100, 1e9), 1.0), (Room(300, 1e9), 10.0)])
def test_no_partition_sits_in_a_type_too_small_for_it_if_another_type_holds_it(
    items: dict[TopicPartition, Item], types: list[tuple[Room, float]]
) -> None:
    chosen, bins = choose_types(items, types)
    assert once_each(bins) == sorted(items)
    assert len(chosen) == len(bins) >= 1
    for n, held in zip(chosen, bins, strict=True):
        for p in held:
            item = items[p].clipped()
            if any(room.holds(item) for room, _ in types):
                assert types[n][0].holds(item)
            else:
                assert len(held) == 1
