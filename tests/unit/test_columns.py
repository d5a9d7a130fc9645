"""Rows kept by columns: to whoever reads them they are rows."""

from itertools import repeat

import pytest

from headgate.model import PartitionLoad, TopicPartition
from headgate.model.columns import ByPartition, Column, Rows, in_order, partitions_of

A, B, C = (TopicPartition("t", n) for n in range(3))
ROWS = (PartitionLoad(1.0, 2.0, 3, 4, (5,)), PartitionLoad(6.0, 7.0, 8, 9, (10,)))
COLUMNS = ((1.0, 6.0), (2.0, 7.0), (3, 8), (4, 9), ((5,), (10,)))


def test_columns_read_as_the_rows_they_hold() -> None:
    rows = Rows(PartitionLoad, COLUMNS)
    assert rows == ROWS
    assert tuple(rows) == ROWS
    assert (rows[1], rows[:1], len(rows)) == (ROWS[1], ROWS[:1], 2)
    assert rows != ROWS[:1]


def test_rows_are_put_into_columns_and_columns_are_left_as_they_are() -> None:
    rows = Rows.of(PartitionLoad, ROWS)
    assert rows.columns == COLUMNS
    assert rows.column("lag_records") == (3, 8)
    assert Rows.of(PartitionLoad, rows) is rows


def test_no_rows_have_columns_too() -> None:
    empty = Rows.of(PartitionLoad, ())
    assert (len(empty), list(empty), empty.column("end_offset")) == (0, [], ())
    assert empty == ()


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="PartitionLoad"):
        Rows(PartitionLoad, ((1.0,), (), (), (), ()))


def test_rows_by_partition_are_a_mapping_like_any_other() -> None:
    loads = ByPartition((A, B), Rows(PartitionLoad, COLUMNS))
    assert loads == {A: ROWS[0], B: ROWS[1]}
    assert (loads[B], loads.get(TopicPartition("t", 2)), A in loads, len(loads)) == (ROWS[1], None, True, 2)
    assert list(loads.items()) == list(zip((A, B), ROWS, strict=True))
    assert list(loads.values()) == list(ROWS)
    assert loads.column("bytes_per_s") == {A: 1.0, B: 6.0}
    assert ByPartition.of(PartitionLoad, {A: ROWS[0], B: ROWS[1]}) == loads
    assert ByPartition.of(PartitionLoad, {}).column("bytes_per_s") == {}


def test_a_column_is_a_mapping_that_keeps_its_order_for_those_who_ask_in_it() -> None:
    column = Column((B, A), [2.0, 1.0])
    assert column == {A: 1.0, B: 2.0}
    assert (list(column), len(column), column[A], A in column, C in column) == ([B, A], 2, 1.0, True, False)
    assert in_order(column, (B, A), repeat(0.0)) is column.values_in_order
    assert list(in_order(column, (A, C, B), (7.0, 8.0, 9.0))) == [1.0, 8.0, 2.0]
    assert list(in_order({A: 1.0}, (B, A), (7.0, 8.0))) == [7.0, 1.0]


def test_equal_names_are_the_same_partitions() -> None:
    assert partitions_of(["t", "t"], [0, 1]) == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert partitions_of(["t", "t"], [0, 1]) is partitions_of(["".join("t"), "t"], [0, 1])
