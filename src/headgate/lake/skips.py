"""What Kafka skipped, kept for good: in the summaries of recent snapshots, and in `<table>__skipped` from then on.

Skips go into the snapshot that moves the ledger past them, which costs no second commit. Before such snapshots are
expired, their skips are moved to a table of their own.
"""

import json
from collections.abc import Iterable

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, Transaction

from headgate.config.pipeline import Lake
from headgate.config.table import SKIPPED_SUFFIX
from headgate.lake.landing import Mark, land
from headgate.lake.ledger import SKIPS, ancestors, decode_skips, summary
from headgate.lake.tables import load_table
from headgate.model import Skip, TopicPartition
from headgate.model.announcement import condensed

_MOST_PER_PARTITION = 50
"""Skips of one partition listed one by one for each batch of expired snapshots; above that, as one with their count."""

_COLUMNS = (
    ("topic", "string", pa.string()),
    ("partition", "integer", pa.int32()),
    ("start_offset", "long", pa.int64()),
    ("end_offset", "long", pa.int64()),
    ("offsets", "long", pa.int64()),
    ("reason", "string", pa.string()),
)
_SPARK_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind, _ in _COLUMNS],
    }
)


def keep_skips(catalog: Catalog, lake: Lake, table: Table, snapshots: Iterable[int]) -> None:
    """Moves the skips of these snapshots, which are about to go, to the table's `__skipped` table.

    Older ones that stay are cut off from the table's line by that, so theirs are moved as well.
    """
    name = ".".join(table.name()) + SKIPPED_SUFFIX
    going = set(snapshots)
    line = list(ancestors(table))
    newest = next((rank for rank, s in enumerate(line) if s.snapshot_id in going), len(line))
    carriers = [s for s in line[newest:] if SKIPS in summary(s)]
    if not carriers:
        return

    def add(transaction: Transaction, properties: dict[str, str], landed: Mark | None) -> None:
        fresh = [s for s in carriers if landed is None or not landed.covers(Mark.of(table, s))]
        skips = [skip for s in fresh for skip in decode_skips(summary(s)[SKIPS])]
        transaction.append(_rows(condensed(skips, _MOST_PER_PARTITION)), snapshot_properties=properties)

    land(catalog, lake, name, _SPARK_SCHEMA, table, Mark.of(table, carriers[0]), add)


def _rows(skips: Iterable[Skip]) -> pa.Table:
    values = [(s.partition.topic, s.partition.partition, s.start, s.end, s.offsets, s.reason) for s in skips]
    names = [name for name, _, _ in _COLUMNS]
    return pa.Table.from_pylist(
        [dict(zip(names, row, strict=True)) for row in values],
        schema=pa.schema([(name, kind) for name, _, kind in _COLUMNS]),
    )


def recorded_skips(catalog: Catalog, table: Table) -> list[Skip]:
    """Everything Kafka is known to have skipped, by partition and offset."""
    found = {skip for s in ancestors(table) for skip in decode_skips(summary(s).get(SKIPS, "[]"))}
    kept = load_table(catalog, ".".join(table.name()) + SKIPPED_SUFFIX)
    if kept is not None:
        for row in kept.scan().to_arrow().to_pylist():
            partition = TopicPartition(row["topic"], row["partition"])
            found.add(Skip(partition, row["start_offset"], row["end_offset"], row["offsets"], row["reason"]))
    return sorted(found, key=lambda skip: (skip.partition, skip.start, skip.end))
