"""The benchmark catalogue (L-56, L-57) and the exact packer (L-58) on cases small enough to pack by hand."""

from importlib.util import find_spec

import pytest

from headgate.model import Assignment, TopicPartition
from headgate.packing import Packer
from headgate.packing.bounded_space import BestFitClosingFullest, BestKFit, FirstFitClosingFullest, NextKFit
from headgate.packing.bounds import least_consumers
from headgate.packing.exact import Exact
from headgate.packing.harmonic import Harmonic
from headgate.packing.mffd import ModifiedFirstFitDecreasing, class_of
from headgate.packing.protocol import Capacity
from headgate.packing.scores import rscore

NOBODY = Assignment()


def part(n: int) -> TopicPartition:
    return TopicPartition("t", n)


def grouped(packed: Assignment, rates: dict[TopicPartition, float]) -> list[list[float]]:
    """The sizes that share a consumer, by consumer id."""
    return [sorted((rates[p] for p in packed[c]), reverse=True) for c in packed]


def named(*sizes: float) -> dict[TopicPartition, float]:
    return {part(n): size for n, size in enumerate(sizes)}


@pytest.mark.parametrize(
    ("packer", "groups"),
    [
        # 5 | 7 opens the second | 6 fits neither: one is closed | 2 | 4
        (NextKFit(2), [[5], [7, 2], [6, 4]]),  # closes the 5; 2 goes to the first open, the 7
        (BestKFit(2), [[5], [7, 2], [6, 4]]),  # closes the 5; 2 goes to the fullest open, the 7
        (FirstFitClosingFullest(2), [[5, 2], [7], [6, 4]]),  # closes the 7; 2 goes to the first open, the 5
        (BestFitClosingFullest(2), [[5, 4], [7], [6, 2]]),  # closes the 7; 2 goes to the fullest open, the 6
    ],
    ids=lambda value: type(value).__name__,
)
def test_bounded_space_packs_into_and_closes_the_bins_its_letters_say(
    packer: Packer, groups: list[list[float]]
) -> None:
    rates = named(5, 7, 6, 2, 4)
    assert grouped(packer.pack(rates, Capacity(10), NOBODY), rates) == groups


def test_one_open_bin_is_next_fit() -> None:
    rates = named(5, 7, 2, 4, 1)
    for packer in (NextKFit(1), BestKFit(1), FirstFitClosingFullest(1), BestFitClosingFullest(1)):
        assert grouped(packer.pack(rates, Capacity(10), NOBODY), rates) == [[5], [7, 2], [4, 1]]


def test_harmonic_keeps_classes_apart_and_puts_j_of_class_j_into_a_bin() -> None:
    # Of 12: above 6 is class 1, above 4 class 2, up to 4 class 3 (k = 3).
    rates = named(7, 5, 6, 5, 4, 4, 4, 3)
    assert grouped(Harmonic(3).pack(rates, Capacity(12), NOBODY), rates) == [[7], [6, 5], [5], [4, 4, 4], [3]]


def test_the_ends_of_the_intervals_belong_to_the_lower_class() -> None:
    assert [Harmonic(4).class_of(share) for share in (1.0, 0.51, 0.5, 0.34, 1 / 3, 0.26, 0.25, 0.0)] == [
        1, 1, 2, 2, 3, 3, 4, 4,
    ]  # fmt: skip
    shares = (0.6, 0.5, 0.4, 1 / 3, 0.3, 0.25, 0.2, 0.18, 1 / 6, 11 / 71, 0.1, 0.0)
    assert "".join(map(class_of, shares)) == "ABBCCDEEFGGG"


def test_mffd_gives_a_gap_to_two_middling_partitions_where_ffd_gives_it_to_one() -> None:
    # Capacity 60. A: 32, 31. B: none. C (15, 20]: 16. D (12, 15]: 14, 13. E (10, 12]: 12.
    # Right to left: beside 31 (29 left) 12 and the largest that fits with it, 16; beside 32 (28 left) 13 and 14.
    rates = named(32, 31, 16, 14, 13, 12)
    assert grouped(ModifiedFirstFitDecreasing().pack(rates, Capacity(60), NOBODY), rates) == [
        [32, 14, 13],
        [31, 16, 12],
    ]


def test_mffd_packs_the_rest_by_first_fit_decreasing() -> None:
    # A 33 takes the largest B that fits, 25; the others, 24 and 22 with 10, do not fit beside it.
    rates = named(33, 25, 24, 22, 10)
    assert grouped(ModifiedFirstFitDecreasing().pack(rates, Capacity(60), NOBODY), rates) == [[33, 25], [24, 22, 10]]


@pytest.mark.parametrize("make", [NextKFit, Harmonic])
def test_k_below_one_is_refused(make: type) -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        make(0)


def test_the_bound_counts_what_cannot_share() -> None:
    assert least_consumers([], 10) == 0
    assert least_consumers([0, 0], 10) == 0
    assert least_consumers([6, 6, 6], 10) == 3  # no two share, although 18 / 10 rounds up to 2
    assert least_consumers([7, 7, 4, 4, 4], 10) == 4  # no 4 fits beside a 7, and two of them fill a bin
    assert least_consumers([5, 5, 5, 5], 10) == 2
    assert least_consumers([25, 1], 10) == 2


@pytest.mark.skipif(find_spec("ortools") is None, reason="OR-tools is not installed: pip install headgate[exact]")
class TestExact:
    def test_finds_a_packing_that_bfd_misses(self) -> None:
        # BFD: 6 | 5 | 4 joins the 6 | 3 joins the 5 | 3 and 3 share | 24 = 2 · 12, but BFD of 12 needs three bins.
        rates = named(6, 5, 4, 3, 3, 3)
        assert len(Exact().pack(rates, Capacity(12), NOBODY)) == 2

    def test_moves_least_among_the_packings_with_fewest_consumers(self) -> None:
        # 4 must leave the 7; beside the 6 there is room for it, so nothing else moves.
        rates = named(7, 4, 6)
        before = Assignment({1: frozenset({part(0), part(1)}), 2: frozenset({part(2)})})
        solved = Exact().solve(rates, Capacity(10), before)
        assert solved.fewest
        assert solved.least_moved
        assert solved.assignment == Assignment({1: frozenset({part(0)}), 2: frozenset({part(1), part(2)})})
        assert rscore(before, solved.assignment, rates, 10) == 0.4

    def test_can_be_asked_for_the_fewest_moves_with_more_consumers(self) -> None:
        rates = named(5, 5)
        before = Assignment({1: frozenset({part(0)}), 2: frozenset({part(1)})})
        assert len(Exact().solve(rates, Capacity(10), before).assignment) == 1
        assert Exact().solve(rates, Capacity(10), before, improving=before).assignment == before
