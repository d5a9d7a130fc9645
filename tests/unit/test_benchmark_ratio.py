"""Measuring in turns: everybody once a round, and the first rounds do not count."""

from benchmarks.ratio import in_turns


def test_everybody_has_a_turn_in_every_round_and_rounds_that_warm_up_do_not_count() -> None:
    order: list[str] = []

    def way(name: str, cold: float, warm: float) -> float:
        order.append(name)
        return cold if len(order) <= 2 else warm

    ways = {"a": lambda number: way("a", 9.0, 1.0 + number), "b": lambda number: way("b", 9.0, 5.0)}
    assert in_turns(ways, rounds=2, warm_up=1) == {"a": [2.0, 3.0], "b": [5.0, 5.0]}
    assert order == ["a", "b", "a", "b", "a", "b"]
