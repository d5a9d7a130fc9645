"""From when on partitions are read at their rate again: what the load step benchmark measures."""

import pytest

from benchmarks.load_step import MOST, PARTITIONS, UNREAD_MS, check_that_all_are_read, left_behind, spread_ms
from headgate.model import Announcement, CycleStats, Range, TopicPartition

STEP_MS = 10_000
EVERY_MS = 100
PRODUCED_MS = {(p, offset): offset * EVERY_MS for p in range(PARTITIONS) for offset in range(1000)}
ALL = tuple(range(PARTITIONS))
STAYS, GOES = ALL[:MOST], ALL[MOST:]


def told(at_ms: int, consumer: int, partitions: tuple[int, ...], until_ms: int | None = None) -> Announcement:
    """A cycle of 100 ms that left what was produced since `until_ms`; usually what came after it had begun."""
    began_ms = at_ms - 100
    end = (began_ms if until_ms is None else until_ms) // EVERY_MS
    ranges = tuple(Range(TopicPartition("load", p), end - 1, end) for p in partitions)
    return Announcement(
        "", "lake.load", consumer, "", 0, ranges, (), (), (), "", began_ms, at_ms, CycleStats(records=len(ranges))
    )


def test_a_new_owner_counts_from_its_first_files_on() -> None:
    announced = [told(9_900, 1, ALL), told(11_000, 1, ALL), told(12_000, 1, STAYS), told(12_500, 2, GOES)]
    assert spread_ms(announced, STEP_MS) == 12_500
    assert spread_ms([*announced, told(20_000, 1, STAYS), told(20_001, 2, GOES)], STEP_MS) == 12_500


def test_a_partition_in_nobodys_hands_is_not_read() -> None:
    announced = [told(9_900, 1, ALL), told(12_000, 1, STAYS), told(12_500, 2, GOES[:1]), told(14_000, 2, GOES)]
    assert spread_ms(announced, STEP_MS) == 14_000, "the last of them came later"


def test_a_partition_that_moves_again_is_not_settled() -> None:
    announced = [told(9_900, 1, ALL), told(12_500, 2, GOES), told(15_000, 1, ALL), told(16_000, 3, GOES)]
    assert spread_ms(announced, STEP_MS) == 16_000


def test_a_step_that_nobody_answered_is_no_result() -> None:
    with pytest.raises(RuntimeError, match="more of them by one than it can read"):
        spread_ms([told(9_900, 1, ALL), told(12_500, 2, ALL[MOST + 1 :]), told(13_000, 1, STAYS)], STEP_MS)
    with pytest.raises(RuntimeError, match="more of them by one than it can read"):
        spread_ms([told(9_900, 1, ALL)], STEP_MS)


def test_a_group_that_was_large_enough_before_the_step_is_no_result() -> None:
    with pytest.raises(RuntimeError, match="not all of them by one"):
        spread_ms([told(9_800, 1, ALL), told(9_900, 2, GOES), told(12_500, 2, GOES)], STEP_MS)
    with pytest.raises(RuntimeError, match="not all of them by one"):
        spread_ms([told(9_800, 1, STAYS), told(12_500, 2, GOES)], STEP_MS)


def test_what_was_left_behind_is_as_old_as_when_the_cycle_that_left_it_began() -> None:
    announced = [
        told(9_000, 1, ALL, until_ms=1_000),
        told(11_000, 1, ALL, until_ms=10_500),  # 0.4 s: the cycle took 0.1 s
        told(12_000, 1, ALL[1:], until_ms=10_800),  # 1.1 s
        told(13_000, 1, ALL[1:], until_ms=11_000),  # 1.9 s
        told(14_000, 1, ALL, until_ms=12_500),  # 1.4 s
    ]
    rest = PARTITIONS - 1
    assert left_behind(announced[:2], PRODUCED_MS, STEP_MS) == PARTITIONS * [(400, 11_000)]
    assert left_behind(announced[:4], PRODUCED_MS, STEP_MS) == [(400, 11_000), *rest * [(1900, 13_000)]]
    assert left_behind(announced, PRODUCED_MS, STEP_MS) == [(1400, 14_000), *rest * [(1900, 13_000)]]


def test_what_was_never_produced_was_not_left_behind() -> None:
    announced = [told(99_000, 1, ALL, until_ms=100_000)]
    assert left_behind(announced, PRODUCED_MS, STEP_MS) == PARTITIONS * [(0, 99_000)]


def test_what_is_not_read_any_more_is_no_result() -> None:
    until_ms = 40_000
    announced = [told(30_000, 1, GOES), told(39_900, 1, STAYS)]
    with pytest.raises(RuntimeError, match=str(list(GOES)).replace("[", r"\[")):
        check_that_all_are_read(announced, PRODUCED_MS, until_ms)
    check_that_all_are_read([*announced, told(until_ms - UNREAD_MS + 300, 2, GOES)], PRODUCED_MS, until_ms)
