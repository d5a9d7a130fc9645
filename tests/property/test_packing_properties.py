"""What every packer must keep, whatever the rates and whoever owned what before."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import Assignment, TopicPartition
from headgate.packing import Packer
from headgate.packing.classical import BestFitDecreasing
from headgate.packing.modified_any_fit import (
    ModifiedBestFit,
    ModifiedBestFitByPartition,
    ModifiedWorstFit,
    ModifiedWorstFitByPartition,
)
from headgate.packing.protocol import Capacity
from headgate.packing.repair import Repair
from headgate.packing.scores import rscore

PACKERS: list[Packer] = [
    BestFitDecreasing(),
    ModifiedWorstFit(),
    ModifiedBestFit(),
    ModifiedWorstFitByPartition(),
    ModifiedBestFitByPartition(),
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


@pytest.mark.parametrize("packer", PACKERS, ids=lambda p: type(p).__name__)
class TestEveryPacker:
    @given(rates, capacities, assignments())
    def test_gives_every_partition_exactly_one_owner(
        self, packer: Packer, rates: dict[TopicPartition, float], capacity: Capacity, before: Assignment
    ) -> None:
        packed = packer.pack(rates, capacity, before)
        listed = [p for c in packed for p in packed[c]]
        assert sorted(listed) == sorted(rates)

    @given(rates, capacities, assignments())
    def test_overloads_no_consumer_except_with_a_single_oversize_partition(
        self, packer: Packer, rates: dict[TopicPartition, float], capacity: Capacity, before: Assignment
    ) -> None:
        packed = packer.pack(rates, capacity, before)
        for consumer in packed:
            assert packed[consumer]
            load = sum(rates[p] for p in packed[consumer] if rates[p] > 0)
            assert load <= capacity[consumer] or len(packed[consumer]) == 1

    @given(rates, capacities, assignments())
    def test_keeps_ids_low_and_opens_no_more_bins_than_partitions(
        self, packer: Packer, rates: dict[TopicPartition, float], capacity: Capacity, before: Assignment
    ) -> None:
        packed = packer.pack(rates, capacity, before)
        assert len(packed) <= len(rates)
        new = [c for c in packed if c not in before.owners]
        # An id may be passed over because its consumer is too small, or chosen because it is large enough.
        assert all(c in capacity.of or c <= len(rates) + len(before) + len(capacity.of) for c in new)

    @given(rates, capacities, assignments())
    def test_is_repeatable_and_does_not_depend_on_the_order_of_its_input(
        self, packer: Packer, rates: dict[TopicPartition, float], capacity: Capacity, before: Assignment
    ) -> None:
        shuffled = dict(reversed(list(rates.items())))
        again = Assignment(dict(reversed(list(before.owners.items()))))
        assert packer.pack(rates, capacity, before) == packer.pack(shuffled, capacity, again)

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
