"""What Spark's workers do with a batch: files as promised, and the truth about them."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from headgate.consumer import parquet


def batch(values: list[str], at_ms: list[int], by: list[str] | None = None) -> pa.RecordBatch:
    times = [datetime.fromtimestamp(ms / 1000, UTC) for ms in at_ms]
    columns: dict[str, pa.Array] = {"value": pa.array(values), "_timestamp": pa.array(times, pa.timestamp("us", "UTC"))}
    if by is not None:
        columns["by"] = pa.array(by)
    return pa.RecordBatch.from_pydict(columns)


def written(folder: Path, batches: list[pa.RecordBatch], by: tuple[str, ...] = ()) -> list[dict[str, object]]:
    write = parquet.writer(pafs.LocalFileSystem(), str(folder), by, "_timestamp", 21)
    return [row for told in write(batches) for row in told.to_pylist()]


def test_a_batch_becomes_one_file_and_its_rows_are_told(tmp_path: Path) -> None:
    told = written(tmp_path / "new" / "folder", [batch(["a", "b"], [1000, 2000]), batch(["c"], [3000])])
    assert [row["rows"] for row in told] == [3]
    assert pq.read_table(told[0]["path"])["value"].to_pylist() == ["a", "b", "c"]


def test_nothing_leaves_no_file(tmp_path: Path) -> None:
    assert written(tmp_path / "data", []) == []
    assert written(tmp_path / "data", [batch([], [])]) == []
    assert not (tmp_path / "data").exists()


def test_every_value_gets_a_file_of_its_own_and_the_dividing_column_stays_out(tmp_path: Path) -> None:
    told = written(tmp_path, [batch(["1", "2", "3", "4"], [0] * 4, ["x", "y", "x", ""])], ("by",))
    files = [pq.read_table(row["path"]) for row in told]
    assert [f["value"].to_pylist() for f in files] == [["4"], ["1", "3"], ["2"]]  # by value: "", x, y
    assert all(f.column_names == ["value", "_timestamp"] for f in files)
    assert len({row["path"] for row in told}) == 3


def test_two_dividing_columns_divide_together(tmp_path: Path) -> None:
    one = batch(["1", "2", "3"], [0] * 3, ["x", "x", "y"])
    both = one.append_column("then", pa.array(["p", "q", "q"]))
    assert [row["rows"] for row in written(tmp_path, [both], ("by", "then"))] == [1, 1, 1]
    again = one.append_column("then", pa.array(["p", "p", "p"]))
    assert [row["rows"] for row in written(tmp_path / "again", [again], ("by", "then"))] == [2, 1]


def test_more_than_fits_in_memory_is_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1)
    told = written(tmp_path, [batch(["a"], [1]), batch(["b", "c"], [2, 3])])
    assert [row["rows"] for row in told] == [1, 2]
    assert len({row["path"] for row in told}) == 1
    assert pq.ParquetFile(told[0]["path"]).num_row_groups == 2


def test_timestamps_are_told_as_quantiles(tmp_path: Path) -> None:
    (told,) = written(tmp_path, [batch(["r"] * 41, [1000 * n for n in range(41)])])
    assert told["timestamps_ms"] == [2000 * n for n in range(21)]


def test_timestamps_keep_their_microseconds_and_their_zone(tmp_path: Path) -> None:
    (told,) = written(tmp_path, [batch(["a"], [1])])
    assert pq.read_schema(told["path"]).field("_timestamp").type == pa.timestamp("us", "UTC")
