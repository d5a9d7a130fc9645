"""One commit: announcements in, one Iceberg snapshot out that holds their files and the ledger.

The check against the ledger and the commit are one step: the catalog refuses the commit if anyone else committed
since the ledger was read, and then everything is checked again against the newer ledger. PyIceberg would retry a
refused commit by itself, without that check, so each attempt runs with its retries switched off.
"""

import logging
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StructType,
)

from headgate.config.pipeline import Lake
from headgate.config.pipeline import Table as TableConfig
from headgate.errors import CommitConflict, LakeError
from headgate.failpoints import reach
from headgate.lake.attempts import Attempt
from headgate.lake.ledger import (
    LEDGER_TAG,
    MANAGED,
    ledger_snapshot,
    read_ledger,
    recently_accepted,
    summary_for,
)
from headgate.lake.lines import FORGET, ROLLED_BACK_MS, forgetting, is_abandoned, leaving, left_behind
from headgate.lake.readable import misfit, unreadable_files
from headgate.lake.rejects import forget_rejects, land_rejects
from headgate.lake.spark_types import iceberg_schema
from headgate.lake.tables import create_table, layout_problem, load_table
from headgate.lake.turns import GivingWay
from headgate.model import Announcement, Ledger, TopicPartition

log = logging.getLogger(__name__)

MOST_ATTEMPTS = 12

_NUMBERED: Literal[2] = 2
"""From this version of Iceberg's format on snapshots are numbered, which the order of what is promised goes by."""

_WIDENINGS: tuple[tuple[IcebergType, IcebergType], ...] = ((IntegerType(), LongType()), (FloatType(), DoubleType()))


@dataclass(frozen=True, slots=True)
class Refused:
    announcement: Announcement
    reason: str


@dataclass(frozen=True, slots=True)
class CommitResult:
    ledger: Ledger
    snapshot_id: int
    """0 while the table has no snapshot."""
    exists: bool
    committed: tuple[Announcement, ...] = ()
    """Those in the new snapshot."""
    already: tuple[Announcement, ...] = ()
    """Those an earlier snapshot holds: read again after a restart, or committed by another committer."""
    refused: tuple[Refused, ...] = ()
    made_anew: frozenset[str] = frozenset()
    """Topics that are not the ones the ledger counted; nothing of them is accepted."""
    conflicts: int = 0
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Sorted:
    ledger: Ledger
    fresh: tuple[Announcement, ...]
    already: tuple[Announcement, ...]
    refused: tuple[Refused, ...]


