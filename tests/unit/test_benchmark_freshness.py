"""Ages of records are those of all records of a span, or none."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.live import ages_s
from headgate.errors import HeadgateError

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def landed(file: Path, partition: int, offsets: Iterable[int]) -> str:
    """A record a second, its offset says when."""
    at = list(offsets)
    rows = {
        "_kafka_partition": pa.array([partition] * len(at), pa.int32()),
        "_offset": pa.array(at, pa.int64()),
        "_timestamp": pa.array([NOON + timedelta(seconds=n) for n in at], pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(rows), file)
    return f"file://{file}"


def test_ages_are_from_the_records_time_to_the_commit_that_shows_them(tmp_path: Path) -> None:
    first, second = landed(tmp_path / "a", 0, range(3)), landed(tmp_path / "b", 0, range(3, 6))
    files = [(first, NOON_MS + 2500), (second, NOON_MS + 9000)]
    # The records of seconds 1, 2 (committed at 2.5 s) and 3 (at 9 s).
    assert ages_s(files, NOON_MS + 1000, NOON_MS + 4000, 1).tolist() == [1.5, 0.5, 6.0]


@pytest.mark.parametrize("later", [range(4, 6), range(3, 4)], ids=["one is missing", "the last is not there yet"])
def test_a_partition_that_hangs_is_no_measurement(tmp_path: Path, later: range) -> None:
    files = [(landed(tmp_path / "a", 0, range(3)), NOON_MS), (landed(tmp_path / "b", 0, later), NOON_MS)]
    other = (landed(tmp_path / "c", 1, range(6)), NOON_MS)
    with pytest.raises(HeadgateError, match="records of partition 0 did not land in time"):
        ages_s([*files, other], NOON_MS + 1000, NOON_MS + 4000, 2)
    with pytest.raises(HeadgateError, match="records of partition 0 did not land in time"):
        ages_s([other], NOON_MS + 1000, NOON_MS + 4000, 2)
