from headgate.consumer.gather import Pending, RateCap, choose_ranges


def test_a_hot_partition_does_not_take_what_the_others_are_due() -> None:
    pending = {"hot": Pending(0, 100_000, 100), "cold": Pending(0, 10, 100), "mild": Pending(0, 400, 100)}
    chosen = choose_ranges(pending, budget_bytes=100_000)
    assert chosen["cold"] == (0, 10)
    assert chosen["mild"] == (0, 400)
    assert chosen["hot"] == (0, 590)  # 100,000 bytes less 41,000 for the others, at 100 bytes a record


def test_equal_partitions_get_equal_shares() -> None:
    chosen = choose_ranges({n: Pending(0, 1000, 10) for n in range(4)}, budget_bytes=400)
    assert set(chosen.values()) == {(0, 10)}


def test_everything_is_taken_when_it_fits() -> None:
    assert choose_ranges({"a": Pending(3, 8, 10), "b": Pending(0, 2, 10)}, 1e9) == {"a": (3, 8), "b": (0, 2)}


def test_a_record_larger_than_the_whole_budget_is_still_read() -> None:
    assert choose_ranges({"big": Pending(7, 9, 10_000)}, budget_bytes=100) == {"big": (7, 8)}


def test_without_any_budget_nothing_is_read() -> None:
    assert choose_ranges({"a": Pending(0, 5, 10)}, budget_bytes=0) == {}


def test_when_there_is_not_a_record_for_each_everybody_comes_first_in_turn() -> None:
    pending = {n: Pending(0, 5, 100) for n in "abc"}
    first = [next(iter(choose_ranges(pending, 50, rotation))) for rotation in range(3)]
    assert first == ["a", "b", "c"]


def test_partitions_without_news_are_left_out() -> None:
    assert choose_ranges({"a": Pending(5, 5, 10), "b": Pending(0, 1, 10)}, 100) == {"b": (0, 1)}


def test_a_cap_lets_its_rate_through_on_average() -> None:
    cap, spent = RateCap(1000, now_s=0.0), 0.0
    for second in range(1, 61):
        allowed = cap.allowance(float(second))
        cap.spend(allowed, float(second))
        spent += allowed
    assert spent == 60_000


def test_a_cap_stays_at_its_rate_when_cycles_take_longer_than_it_saves_up() -> None:
    cap, spent = RateCap(1000, now_s=0.0), 0.0
    for turn in range(1, 11):
        allowed = cap.allowance(turn * 10.0)
        cap.spend(allowed, turn * 10.0)
        spent += allowed
    assert spent == 100_000


def test_a_cap_does_not_save_up_idle_time_beyond_two_seconds() -> None:
    cap = RateCap(1000, now_s=0.0)
    cap.allowance(1.0)
    cap.spend(1000, 1.0)
    for second in range(2, 100):
        allowed = cap.allowance(float(second))
        if second > 3:
            break
    assert allowed <= 3000


def test_without_a_cap_there_is_no_limit() -> None:
    assert RateCap(None, 0.0).allowance(1.0) == float("inf")