class TableCommitter:
    """Commits announcements to one table. Several of them, in any processes, may work on one table at once."""

    def __init__(self, catalog: Catalog, lake: Lake, table: TableConfig, giving_way: GivingWay | None = None) -> None:
        self._catalog = catalog
        self._lake = lake
        self._config = table
        self._giving_way = giving_way or GivingWay()
        self.name = table.name

    def commit(
        self,
        announcements: Sequence[Announcement],
        origins: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str] | None = None,
        existed: bool = False,
    ) -> CommitResult:
        """Commits what follows the ledger, refuses the rest.

        `origins` are partitions the ledger may not know yet, `topic_ids` what Kafka calls its topics now. A table that
        `existed` is not made again.
        """
        began, conflicts = time.monotonic(), 0
        unreadable: dict[str, str] = {}
        for attempt in range(MOST_ATTEMPTS):
            table = load_table(self._catalog, self.name)
            if table is None and existed:
                raise LakeError(
                    f"{self.name} is not in the catalog any more: it was dropped or renamed, or lake.catalog or home "
                    f"is another one now. Nothing is written until it is back. To begin it anew where start_from says, "
                    f"stop the pipeline and say: headgate maintain FILE --begin-anew {self.name}"
                )
            if table is None:
                schema = next((a.schema for a in announcements if _unusable(a.schema) is None), None)
                if schema is None:
                    refused = tuple(Refused(a, _unusable(a.schema) or "") for a in announcements)
                    return CommitResult(Ledger().with_partitions(origins), 0, exists=False, refused=refused)
                table = create_table(self._catalog, self._lake, self.name, schema, self._config.partition_by)
            table = self._giving_way.wait(self._catalog, table)
            land_rejects(self._catalog, self._lake, table)
            known = read_ledger(table)
            made_anew = known.made_anew(topic_ids or {})
            ledger = known.with_partitions({p: at for p, at in origins.items() if p.topic not in made_anew})
            ledger = ledger.with_topic_ids(topic_ids or {})
            sorted_ = self._sort(table, ledger, announcements, unreadable, made_anew)
            if not sorted_.fresh and ledger is known:
                current = ledger_snapshot(table)
                return CommitResult(
                    known,
                    current.snapshot_id if current else 0,
                    exists=True,
                    already=sorted_.already,
                    refused=sorted_.refused,
                    made_anew=made_anew,
                    conflicts=conflicts,
                    duration_s=time.monotonic() - began,
                )
            reach("commit.checked")
            if self._goes_on_after_a_rollback(table):
                continue
            try:
                staged = self._stage(table, sorted_)
            except Exception as error:  # PyIceberg, PyArrow and file systems each have their own
                found = self._misfits(table, sorted_.fresh)
                if not found:
                    raise LakeError(f"cannot commit to {self.name}: {error}") from error
                unreadable.update(found)
                continue
            reach("commit.staged")
            if any(self._too_old(announcement) for announcement in sorted_.fresh):
                continue  # a storage that hung, or a frozen process: they are refused now
            try:
                table = staged.commit_transaction()
            except (CommitFailedException, CommitStateUnknownException) as error:
                conflicts += 1
                log.info("commit to %s was refused, looking at the ledger again: %s", self.name, error)
                time.sleep(random.uniform(0, min(1.0, 0.02 * 2**attempt)))
                continue
            except Exception as error:  # catalogs have their own
                raise LakeError(f"cannot commit to {self.name}: {error}") from error
            reach("commit.committed")
            land_rejects(self._catalog, self._lake, table)
            reach("commit.rejects-landed")
            carrier = ledger_snapshot(table)
            return CommitResult(
                sorted_.ledger,
                carrier.snapshot_id if carrier else 0,
                exists=True,
                committed=sorted_.fresh,
                already=sorted_.already,
                refused=sorted_.refused,
                made_anew=made_anew,
                conflicts=conflicts,
                duration_s=time.monotonic() - began,
            )
        raise CommitConflict(f"{self.name}: {MOST_ATTEMPTS} commits in a row were refused; will try again")

    def same_topic(self, topic: str, topic_id: str) -> bool:
        """A person's word that the topic with this id holds the same records at the same offsets: accept it."""
        for _ in range(MOST_ATTEMPTS):
            table = load_table(self._catalog, self.name)
            if table is None:
                return False
            land_rejects(self._catalog, self._lake, table)  # the newest ledger snapshot is where these are promised
            known = read_ledger(table)
            if topic not in known.made_anew({topic: topic_id}):
                return False
            accepted = replace(known, topic_ids={**known.topic_ids, topic: topic_id}, sequence=known.sequence + 1)
            if self._goes_on_after_a_rollback(table):
                continue
            try:
                self._stage(table, _Sorted(accepted, (), (), ())).commit_transaction()
                return True
            except (CommitFailedException, CommitStateUnknownException) as error:
                log.info("commit to %s was refused, looking at the ledger again: %s", self.name, error)
        raise CommitConflict(f"{self.name}: {MOST_ATTEMPTS} commits in a row were refused; try again")

    def _sort(
        self,
        table: Table,
        ledger: Ledger,
        announcements: Sequence[Announcement],
        unreadable: Mapping[str, str],
        made_anew: frozenset[str],
    ) -> _Sorted:
        fresh: list[Announcement] = []
        already: list[Announcement] = []
        refused: list[Refused] = []
        accepted_ids = recently_accepted(table)
        schema = table.schema()
        layout = layout_problem(table, self._config.partition_by)
        for announcement in announcements:
            if announcement.id in accepted_ids:
                already.append(announcement)
                continue
            refusal = ledger.check(announcement)
            reason = unreadable.get(announcement.id) or (refusal.reason if refusal else None)
            reason = reason or _of_another_topic(announcement, made_anew) or layout or self._too_old(announcement)
            reason = reason or _from_before_a_rollback(table, announcement)
            reason = reason or self._schema_problem(schema, announcement) or _lost_rejects(table, announcement)
            if reason is not None:
                refused.append(Refused(announcement, reason))
                continue
            if announcement.ranges:
                ledger = ledger.advance(announcement)
                fresh.append(announcement)
            else:  # only carries the schema, so that the table exists before the first record
                already.append(announcement)
            accepted_ids.add(announcement.id)
        return _Sorted(replace(ledger, sequence=ledger.sequence + 1), tuple(fresh), tuple(already), tuple(refused))

    def _too_old(self, announcement: Announcement) -> str | None:
        """Files that nobody refers to are swept after `orphan_age_s`; well before that they are not used any more.

        How long ago they were announced says nothing: a consumer may have been frozen before it spoke.
        """
        age_s = time.time() - announcement.began_at_ms / 1000
        if age_s <= self._lake.orphan_age_s / 2:
            return None
        return f"its cycle began {age_s / 3600:.1f} hours ago; its files may be swept at any time"

    def _schema_problem(self, schema: Schema, announcement: Announcement) -> str | None:
        """Why the files cannot become part of the table; additive evolution is fine unless switched off."""
        unusable = _unusable(announcement.schema)
        if unusable is not None:
            return unusable
        offered = iceberg_schema(announcement.schema)
        return _incompatible(schema.as_struct(), offered.as_struct(), "", self._config.evolve)

    def _goes_on_after_a_rollback(self, table: Table) -> bool:
        """Makes one by others final, since a commit is to follow, and then the table has to be looked at again: True.
        Of one that is noted, rejected records that will be read again are taken out."""
        carrier = ledger_snapshot(table)
        if is_abandoned(table):
            raise LakeError(
                f"{self.name} is at a snapshot again that a rollback had left, and the rejected records that belong to "
                f"it were taken out: headgate rollback FILE {self.name} lists where it can go"
            )
        current = table.current_snapshot()
        if carrier is None or current is None or not left_behind(table):
            if forgetting(table) is not None:
                forget_rejects(self._catalog, self._lake, self.name)
            return False
        try:
            with Attempt(table) as transaction:
                transaction.set_properties(leaving(table, carrier))
                manage = ManageSnapshots(transaction).set_current_snapshot(current.snapshot_id)  # or else it is refused
                manage.create_tag(carrier.snapshot_id, LEDGER_TAG).commit()
        except (CommitFailedException, CommitStateUnknownException) as error:
            log.info("%s was changed meanwhile, looking again: %s", self.name, error)
        return True

    def _stage(self, table: Table, sorted_: _Sorted) -> Attempt:
        """Everything but the exchange in the catalog."""
        transaction = Attempt(table)
        if table.metadata.format_version < _NUMBERED:
            transaction.upgrade_table_version(_NUMBERED)
        if MANAGED not in table.properties:  # somebody else made it
            transaction.set_properties({MANAGED: "true"})
        if FORGET in table.properties:
            transaction.remove_properties(FORGET)
        _widen(transaction, sorted_.fresh)
        files = [path for a in sorted_.fresh for path in a.files]
        properties = summary_for(sorted_.ledger, sorted_.fresh)
        if files:
            transaction.add_files(files, snapshot_properties=properties, check_duplicate_files=False)
        else:
            with transaction.update_snapshot(snapshot_properties=properties).fast_append():
                pass  # the ledger alone: ranges in which no record was left for this table
        carrier = transaction.table_metadata.current_snapshot()
        if carrier is not None:
            ManageSnapshots(transaction).create_tag(carrier.snapshot_id, LEDGER_TAG).commit()
        return transaction

    def _misfits(self, table: Table, announcements: Sequence[Announcement]) -> dict[str, str]:
        """Which announcements cannot become part of the table, or not together with those before them; only looked for
        when a commit failed."""
        found, fitting = {}, list[Announcement]()
        for announcement in announcements:
            probe = Attempt(table)
            try:
                _widen(probe, [*fitting, announcement])
            except Exception as error:  # noqa: BLE001 — of values in memory, so it is about these schemas
                found[announcement.id] = f"its schema does not go with the table's: {error}"
                continue
            why = misfit(table.io, probe.table_metadata, announcement.files)
            if why is not None:
                found[announcement.id] = f"its files cannot be read: {why}"
                continue
            fitting.append(announcement)
        return found


