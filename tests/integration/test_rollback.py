"""Rolling tables back: rows, ledger and rejected records go together, and what came after is read again once."""

import gzip
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headgate import failpoints
from headgate.cli.main import app
from headgate.config.pipeline import Lake
from headgate.config.pipeline import Table as TableConfig
from headgate.errors import HeadgateError, LakeError
from headgate.kafka.embedded import EmbeddedKafka
from headgate.lake import commit, maintenance, rollback
from headgate.lake.attempts import Attempt
from headgate.lake.catalogs import open_catalog
from headgate.lake.commit import TableCommitter
from headgate.lake.ledger import LEDGER, MANAGED, decode_ledger, read_ledger, summary
from headgate.lake.lines import FORGET, is_abandoned
from headgate.lake.maintenance import expire_snapshots
from headgate.lake.rejects import land_rejects, promised_rejects
from headgate.lake.rollback import held, restore_points, roll_back
from headgate.lake.skips import recorded_skips
from headgate.lake.sweep import sweep_orphans
from headgate.lake.tables import table_location
from headgate.model import Ledger, Range, Skip, TopicPartition
from tests.announcements import announce, write_file
from tests.eventually import eventually
from tests.integration.pipeline_harness import PipelineRun
from tests.integration.test_skips import delete_before

T0 = TopicPartition("t", 0)


class Shore:
    """A table of one partition, of which every tenth record is rejected."""

    def __init__(self, folder: Path, **lake: Any) -> None:
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}
        self.folder, self.lake = folder, Lake(catalog=catalog, warehouse=str(folder), **lake)
        self.catalog = open_catalog(self.lake)
        self.committer = TableCommitter(self.catalog, self.lake, TableConfig.model_validate({"name": "lake.t"}))

    def made_by_others(self, rows: list[dict[str, Any]] | None = None, **options: Any) -> int:
        """A table with one snapshot, of which the id is returned."""
        self.catalog.create_namespace("lake")
        columns = [("value", pa.string()), ("_topic", pa.string()), ("_kafka_partition", pa.int32())]
        schema = pa.schema([*columns, ("_offset", pa.int64()), ("_timestamp", pa.timestamp("us", tz="UTC"))])
        table = self.catalog.create_table("lake.t", schema, location=f"{self.folder}/lake/t", **options)
        table.append(pa.Table.from_pylist(rows or [], schema=schema))
        (snapshot,) = table.snapshots()
        return snapshot.snapshot_id

    def commit(self, count: int = 10) -> int:
        """Returns the new snapshot's id."""
        start = read_ledger(self.table).next.get(T0, 0) if self.catalog.table_exists("lake.t") else 0
        rejected = [offset for offset in range(start, start + count) if offset % 10 == 9]
        kept = [Range(T0, at, at + 1) for at in range(start, start + count) if at not in rejected]
        name = f"{start}-{time.time_ns()}.parquet"
        file = write_file(self.folder / "lake/t/data" / name, tuple(kept))
        rejects = () if not rejected else (self._reject(name, rejected),)
        sent = announce(("t", 0, start, start + count), files=(file,), rejected_files=rejects, rejected=len(rejected))
        result = self.committer.commit([sent], {T0: 0})
        assert result.committed == (sent,)
        return result.snapshot_id

    def _reject(self, name: str, offsets: list[int]) -> str:
        path = self.folder / "lake/t__rejected/data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = {
            "value": pa.array([b"bad"] * len(offsets), pa.binary()),
            "_topic": ["t"] * len(offsets),
            "_kafka_partition": pa.array([0] * len(offsets), pa.int32()),
            "_offset": pa.array(offsets, pa.int64()),
        }
        pq.write_table(pa.table(columns), path)
        return str(path)

    @property
    def table(self) -> Any:
        return self.catalog.load_table("lake.t")

    def ledger(self, snapshot_id: int) -> Ledger:
        return decode_ledger(summary(self.table.snapshot_by_id(snapshot_id))[LEDGER])

    def offsets(self, suffix: str = "") -> list[int]:
        rows = self.catalog.load_table(f"lake.t{suffix}").scan().to_arrow()
        return sorted(rows.column("_offset").to_pylist())

    def assert_holds(self, count: int) -> None:
        assert read_ledger(self.table).next == {T0: count}
        assert self.offsets() == [at for at in range(count) if at % 10 != 9]
        assert self.offsets("__rejected") == [at for at in range(count) if at % 10 == 9]


