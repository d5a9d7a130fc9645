"""Forgetting snapshots: those beyond what is to be kept, never the one with the ledger or with the newest mark of what
landed here. Some older ones are kept to roll back to."""

import logging
import time
from collections.abc import Iterable

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, UpdatesAndRequirements
from pyiceberg.table.update.snapshot import ExpireSnapshots, ManageSnapshots

from headgate.config.pipeline import Lake
from headgate.failpoints import reach
from headgate.lake.attempts import Attempt
from headgate.lake.compaction import REPLACED_TAG
from headgate.lake.landing import LANDED, LANDED_TAG
from headgate.lake.ledger import LEDGER, LEDGER_TAG, decode_ledger, newest_carrier, summary
from headgate.lake.lines import is_abandoned, left_behind, without_abandoned
from headgate.lake.skips import keep_skips
from headgate.lake.tables import load_table
from headgate.model import Ledger

log = logging.getLogger(__name__)

_MET_ANOTHER = (CommitFailedException, ValueError)
"""Somebody else did upkeep, or a commit, meanwhile. PyIceberg looks at the table again before it commits, and may find
then that what is to be removed is gone already."""
_MOST_ATTEMPTS = 10
_MOST_EXPIRIES = 3
"""Tries at one expiry; the next one comes soon."""
_FEWEST_SNAPSHOTS = 5
_HOUR_S = 3600
_MOST_POSITIONS = 50_000
"""Positions in all ledgers of a table together: about 1.5 MB of metadata."""


def snapshots_to_keep(lake: Lake, ledger: Ledger) -> int:
    """`keep_snapshots`, or fewer for wide ledgers: each snapshot carries one, and every commit writes them all."""
    return min(lake.keep_snapshots, _room(ledger))


def _room(ledger: Ledger) -> int:
    """For how many snapshots with such ledgers a table has room."""
    return max(_FEWEST_SNAPSHOTS, _MOST_POSITIONS // max(1, len(ledger.next)))


def _carriers(table: Table) -> dict[str, Snapshot]:
    """Per tag, the snapshot that it is to keep."""
    found = {tag: newest_carrier(table, what, tag) for what, tag in ((LEDGER, LEDGER_TAG), (LANDED, LANDED_TAG))}
    return {tag: carrier for tag, carrier in found.items() if carrier is not None}


def _of_full_hours(newest_first: Iterable[Snapshot], hours: int) -> set[int]:
    """The snapshots that were in force at so many last full hours."""
    carriers = [s for s in newest_first if LEDGER in summary(s)]
    this_hour = time.time() // _HOUR_S
    bounds_ms = (1000 * _HOUR_S * (this_hour - back) for back in range(hours))
    found = (next((s.snapshot_id for s in carriers if s.timestamp_ms < bound_ms), None) for bound_ms in bounds_ms)
    return {snapshot_id for snapshot_id in found if snapshot_id is not None}


def expirable(table: Table, lake: Lake) -> list[int]:
    """Snapshots beyond `keep_snapshots` or older than `keep_snapshots_s`; never those with the ledger or a mark, nor
    those of full hours."""
    carriers = _carriers(table)
    carrier = carriers.get(LEDGER_TAG)
    by_age = sorted(table.metadata.snapshots, key=lambda s: s.timestamp_ms, reverse=True)
    in_force = without_abandoned(table, by_age)
    ids = {s.snapshot_id for s in in_force}
    by_use = [*in_force, *(s for s in by_age if s.snapshot_id not in ids)]  # what a rollback has left goes first
    oldest_ms = int((time.time() - lake.keep_snapshots_s) * 1000)
    ledger = Ledger() if carrier is None else decode_ledger(summary(carrier)[LEDGER])
    most = snapshots_to_keep(lake, ledger)
    protected = {ref.snapshot_id for ref in table.refs().values()} | {c.snapshot_id for c in carriers.values()}
    protected |= _of_full_hours(in_force, min(lake.keep_hourly, _room(ledger) - most))
    return [
        s.snapshot_id
        for rank, s in enumerate(by_use)
        if s.snapshot_id not in protected and (rank >= most or s.timestamp_ms < oldest_ms)
    ]


def expire_snapshots(catalog: Catalog, name: str, lake: Lake) -> int:
    """Forgets those that are `expirable`."""
    for _ in range(_MOST_EXPIRIES):
        table = load_table(catalog, name)
        if table is None or left_behind(table) or is_abandoned(table):  # others may think better of it, or have to
            return 0
        expired = expirable(table, lake)
        if expired:
            keep_skips(catalog, lake, table, expired)
        try:
            for tag, carrier in _carriers(table).items():
                ref = table.refs().get(tag)
                if ref is None or ref.snapshot_id != carrier.snapshot_id:
                    # Rolled back, or dropped: without the tag, expiry could cut off the way to what is now in force.
                    ManageSnapshots(Attempt(table, autocommit=True)).create_tag(carrier.snapshot_id, tag).commit()
                    table.refresh()
            if expired:
                _Expiry(Attempt(table, autocommit=True)).by_ids(expired).commit()
                reach("expire.committed")
            return len(expired)
        except _MET_ANOTHER as error:
            log.info("expiry of %s met another commit, looking again: %.200s", name, error)
    log.info("expiry of %s will happen after the next commits", name)
    return 0


class _Expiry(ExpireSnapshots):
    """Only while all branches and tags are what they were when it was decided. A catalog carries out what was staged on
    the table as it is by then: were it rolled back meanwhile to a snapshot that goes, its main branch would go, too."""

    def _commit(self) -> UpdatesAndRequirements:
        updates, requirements = super()._commit()
        refs = self._transaction.table_metadata.refs
        as_seen = (AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in refs.items())
        return updates, (*requirements, *as_seen)


def release_replaced(catalog: Catalog, name: str, lake: Lake) -> int:
    """Lets go of what compaction replaced longer than `orphan_age_s` ago: nobody who read it then still reads it."""
    for _ in range(_MOST_ATTEMPTS):
        table = load_table(catalog, name)
        limit_ms = (time.time() - lake.orphan_age_s) * 1000
        tags = [tag for tag in (table.refs() if table is not None else ()) if _replaced_ms(tag, limit_ms) < limit_ms]
        if table is None or not tags:
            return 0
        manage = ManageSnapshots(Attempt(table, autocommit=True))
        for tag in tags:
            manage = manage.remove_tag(tag)
        try:
            manage.commit()
            return len(tags)
        except _MET_ANOTHER as error:
            log.info("%s: tags could not be removed, trying again: %s", name, error)
    return 0


def _replaced_ms(tag: str, otherwise: float) -> float:
    """When compaction set this tag; `otherwise` for any other tag."""
    stamp = tag.removeprefix(REPLACED_TAG)
    return int(stamp) if tag.startswith(REPLACED_TAG) and stamp.isdecimal() else otherwise
