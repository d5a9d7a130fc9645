"""Commits, rollbacks by us and by others, kills, compaction, expiry and other writers in any order: every offset below
the ledger is in the table or rejected, once."""

import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.snapshots import Snapshot

from headgate.config.pipeline import Lake, Table
from headgate.config.table import REJECTED_SUFFIX
from headgate.errors import LakeError
from headgate.lake import compaction
from headgate.lake.commit import TableCommitter
from headgate.lake.compaction import compact
from headgate.lake.ledger import ancestors, ledger_snapshot, read_ledger
from headgate.lake.lines import is_abandoned
from headgate.lake.maintenance import expire_snapshots
from headgate.lake.rollback import _go_back, restore_points, roll_back
from headgate.model import Range, TopicPartition
from tests.announcements import announce, write_file

PARTITIONS = [TopicPartition("t", number) for number in range(2)]
ORIGINS = dict.fromkeys(PARTITIONS, 0)
NAME = "lake.t"


class RollbackMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.folder, self.fewest = tempfile.TemporaryDirectory(), compaction.FEWEST_FILES
        compaction.FEWEST_FILES = 2
        home = self.folder.name
        catalog = {"type": "sql", "uri": f"sqlite:///{home}/catalog.db"}
        self.lake = Lake(catalog=catalog, warehouse=home, keep_snapshots=4)
        self.catalog = SqlCatalog("headgate", **self.lake.catalog_properties)
        self.committer = TableCommitter(self.catalog, self.lake, Table.model_validate({"name": NAME}))
        self.next = dict(ORIGINS)
        self.at: dict[int, dict[TopicPartition, int]] = {}
        """The ledger of every snapshot that the committer made."""
        self.is_settled = True
        """Otherwise rejected records of what was rolled back are there until the next commit."""

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            compaction.FEWEST_FILES = self.fewest
            self.folder.cleanup()

    @rule(partition=st.sampled_from(PARTITIONS), rejected=st.lists(st.booleans(), min_size=1, max_size=5))
    def commit(self, partition: TopicPartition, rejected: list[bool]) -> None:
        start, name = self.next[partition], f"{time.time_ns()}.parquet"
        end = start + len(rejected)
        kept = tuple(Range(partition, start + n, start + n + 1) for n, is_bad in enumerate(rejected) if not is_bad)
        bad = [start + n for n, is_bad in enumerate(rejected) if is_bad]
        sent = announce(
            ("t", partition.partition, start, end),
            files=(write_file(Path(self.folder.name, "lake/t/data", name), kept),) if kept else (),
            rejected_files=(self.reject(name, partition.partition, bad),) if bad else (),
            rejected=len(bad),
        )
        result = self.committer.commit([sent], ORIGINS)
        assert result.committed == (sent,)
        self.next[partition], self.is_settled = end, True
        self.at[result.snapshot_id] = dict(self.next)

    def reject(self, name: str, partition: int, offsets: list[int]) -> str:
        path = Path(self.folder.name, "rejects", name)
        path.parent.mkdir(exist_ok=True)
        columns = {
            "_topic": ["t"] * len(offsets),
            "_kafka_partition": pa.array([partition] * len(offsets), pa.int32()),
            "_offset": pa.array(offsets, pa.int64()),
        }
        pq.write_table(pa.table(columns), path)
        return str(path)

    @precondition(lambda self: self.at)
    @rule(data=st.data())
    def go_back(self, data: st.DataObject) -> None:
        points = restore_points(self.catalog.load_table(NAME))
        if points:
            point = data.draw(st.sampled_from(points))
            roll_back(self.catalog, self.lake, NAME, point.snapshot_id)
            self.next, self.is_settled = dict(self.at[point.snapshot_id]), True

    @precondition(lambda self: self.at)
    @rule(data=st.data())
    def go_back_and_be_killed_halfway(self, data: st.DataObject) -> None:
        points = restore_points(self.catalog.load_table(NAME))
        if points:
            point = data.draw(st.sampled_from(points))
            table = self.catalog.load_table(NAME)
            to = table.snapshot_by_id(point.snapshot_id)
            assert to is not None
            _go_back(table, to)
            self.next, self.is_settled = dict(self.at[point.snapshot_id]), False

    @precondition(lambda self: self.at)
    @rule(data=st.data())
    def others_go_back_or_forward(self, data: st.DataObject) -> None:
        """By Iceberg's own means: to whatever snapshot is left, rejected records as they are."""
        table = self.catalog.load_table(NAME)
        table.manage_snapshots().set_current_snapshot(
            data.draw(st.sampled_from(table.snapshots())).snapshot_id
        ).commit()
        table = self.catalog.load_table(NAME)
        carrier = ledger_snapshot(table)
        if carrier is None or is_abandoned(table):  # an accident, and refused; the way out is tested here
            self.committer_refuses(carrier)
            points = restore_points(table)
            point = data.draw(st.sampled_from(points))
            roll_back(self.catalog, self.lake, NAME, point.snapshot_id)
            self.next, self.is_settled = dict(self.at[point.snapshot_id]), True
            return
        self.next, self.is_settled = dict(self.at[carrier.snapshot_id]), False

    def committer_refuses(self, carrier: Snapshot | None) -> None:
        start = 0 if carrier is None else self.at[carrier.snapshot_id][PARTITIONS[0]]
        with pytest.raises(LakeError, match="headgate rollback"):
            self.committer.commit([announce(("t", 0, start, start + 1))], ORIGINS)

    @precondition(lambda self: self.at)
    @rule()
    def the_committer_looks(self) -> None:
        self.committer.commit([], ORIGINS)

    @precondition(lambda self: self.at)
    @rule()
    def others_expire_what_no_branch_or_tag_refers_to(self) -> None:
        table = self.catalog.load_table(NAME)
        kept = {ref.snapshot_id for ref in table.refs().values()} | {s.snapshot_id for s in ancestors(table)}
        gone = [s.snapshot_id for s in table.snapshots() if s.snapshot_id not in kept]
        if gone:
            table.maintenance.expire_snapshots().by_ids(gone).commit()

    @precondition(lambda self: self.at)
    @rule(suffix=st.sampled_from(("", REJECTED_SUFFIX)))
    def small_files_are_joined(self, suffix: str) -> None:
        compact(self.catalog, NAME + suffix, self.lake)

    @precondition(lambda self: self.at)
    @rule(suffix=st.sampled_from(("", REJECTED_SUFFIX)))
    def snapshots_expire(self, suffix: str) -> None:
        expire_snapshots(self.catalog, NAME + suffix, self.lake)

    @precondition(lambda self: self.at)
    @rule()
    def another_writer_adds_a_snapshot_without_a_ledger(self) -> None:
        table = self.catalog.load_table(NAME)
        with table.transaction() as transaction, transaction.update_snapshot().fast_append():
            pass

    @precondition(lambda self: bool(getattr(self, "at", None)))
    @invariant()
    def every_offset_is_there_once(self) -> None:
        table = self.catalog.load_table(NAME)
        assert read_ledger(table).next == self.next
        found = self.offsets(NAME)
        rejected = self.offsets(NAME + REJECTED_SUFFIX)
        if not self.is_settled:
            rejected = Counter({at: n for at, n in rejected.items() if at[1] < self.next[PARTITIONS[at[0]]]})
        found += rejected
        assert found == Counter((p.partition, offset) for p, end in self.next.items() for offset in range(end))
        totals = read_ledger(table).totals
        assert totals.rows + totals.rejected == found.total()

    def offsets(self, name: str) -> Counter[tuple[int, int]]:
        if not self.catalog.table_exists(name):
            return Counter()
        rows = self.catalog.load_table(name).scan().to_arrow()
        return Counter(zip(rows["_kafka_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True))


RollbackMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)
TestRollbackMachine = RollbackMachine.TestCase
