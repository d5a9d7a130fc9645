"""What the benchmarks leave behind; how fast anything is, no test asserts."""

import tempfile
from pathlib import Path

import pytest

from benchmarks.growth import commits


def test_commits_with_larger_ledgers_are_compared_on_new_tables_that_are_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that had commits of an earlier comparison would refuse the first one of the next."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ratios = commits(ledgers=(1, 2, 3), each=4)
    assert [(r.what, r.peer) for r in ratios] == [
        ("commit with 2 partitions in the ledger", "1 partitions"),
        ("commit with 3 partitions in the ledger", "1 partitions"),
    ]
    assert list(tmp_path.iterdir()) == []
