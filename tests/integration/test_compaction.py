"""Compaction on real tables: no record is lost or doubled, whoever commits, reads or is killed meanwhile."""

import math
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from prometheus_client import REGISTRY
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AddSnapshotUpdate
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headgate import failpoints
from headgate.cli.main import app
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Lake as LakeConfig
from headgate.config.pipeline import Pipeline
from headgate.config.table import REJECTED_SUFFIX, SKIPPED_SUFFIX
from headgate.errors import LakeError
from headgate.lake import compaction
from headgate.lake.catalogs import open_catalog
from headgate.lake.commit import TableCommitter
from headgate.lake.compaction import REPLACED_TAG, Compaction, compact
from headgate.lake.landing import LANDED_TAG
from headgate.lake.ledger import LEDGER_TAG, ledger_snapshot, read_ledger
from headgate.lake.maintenance import expire_snapshots
from headgate.lake.sweep import sweep_orphans
from headgate.lake.tables import create_table, table_location
from headgate.lake.turns import CALL, GivingWay, Turns, ask_for_turn
from headgate.lake.upkeep import Maintainer, maintain
from headgate.lake.verify import verify_table
from headgate.model import Range, TopicPartition
from tests.announcements import announce, spark_schema, write_file
from tests.eventually import eventually
from tests.integration.test_committer import InterruptedCatalog

T0 = TopicPartition("t", 0)
NAME = "lake.t"


class Lake:
    """A table that grows by ten records a commit, each commit a small file."""

    def __init__(self, folder: Path, table: dict[str, Any] | None = None, **lake: Any) -> None:
        self.file = folder / "pipeline.yaml"
        content = {
            "name": "p",
            "home": "home",
            "kafka": {"brokers": "127.0.0.1:1"},
            "topics": ["t"],
            "tables": [{"name": NAME, **(table or {})}],
            "lake": {"target_file_bytes": "1 MB", **lake},
        }
        self.file.write_text(yaml.safe_dump(content))
        self.pipeline: Pipeline = load_pipeline(self.file)
        self.catalog: Catalog = open_catalog(self.pipeline.lake)
        self.committer = TableCommitter(self.catalog, self.pipeline.lake, self.pipeline.tables[0])
        self.next = 0

    @property
    def folder(self) -> Path:
        return Path(table_location(self.pipeline.lake, NAME))

    def commit(
        self,
        times: int = 1,
        extra: tuple[tuple[str, str, pa.DataType, Any], ...] = (),
        folder: Path | None = None,
    ) -> None:
        for _ in range(times):
            start, self.next = self.next, self.next + 10
            folder = folder or self.folder / "data"
            columns = {name: pa.array([value] * 10, arrow) for name, _, arrow, value in extra}
            path = write_file(folder / f"{start:06d}.parquet", (Range(T0, start, self.next),), columns)
            schema = spark_schema(*((name, kind) for name, kind, _, _ in extra))
            sent = announce(("t", 0, start, self.next), files=(path,), schema=schema)
            assert self.committer.commit([sent], {T0: 0}).committed == (sent,)

    def compact(self) -> Compaction:
        return compact(self.catalog, NAME, self.pipeline.lake)

    @property
    def table(self) -> Table:
        return self.catalog.load_table(NAME)

    def files(self) -> list[str]:
        return [task.file.file_path for task in self.table.scan().plan_files()]

    def assert_exact(self) -> None:
        table = self.table
        offsets = table.scan().to_arrow().column("_offset").to_pylist()
        assert sorted(offsets) == list(range(read_ledger(table).next[T0]))


