"""What every packer must keep, whatever the rates and whoever owned what before."""

import math
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model import Assignment, TopicPartition
from headgate.packing import Packer
from headgate.packing.bounded_space import BestFitClosingFullest, BestKFit, FirstFitClosingFullest, NextKFit
from headgate.packing.bounds import least_consumers
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
from headgate.packing.eviction import MANY, lightest_cover
from headgate.packing.exact import Exact
from headgate.packing.harmonic import Harmonic
from headgate.packing.least_loaded import LeastLoaded
from headgate.packing.mffd import ModifiedFirstFitDecreasing
from headgate.packing.modified_any_fit import (
    ModifiedBestFit,
    ModifiedBestFitByPartition,
    ModifiedWorstFit,
    ModifiedWorstFitByPartition,
)
from headgate.packing.protocol import Capacity
from headgate.packing.repair import Repair
from headgate.packing.repair_reference import RepairReference
from headgate.packing.scores import forced_rscore, rscore

PACKERS: list[Packer] = [
    NextFit(),
    NextFitDecreasing(),
    FirstFit(),
    FirstFitDecreasing(),
    WorstFit(),
    WorstFitDecreasing(),
    AlmostWorstFit(),
    BestFit(),
    BestFitDecreasing(),
    ModifiedWorstFit(),
    ModifiedBestFit(),
    ModifiedWorstFitByPartition(),
    ModifiedBestFitByPartition(),
    NextKFit(3),
    FirstFitClosingFullest(3),
    BestKFit(3),
    BestFitClosingFullest(3),
    Harmonic(),
    ModifiedFirstFitDecreasing(),
    LeastLoaded(),
    Repair(0),
    Repair(),
    Repair(math.inf),
]
partitions = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 15))
# Quarters add up without rounding, so that the capacity can be checked exactly.
sizes = st.integers(0, 60).map(lambda quarters: quarters / 4) | st.sampled_from([math.nan, -1.0])
rates = st.dictionaries(partitions, sizes, max_size=24)


@st.composite
def assignments(draw: st.DrawFn) -> Assignment:
    owner_of = draw(st.dictionaries(partitions, st.integers(1, 12), max_size=24))
    return Assignment({c: frozenset(p for p, o in owner_of.items() if o == c) for c in set(owner_of.values())})


capacities = st.builds(Capacity, st.just(10.0), st.dictionaries(st.integers(1, 12), st.sampled_from([5.0, 7.5, 20.0])))


def load_of(packed: Assignment, consumer: int, rates: dict[TopicPartition, float]) -> float:
    return sum(rates[p] for p in packed[consumer] if rates[p] > 0)


FEWER = settings(max_examples=40, deadline=None)
"""Each of these runs for every packer."""


@pytest.mark.parametrize("packer", PACKERS, ids=lambda p: type(p).__name__)
class TestEveryPacker:
    @FEWER
    @given(rates, capacities, assignments())
    def test_gives_every_partition_exactly_one_owner(
        self, packer: Packer, rates: dict[TopicPartition, float], capacity: Capacity, before: Assignment
    ) -> None:
        packed = packer.pack(rates, capacity, before)
        listed = [p for c in packed for p in packed[c]]
        assert sorted(listed) == sorted(rates)

    @FEWER
    @given(rates, capacities, assignments())
    def test_overloads_no_consumer_except_with_a_single_oversize_partition(
        self, packer: Packer, rates: dict[TopicPartition, float], capacity: Capacity, before: Assignment
    ) -> None:
        packed = packer.pack(rates, capacity, before)
        for consumer in packed:
            assert packed[consumer]
            assert load_of(packed, consumer, rates) <= capacity[consumer] or len(packed[consumer]) == 1

    @FEWER
    @given(rates, capacities, assignments())
    def test_keeps_ids_low_and_opens_no_more_bins_than_partitions(
        self, packer: Packer, rates: dict[TopicPartition, float], capacity: Capacity, before: Assignment
    ) -> None:
        packed = packer.pack(rates, capacity, before)
        assert len(packed) <= len(rates)
        new = [c for c in packed if c not in before.owners]
        # An id may be passed over because its consumer is too small, or chosen because it is large enough.
        assert all(c in capacity.of or c <= len(rates) + len(before) + len(capacity.of) for c in new)

    @FEWER
    @given(rates, capacities, assignments())
    def test_is_repeatable_and_does_not_depend_on_the_order_of_its_input(
        self, packer: Packer, rates: dict[TopicPartition, float], capacity: Capacity, before: Assignment
    ) -> None:
        shuffled = dict(reversed(list(rates.items())))
        again = Assignment(dict(reversed(list(before.owners.items()))))
        assert packer.pack(rates, capacity, before) == packer.pack(shuffled, capacity, again)

    @FEWER
    @given(rates, assignments())
    def test_settles_without_further_moves_while_rates_do_not_change(
        self, packer: Packer, rates: dict[TopicPartition, float], before: Assignment
    ) -> None:
        """Modified packers may still merge bins in a second pass, but never grow, and stop moving."""
        capacity = Capacity(10.0)
        packed = packer.pack(rates, capacity, before)
        for _ in range(len(rates) + 1):
            following = packer.pack(rates, capacity, packed)
            assert len(following) <= len(packed)
            if following == packed:
                break
            packed = following
        assert rscore(packed, packer.pack(rates, capacity, packed), rates, 10.0) == 0

    @FEWER
    @given(
        st.dictionaries(
            partitions,
            st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([1e308, math.inf, 5e-324]),
            max_size=24,
        ),
        st.floats(1e-3, 1e12) | st.sampled_from([5e-324, 1e300]),
        assignments(),
    )
    def test_survives_any_number_as_a_rate(
        self, packer: Packer, rates: dict[TopicPartition, float], capacity: float, before: Assignment
    ) -> None:
        packed = packer.pack(rates, Capacity(capacity), before)
        assert packed.partitions == rates.keys()
        for consumer in packed:  # 1e308 and more are above any capacity: each is alone, but for what has no rate
            assert sum(rates[p] >= 1e308 for p in packed[consumer]) <= 1 or capacity == 1e300


