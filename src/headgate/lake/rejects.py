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
from headgate.lake.landing import Mark, land
from headgate.lake.ledger import REJECTS, ledger_snapshot, summary

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


def land_rejects(catalog: Catalog, lake: Lake, table: Table) -> None:
    """Makes the rejects promised by the newest ledger snapshot visible; returns at once when there are none."""
    carrier = ledger_snapshot(table)
    if carrier is None or REJECTS not in summary(carrier):
        return
    promised = json.loads(summary(carrier)[REJECTS])

    def add(transaction: Transaction, properties: dict[str, str]) -> None:
        transaction.add_files(promised, properties, check_duplicate_files=False)

    name = ".".join(table.name()) + REJECTED_SUFFIX
    land(catalog, lake, name, REJECTED_SPARK_SCHEMA, Mark.of(table, carrier), add)
