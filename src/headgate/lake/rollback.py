"""Rolling a table back: to an earlier snapshot with its ledger, so that what came after it is read from Kafka again.

The rows go back with the ledger in one commit. Rejected records are in a table of their own and lose those that will be
read again (`rejects.py`): here, or should this be killed, before the next commit. What Kafka skipped stays skipped.
"""

import logging
import time
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ManageSnapshots

from headgate.config.pipeline import Lake
from headgate.errors import CommitConflict, LakeError
from headgate.failpoints import reach
from headgate.lake.attempts import Attempt
from headgate.lake.ledger import (
    LEDGER,
    LEDGER_TAG,
    decode_ledger,
    ledger_snapshot,
    number,
    summary,
)
from headgate.lake.lines import ROLLED_BACK_MS, is_abandoned, leaving, without_abandoned
from headgate.lake.rejects import forget_rejects
from headgate.lake.tables import load_table
from headgate.model import Ledger

log = logging.getLogger(__name__)

_MOST_ATTEMPTS = 8

SAME_AS = "headgate.same-as"
"""In the summary of a snapshot that changes nothing: which one it repeats."""


@dataclass(frozen=True, slots=True)
class RestorePoint:
    snapshot_id: int
    at_ms: int
    ledger: Ledger


def restore_points(table: Table) -> list[RestorePoint]:
    """What it can be rolled back to, newest first. Among it what it is now, unless others changed it since.

    Of a table that others took to before its ledger, or to what a rollback had left, what came after that as well.
    Without those from before Iceberg numbered them, in its first format.
    """
    in_force = ledger_snapshot(table)
    numbered = [s for s in without_abandoned(table, table.snapshots()) if number(s) and LEDGER in summary(s)]
    if in_force is not None and not is_abandoned(table):
        numbered = [s for s in numbered if number(s) <= number(in_force)]
    return [
        RestorePoint(s.snapshot_id, s.timestamp_ms, decode_ledger(summary(s)[LEDGER]))
        for s in sorted(numbered, key=number, reverse=True)
    ]


def held(table: Table) -> Ledger | None:
    """What going back is measured against: the newest ledger that no rollback has left, wherever others may have taken
    the table. None if there is none."""
    carriers = [s for s in without_abandoned(table, table.snapshots()) if LEDGER in summary(s)]
    in_force = ledger_snapshot(table)
    if in_force is not None and not is_abandoned(table):
        carriers.insert(0, in_force)  # before others without a number
    newest = max(carriers, key=number, default=None)
    return None if newest is None else decode_ledger(summary(newest)[LEDGER])


def repeated_by_current(table: Table) -> int | None:
    """The id of the snapshot that the table is at, also if it was rolled back to where it was."""
    now = table.current_snapshot()
    return None if now is None else int(summary(now).get(SAME_AS, now.snapshot_id))


def roll_back(catalog: Catalog, lake: Lake, name: str, snapshot_id: int) -> int:
    """Returns how many rejected records will be read again. Who says it again after a kill finishes it.

    Also to where the table is now: what was read before this is refused from then on.
    """
    for _ in range(_MOST_ATTEMPTS):
        table = load_table(catalog, name)
        if table is None:
            raise LakeError(f"{name} is not in the catalog")
        if all(point.snapshot_id != snapshot_id for point in restore_points(table)):
            raise LakeError(f"{name} has no snapshot {snapshot_id} with a ledger that it can be rolled back to")
        to = table.snapshot_by_id(snapshot_id)
        assert to is not None  # it is a restore point
        try:
            _go_back(table, to)
            break
        except (CommitFailedException, CommitStateUnknownException) as error:
            log.info("the rollback of %s was refused, looking again: %s", name, error)
    else:
        raise CommitConflict(f"{name}: {_MOST_ATTEMPTS} commits in a row were refused; is another program writing?")
    reach("rollback.committed")
    return forget_rejects(catalog, lake, name)


def _go_back(table: Table, to: Snapshot) -> None:
    with Attempt(table) as transaction:
        transaction.set_properties({ROLLED_BACK_MS: str(int(time.time() * 1000)), **leaving(table, to)})
        manage = ManageSnapshots(transaction).create_tag(to.snapshot_id, LEDGER_TAG)
        if table.current_snapshot() != to:
            manage.set_current_snapshot(to.snapshot_id).commit()
            return
        manage.commit()
        with transaction.update_snapshot({SAME_AS: str(to.snapshot_id)}).fast_append():
            pass  # a commit that somebody has prepared on it, frozen since, is refused by this as well