def _of_another_topic(announcement: Announcement, made_anew: frozenset[str]) -> str | None:
    wrong = sorted({r.partition.topic for r in announcement.ranges} & made_anew)
    return f"topic {wrong[0]} was deleted and made anew; its offsets are not those of the ledger" if wrong else None


def _from_before_a_rollback(table: Table, announcement: Announcement) -> str | None:
    """It may begin just where the table is now, and is what somebody went back for."""
    if announcement.began_at_ms > int(table.properties.get(ROLLED_BACK_MS, "0")):
        return None
    return "its cycle began before the table was rolled back"


def _unusable(spark_schema: str) -> str | None:
    """Why this is no schema a table can have."""
    try:
        iceberg_schema(spark_schema)
    except LakeError as error:
        return str(error)
    except (ValueError, KeyError, TypeError) as error:
        return f"its schema is not Spark's JSON: {error!r}"
    return None


def _incompatible(table: IcebergType, files: IcebergType, name: str, evolve: bool) -> str | None:
    """The first column of the files that does not fit the table, and why."""
    if isinstance(table, StructType) and isinstance(files, StructType):
        known = {field.name: field.field_type for field in table.fields}
        for field in files.fields:
            full = f"{name}.{field.name}" if name else field.name
            if field.name in known:
                problem = _incompatible(known[field.name], field.field_type, full, evolve)
                if problem is not None:
                    return problem
            elif not evolve:
                return f"column {full} is new and the table's schema may not evolve (evolve: false)"
        return None
    if isinstance(table, ListType) and isinstance(files, ListType):
        return _incompatible(table.element_type, files.element_type, f"{name}.element", evolve)
    if isinstance(table, MapType) and isinstance(files, MapType):
        # Iceberg's map keys stay as they are.
        return _incompatible(table.key_type, files.key_type, f"{name}.key", False) or _incompatible(
            table.value_type, files.value_type, f"{name}.value", evolve
        )
    narrower, wider = (files, table) in _WIDENINGS, (table, files) in _WIDENINGS
    if table == files or narrower or (wider and evolve):
        return None
    return f"column {name} is {table} in the table and {files} in the files"


def _lost_rejects(table: Table, announcement: Announcement) -> str | None:
    """A promise to land files that cannot be read could never be kept, and would stand in the way for ever."""
    lost = unreadable_files(table.io, announcement.rejected_files)
    return next((f"its rejected files cannot be read: {path}: {why}" for path, why in lost.items()), None)


def _widen(transaction: Transaction, announcements: Sequence[Announcement]) -> None:
    for schema in dict.fromkeys(a.schema for a in announcements):
        offered = iceberg_schema(schema)
        known = {f.name: f.field_type for f in transaction.table_metadata.schema().fields}
        if any(known.get(f.name) != f.field_type for f in offered.fields):
            with transaction.update_schema() as update:
                update.union_by_name(offered)