class TestRepair:
    @pytest.mark.parametrize("price", [0, 0.5, 1.25, 2.5, 4, math.inf])
    @given(rates=rates, capacity=capacities, before=assignments())
    def test_answers_as_its_reference_does(
        self, price: float, rates: dict[TopicPartition, float], capacity: Capacity, before: Assignment
    ) -> None:
        assert Repair(price).pack(rates, capacity, before) == RepairReference(price).pack(rates, capacity, before)

    @given(rates, capacities, assignments(), st.sampled_from([0, 1.25, math.inf]))
    def test_never_overloads_a_consumer_with_what_a_new_one_could_hold(
        self, rates: dict[TopicPartition, float], capacity: Capacity, before: Assignment, price: float
    ) -> None:
        packed = Repair(price).pack(rates, capacity, before)
        for consumer in packed:
            if (load := load_of(packed, consumer, rates)) > capacity[consumer]:
                assert load > capacity.default_bytes_per_s

    @given(rates, assignments())
    def test_moves_only_what_must_move_when_consumers_cost_nothing(
        self, rates: dict[TopicPartition, float], before: Assignment
    ) -> None:
        usual = {p: min(rate, 10.0) for p, rate in rates.items() if rate > 0}
        packed = Repair(0).pack(usual, Capacity(10.0), before)
        assert rscore(before, packed, usual, 10.0) == forced_rscore(before, usual, 10.0)

    @given(rates, assignments())
    def test_needs_no_more_consumers_than_bfd_when_consumers_are_dear(
        self, rates: dict[TopicPartition, float], before: Assignment
    ) -> None:
        packed = Repair(math.inf).pack(rates, Capacity(10.0), before)
        assert len(packed) <= len(BestFitDecreasing().pack(rates, Capacity(10.0), before))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=9), st.data())
def test_the_lightest_cover_is_the_lightest(weights: list[int], data: st.DataObject) -> None:
    ascending = sorted(weights)
    excess = data.draw(st.integers(1, max(1, sum(ascending))))
    if sum(ascending) < excess:
        return
    covers = (c for n in range(len(ascending) + 1) for c in combinations(ascending, n) if sum(c) >= excess)
    chosen = [ascending[at] for at in lightest_cover(ascending, excess)]
    assert sum(chosen) >= excess
    assert sum(chosen) == min(map(sum, covers))


@given(st.lists(st.integers(0, 1000), min_size=MANY + 1, max_size=4 * MANY), st.floats(0, 1))
def test_a_cover_from_very_many_has_nothing_to_spare_and_is_no_heavier_than_the_heaviest_first(
    weights: list[int], share: float
) -> None:
    ascending = sorted(weights)
    excess = max(1, round(share * sum(ascending)))
    if sum(ascending) < excess:
        return
    chosen = lightest_cover(ascending, excess)
    given_away = [ascending[at] for at in chosen]
    assert len(set(chosen)) == len(chosen)
    assert sum(given_away) >= excess
    assert sum(given_away) - min(given_away) < excess
    heaviest_first = next(n for n in range(1, len(ascending) + 1) if sum(ascending[-n:]) >= excess)
    assert sum(given_away) <= sum(ascending[-heaviest_first:])


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(partitions, sizes, min_size=1, max_size=8), capacities, assignments())
def test_no_packer_beats_the_exact_one_and_no_packing_the_bound(
    rates: dict[TopicPartition, float], capacity: Capacity, before: Assignment
) -> None:
    pytest.importorskip("ortools", reason="OR-tools is not installed: pip install headgate[exact]")
    uniform = Capacity(10.0)
    solved = Exact().solve(rates, uniform, before)
    assert solved.fewest
    assert solved.assignment.partitions == rates.keys()
    assert len(solved.assignment) >= least_consumers((r for r in rates.values() if r > 0), 10.0)
    assert all(len(solved.assignment) <= len(packer.pack(rates, uniform, before)) for packer in PACKERS)
    packed = Exact().solve(rates, capacity, before).assignment
    for consumer in packed:
        assert load_of(packed, consumer, rates) <= capacity[consumer] or len(packed[consumer]) == 1
