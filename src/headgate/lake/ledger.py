"""The ledger as it is stored: in the summary of the Iceberg snapshot that carries the data.

The ledger in force is the one of the newest ancestor snapshot that has one: compaction and other writers add
snapshots without. A tag keeps that snapshot from being expired by anybody.
"""

import json
from collections.abc import Iterable, Iterator, Mapping

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from headgate.errors import LakeError
from headgate.model import Announcement, Ledger, Skip, TopicPartition, Totals
from headgate.model.announcement import condensed

LEDGER = "headgate.ledger"
ACCEPTED = "headgate.accepted"
REJECTS = "headgate.rejects"
SKIPS = "headgate.skips"
LEDGER_TAG = "headgate-ledger"
MANAGED = "headgate.managed"
"""Table property: this table had a ledger once, so that losing it is an error and never a fresh start."""

VERSION = 1
"""Of the ledger's format. Newer versions of Headgate read older ones; the other way round is refused."""
_MOST_SKIPS = 20
"""Skips of one partition listed one by one in a snapshot; above that, as one with their count."""
_MOST_ACCEPTED_SNAPSHOTS = 50


def encode_ledger(ledger: Ledger) -> str:
    topics: dict[str, list[list[int]]] = {}
    for partition in sorted(ledger.next):
        entry = [partition.partition, ledger.next[partition], ledger.origin[partition]]
        topics.setdefault(partition.topic, []).append(entry)
    totals = ledger.totals
    return json.dumps(
        {
            "version": VERSION,
            "sequence": ledger.sequence,
            "totals": [totals.rows, totals.rejected, totals.filtered, totals.skipped],
            "topics": topics,
            "ids": dict(sorted(ledger.topic_ids.items())),
        },
        separators=(",", ":"),
    )


def decode_ledger(text: str) -> Ledger:
    stored = json.loads(text)
    if stored["version"] > VERSION:
        raise LakeError(
            f"this table's ledger has version {stored['version']}, written by a newer Headgate; this one reads up to "
            f"version {VERSION}: upgrade it"
        )
    nexts, origins = {}, {}
    for topic, entries in stored["topics"].items():
        for number, following, origin in entries:
            partition = TopicPartition(topic, number)
            nexts[partition], origins[partition] = following, origin
    return Ledger(nexts, origins, Totals(*stored["totals"]), stored["sequence"], stored.get("ids", {}))


def ancestors(table: Table) -> Iterator[Snapshot]:
    """The current snapshot, its parent, and so on, as far as expiry has left them."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)


def summary(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}


def number(snapshot: Snapshot) -> int:
    """Iceberg counts a table's snapshots, and goes on counting after a rollback."""
    return snapshot.sequence_number or 0


def newest_carrier(table: Table, property_name: str, tag_name: str) -> Snapshot | None:
    """The newest ancestor whose summary has this property.

    Expiry may have removed snapshots of other writers in between, which breaks the chain of parents; then the tag
    leads to it, unless the table was rolled back to before it.
    """
    oldest = None
    for snapshot in ancestors(table):
        if property_name in summary(snapshot):
            return snapshot
        oldest = snapshot
    tag = table.refs().get(tag_name)
    if tag is None or oldest is None:
        return None
    tagged = table.snapshot_by_id(tag.snapshot_id)
    # What was expired lies before the oldest ancestor that is left; the tagged one must, too, or it was rolled back.
    before = tagged is not None and number(tagged) < number(oldest)
    return tagged if before else None


def ledger_snapshot(table: Table) -> Snapshot | None:
    return newest_carrier(table, LEDGER, LEDGER_TAG)


def read_ledger(table: Table) -> Ledger:
    """The ledger in force; empty for a table that never had one."""
    carrier = ledger_snapshot(table)
    if carrier is not None:
        return decode_ledger(summary(carrier)[LEDGER])
    # Not by its current snapshot: a table that lost that one as well has lost its ledger all the more.
    had_snapshots = table.current_snapshot() is not None or getattr(table.metadata, "last_sequence_number", 0) > 0
    if MANAGED in table.properties and had_snapshots:
        raise LakeError(
            f"table {'.'.join(table.name())}: no snapshot carries the ledger any more, so where to go on is unknown; "
            f"headgate rollback lists the snapshots that had one, and takes the table to one of them"
        )
    return Ledger()


def recently_accepted(table: Table) -> set[str]:
    """Ids of the announcements in the newest snapshots: what a restarted committer reads again is not a conflict."""
    found: set[str] = set()
    carriers = (s for s in ancestors(table) if ACCEPTED in summary(s))
    for snapshot, _ in zip(carriers, range(_MOST_ACCEPTED_SNAPSHOTS), strict=False):
        found.update(json.loads(summary(snapshot)[ACCEPTED]))
    return found


def summary_for(ledger: Ledger, accepted: Iterable[Announcement]) -> dict[str, str]:
    """What the committer writes beside the data: the ledger, who contributed, what Kafka skipped, rejects to land."""
    announcements = list(accepted)
    properties = {LEDGER: encode_ledger(ledger), ACCEPTED: json.dumps([a.id for a in announcements])}
    rejects = [path for a in announcements for path in a.rejected_files]
    if rejects:
        properties[REJECTS] = json.dumps(rejects)
    skips = [skip for a in announcements for skip in a.skips]
    if skips:
        properties[SKIPS] = encode_skips(condensed(skips, _MOST_SKIPS))
    return properties


def encode_skips(skips: Iterable[Skip]) -> str:
    return json.dumps([[s.partition.topic, s.partition.partition, s.start, s.end, s.offsets, s.reason] for s in skips])


def decode_skips(text: str) -> list[Skip]:
    return [Skip(TopicPartition(topic, number), *others) for topic, number, *others in json.loads(text)]
