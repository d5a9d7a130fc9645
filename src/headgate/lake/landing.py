"""Landing in a second table what a snapshot of the main table promised, exactly once.

Two tables cannot be committed in one step. The second table's snapshot therefore says up to which snapshot of the main
table it has landed everything, so that it is safe to do this any number of times and from any number of committers,
and whatever becomes of the rows later: compaction and deletes do not bring them back.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ManageSnapshots

from headgate.config.pipeline import Lake
from headgate.errors import CommitConflict, LakeError
from headgate.lake.attempts import Attempt
from headgate.lake.ledger import newest_carrier, summary
from headgate.lake.tables import create_table, load_table

log = logging.getLogger(__name__)

LANDED = "headgate.landed"
LANDED_ID = "headgate.landed-id"
LANDED_TAG = "headgate-landed"

_MOST_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class Mark:
    """A snapshot of a main table. Iceberg's sequence numbers go on after a rollback, Headgate's own do not."""

    table_uuid: str
    sequence_number: int
    snapshot_id: int | None = None
    """None where only the number is known."""

    @classmethod
    def of(cls, table: Table, snapshot: Snapshot) -> "Mark":
        return cls(str(table.metadata.table_uuid), snapshot.sequence_number or 0, snapshot.snapshot_id)

    @classmethod
    def in_summary(cls, snapshot: Snapshot) -> "Mark":
        found = summary(snapshot)
        snapshot_id = found.get(LANDED_ID)
        table_uuid, sequence_number = json.loads(found[LANDED])
        return cls(table_uuid, sequence_number, None if snapshot_id is None else int(snapshot_id))

    @property
    def properties(self) -> dict[str, str]:
        """Of the second table's snapshot."""
        named = {} if self.snapshot_id is None else {LANDED_ID: str(self.snapshot_id)}
        return {LANDED: json.dumps([self.table_uuid, self.sequence_number]), **named}

    def covers(self, other: "Mark") -> bool:
        return self.table_uuid == other.table_uuid and self.sequence_number >= other.sequence_number

    def is_of_another_line(self, table: Table) -> bool:
        """Whether the table has counted this number again, for another snapshot."""
        if self.snapshot_id is None or self.sequence_number == 0:
            return False
        same = (s for s in table.snapshots() if s.sequence_number == self.sequence_number)
        return any(s.snapshot_id != self.snapshot_id for s in same)


def landed_mark(second: Table | None) -> Mark | None:
    """Up to which snapshot of the main table everything is in this one."""
    carrier = None if second is None else newest_carrier(second, LANDED, LANDED_TAG)
    return None if carrier is None else Mark.in_summary(carrier)


def land(
    catalog: Catalog,
    lake: Lake,
    name: str,
    spark_schema: str,
    main: Table,
    mark: Mark,
    add: Callable[[Transaction, dict[str, str], Mark | None], None],
) -> None:
    """Calls `add` in a commit to table `name` unless that one has reached `mark`; things land in the marks' order.

    `add` gets the snapshot properties to commit with, and the mark that the table has reached.
    """
    for _ in range(_MOST_ATTEMPTS):
        table = load_table(catalog, name) or create_table(catalog, lake, name, spark_schema)
        landed = landed_mark(table)
        if landed is not None and landed.table_uuid == mark.table_uuid:
            _check_that_it_is_not_ahead(catalog, name, main, landed)
            if landed.covers(mark):
                return
        try:
            with Attempt(table) as transaction:
                add(transaction, mark.properties, landed)
                tag_landed(transaction)
            return
        except (CommitFailedException, CommitStateUnknownException) as error:
            log.info("a commit to %s was refused, looking again: %s", name, error)
    raise CommitConflict(f"{name}: {_MOST_ATTEMPTS} commits in a row were refused; will try again")


def tag_landed(transaction: Transaction) -> None:
    """The newest snapshot has the mark."""
    current = transaction.table_metadata.current_snapshot()
    if current is not None:
        ManageSnapshots(transaction).create_tag(current.snapshot_id, LANDED_TAG).commit()


def _check_that_it_is_not_ahead(catalog: Catalog, name: str, main: Table, landed: Mark) -> None:
    """A main table that was registered from older metadata counts its snapshots again: what they promise would not
    land, or land twice. One that only went on since it was loaded does not."""
    counted_twice = landed.is_of_another_line(main)
    if landed.sequence_number <= _last_number(main) and not counted_twice:
        return
    newest = load_table(catalog, ".".join(main.name()))
    if counted_twice or (newest is not None and landed.sequence_number > _last_number(newest)):
        raise LakeError(
            f"{name} has landed more than {'.'.join(main.name())} ever promised: that one was registered from older "
            f"metadata. Register the newest (docs/recover.md, A catalog that is lost, or new); if that is lost, rename "
            f"{name}, and a new one is made"
        )


def _last_number(table: Table) -> int:
    return getattr(table.metadata, "last_sequence_number", 0)
