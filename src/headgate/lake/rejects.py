"""Rejected records: landing the files that a snapshot promised in `<table>__rejected`.

A snapshot of the main table names the reject files of its announcements in its summary: an intent, stored in the
same atomic step as the ledger. Landing them is a second commit to a second table; should the committer die between
the two, whoever commits to the main table next finishes it first.
"""

import json

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, Transaction

from headgate.config.pipeline import Lake
from headgate.config.table import REJECTED_SUFFIX
from headgate.errors import LakeError
from headgate.lake.landing import Mark, land
from headgate.lake.ledger import REJECTS, ledger_snapshot, summary
from headgate.lake.readable import unreadable_files

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


def land_rejects(catalog: Catalog, lake: Lake, table: Table, without_lost: bool = False) -> tuple[str, ...]:
    """Makes the rejects promised by the newest ledger snapshot visible; returns at once when there are none.

    Files that were lost since stand in the way until they are back, or a person accepts their loss: returns those.
    """
    carrier, promised = ledger_snapshot(table), promised_rejects(table)
    if carrier is None or not promised:
        return ()
    forgotten = dict[str, str]()
    name = ".".join(table.name()) + REJECTED_SUFFIX

    def add(transaction: Transaction, properties: dict[str, str], landed: Mark | None) -> None:
        lost = unreadable_files(table.io, promised)
        forgotten.update(lost)
        if lost and not without_lost:
            raise LakeError(
                f"rejected records were promised to {name} and their file is lost: {next(iter(lost))}. Bring it back, "
                f"or go on without them: headgate maintain FILE --forget-lost-rejects"
            )
        transaction.add_files([p for p in promised if p not in lost], properties, check_duplicate_files=False)

    land(catalog, lake, name, REJECTED_SPARK_SCHEMA, Mark.of(table, carrier), add)
    return tuple(forgotten)


def promised_rejects(table: Table) -> list[str]:
    """The reject files that the newest ledger snapshot of a main table speaks of."""
    carrier = ledger_snapshot(table)
    return [] if carrier is None else list(json.loads(summary(carrier).get(REJECTS, "[]")))
