"""The committer against an independent model: a set of offsets per partition and nothing else.

Two committers share a real catalog that fails on demand: before a commit, after it with the answer lost, or by
letting the other committer in first with the very same announcements.
Announcements are good, stale, ahead, repeated, overlapping, or name a file that is not there. Others write to the
table, tag, expire and roll it back.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table.snapshots import Snapshot

from headgate.config.pipeline import Lake, Table
from headgate.errors import CommitConflict
from headgate.lake.commit import CommitResult, TableCommitter
from headgate.lake.ledger import LEDGER, ancestors, read_ledger, summary
from headgate.lake.maintenance import expire_snapshots
from headgate.model import Announcement, TopicPartition
from tests.announcements import announce, write_file

PARTITIONS = (0, 1, 2)
ORIGINS = {TopicPartition("t", p): 0 for p in PARTITIONS}


class FailingCatalog(SqlCatalog):
    """A real catalog that can be told to fail."""

    plan: list[str]
    rival: Callable[[], object]

    def commit_table(self, *args: Any, **kwargs: Any) -> Any:
        step = self.plan.pop(0) if self.plan else "work"
        if step == "refuse":
            raise CommitFailedException("told to refuse")
        if step == "lose the race":
            self.rival()
        answer = super().commit_table(*args, **kwargs)
        if step == "lose the answer":
            raise CommitStateUnknownException("told to lose the answer")
        return answer


def carries(snapshot: Snapshot) -> bool:
    return LEDGER in summary(snapshot)


class CommitterMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        home = Path(self.folder.name)
        self.lake = Lake(
            catalog={"type": "sql", "uri": f"sqlite:///{home}/catalog.db"}, warehouse=str(home), keep_snapshots=3
        )
        self.catalogs = [FailingCatalog("headgate", **self.lake.catalog_properties) for _ in range(2)]
        for catalog in self.catalogs:
            catalog.plan = []
        table = Table.model_validate({"name": "lake.t"})
        self.committers = [TableCommitter(catalog, self.lake, table) for catalog in self.catalogs]
        self.held: dict[int, set[int]] = {p: set() for p in PARTITIONS}
        self.sent: list[Announcement] = []
        self.accepted: set[str] = set()
        self.files = 0
        self.rejected = 0
        self.past: dict[int, tuple[dict[int, set[int]], set[str]]] = {}
        """What the model held at each snapshot."""

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()

    # The model: offsets are in, or they are not.

    def follows(self, announcement: Announcement) -> bool:
        for read in announcement.ranges:
            held = self.held[read.partition.partition]
            everything_before = set(range(read.start)) <= held
            if not everything_before or held & set(range(read.start, max(read.end, read.start + 1))):
                return False
        return True

    def settle(self, result: CommitResult, batch: Sequence[Announcement], missing_files: set[str]) -> None:
        """Holds one commit's answer against the model: what it says is in the lake went there one after the other.

        Not always in the batch's order: what was ahead may follow once a first try landed and its answer was lost.
        """
        landed = [one for one in (*result.already, *result.committed) if one.id not in self.accepted]
        while landed:
            one = next((one for one in landed if self.follows(one)), None)
            assert one is not None, f"none of {landed} goes on where the lake ends"
            assert one.id not in missing_files
            self.accept(one)
            landed.remove(one)
        answered = [a.id for a in (*result.committed, *result.already)] + [r.announcement.id for r in result.refused]
        assert sorted(answered) == sorted(a.id for a in batch)

    def accept(self, one: Announcement) -> None:
        self.accepted.add(one.id)
        self.rejected += len(one.rejected_files)
        for read in one.ranges:
            self.held[read.partition.partition] |= set(range(read.start, read.end))

    def due(self, batch: Sequence[Announcement], missing_files: set[str]) -> set[str]:
        """Ids that must be in the lake once the batch was committed, whatever happened meanwhile."""
        held = {p: set(offsets) for p, offsets in self.held.items()}
        due = set()
        for one in batch:
            if one.id not in self.accepted and one.id not in missing_files and self.follows(one):
                due.add(one.id)
                for read in one.ranges:
                    self.held[read.partition.partition] |= set(range(read.start, read.end))
        self.held = held
        return due

    # The rules

    def make(self, spans: Sequence[tuple[int, int, int]], with_reject: bool) -> Announcement:
        home = Path(self.folder.name) / "lake" / "t" / "data"
        self.files += 1
        ranges = tuple(("t", p, s, e) for p, s, e in spans)
        draft = announce(*ranges)
        path = write_file(home / f"{self.files}.parquet", draft.ranges)
        rejects = (self.reject_file(self.files),) if with_reject else ()
        made = announce(*ranges, files=(path,), rejected_files=rejects)
        self.sent.append(made)
        return made

    def reject_file(self, number: int) -> str:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = Path(self.folder.name) / "rejects" / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"value": pa.array([b"bad"], pa.binary()), "reason": ["because"]}), path)
        return str(path)

    def next_of(self, partition: int) -> int:
        return len(self.held[partition])

    @rule(
        data=st.data(),
        committer=st.integers(0, 1),
        plan=st.lists(st.sampled_from(["work", "refuse", "lose the answer", "lose the race"]), max_size=3),
    )
    def commit_a_batch(self, data: st.DataObject, committer: int, plan: list[str]) -> None:
        batch, reach = [], {p: self.next_of(p) for p in PARTITIONS}
        missing: set[str] = set()
        for _ in range(data.draw(st.integers(1, 4))):
            kind = data.draw(
                st.sampled_from(["good", "good", "good", "with reject", "stale", "ahead", "again", "two", "no file"])
            )
            p = data.draw(st.sampled_from(PARTITIONS))
            size = data.draw(st.integers(1, 5))
            if kind == "again" and self.sent:
                batch.append(data.draw(st.sampled_from(self.sent)))
                continue
            start = reach[p]
            if kind == "stale":
                start = max(0, start - data.draw(st.integers(1, 4)))
            elif kind == "ahead":
                start += data.draw(st.integers(1, 3))
            spans = [(p, start, start + size)]
            if kind == "two":
                other = (p + 1) % len(PARTITIONS)
                spans.append((other, reach[other], reach[other] + 2))
            made = self.make(spans, kind == "with reject")
            if kind == "no file":
                Path(made.files[0]).unlink()
                missing.add(made.id)
                self.sent.remove(made)
            elif kind in ("good", "with reject", "two"):
                reach |= {partition: end for partition, _, end in spans}
            batch.append(made)
        batch = list(dict.fromkeys(batch))
        due = self.due(batch, missing)

        def let_the_rival_in() -> None:
            self.settle(self.committers[1 - committer].commit(batch, ORIGINS), batch, missing)

        self.catalogs[committer].plan = list(plan)
        self.catalogs[committer].rival = let_the_rival_in
        result = self.run(committer, batch)
        self.catalogs[committer].plan = []
        self.settle(result, batch, missing)
        assert due <= self.accepted

    def run(self, committer: int, batch: Sequence[Announcement]) -> CommitResult:
        for _ in range(3):
            try:
                return self.committers[committer].commit(batch, ORIGINS)
            except (CommitConflict, CommitFailedException, CommitStateUnknownException):
                continue  # the loop above tries again the same way after a pause
        return self.committers[committer].commit(batch, ORIGINS)

    @rule()
    def another_writer_adds_a_snapshot_without_a_ledger(self) -> None:
        if self.catalogs[0].table_exists("lake.t"):
            table = self.catalogs[0].load_table("lake.t")
            with table.transaction() as transaction, transaction.update_snapshot().fast_append():
                pass

    @rule()
    def somebody_compacts_the_rejected_table(self) -> None:
        if self.catalogs[0].table_exists("lake.t__rejected"):
            rejected = self.catalogs[0].load_table("lake.t__rejected")
            rejected.overwrite(rejected.scan().to_arrow())

    @rule()
    def somebody_tags_the_newest_snapshot(self) -> None:
        if self.catalogs[0].table_exists("lake.t"):
            table = self.catalogs[0].load_table("lake.t")
            current = table.current_snapshot()
            if current is not None and "theirs" not in table.refs():
                table.manage_snapshots().create_tag(current.snapshot_id, "theirs").commit()

    @rule(data=st.data())
    def somebody_rolls_the_table_back(self, data: st.DataObject) -> None:
        if not self.catalogs[0].table_exists("lake.t"):
            return
        self.committers[0].commit([], ORIGINS)  # what was promised lands; a rollback would forget the promise
        table = self.catalogs[0].load_table("lake.t")
        visible = list(ancestors(table))
        targets = [s for n, s in enumerate(visible) if s.snapshot_id in self.past and any(map(carries, visible[n:]))]
        if len(targets) < 2:
            return
        target = data.draw(st.sampled_from(targets[1:])).snapshot_id
        table.manage_snapshots().rollback_to_snapshot(target).commit()
        held, accepted = self.past[target]
        self.held = {p: set(offsets) for p, offsets in held.items()}
        self.accepted = set(accepted)

    @rule()
    def snapshots_expire(self) -> None:
        expire_snapshots(self.catalogs[0], "lake.t", self.lake)

    @invariant()
    def the_lake_holds_exactly_what_the_model_holds(self) -> None:
        if not hasattr(self, "held") or not self.catalogs[0].table_exists("lake.t"):
            return
        table = self.catalogs[0].load_table("lake.t")
        rows = table.scan().to_arrow().select(["_kafka_partition", "_offset"]).to_pylist()
        found = sorted((row["_kafka_partition"], row["_offset"]) for row in rows)
        assert found == sorted((p, o) for p, offsets in self.held.items() for o in offsets)
        ledger = read_ledger(table)
        assert {p.partition: at for p, at in ledger.next.items()} == {p: self.next_of(p) for p in PARTITIONS}
        assert ledger.totals.rows == len(found)
        current = table.current_snapshot()
        if current is not None:
            self.past[current.snapshot_id] = {p: set(o) for p, o in self.held.items()}, set(self.accepted)
        if self.rejected:
            assert self.catalogs[0].load_table("lake.t__rejected").scan().to_arrow().num_rows == self.rejected


CommitterMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=10, deadline=None)
TestCommitterMachine = CommitterMachine.TestCase
