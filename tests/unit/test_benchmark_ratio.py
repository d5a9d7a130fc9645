"""Measuring in turns: everybody once a round, and the first rounds do not count."""

import pytest

from benchmarks.ratio import Ratio, in_turns
from benchmarks.results import verdict


def test_everybody_has_a_turn_in_every_round_and_rounds_that_warm_up_do_not_count() -> None:
    order: list[str] = []

    def way(name: str, cold: float, warm: float) -> float:
        order.append(name)
        return cold if len(order) <= 2 else warm

    ways = {"a": lambda number: way("a", 9.0, 1.0 + number), "b": lambda number: way("b", 9.0, 5.0)}
    assert in_turns(ways, rounds=2, warm_up=1) == {"a": [2.0, 3.0], "b": [5.0, 5.0]}
    assert order == ["a", "b", "a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (Ratio("w", "p", 0.9, 1.0, 0.8, 1.0, target=1.0), "≤ 1: met"),
        (Ratio("w", "p", 0.9, 1.0, 0.8, 1.5, target=1.0), "≤ 1: met by the median"),
        (Ratio("w", "p", 1.1, 1.0, 0.8, 1.5, target=1.0), "≤ 1: missed"),
        (Ratio("w", "p", 1.3, 1.0, 1.1, 1.5, better="higher", target=1.2), "≥ 1.2: met by the median"),
        (Ratio("w", "p", 1.3, 1.0, 1.1, 1.5), ""),
    ],
)
def test_what_was_missed_in_some_rounds_is_not_simply_met(ratio: Ratio, said: str) -> None:
    assert verdict(ratio) == said
