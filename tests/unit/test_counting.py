"""Whose record sizes a cycle measures."""

from headgate.consumer.counting import SizeTurns
from headgate.model import Range, TopicPartition

TWENTY = [Range(TopicPartition("t", n), 0, 10) for n in range(20)]


def measured(turns: SizeTurns, ranges: list[Range]) -> list[int]:
    chosen = [read.partition for read in turns.choose(ranges)]
    turns.measured(chosen)
    return [partition.partition for partition in chosen]


def test_partitions_without_a_size_come_first_eight_at_a_time() -> None:
    turns = SizeTurns()
    assert [measured(turns, TWENTY) for _ in range(3)] == [list(range(8)), list(range(8, 16)), list(range(16, 20))]


def test_known_sizes_are_looked_at_again_in_one_cycle_of_ten_in_turn() -> None:
    turns = SizeTurns()
    cycles = [measured(turns, TWENTY) for _ in range(30)]
    assert [n for n, chosen in enumerate(cycles, start=1) if chosen] == [1, 2, 3, 10, 20, 30]
    assert cycles[9] + cycles[19] + cycles[29] == [*range(20), 0, 1, 2, 3]


def test_a_partition_of_which_nothing_was_read_is_tried_again() -> None:
    turns = SizeTurns()
    turns.choose(TWENTY[:1])  # and nothing came of it
    assert measured(turns, TWENTY[:1]) == [0]
