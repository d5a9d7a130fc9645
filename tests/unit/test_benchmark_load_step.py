"""From when on partitions are read at their rate again: what the load step benchmark measures."""

from benchmarks.load_step import MOST, PARTITIONS, oldest_ms, spread_ms
from headgate.model import Announcement, CycleStats, Range, TopicPartition

STEP_MS = 10_000
EVERY_MS = 100
PRODUCED_MS = {(p, offset): offset * EVERY_MS for p in range(PARTITIONS) for offset in range(1000)}
ALL = tuple(range(PARTITIONS))


def told(at_ms: int, consumer: int, partitions: tuple[int, ...], until_ms: int | None = None) -> Announcement:
    """A cycle of 100 ms that left what was produced since `until_ms`; usually what came after it had begun."""
    began_ms = at_ms - 100
    end = (began_ms if until_ms is None else until_ms) // EVERY_MS
    ranges = tuple(Range(TopicPartition("load", p), end - 1, end) for p in partitions)
    return Announcement(
        "", "lake.load", consumer, "", 0, ranges, (), (), (), "", began_ms, at_ms, CycleStats(records=len(ranges))
    )


def test_a_new_owner_counts_from_its_first_files_on() -> None:
    stays, goes = ALL[:MOST], ALL[MOST:]
    announced = [told(9_900, 1, ALL), told(11_000, 1, ALL), told(12_000, 1, stays), told(12_500, 2, goes)]
    assert spread_ms(announced, STEP_MS) == 12_500
    assert spread_ms([*announced, told(20_000, 1, stays), told(20_001, 2, goes)], STEP_MS) == 12_500


def test_one_partition_too_many_is_not_enough_and_coming_back_starts_anew() -> None:
    most, rest = ALL[: MOST + 1], ALL[MOST + 1 :]
    announced = [told(9_900, 1, ALL), told(12_500, 2, rest), told(13_000, 1, most)]
    assert spread_ms(announced, STEP_MS) == 13_000, "as long as it goes on"
    announced += [told(14_000, 2, ALL[MOST:]), told(15_000, 1, ALL), told(16_000, 2, ALL[MOST:])]
    assert spread_ms(announced, STEP_MS) == 16_000


def test_a_partition_is_read_at_its_rate_when_what_cycles_leave_behind_was_oldest() -> None:
    announced = [
        told(9_000, 1, ALL, until_ms=1_000),
        told(11_000, 1, ALL, until_ms=10_500),
        told(12_000, 1, ALL[1:], until_ms=10_800),  # 1.1 s behind
        told(13_000, 1, ALL[1:], until_ms=11_000),  # 1.9 s
        told(14_000, 1, ALL, until_ms=12_500),  # 1.4 s
    ]
    assert oldest_ms(announced[:2], PRODUCED_MS, STEP_MS) == STEP_MS, "before the step, and half a second, do not count"
    assert oldest_ms(announced[:4], PRODUCED_MS, STEP_MS) == 13_000
    assert oldest_ms(announced, PRODUCED_MS, STEP_MS) == 14_000, "the first partition's oldest came later"
    assert oldest_ms([*announced, told(15_000, 1, ALL, until_ms=14_500)], PRODUCED_MS, STEP_MS) == 14_000


def test_what_was_never_produced_was_not_left_behind() -> None:
    announced = [told(99_000, 1, ALL, until_ms=100_000)]
    assert oldest_ms(announced, PRODUCED_MS, STEP_MS) == STEP_MS
