"""Rejected records: landing the files that a snapshot promised in `<table>__rejected`.

A snapshot of the main table names the reject files of its announcements in its summary: an intent, stored in the
same atomic step as the ledger. Landing them is a second commit to a second table; should the committer die between
the two, whoever commits to the main table next finishes it first.

It is the same when the main table was rolled back (`lines.py`): what will be read again is taken out before the next
commit, by whoever makes it, and that commit says that it is done.
"""

import json
import logging
from collections import Counter

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, In, LessThan, Or
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot

from headgate.config.pipeline import Lake
from headgate.config.table import REJECTED_SUFFIX
from headgate.errors import CommitConflict, LakeError
from headgate.lake.attempts import Attempt
from headgate.lake.landing import Mark, land, landed_mark, tag_landed
from headgate.lake.ledger import LEDGER, REJECTS, ledger_snapshot, number, summary
from headgate.lake.lines import Forgetting, forgetting, left_behind
from headgate.lake.readable import unreadable_files
from headgate.lake.tables import create_table, load_table
from headgate.model import Range, TopicPartition

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


def land_rejects(catalog: Catalog, lake: Lake, table: Table, without_lost: bool = False) -> tuple[str, ...]:
    """Makes the rejects promised by the newest ledger snapshot visible; returns at once when there are none.

    Files that were lost since stand in the way until they are back, or a person accepts their loss: returns those.
    """
    carrier = ledger_snapshot(table)
    promised = [] if carrier is None else _promised(carrier)
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

    land(catalog, lake, name, REJECTED_SPARK_SCHEMA, table, Mark.of(table, carrier), add)
    return tuple(forgotten)


def _promised(carrier: Snapshot) -> list[str]:
    return list(json.loads(summary(carrier).get(REJECTS, "[]")))


def promised_rejects(table: Table) -> list[str]:
    """The reject files that the newest ledger snapshot of a main table speaks of: the one in force, or that a table
    which has lost its ledger may be taken to; and those that others have rolled back from and may go to again."""
    carriers = (s for s in table.snapshots() if LEDGER in summary(s))
    carrier = ledger_snapshot(table) or max(carriers, key=number, default=None)
    return [] if carrier is None else [path for s in (carrier, *left_behind(table)) for path in _promised(s)]


def forget_rejects(catalog: Catalog, lake: Lake, name: str) -> int:
    """Takes out the rejected records that will be read again, if the main table was rolled back; returns how many.

    May be done any number of times, and by several at once: what is read again lands after the next commit to the main
    table, and that one lets go of what is to be forgotten.
    """
    for _ in range(_MOST_ATTEMPTS):
        second, main = load_table(catalog, name + REJECTED_SUFFIX), load_table(catalog, name)
        # In this order: if nobody has committed by now, nothing that was read again is in the second one as it was
        # loaded, and if some lands there in a moment, the catalog refuses this.
        pending = None if main is None else forgetting(main)
        if main is None or pending is None or (second is None and not pending.landed_number):
            return 0
        second = second or create_table(catalog, lake, name + REJECTED_SUFFIX, REJECTED_SPARK_SCHEMA)
        try:
            return _take_out(second, pending, Mark(str(main.metadata.table_uuid), pending.landed_number))
        except (CommitFailedException, CommitStateUnknownException) as error:
            log.info("a commit to %s was refused, looking again: %s", name + REJECTED_SUFFIX, error)
    raise CommitConflict(f"{name}{REJECTED_SUFFIX}: {_MOST_ATTEMPTS} commits in a row were refused; will try again")


def _take_out(rejected: Table, pending: Forgetting, mark: Mark) -> int:
    """The mark keeps a committer that was frozen after its last commit from landing what is abandoned now."""
    counted, landed = _count(rejected, pending.ranges), landed_mark(rejected)
    is_marked = not mark.sequence_number or (landed is not None and landed.covers(mark))
    if not counted and is_marked:
        return 0
    properties = {} if is_marked else mark.properties
    conditions = [_condition(pending.ranges[partition]) for partition in sorted(counted)]
    with Attempt(rejected) as transaction:
        if conditions:
            every = conditions[0] if len(conditions) == 1 else Or(*conditions)
            transaction.delete(every, snapshot_properties=properties)
        else:
            with transaction.update_snapshot(snapshot_properties=properties).fast_append():
                pass
        if not is_marked:
            tag_landed(transaction)
    return counted.total()


def _count(rejected: Table, going: dict[TopicPartition, Range]) -> Counter[TopicPartition]:
    counted = Counter[TopicPartition]()
    if not going:
        return counted
    first = min(r.start for r in going.values())
    among = And(In(term="_topic", literals={p.topic for p in going}), GreaterThanOrEqual(term="_offset", value=first))
    fields = ("_topic", "_kafka_partition", "_offset")
    for batch in rejected.scan(row_filter=among, selected_fields=fields).to_arrow_batch_reader():
        for topic, partition_number, offset in zip(*(batch.column(f).to_pylist() for f in fields), strict=True):
            partition = TopicPartition(topic, partition_number)
            if partition in going and going[partition].start <= offset < going[partition].end:
                counted[partition] += 1
    return counted


def _condition(going: Range) -> BooleanExpression:
    return And(
        EqualTo(term="_topic", value=going.partition.topic),
        EqualTo(term="_kafka_partition", value=going.partition.partition),
        GreaterThanOrEqual(term="_offset", value=going.start),
        LessThan(term="_offset", value=going.end),
    )
