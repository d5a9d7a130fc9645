"""Starts drawn from the published t3 (E4), by hand-computed shares."""

import numpy as np
import pytest

from headgate.model import Assignment, Decision, Observation
from headgate.simulation.arrivals import counted
from headgate.simulation.group import partition_of
from headgate.simulation.run import RunSettings, simulate
from headgate.simulation.start_times import PUBLISHED_T3, StartTimes


def test_the_published_mixture_has_the_published_shares() -> None:
    assert PUBLISHED_T3.share_below(10) == 0
    assert PUBLISHED_T3.share_below(30) == pytest.approx(0.70)
    assert PUBLISHED_T3.share_below(50) == pytest.approx(0.88)  # the text: 88 % in 10 to 50 s
    assert PUBLISHED_T3.share_below(500) == pytest.approx(1.0)
    # Middles of the bins by their shares: .70·20 + .18·40 + .04·60 + .02·80 + .06·295
    assert PUBLISHED_T3.mean_s == pytest.approx(42.9)


def test_draws_follow_the_shares() -> None:
    rng = np.random.default_rng(1)
    drawn = np.array([PUBLISHED_T3.draw_s(rng) for _ in range(4000)])
    assert drawn.min() >= 10
    assert drawn.max() <= 500
    # Four standard errors of a share of 0.88 in 4000 draws are 0.02.
    assert np.mean(drawn <= 50) == pytest.approx(0.88, abs=0.02)
    assert np.mean(drawn <= 30) == pytest.approx(0.70, abs=0.03)


@pytest.mark.parametrize(
    ("edges_s", "shares"), [((0.0, 1.0), (0.5, 0.5)), ((1.0, 0.0), (1.0,)), ((0.0, 1.0), (0.9,)), ((-1.0, 1.0), (1.0,))]
)
def test_a_histogram_that_is_none_is_refused(edges_s: tuple[float, ...], shares: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"must|needs"):
        StartTimes(edges_s, shares)


class GrowsOnce:
    """Asks for a second consumer at once and remembers what it is told of starts."""

    def __init__(self) -> None:
        self.told: list[float | None] = []

    def decide(self, seen: Observation) -> Decision:
        self.told.append(seen.start_s)
        split = Assignment({1: frozenset({partition_of(0)}), 2: frozenset({partition_of(1)})})
        return Decision(split, "as told")


def test_a_simulated_start_is_drawn_and_then_told_to_the_policy() -> None:
    exactly_20 = StartTimes((20.0, 20.0), (1.0,))
    policy = GrowsOnce()
    settings = RunSettings(protocol="cooperative", warm_up_s=1.0).with_group(start_up_s=3.0, starts=exactly_20)
    outcome = simulate(counted([[1, 1]] * 60), policy, settings)
    (change,) = outcome.changes
    assert change.ready_s - change.at_s == pytest.approx(20)
    assert policy.told[0] is None
    assert policy.told[-1] == pytest.approx(20)
