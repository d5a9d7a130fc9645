"""Rejected records: landing the files that a snapshot promised in `<table>__rejected`.

A snapshot of the main table names the reject files of its announcements in its summary: an intent, stored in the
same atomic step as the ledger. Landing them is a second commit to a second table; should the committer die between
the two, whoever commits to the main table next finishes it first. Files already there are left out, so it is safe
to do this any number of times, from any number of committers.
"""

import json
import logging

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table

from headgate.config.pipeline import Lake
from headgate.errors import CommitConflict
from headgate.lake.ledger import REJECTS, ledger_snapshot, summary
from headgate.lake.tables import REJECTED_SUFFIX, create_table, load_table, single_attempt

log = logging.getLogger(__name__)

_MOST_ATTEMPTS = 8

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
    promised = json.loads(summary(carrier).get(REJECTS, "[]")) if carrier else []
    if not promised:
        return
    name = ".".join(table.name()) + REJECTED_SUFFIX
    for _ in range(_MOST_ATTEMPTS):
        rejected = load_table(catalog, name) or create_table(catalog, lake, name, REJECTED_SPARK_SCHEMA)
        here = set(rejected.inspect.files().column("file_path").to_pylist())
        missing = [path for path in promised if path not in here]
        if not missing:
            return
        try:
            with single_attempt(rejected).transaction() as transaction:
                transaction.add_files(missing, check_duplicate_files=False)
            return
        except (CommitFailedException, CommitStateUnknownException) as error:
            log.info("landing rejects in %s was refused, looking again: %s", name, error)
    raise CommitConflict(f"{name}: {_MOST_ATTEMPTS} commits in a row were refused; will try again")
