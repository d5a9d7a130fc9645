"""Rows kept by columns: to whoever reads them they are rows."""

import pytest

from headgate.model import PartitionLoad, TopicPartition
from headgate.model.columns import ByPartition, Rows

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
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