def test_rows_ledger_and_rejected_records_go_back_and_what_came_after_lands_once(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    snapshots = [shore.commit() for _ in range(5)]
    assert [point.snapshot_id for point in restore_points(shore.table)] == snapshots[::-1]

    assert roll_back(shore.catalog, shore.lake, "lake.t", snapshots[1]) == 3
    shore.assert_holds(20)
    for count in (5, 20):  # in other portions than before
        shore.commit(count)
    shore.assert_holds(45)


def test_what_a_rollback_left_is_not_gone_back_to(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    first, second, third = (shore.commit() for _ in range(3))
    roll_back(shore.catalog, shore.lake, "lake.t", second)
    fourth, fifth = shore.commit(7), shore.commit()
    assert [point.snapshot_id for point in restore_points(shore.table)] == [fifth, fourth, second, first]
    with pytest.raises(LakeError, match=f"has no snapshot {third} with a ledger that it can be rolled back to"):
        roll_back(shore.catalog, shore.lake, "lake.t", third)
    assert roll_back(shore.catalog, shore.lake, "lake.t", first) == 2
    sixth = shore.commit()
    shore.assert_holds(20)
    assert [point.snapshot_id for point in restore_points(shore.table)] == [sixth, first]


def test_rows_that_somebody_deleted_come_back_and_nothing_is_read_again(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    shore.commit()
    newest = shore.commit()
    shore.table.delete("_offset < 5")
    assert len(shore.offsets()) == 13
    assert roll_back(shore.catalog, shore.lake, "lake.t", newest) == 0
    shore.assert_holds(20)


@pytest.mark.parametrize("then", ["it is said again", "the pipeline goes on"])
def test_a_rollback_that_was_killed_halfway_is_finished_by_whoever_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    shore = Shore(tmp_path)
    first, *_ = (shore.commit() for _ in range(3))
    monkeypatch.setattr(failpoints, "_folder", str(tmp_path / "failpoints"))
    failpoints.arm(tmp_path / "failpoints", "rollback.committed", "raise")
    with pytest.raises(failpoints.FailpointReached):
        roll_back(shore.catalog, shore.lake, "lake.t", first)
    assert shore.offsets("__rejected") == [9, 19, 29]
    if then == "it is said again":
        assert roll_back(shore.catalog, shore.lake, "lake.t", first) == 2
        shore.assert_holds(10)
    for _ in range(2):
        shore.commit()
    shore.assert_holds(30)
    assert roll_back(shore.catalog, shore.lake, "lake.t", first) == 2
    shore.assert_holds(10)


def test_a_rollback_by_others_takes_its_rejected_records_along_and_what_it_left_is_not_gone_back_to(
    tmp_path: Path,
) -> None:
    shore = Shore(tmp_path)
    first, second, *_ = (shore.commit() for _ in range(5))
    shore.table.manage_snapshots().rollback_to_snapshot(second).commit()
    assert [point.snapshot_id for point in restore_points(shore.table)] == [second, first]
    sixth, seventh = shore.commit(7), shore.commit(7)
    shore.assert_holds(34)
    assert [point.snapshot_id for point in restore_points(shore.table)] == [seventh, sixth, second, first]


def test_a_rollback_by_others_may_be_undone_until_something_is_committed(tmp_path: Path) -> None:
    shore = Shore(tmp_path, keep_snapshots=1, keep_hourly=0, keep_snapshots_s=0)
    first, _, third = (shore.commit() for _ in range(3))
    shore.table.manage_snapshots().rollback_to_snapshot(first).commit()
    shore.committer.commit([], {T0: 0})
    expire_snapshots(shore.catalog, "lake.t", shore.lake)
    shore.table.manage_snapshots().set_current_snapshot(third).commit()
    shore.assert_holds(30)
    shore.commit()
    shore.assert_holds(40)


def test_what_a_rollback_has_left_is_not_committed_to_when_others_go_there_again(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    first, second, third = (shore.commit() for _ in range(3))
    roll_back(shore.catalog, shore.lake, "lake.t", second)
    shore.table.manage_snapshots().set_current_snapshot(third).commit()
    with pytest.raises(LakeError, match="is at a snapshot again that a rollback had left"):
        shore.commit()
    assert [point.snapshot_id for point in restore_points(shore.table)] == [second, first]
    roll_back(shore.catalog, shore.lake, "lake.t", second)
    shore.assert_holds(20)
    shore.commit()
    shore.assert_holds(30)


def test_what_is_to_be_forgotten_is_known_when_others_have_expired_what_was_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shore = Shore(tmp_path)
    first, second, third = (shore.commit() for _ in range(3))
    monkeypatch.setattr(rollback, "forget_rejects", lambda *_: 0)  # killed by then
    roll_back(shore.catalog, shore.lake, "lake.t", first)
    shore.table.maintenance.expire_snapshots().by_ids([second, third]).commit()
    for _ in range(2):
        shore.commit()
    shore.assert_holds(30)


def test_to_roll_back_where_others_have_gone_already_makes_it_final(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    first = shore.commit()
    file = write_file(tmp_path / "lake/t/data/wrong.parquet", (Range(T0, 10, 20),))
    wrong = announce(("t", 0, 10, 20), files=(file,))
    assert shore.committer.commit([wrong], {T0: 0}).committed == (wrong,)
    shore.table.manage_snapshots().rollback_to_snapshot(first).commit()
    roll_back(shore.catalog, shore.lake, "lake.t", first)
    assert shore.committer.commit([wrong], {T0: 0}).refused
    shore.commit()
    shore.assert_holds(20)


def test_to_roll_back_to_where_the_table_is_refuses_what_was_read_before(tmp_path: Path) -> None:
    """Announced by a bad deployment, which was stopped before it was committed."""
    shore = Shore(tmp_path)
    first = shore.commit()
    file = write_file(tmp_path / "lake/t/data/wrong.parquet", (Range(T0, 10, 20),))
    wrong = announce(("t", 0, 10, 20), files=(file,))
    assert roll_back(shore.catalog, shore.lake, "lake.t", first) == 0
    assert shore.committer.commit([wrong], {T0: 0}).refused
    shore.commit()
    shore.assert_holds(20)


def test_a_commit_that_was_prepared_before_a_rollback_to_where_the_table_is_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a committer that was frozen meanwhile."""
    shore = Shore(tmp_path)
    first = shore.commit()
    file = write_file(tmp_path / "lake/t/data/wrong.parquet", (Range(T0, 10, 20),))
    wrong = announce(("t", 0, 10, 20), files=(file,))
    committed, frozen = Attempt.commit_transaction, list[int]()

    def commit_after_rollbacks(self: Attempt) -> Any:
        if not frozen:
            frozen.append(first)
            for _ in range(2):  # somebody who says it again moves the table back
                roll_back(shore.catalog, shore.lake, "lake.t", first)
        return committed(self)

    monkeypatch.setattr(Attempt, "commit_transaction", commit_after_rollbacks)
    result = shore.committer.commit([wrong], {T0: 0})
    assert [one.announcement for one in result.refused] == [wrong]
    assert result.conflicts == 1
    monkeypatch.undo()
    shore.commit()
    shore.assert_holds(20)


def test_a_rollback_by_others_that_is_undone_while_it_is_noted_is_not_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shore = Shore(tmp_path)
    first, second = shore.commit(), shore.commit()
    shore.table.manage_snapshots().rollback_to_snapshot(first).commit()
    committed, undone = Attempt.commit_transaction, list[int]()

    def commit_after_others(self: Attempt) -> Any:
        if not undone:
            undone.append(second)
            shore.table.manage_snapshots().set_current_snapshot(second).commit()
        return committed(self)

    monkeypatch.setattr(Attempt, "commit_transaction", commit_after_others)
    file = write_file(tmp_path / "lake/t/data/new.parquet", tuple(Range(T0, at, at + 1) for at in range(20, 29)))
    shore.committer.commit([announce(("t", 0, 10, 20), files=(file,))], {T0: 0})
    assert undone == [second]
    assert not is_abandoned(shore.table)
    monkeypatch.undo()
    shore.commit()
    shore.assert_holds(30)


def test_what_going_back_costs_is_measured_against_the_newest_that_counts(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    first, second, third = (shore.commit() for _ in range(3))
    shore.table.manage_snapshots().rollback_to_snapshot(second).commit()
    assert held(shore.table) == shore.ledger(third)
    roll_back(shore.catalog, shore.lake, "lake.t", first)
    fourth = shore.commit(7)
    shore.table.manage_snapshots().set_current_snapshot(third).commit()
    assert held(shore.table) == shore.ledger(fourth)


def test_rejects_of_a_table_that_was_registered_from_older_metadata_are_not_lost_unsaid(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    for _ in range(2):
        shore.commit()
    older = tmp_path / "older.metadata.json"
    older.write_bytes(Path(shore.table.metadata_location.removeprefix("file://")).read_bytes())
    for _ in range(3):
        shore.commit()
    shore.catalog.drop_table("lake.t")
    shore.catalog.register_table("lake.t", str(older))
    with pytest.raises(LakeError, match=r"lake\.t__rejected has landed more than lake\.t ever promised"):
        shore.commit()
    shore.catalog.rename_table("lake.t__rejected", "lake.older_rejected")
    shore.commit()
    assert read_ledger(shore.table).next == {T0: 30}
    assert shore.offsets("__rejected") == [19, 29]


def test_rejects_of_a_snapshot_that_is_counted_twice_are_not_lost_unsaid(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    shore.commit()
    shore.commit(5)
    older = tmp_path / "older.metadata.json"
    older.write_bytes(Path(shore.table.metadata_location.removeprefix("file://")).read_bytes())
    shore.commit(5)
    shore.assert_holds(20)
    shore.catalog.drop_table("lake.t")
    shore.catalog.register_table("lake.t", str(older))
    for _ in range(2):
        with pytest.raises(LakeError, match=r"lake\.t__rejected has landed more than lake\.t ever promised"):
            shore.commit(5)
    shore.catalog.rename_table("lake.t__rejected", "lake.older_rejected")
    shore.commit()
    assert read_ledger(shore.table).next == {T0: 30}
    assert shore.offsets("__rejected") == [19, 29]


def test_other_writers_do_not_make_a_table_catch_up_with_what_it_was_registered_too_old_for(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    shore.commit()
    older = tmp_path / "older.metadata.json"
    older.write_bytes(Path(shore.table.metadata_location.removeprefix("file://")).read_bytes())
    for _ in range(2):
        shore.commit()
    shore.catalog.drop_table("lake.t")
    shore.catalog.register_table("lake.t", str(older))
    ahead = r"lake\.t__rejected has landed more than lake\.t ever promised"
    with pytest.raises(LakeError, match=ahead):
        shore.commit()
    for _ in range(3):  # by compaction, say
        with shore.table.transaction() as transaction, transaction.update_snapshot().fast_append():
            pass
        with pytest.raises(LakeError, match=ahead):
            land_rejects(shore.catalog, shore.lake, shore.table)


def test_nothing_is_rejected_twice_where_a_table_that_was_registered_too_old_has_passed_what_landed(
    tmp_path: Path,
) -> None:
    shore = Shore(tmp_path)
    shore.commit(5)
    older = tmp_path / "older.metadata.json"
    older.write_bytes(Path(shore.table.metadata_location.removeprefix("file://")).read_bytes())
    shore.commit(5)
    shore.catalog.drop_table("lake.t")
    shore.catalog.register_table("lake.t", str(older))
    shore.commit(4)  # counted as the one that is lost, and promises nothing
    with pytest.raises(LakeError, match=r"lake\.t__rejected has landed more than lake\.t ever promised"):
        shore.commit(1)
    assert shore.offsets("__rejected") == [9]


def test_what_a_rollback_had_noted_is_taken_out_by_the_next_one_if_an_older_release_came_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shore = Shore(tmp_path)
    first, _, _ = (shore.commit() for _ in range(3))
    with monkeypatch.context() as older_release:
        older_release.setattr(rollback, "forget_rejects", lambda *_: 0)  # killed by then
        roll_back(shore.catalog, shore.lake, "lake.t", first)
        noted = shore.table.properties[FORGET]
        older_release.setattr(commit, "forget_rejects", lambda *_: 0)
        shore.commit(5)
    with shore.table.transaction() as transaction:  # it did not know the note either
        transaction.set_properties({FORGET: noted})
    roll_back(shore.catalog, shore.lake, "lake.t", first)
    for _ in range(2):
        shore.commit()
    shore.assert_holds(30)


def test_a_note_of_a_rollback_that_a_commit_of_an_older_release_left_takes_nothing_out(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    first, _ = shore.commit(), shore.commit()
    roll_back(shore.catalog, shore.lake, "lake.t", first)
    noted = shore.table.properties[FORGET]
    shore.commit()
    with shore.table.transaction() as transaction:  # as if that commit had not known it
        transaction.set_properties({FORGET: noted})
    shore.commit()
    shore.assert_holds(30)
    assert FORGET not in shore.table.properties


def test_what_others_have_rolled_back_from_stays_promised_while_they_may_go_there_again(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    first = shore.commit()
    of_first = promised_rejects(shore.table)
    second = shore.commit()
    of_second = promised_rejects(shore.table)
    shore.table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert promised_rejects(shore.table) == [*of_first, *of_second]
    shore.table.manage_snapshots().set_current_snapshot(second).commit()
    assert promised_rejects(shore.table) == of_second


def test_nothing_expires_while_a_table_is_where_it_is_not_committed_to(tmp_path: Path) -> None:
    """The way out would go with it."""
    shore = Shore(tmp_path, keep_snapshots=1, keep_hourly=0)
    first, second = shore.commit(), shore.commit()
    roll_back(shore.catalog, shore.lake, "lake.t", first)
    shore.table.manage_snapshots().set_current_snapshot(second).commit()
    assert expire_snapshots(shore.catalog, "lake.t", shore.lake) == 0
    assert shore.table.refs()["headgate-ledger"].snapshot_id == first
    roll_back(shore.catalog, shore.lake, "lake.t", first)
    shore.commit()
    shore.assert_holds(20)


def test_a_committer_that_was_frozen_before_it_landed_rejects_does_not_bring_them_back(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    first = shore.commit()
    shore.commit()
    frozen = shore.table  # of the second snapshot, whose rejects it is about to land
    rejected = shore.catalog.load_table("lake.t__rejected")
    rejected.manage_snapshots().rollback_to_snapshot(rejected.snapshots()[-2].snapshot_id).commit()
    roll_back(shore.catalog, shore.lake, "lake.t", first)
    land_rejects(shore.catalog, shore.lake, frozen)
    shore.assert_holds(10)
    shore.commit()
    land_rejects(shore.catalog, shore.lake, frozen)
    shore.assert_holds(20)


def test_a_rollback_does_not_wait_for_a_lost_file_of_records_that_it_leaves(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    first = shore.commit()
    shore.commit()
    rejected = shore.catalog.load_table("lake.t__rejected")
    rejected.manage_snapshots().rollback_to_snapshot(rejected.snapshots()[-2].snapshot_id).commit()
    (promised,) = promised_rejects(shore.table)
    Path(promised).unlink()
    roll_back(shore.catalog, shore.lake, "lake.t", first)
    shore.commit()
    shore.assert_holds(20)


def test_what_was_read_before_a_rollback_is_not_committed_after_it(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    first = shore.commit()
    file = write_file(tmp_path / "lake/t/data/wrong.parquet", (Range(T0, 10, 20),))
    wrong = announce(("t", 0, 10, 20), files=(file,))
    assert shore.committer.commit([wrong], {T0: 0}).committed == (wrong,)
    roll_back(shore.catalog, shore.lake, "lake.t", first)
    again = shore.committer.commit([wrong], {T0: 0})
    assert [r.reason for r in again.refused] == ["its cycle began before the table was rolled back"]
    shore.commit()
    shore.assert_holds(20)


def test_rejected_records_of_topics_that_the_ledger_does_not_know_stay(tmp_path: Path) -> None:
    """The main table was begun anew, say, and `__rejected` is that of the old one."""
    shore = Shore(tmp_path)
    first = shore.commit()
    rejected = shore.catalog.load_table("lake.t__rejected")
    theirs = rejected.scan().to_arrow().slice(0, 1)
    column = theirs.schema.get_field_index("_topic")
    rejected.append(theirs.set_column(column, "_topic", pa.array(["gone"], theirs.schema.field(column).type)))
    shore.commit()
    assert roll_back(shore.catalog, shore.lake, "lake.t", first) == 1
    assert sorted(shore.catalog.load_table("lake.t__rejected").scan().to_arrow()["_topic"].to_pylist()) == ["gone", "t"]


def test_a_snapshot_that_expires_meanwhile_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shore = Shore(tmp_path, keep_snapshots=1, keep_hourly=0)
    first, *_ = (shore.commit() for _ in range(3))

    def after_an_expiry(table: Any, to: Any) -> None:
        expire_snapshots(shore.catalog, "lake.t", shore.lake)
        go_back(table, to)

    go_back = rollback._go_back
    monkeypatch.setattr(rollback, "_go_back", after_an_expiry)
    with pytest.raises(LakeError, match=f"has no snapshot {first} with a ledger"):
        roll_back(shore.catalog, shore.lake, "lake.t", first)
    shore.assert_holds(30)


def test_a_table_of_the_first_format_is_made_one_whose_snapshots_are_numbered(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    shore.made_by_others(properties={"format-version": "1"})
    assert shore.table.metadata.format_version == 1
    first, second, third = (shore.commit() for _ in range(3))
    shore.assert_holds(30)
    assert [point.snapshot_id for point in restore_points(shore.table)] == [third, second, first]
    roll_back(shore.catalog, shore.lake, "lake.t", first)
    shore.commit()
    shore.assert_holds(20)


def test_a_table_that_others_took_to_before_its_ledger_can_go_on_to_one(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    theirs = shore.made_by_others()
    first, second = shore.commit(), shore.commit()
    for back_to in (second, first):
        shore.table.manage_snapshots().set_current_snapshot(theirs).commit()
        with pytest.raises(LakeError, match="headgate rollback lists the snapshots that had one"):
            read_ledger(shore.table)
        assert [point.snapshot_id for point in restore_points(shore.table)] == [second, first]
        assert roll_back(shore.catalog, shore.lake, "lake.t", back_to) == (0 if back_to == second else 1)
        shore.assert_holds(20 if back_to == second else 10)
    shore.commit()
    shore.assert_holds(20)


@pytest.fixture
def short_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "_HOUR_S", 1)


def to_the_next_second() -> None:
    time.sleep(1.05 - time.time() % 1)


@pytest.mark.usefixtures("short_hours")
def test_what_was_in_force_at_full_hours_is_kept_beyond_the_newest_and_can_be_gone_back_to(tmp_path: Path) -> None:
    shore = Shore(tmp_path, keep_snapshots=1, keep_hourly=60)
    in_force = []
    for _ in range(4):  # hours
        to_the_next_second()
        shore.commit(3)
        in_force.append(shore.commit(7))
    to_the_next_second()
    assert expire_snapshots(shore.catalog, "lake.t", shore.lake) == 4
    assert [point.snapshot_id for point in restore_points(shore.table)] == in_force[::-1]
    expire_snapshots(shore.catalog, "lake.t__rejected", shore.lake)

    assert roll_back(shore.catalog, shore.lake, "lake.t", in_force[1]) == 2
    shore.assert_holds(20)
    newest = shore.commit()
    shore.assert_holds(30)

    none = shore.lake.model_copy(update={"keep_hourly": 0})
    expire_snapshots(shore.catalog, "lake.t", none)
    assert [point.snapshot_id for point in restore_points(shore.table)] == [newest]
    shore.assert_holds(30)


@pytest.mark.usefixtures("short_hours")
def test_a_quiet_table_keeps_what_was_in_force_however_old_it_is(tmp_path: Path) -> None:
    shore = Shore(tmp_path, keep_snapshots=1, keep_hourly=2, keep_snapshots_s=1)
    to_the_next_second()
    quiet = shore.commit()
    for _ in range(3):
        to_the_next_second()
    shore.commit()
    newest = shore.commit()
    expire_snapshots(shore.catalog, "lake.t", shore.lake)
    assert [s.snapshot_id for s in shore.table.snapshots()] == [quiet, newest]


def test_skips_of_a_snapshot_that_stays_are_on_record_when_those_around_it_go(tmp_path: Path) -> None:
    shore = Shore(tmp_path, keep_snapshots=1, keep_hourly=0)
    skips = [Skip(T0, at, at + 1, 1, "gap") for at in range(0, 10, 2)]
    for skip in skips:
        sent = announce(("t", 0, skip.start, skip.start + 2), skips=(skip,))
        assert shore.committer.commit([sent], {T0: 0}).committed == (sent,)
    middle = shore.table.snapshots()[2].snapshot_id
    shore.table.manage_snapshots().create_tag(middle, "theirs").commit()
    expire_snapshots(shore.catalog, "lake.t", shore.lake)
    assert recorded_skips(shore.catalog, shore.table) == skips
    shore.table.manage_snapshots().remove_tag("theirs").commit()
    expire_snapshots(shore.catalog, "lake.t", shore.lake)
    assert len(shore.table.snapshots()) == 1
    assert recorded_skips(shore.catalog, shore.table) == skips


def test_files_of_a_table_that_had_the_name_before_are_not_swept(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    at_once = shore.lake.model_copy(update={"orphan_age_s": 0.001})
    shore.commit()
    shore.catalog.rename_table("lake.t", "lake.old")
    shore.catalog.rename_table("lake.t__rejected", "lake.old__rejected")
    shore.commit()
    time.sleep(0.01)
    with pytest.raises(LakeError, match="also holds files of an older table"):
        sweep_orphans(shore.catalog, "lake.t", at_once, remove=True)
    assert shore.catalog.load_table("lake.old").scan().to_arrow().num_rows == 9

    for file in (tmp_path / "lake/t/metadata").glob("*.metadata.json"):  # nobody needs it any more
        if str(shore.table.metadata.table_uuid) not in file.read_text():
            file.unlink()
    swept = sweep_orphans(shore.catalog, "lake.t", at_once, remove=True).orphans
    assert any(path.endswith(".parquet") for path in swept)
    shore.assert_holds(10)


@pytest.mark.parametrize("content", [b"", b'{"format-version": 2, "table-uu'])
@pytest.mark.parametrize("suffix", [".metadata.json", ".gz.metadata.json"])
def test_half_written_metadata_is_swept_like_anything_else(tmp_path: Path, content: bytes, suffix: str) -> None:
    shore = Shore(tmp_path)
    shore.commit()
    half = tmp_path / f"lake/t/metadata/00007-half{suffix}"
    half.write_bytes(content if ".gz" not in suffix else gzip.compress(content)[:-6])
    time.sleep(0.01)
    at_once = shore.lake.model_copy(update={"orphan_age_s": 0.001})
    assert str(half) in sweep_orphans(shore.catalog, "lake.t", at_once, remove=True).orphans
    shore.assert_holds(10)


def test_metadata_that_nobody_here_understands_is_somebodys_table_all_the_same(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    shore.commit()
    theirs = tmp_path / "lake/t/metadata/00001-theirs.metadata.json"
    theirs.write_text(json.dumps({"format-version": 9, "table-uuid": "another", "snapshots": [{"snapshot-id": 1}]}))
    with pytest.raises(LakeError, match="also holds files of an older table"):
        sweep_orphans(shore.catalog, "lake.t", shore.lake, remove=True)


def test_a_table_whose_place_is_within_anothers_keeps_nobody_from_sweeping(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    shore.commit()
    shore.catalog.create_namespace(("lake", "t"))
    inner = shore.catalog.create_table(
        "lake.t.data", shore.table.schema(), location=table_location(shore.lake, "lake.t.data")
    )
    inner.append(shore.table.scan().to_arrow())
    time.sleep(0.01)
    sweep_orphans(shore.catalog, "lake.t", shore.lake.model_copy(update={"orphan_age_s": 0.001}), remove=True)
    assert shore.catalog.load_table("lake.t.data").scan().to_arrow().num_rows == 9


def test_a_table_that_somebody_else_made_does_not_begin_again_once_its_ledger_is_lost(tmp_path: Path) -> None:
    shore = Shore(tmp_path)
    theirs = shore.made_by_others([{"value": "theirs"}])
    file = write_file(tmp_path / "f.parquet", (Range(T0, 0, 3),))
    shore.committer.commit([announce(("t", 0, 0, 3), files=(file,))], {T0: 0})
    assert read_ledger(shore.table).next == {T0: 3}
    assert shore.table.properties[MANAGED] == "true"
    shore.table.manage_snapshots().rollback_to_snapshot(theirs).commit()
    with pytest.raises(LakeError, match="no snapshot carries the ledger any more"):
        read_ledger(shore.table)


def test_a_table_is_rolled_back_by_command_and_filled_again_by_a_mended_pipeline(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {"name": "lake.t", "format": "json", "schema": "n BIGINT"}
    wrong = {**table, "sql": "SELECT n * 10 AS n, _topic, _kafka_partition, _offset, _timestamp FROM input"}
    records = [b'{"n": %d}' % n if n % 5 else b"no JSON" for n in range(30)]
    with PipelineRun(tmp_path, broker, spark, [table], {"t": 1}) as run:
        run.produce("t", records[:10])
        run.run()
        run.wait_until_landed()
        run.stop()
        run.reload([wrong])
        run.run()
        for part in (records[10:20], records[20:]):
            run.produce("t", part)
            run.wait_until_landed()
        run.stop()
        assert {row["n"] for row in run.rows("lake.t")} > {290}

        def say(*options: str) -> str:
            said = CliRunner().invoke(app, ["rollback", str(tmp_path / "pipeline.yaml"), *options])
            if said.exception is not None:
                assert isinstance(said.exception, HeadgateError), said.exception
                return str(said.exception)
            return said.output

        good = next(p for p in restore_points(run.iceberg("lake.t")) if set(p.ledger.next.values()) == {10})
        assert f"snapshot {good.snapshot_id}  20 offsets would be read again, all of them still in Kafka" in say()
        assert "nothing to go back to by --to 3d" in say("--to", "3d")
        assert "not one of the pipeline's tables" in say("lake.other")
        to_it = ("lake.t", "--to", str(good.snapshot_id))
        assert "Nothing was changed" in say(*to_it)
        assert "a committer is at work, or was a moment ago" in say(*to_it, "--apply")
        assert len(run.rows("lake.t")) == 24
        monkeypatch.setattr("headgate.lake.words.SILENT_S", 0.0)
        by_time = ("--to", f"{datetime.fromtimestamp(good.at_ms / 1000 + 0.001, UTC).isoformat()}", "--apply")
        with monkeypatch.context() as killing:  # after the first of two steps; to say it again finishes it
            killing.setattr(failpoints, "_folder", str(tmp_path / "failpoints"))
            failpoints.arm(tmp_path / "failpoints", "rollback.committed", "raise")
            command = ["rollback", str(tmp_path / "pipeline.yaml"), *by_time]
            assert isinstance(CliRunner().invoke(app, command).exception, failpoints.FailpointReached)
        assert "4 rejected records were taken out of lake.t__rejected" in say(*by_time)
        assert f"snapshot {good.snapshot_id}  what it is now" in say()
        assert len(run.rows("lake.t")) == 8

        run.reload([table])
        run.run()
        run.wait_until_landed()
        run.stop()
        verdict = run.assert_exactly_once("lake.t")
        assert (verdict.rows, verdict.rejected) == (24, 6)
        assert {row["n"] for row in run.rows("lake.t")} == {n for n in range(30) if n % 5}

        with run.iceberg("lake.t").transaction() as transaction:  # somebody else's accident
            ManageSnapshots(transaction).remove_tag("headgate-ledger").commit()
            ManageSnapshots(transaction)._remove_ref_snapshot("main").commit()
        lost, heading, newest, *_ = say().splitlines()
        assert "lake.t has lost its ledger" in lost
        assert heading == "lake.t can go back to"
        assert "0 offsets would be read again, all of them still in Kafka" in newest
        assert "rolled back lake.t to snapshot" in say("--to", newest.split()[4], "--apply")
        verdict = run.assert_exactly_once("lake.t")
        assert (verdict.rows, verdict.rejected) == (24, 6)


def test_a_rollback_to_records_that_kafka_does_not_hold_any_more_is_a_persons_decision(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.lake.words.SILENT_S", 0.0)
    with PipelineRun(tmp_path, broker, spark, [{"name": "lake.t"}], {"t": 1}) as run:
        run.run()
        for _ in range(2):
            run.produce("t", [b"x"] * 10)
            run.wait_until_landed()
        run.stop()
        delete_before(run, "t", 14)
        first = next(p for p in restore_points(run.iceberg("lake.t")) if set(p.ledger.next.values()) == {10})
        command = ["rollback", str(tmp_path / "pipeline.yaml"), "--to", str(first.snapshot_id), "--apply"]
        refused = CliRunner().invoke(app, command)
        assert "10 offsets would be read again, of which Kafka does not hold 4 any more" in str(refused.exception)
        assert len(run.rows("lake.t")) == 20
        assert CliRunner().invoke(app, [*command, "--accept-loss"]).exit_code == 0
        run.run()
        run.wait_until_landed()
        run.stop()
        verdict = run.assert_exactly_once("lake.t")
        assert (verdict.rows, verdict.skipped) == (16, 4)


def test_records_of_a_topic_that_was_made_anew_or_is_not_read_any_more_count_as_gone(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    table = {"name": "lake.t"}
    with PipelineRun(tmp_path, broker, spark, [table], {"anew": 1, "other": 1}) as run:
        run.run()
        for _ in range(2):
            run.produce("anew", [b"x"] * 10)
            run.produce("other", [b"x"] * 10)
            run.wait_until_landed()
        run.stop()
        name = run.topic("anew")
        run.admin.delete_topics([name])[name].result(30)
        eventually(lambda: name not in run.admin.list_topics(timeout=10).topics, "the topic is gone")
        run.create("anew")
        run.produce("anew", [b"y"] * 30)
        ledgers = {p.snapshot_id: p.ledger.next for p in restore_points(run.iceberg("lake.t"))}
        anew, other = (run.partitions(short)[0] for short in ("anew", "other"))
        to, then = next((id, next_) for id, next_ in ledgers.items() if next_.get(anew, 0) == 10)
        command = ["rollback", str(tmp_path / "pipeline.yaml"), "lake.t", "--to", str(to)]
        again = 10 + 20 - then[other]
        said = CliRunner().invoke(app, command).output
        assert f"{again} offsets would be read again, of which Kafka does not hold 10 any more" in said

        run.reload([{**table, "topics": ["anew"]}, {"name": "lake.u", "topics": ["other"]}])
        said = CliRunner().invoke(app, command).output
        assert f"{again} offsets would be read again, of which Kafka does not hold {again} any more" in said
