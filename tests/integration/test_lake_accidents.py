"""What may happen between a look at a table and the commit that follows: rollbacks, lost answers, files that go."""

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.update.snapshot import ManageSnapshots

from headgate.config.pipeline import Lake
from headgate.config.table import SKIPPED_SUFFIX
from headgate.config.table import Table as TableConfig
from headgate.errors import LakeError
from headgate.lake.catalogs import open_catalog
from headgate.lake.commit import CommitResult, TableCommitter
from headgate.lake.ledger import read_ledger
from headgate.lake.maintenance import expirable, expire_snapshots
from headgate.lake.readable import unreadable_files
from headgate.model import Skip, TopicPartition
from tests.announcements import announce, spark_schema, write_file

T0 = TopicPartition("t", 0)
Step = Any


class Lakeside:
    """A table with one partition, and a catalog in which a step can be put between a look and a commit."""

    def __init__(self, folder: Path, keep: int = 3) -> None:
        self.folder = folder
        self.lake = Lake(
            catalog={"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}, warehouse=str(folder), keep_snapshots=keep
        )
        open_catalog(self.lake)
        self.catalog = StepBetween("headgate", **self.lake.catalog_properties)
        self.committer = TableCommitter(self.catalog, self.lake, TableConfig.model_validate({"name": "lake.t"}))

    def commit(self, start: int, end: int, **fields: Any) -> CommitResult:
        held = announce(("t", 0, start, end), **fields)
        path = write_file(self.folder / "lake/t/data" / f"{held.id}.parquet", held.ranges)
        return self.committer.commit([announce(("t", 0, start, end), files=(path,), **fields)], {T0: 0})

    @property
    def table(self) -> Any:
        return self.catalog.load_table("lake.t")


class StepBetween(SqlCatalog):
    """Before the next commit it takes `before`, after it `after`."""

    before: Step = None
    after: Step = None

    def commit_table(self, *args: Any, **kwargs: Any) -> Any:
        before, after = self.before, self.after
        self.before = self.after = None
        if before is not None:
            before()
        done = super().commit_table(*args, **kwargs)
        if after is not None:
            after()
        return done


def test_a_rollback_to_a_snapshot_that_is_about_to_be_expired_leaves_a_table(tmp_path: Path) -> None:
    side = Lakeside(tmp_path)
    for start in range(5):
        side.commit(start, start + 1)
    oldest = expirable(side.table, side.lake)[-1]

    def roll_back() -> None:
        side.table.manage_snapshots().set_current_snapshot(oldest).commit()

    side.catalog.before = roll_back
    expire_snapshots(side.catalog, "lake.t", side.lake)
    assert side.table.current_snapshot().snapshot_id == oldest
    assert read_ledger(side.table).next[T0] == side.table.scan().to_arrow().num_rows


def test_a_table_that_lost_all_its_snapshots_is_an_error_and_not_a_fresh_start(tmp_path: Path) -> None:
    side = Lakeside(tmp_path)
    side.commit(0, 2)
    with side.table.transaction() as transaction:
        ManageSnapshots(transaction).remove_tag("headgate-ledger").commit()
        ManageSnapshots(transaction)._remove_ref_snapshot("main").commit()
    assert side.table.current_snapshot() is None
    with pytest.raises(LakeError, match="no snapshot carries the ledger"):
        read_ledger(side.table)


def test_a_commit_that_landed_though_its_repetition_was_refused_keeps_its_manifests(tmp_path: Path) -> None:
    side = Lakeside(tmp_path)
    side.commit(0, 2)

    def refuse() -> None:
        raise CommitFailedException("somebody else was first: this very commit, sent twice")

    side.catalog.after = refuse
    result = side.commit(2, 4)
    assert (len(result.committed), len(result.already)) == (0, 1)
    assert side.table.scan().to_arrow().num_rows == 4


def test_a_refused_commit_leaves_no_manifests_behind(tmp_path: Path) -> None:
    side = Lakeside(tmp_path)
    side.commit(0, 2)
    before = manifests(tmp_path)

    def refuse() -> None:
        raise CommitFailedException("somebody else was first")

    side.catalog.before = refuse
    assert len(side.commit(2, 4).committed) == 1
    assert len(manifests(tmp_path) - before) == 2  # a manifest and the list of manifests, of the second try


def manifests(folder: Path) -> set[Path]:
    return set((folder / "lake/t/metadata").glob("*.avro"))


def test_skips_that_are_kept_do_not_pile_up_snapshots(tmp_path: Path) -> None:
    side = Lakeside(tmp_path, keep=2)
    for turn in range(12):
        at = 3 * turn
        side.commit(at, at + 3, skips=(Skip(T0, at, at + 1, 1, "gap"),))
        for suffix in ("", SKIPPED_SUFFIX):
            expire_snapshots(side.catalog, "lake.t" + suffix, side.lake)
    kept = side.catalog.load_table("lake.t" + SKIPPED_SUFFIX)
    assert len(kept.metadata.snapshots) <= 3
    assert kept.scan().to_arrow().num_rows == 10  # the other two are still in the snapshots that are kept


# Files: whose fault it is


class Away(PyArrowFileIO):
    """A storage that does not answer for files of this name."""

    def new_input(self, location: str) -> Any:
        if "away" in location:
            raise OSError(f"no answer from the storage for {location}")
        return super().new_input(location)


def test_files_that_are_gone_or_damaged_are_told_from_a_storage_that_does_not_answer(tmp_path: Path) -> None:
    good = tmp_path / "good.parquet"
    pq.write_table(pa.table({"n": range(10_000)}), good)
    content = good.read_bytes()
    bad = {
        "no-end.parquet": content[:-100],
        "empty.parquet": b"",
        "short.parquet": b"PAR1",
        "garbled.parquet": content[:-60] + b"\xff" * 52 + content[-8:],
        "too-long.parquet": content[:-8] + b"\xff\xff\xff\x7f" + content[-4:],
    }
    for name, text in bad.items():
        (tmp_path / name).write_bytes(text)
    (tmp_path / "folder.parquet").mkdir()
    wrong = [str(tmp_path / name) for name in (*bad, "folder.parquet", "gone.parquet", "good.parquet/beneath.parquet")]
    found = unreadable_files(Away(), [*wrong, str(good), "nonsense://x"])
    assert found.keys() == {*wrong, "nonsense://x"}
    with pytest.raises(LakeError, match="no answer from the storage"):
        unreadable_files(Away(), [str(tmp_path / "away.parquet")])


def test_files_that_grew_too_old_while_a_commit_hung_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be swept at any time from then on."""
    side = Lakeside(tmp_path)
    side.commit(0, 2)
    now_s = time.time

    def freeze(step: str) -> None:
        if step == "commit.staged":
            monkeypatch.setattr("time.time", lambda: now_s() + side.lake.orphan_age_s)

    monkeypatch.setattr("headgate.lake.commit.reach", freeze)
    result = side.commit(2, 4)
    assert "its files may be swept" in result.refused[0].reason
    assert side.table.scan().to_arrow().num_rows == 2


# Schemas


def test_a_schema_that_does_not_go_with_the_table_s_is_refused_and_stands_in_nobody_s_way(tmp_path: Path) -> None:
    def keyed(key: str) -> Any:
        kind = {"type": "map", "keyType": key, "valueType": "string", "valueContainsNull": True}
        schema = json.loads(spark_schema())
        schema["fields"].append({"name": "m", "type": kind, "nullable": True, "metadata": {}})
        return json.dumps(schema)

    side = Lakeside(tmp_path)
    side.commit(0, 2, schema=keyed("integer"))
    wider = side.commit(2, 4, schema=keyed("long"))
    assert "column m.key is int in the table and long in the files" in wider.refused[0].reason
    assert len(side.commit(2, 4, schema=keyed("integer")).committed) == 1


def test_of_two_that_bring_the_same_column_with_different_types_the_second_is_refused(tmp_path: Path) -> None:
    side = Lakeside(tmp_path)
    side.commit(0, 2)
    offered = []
    for start, kind, values in ((2, "integer", pa.array([1, 2], pa.int32())), (4, "string", pa.array(["a", "b"]))):
        ranges = ("t", 0, start, start + 2)
        path = write_file(tmp_path / f"lake/t/data/{kind}.parquet", announce(ranges).ranges, {"n": values})
        offered.append(announce(ranges, files=(path,), schema=spark_schema(("n", kind))))
    result = side.committer.commit(offered, {T0: 0})
    assert result.committed == (offered[0],)
    (refused,) = result.refused
    assert refused.announcement == offered[1]
    assert "its schema does not go with the table's" in refused.reason


def test_announcements_wait_while_the_storage_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    side = Lakeside(tmp_path)
    side.commit(0, 2)
    held = announce(("t", 0, 2, 4))
    path = write_file(tmp_path / "lake/t/data/away.parquet", held.ranges)
    announcement = announce(("t", 0, 2, 4), files=(path,))
    written = manifests(tmp_path)
    with monkeypatch.context() as away:
        away.setattr("pyiceberg.io.pyarrow.PyArrowFileIO", Away)  # what catalogs make for new looks at a table
        with pytest.raises(LakeError, match="no answer from the storage"):
            side.committer.commit([announcement], {T0: 0})
    assert manifests(tmp_path) == written
    assert len(side.committer.commit([announcement], {T0: 0}).committed) == 1


def test_a_file_that_does_not_fit_is_refused_and_what_comes_with_it_is_not(tmp_path: Path) -> None:
    side = Lakeside(tmp_path)
    side.commit(0, 2)
    good = announce(("t", 0, 2, 4))
    good = announce(("t", 0, 2, 4), files=(write_file(tmp_path / "lake/t/data/good.parquet", good.ranges),))
    pq.write_table(pa.table({"_offset": ["no number"]}), tmp_path / "lake/t/data/bad.parquet")
    bad = announce(("t", 1, 0, 1), files=(str(tmp_path / "lake/t/data/bad.parquet"),))
    result = side.committer.commit([good, bad], {T0: 0, TopicPartition("t", 1): 0})
    assert [a.id for a in result.committed] == [good.id]
    assert [(r.announcement.id, "its files cannot be read" in r.reason) for r in result.refused] == [(bad.id, True)]
