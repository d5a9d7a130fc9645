"""Rejected records: landing the files that a snapshot promised in `<table>__rejected`.

A snapshot of the main table names the reject files of its announcements in its summary: an intent, stored in the
same atomic step as the ledger. Landing them is a second commit to a second table; should the committer die between
the two, whoever commits to the main table next finishes it first. The rejected table's snapshot says which intent it
fulfils, so it is safe to do this any number of times, from any number of committers, and whatever becomes of the files
later: compaction and deletes do not bring them back.
"""

import json
import logging
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table
from pyiceberg.table.update.snapshot import ManageSnapshots

from headgate.config.pipeline import Lake
from headgate.errors import CommitConflict
from headgate.lake.ledger import REJECTS, ledger_snapshot, newest_carrier, summary
from headgate.lake.tables import REJECTED_SUFFIX, create_table, load_table, single_attempt

log = logging.getLogger(__name__)

_MOST_ATTEMPTS = 8

LANDED = "headgate.landed"
LANDED_TAG = "headgate-landed"

REJECTED_SPARK_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (
                ("key", "binary"),
                ("value", "binary"),
                ("reason", "string"),
                ("rejected_at", "timestamp"),
                ("_topic", "string"),
                ("_kafka_partition", "integer"),
                ("_offset", "long"),
                ("_timestamp", "timestamp"),
            )
        ],
    }
)


@dataclass(frozen=True, slots=True)
class Intent:
    """Which snapshot of which table promised rejects."""

    table_uuid: str
    sequence_number: int

    def encode(self) -> str:
        return json.dumps([self.table_uuid, self.sequence_number])

    def fulfilled_by(self, rejected: Table) -> bool:
        """Intents are fulfilled in order, so the newest one there is enough to know."""
        landed = newest_carrier(rejected, LANDED, LANDED_TAG)
        if landed is None:
            return False
        uuid, sequence_number = json.loads(summary(landed)[LANDED])
        return bool(uuid == self.table_uuid and sequence_number >= self.sequence_number)


def land_rejects(catalog: Catalog, lake: Lake, table: Table) -> None:
    """Makes the rejects promised by the newest ledger snapshot visible; returns at once when there are none."""
    carrier = ledger_snapshot(table)
    if carrier is None or REJECTS not in summary(carrier):
        return
    promised = json.loads(summary(carrier)[REJECTS])
    # Iceberg's sequence numbers go on after a rollback, Headgate's own do not.
    intent = Intent(str(table.metadata.table_uuid), carrier.sequence_number or 0)
    name = ".".join(table.name()) + REJECTED_SUFFIX
    for _ in range(_MOST_ATTEMPTS):
        rejected = load_table(catalog, name) or create_table(catalog, lake, name, REJECTED_SPARK_SCHEMA)
        if intent.fulfilled_by(rejected):
            return
        try:
            with single_attempt(rejected).transaction() as transaction:
                transaction.add_files(promised, {LANDED: intent.encode()}, check_duplicate_files=False)
                landed = transaction.table_metadata.current_snapshot()
                if landed is not None:
                    ManageSnapshots(transaction).create_tag(landed.snapshot_id, LANDED_TAG).commit()
            return
        except (CommitFailedException, CommitStateUnknownException) as error:
            log.info("landing rejects in %s was refused, looking again: %s", name, error)
    raise CommitConflict(f"{name}: {_MOST_ATTEMPTS} commits in a row were refused; will try again")