def test_small_files_become_one_in_a_snapshot_that_changes_no_row_and_keeps_the_ledger(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Lake(tmp_path)
    lake.commit(7)
    lake.commit(1, extra=(("added", "integer", pa.int32(), 5),))  # the table's schema has grown since the first file
    before, ledger = lake.table, read_ledger(lake.table)

    assert lake.compact().files == 8
    (only,) = lake.files()
    assert "compacted-" in only
    after = lake.table
    current = after.current_snapshot()
    assert current is not None
    assert current.summary is not None
    assert current.summary.operation is Operation.REPLACE
    assert current.summary["total-data-files"] == "1"
    assert current.summary["total-records"] == "80"
    assert read_ledger(after) == ledger
    lake.assert_exact()
    assert Counter(after.scan().to_arrow().column("added").to_pylist()) == {None: 70, 5: 10}
    assert after.scan("_offset >= 75").to_arrow().num_rows == 5  # statistics of the new file are right
    # Who read the old files can finish.
    snapshot = before.current_snapshot()
    assert snapshot is not None
    assert after.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows == 80
    assert lake.compact() == Compaction()  # nothing small is left
    lake.commit(2)
    assert lake.compact() == Compaction()  # too few to be worth it
    verdict = verify_table(spark, lake.catalog, lake.pipeline.tables[0])  # by an engine that wrote nothing of this
    assert (verdict.problems, verdict.rows) == ((), 100)


def test_files_of_different_partition_values_are_never_joined(tmp_path: Path) -> None:
    lake = Lake(tmp_path, {"partition_by": ["country"]})
    for number in range(12):
        lake.commit(1, extra=(("country", "string", pa.string(), "de" if number % 2 else None),))
    assert lake.compact().into == 2
    partitions = {task.file.partition[0]: task.file.record_count for task in lake.table.scan().plan_files()}
    assert partitions == {"de": 60, None: 60}
    assert lake.table.scan("country == 'de'").to_arrow().num_rows == 60
    lake.assert_exact()


def test_a_dry_run_changes_nothing_and_apply_does_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.cli.maintain._LINE_EVERY_S", 0.0)
    lake = Lake(tmp_path, keep_snapshots=3)
    lake.commit(1)
    said = CliRunner().invoke(app, ["maintain", str(lake.file)])
    assert said.output.splitlines()[0] == f"{NAME}: nothing to do"
    lake.commit(5)
    location = lake.table.metadata_location
    said = CliRunner().invoke(app, ["maintain", str(lake.file)])
    assert (said.exit_code, lake.table.metadata_location) == (0, location)
    shown = " ".join(said.output.split())
    assert "would expire 3 snapshots, compact 6 files" in shown
    assert "Nothing was changed; --apply does it." in shown
    said = CliRunner().invoke(app, ["maintain", str(lake.file), "--apply"])
    assert "expired 3 snapshots, compacted 6 files" in " ".join(said.stdout.split())
    lines = said.stderr.splitlines()
    assert lines[:2] == [f"{NAME}: expiring snapshots", f"{NAME}: joining small files"]
    assert lines[-1] == f"{NAME}: looking for orphan files"
    assert re.fullmatch(rf"{re.escape(NAME)}: joined ([\d,]+) of \1 bytes", lines[-2]), "all of them in the end"
    assert len(lake.files()) == 1
    lake.assert_exact()


def test_replaced_files_stay_until_readers_had_their_time_and_are_swept_then(tmp_path: Path) -> None:
    lake = Lake(tmp_path, keep_snapshots=1)
    lake.commit(6)
    replaced = lake.files()
    settings = every_file_is_old(lake)
    lake.compact()
    lake.commit(1)
    assert sum(tag.startswith(REPLACED_TAG) for tag in lake.table.refs()) == 1
    assert maintain(lake.catalog, NAME, lake.pipeline.lake).sweep.orphans == ()
    assert all(Path(path).exists() for path in replaced)
    maintain(lake.catalog, NAME, settings)  # their time is over: the tag goes, then the snapshot, then the files
    assert not any(Path(path).exists() for path in replaced)
    assert not [tag for tag in lake.table.refs() if tag.startswith(REPLACED_TAG)]
    lake.commit(1)
    lake.assert_exact()


def test_committing_reading_and_compacting_at_once_is_exact_at_every_moment(tmp_path: Path) -> None:
    lake = Lake(tmp_path, keep_snapshots=10)
    lake.commit(5)
    stop, failures = threading.Event(), list[BaseException]()

    def guarded(act: Any) -> None:
        try:
            while not stop.is_set():
                act()
        except BaseException as error:  # noqa: BLE001 (raised below)
            failures.append(error)

    def commit_and_rest() -> None:
        lake.commit()
        stop.wait(1.0)  # the committer's own interval

    def read_and_rest() -> None:
        reader.assert_exact()
        stop.wait(0.5)

    other = Lake(tmp_path, keep_snapshots=10)  # its own catalog connection, as another process would have
    reader = Lake(tmp_path)
    threads = [threading.Thread(target=guarded, args=(act,)) for act in (commit_and_rest, read_and_rest)]
    for thread in threads:
        thread.start()
    compacted = Compaction()
    try:
        for _ in range(2):
            while len(other.files()) < 6 and not failures:
                stop.wait(0.1)
            done = maintain(other.catalog, NAME, other.pipeline.lake).compaction
            compacted = Compaction(compacted.files + done.files)
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert failures == []
    assert compacted.files >= 5
    lake.assert_exact()


@pytest.mark.parametrize("step", ["compact.written", "compact.committed"])
def test_a_compaction_killed_in_the_middle_costs_nothing_and_the_next_one_goes_on(tmp_path: Path, step: str) -> None:
    lake = Lake(tmp_path)
    lake.commit(6)
    armed = tmp_path / "failpoints"
    failpoints.arm(armed, step)
    command = [sys.executable, "-m", "headgate.cli.main", "maintain", str(lake.file), "--apply"]
    killed = subprocess.run(
        command, env={**os.environ, failpoints.ENVIRONMENT: str(armed)}, capture_output=True, timeout=120
    )
    assert killed.returncode == -9
    assert len(lake.files()) == (6 if step == "compact.written" else 1)
    lake.assert_exact()
    lake.commit(6)
    assert lake.compact().into == 1
    lake.assert_exact()
    # What the killed one wrote in vain is an orphan, and nothing else is.
    old = every_file_is_old(lake)
    orphans = [path for path in sweep_orphans(lake.catalog, NAME, old, remove=True).orphans if "/data/" in path]
    assert len(orphans) == (1 if step == "compact.written" else 0)
    lake.assert_exact()


@pytest.mark.parametrize(("step", "left"), [("expire.committed", 3), ("sweep.deleted", 2)])
def test_an_expiry_or_a_sweep_killed_in_the_middle_costs_nothing_and_the_next_one_goes_on(
    tmp_path: Path, step: str, left: int
) -> None:
    lake = Lake(tmp_path, keep_snapshots=2)
    lake.commit(6)
    orphans = [lake.folder / "data" / f"orphan-{n}.parquet" for n in range(3)]
    for orphan in orphans:
        orphan.touch()
        os.utime(orphan, (0, 0))
    armed = tmp_path / "failpoints"
    failpoints.arm(armed, step)
    command = [sys.executable, "-m", "headgate.cli.main", "maintain", str(lake.file), "--apply"]
    killed = subprocess.run(
        command, env={**os.environ, failpoints.ENVIRONMENT: str(armed)}, capture_output=True, timeout=120
    )
    assert killed.returncode == -9
    assert sum(orphan.exists() for orphan in orphans) == left
    lake.assert_exact()
    subprocess.run(command, capture_output=True, timeout=120, check=True)
    assert not any(orphan.exists() for orphan in orphans)
    lake.assert_exact()


def test_a_sweep_knows_files_in_use_by_whichever_path_their_writer_reached_the_warehouse(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit(2)
    (tmp_path / "link").symlink_to(lake.pipeline.home)
    lake.commit(2, folder=tmp_path / "link" / lake.folder.relative_to(lake.pipeline.home) / "data")
    orphan = lake.folder / "data" / "orphan.parquet"
    orphan.touch()
    swept = sweep_orphans(lake.catalog, NAME, every_file_is_old(lake), remove=True).orphans
    assert [path for path in swept if "/data/" in path] == [str(orphan)]
    lake.assert_exact()


def test_nothing_is_swept_while_a_file_in_use_is_not_where_the_table_is(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit(3)
    orphan, (first, *_) = lake.folder / "data" / "orphan.parquet", sorted(lake.files())
    orphan.touch()
    moved = Path(first).rename(lake.folder / "data" / "moved.parquet")  # the only copy, and nobody refers to it
    for remove in (False, True):
        with pytest.raises(LakeError, match=rf"nothing of {NAME} is swept: 1 files .* such as {first}"):
            sweep_orphans(lake.catalog, NAME, every_file_is_old(lake), remove)
    assert moved.rename(first).exists()
    lake.commit(1, folder=tmp_path / "elsewhere")
    with pytest.raises(LakeError, match=r"such as .*/elsewhere/000030\.parquet"):
        sweep_orphans(lake.catalog, NAME, every_file_is_old(lake), remove=True)
    assert orphan.exists()
    lake.assert_exact()


@pytest.mark.parametrize("name", [f"{NAME}.data", f"{NAME}.metadata.deeper"])
def test_a_sweep_leaves_alone_a_table_whose_place_is_within_that_of_another(tmp_path: Path, name: str) -> None:
    lake = Lake(tmp_path)
    lake.commit(1)
    inner = create_table(lake.catalog, lake.pipeline.lake, name, spark_schema())
    assert inner.location().startswith(f"{lake.table.location()}/")
    orphan = lake.folder / "data" / "orphan.parquet"
    orphan.touch()
    swept = sweep_orphans(lake.catalog, NAME, every_file_is_old(lake), remove=True).orphans
    assert swept == (str(orphan),)
    assert lake.catalog.load_table(name).metadata == inner.metadata


def every_file_is_old(lake: Lake) -> LakeConfig:
    return lake.pipeline.lake.model_copy(update={"orphan_age_s": 1e-6})


def test_rows_that_someone_deleted_meanwhile_do_not_come_back(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit(6)
    outdated = lake.table
    lake.table.delete("_offset >= 50")  # another program rewrites or drops files that were planned for
    groups = compaction.plan_compaction(outdated, lake.pipeline.lake.target_file_bytes)
    rewritten = [compaction._Rewritten(group, compaction._rewrite(outdated, group)) for group in groups]
    assert compaction._exchange(lake.catalog, NAME, lake.pipeline.lake, rewritten) == []
    assert sorted(lake.table.scan().to_arrow().column("_offset").to_pylist()) == list(range(50))


def test_it_waits_for_its_turn_where_committer_and_upkeep_share_a_process(tmp_path: Path) -> None:
    lake, turns = Lake(tmp_path), threading.Lock()
    lake.commit(6)
    with turns:
        waiting = threading.Thread(target=compact, args=(lake.catalog, NAME, lake.pipeline.lake, turns))
        waiting.start()
        eventually(lambda: list(tmp_path.rglob("compacted-*")), "it has planned, and waits for its turn")
        lake.commit(2)  # whoever holds the turn commits without a conflict, however long it takes
        assert len(lake.files()) == 8
    waiting.join(60)
    assert len(lake.files()) == 3
    lake.assert_exact()


class SlowerCatalog(SqlCatalog):
    """Of a process whose snapshots come too late as long as the committer does not wait for them."""

    rival: Lake

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> Any:
        if any(isinstance(update, AddSnapshotUpdate) for update in updates) and CALL not in self.rival.table.properties:
            self.rival.commit()
        return super().commit_table(table, requirements, updates)


def test_upkeep_that_keeps_losing_against_a_committer_elsewhere_asks_for_its_turn(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit(6)
    slower = SlowerCatalog("headgate", **lake.catalog.properties)
    slower.rival = lake
    assert compact(slower, NAME, lake.pipeline.lake).files == 6
    assert lake.next > 60  # it did lose at first
    assert CALL not in lake.table.properties
    lake.assert_exact()


def test_a_committer_that_is_asked_waits_for_the_exchange_and_no_longer(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit(6)
    ask_for_turn(lake.catalog, NAME)
    patient = GivingWay(longest_s=600)
    lake.committer = TableCommitter(
        open_catalog(lake.pipeline.lake), lake.pipeline.lake, lake.pipeline.tables[0], patient
    )
    committer = threading.Thread(target=lake.commit)
    committer.start()
    other = Lake(tmp_path)
    assert other.compact().files == 6
    committer.join(300)
    newest = sorted(lake.table.snapshots(), key=lambda snapshot: snapshot.sequence_number or 0)[-2:]
    assert [snapshot.summary and snapshot.summary.operation for snapshot in newest] == [
        Operation.REPLACE,
        Operation.APPEND,
    ]
    lake.assert_exact()


def test_who_asks_for_a_turn_and_dies_holds_the_committer_up_once_and_not_long(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit()
    ask_for_turn(lake.catalog, NAME)
    impatient = GivingWay(longest_s=0.01)
    for _ in range(2):  # an endless wait would show
        assert CALL in impatient.wait(lake.catalog, lake.table).properties
    GivingWay(longest_s=math.inf).wait(lake.catalog, _with_call(lake, age_s=3600))  # long dead
    assert GivingWay(longest_s=math.inf).wait(lake.catalog, _with_call(lake, said="nonsense"))


def _with_call(lake: Lake, age_s: float = 0.0, said: str = "") -> Table:
    call = said or str(int(1000 * (time.time() - age_s)))
    lake.table.transaction().set_properties({CALL: call}).commit_transaction()
    return lake.table


def test_upkeep_puts_the_ledgers_tag_back_that_somebody_dropped(tmp_path: Path) -> None:
    lake = Lake(tmp_path, keep_snapshots=2)
    lake.commit(4)
    lake.table.manage_snapshots().remove_tag(LEDGER_TAG).commit()
    said = CliRunner().invoke(app, ["maintain", str(lake.file), "--apply"])
    assert (said.exit_code, said.exception) == (0, None)
    assert "expired 2 snapshots" in " ".join(said.output.split())
    carrier = ledger_snapshot(lake.table)
    assert carrier is not None
    assert lake.table.refs()[LEDGER_TAG].snapshot_id == carrier.snapshot_id

    # Another commit comes before the tag: that is for the next time, and no failure.
    lake.table.manage_snapshots().remove_tag(LEDGER_TAG).commit()
    interrupted = InterruptedCatalog("headgate", **lake.catalog.properties)
    interrupted.before_commit = lambda: lake.table.append(lake.table.schema().as_arrow().empty_table())
    assert expire_snapshots(interrupted, NAME, lake.pipeline.lake) == 0
    lake.commit(1)
    lake.assert_exact()


def test_rejected_records_do_not_land_twice_after_somebody_dropped_the_tag_of_their_mark(tmp_path: Path) -> None:
    lake, name = Lake(tmp_path, keep_snapshots=1), f"{NAME}{REJECTED_SUFFIX}"
    rejects = tmp_path / "rejects.parquet"
    pq.write_table(pa.table({"value": pa.array([b"bad"], pa.binary()), "reason": ["because"]}), rejects)
    sent = announce(("t", 0, 0, 1), rejected_files=(str(rejects),), rejected=1)
    assert lake.committer.commit([sent], {T0: 0}).committed == (sent,)
    rejected = lake.catalog.load_table(name)
    rejected.manage_snapshots().remove_tag(LANDED_TAG).commit()
    for _ in range(2):
        rejected.append(rejected.schema().as_arrow().empty_table())
    assert expire_snapshots(lake.catalog, name, lake.pipeline.lake) == 1
    lake.committer.commit([], {T0: 0})
    rejected.refresh()
    assert rejected.scan().to_arrow().column("value").to_pylist() == [b"bad"]
    assert LANDED_TAG in rejected.refs()


def test_a_table_whose_upkeep_fails_is_told_in_a_line_and_the_others_have_theirs(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit(1)
    spoiled = create_table(lake.catalog, lake.pipeline.lake, f"{NAME}{REJECTED_SUFFIX}", spark_schema())
    after = create_table(lake.catalog, lake.pipeline.lake, f"{NAME}{SKIPPED_SUFFIX}", spark_schema())
    Path(spoiled.metadata_location).write_text("no metadata any more")
    for apply in ((), ("--apply",)):
        said = CliRunner().invoke(app, ["maintain", str(lake.file), *apply])
        assert isinstance(said.exception, LakeError)
        assert said.exception.exit_code == 5
        assert f"upkeep failed for {NAME}{REJECTED_SUFFIX}, see above" in str(said.exception)
        lines = said.output.splitlines()
        assert [line for line in lines if line.startswith(f"{NAME}{REJECTED_SUFFIX}: failed: ")]
        assert [line for line in lines if line.startswith(f"{'.'.join(after.name())}: ")]


def test_a_catalog_that_fails_under_a_persons_word_is_told_in_a_line(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit(1)
    Path(lake.table.metadata_location).write_text("no metadata any more")
    said = CliRunner().invoke(app, ["maintain", str(lake.file), "--forget-lost-rejects"])
    assert isinstance(said.exception, LakeError)
    assert f"landing rejected records failed for {NAME}, see above" in str(said.exception)
    assert said.output.startswith(f"{NAME}: failed: ")


def test_a_table_and_what_belongs_to_it_take_turns_and_other_tables_do_not_wait() -> None:
    turns = Turns()
    assert turns.of("lake.t") is turns.of("lake.t__rejected") is turns.of("lake.t__skipped")
    assert turns.of("lake.t") is not turns.of("lake.u")


def test_a_round_in_which_a_table_failed_does_not_count_as_done(tmp_path: Path) -> None:
    def done_at_s() -> float:
        return REGISTRY.get_sample_value("headgate_maintenance_timestamp_seconds") or 0.0

    lake = Lake(tmp_path)
    lake.commit(1)
    maintainer, before_s = Maintainer(lake.pipeline), time.time()
    maintainer.round(threading.Event())
    well_s = done_at_s()
    assert well_s >= before_s
    metadata = Path(lake.table.metadata_location)
    content = metadata.read_text()
    metadata.write_text("no metadata any more")
    maintainer.round(threading.Event())
    assert done_at_s() == well_s
    metadata.write_text(content)
    maintainer.round(threading.Event())
    assert done_at_s() > well_s


def test_who_starts_anew_more_often_than_rounds_are_due_has_rounds_all_the_same(tmp_path: Path) -> None:
    def waits(asked_to_stop_after: int) -> list[float]:
        """What each life waits for its rounds."""
        waited: list[float] = []

        class Stop(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                waited.append(timeout or 0.0)
                return len(waited) > asked_to_stop_after

        Maintainer(lake.pipeline).run(Stop())
        return waited

    lake = Lake(tmp_path, maintain_every_s="1 d")
    day_s, mark = 86_400.0, lake.pipeline.home / "maintained"
    assert waits(0) == [pytest.approx(day_s, abs=60)]
    began_s = mark.stat().st_mtime - 23 * 3600
    os.utime(mark, (began_s, began_s))  # 23 hours pass
    assert waits(0) == [pytest.approx(3600, abs=60)]
    os.utime(mark, (began_s - day_s, began_s - day_s))
    assert waits(1) == [60.0, day_s], "soon, and a day later"
    assert mark.stat().st_mtime > began_s, "a round went well"
    assert waits(0) == [pytest.approx(day_s, abs=60)]


def test_on_a_schedule_it_works_beside_the_committer(tmp_path: Path) -> None:
    lake = Lake(tmp_path, maintain_every_s="10 ms")
    lake.commit(6)
    stop = threading.Event()
    thread = threading.Thread(target=Maintainer(lake.pipeline, Turns()).run, args=(stop,))
    thread.start()
    try:
        while len(lake.files()) > 1 and thread.is_alive():
            stop.wait(0.05)
        lake.commit(3)
    finally:
        stop.set()
        thread.join(60)
    lake.assert_exact()
