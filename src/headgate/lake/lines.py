"""Which of a table's snapshots count: those on the line that is in force, not those that a rollback has left.

Going back is final once it is noted in the table's properties: `headgate rollback` does so in the same step, and for a
rollback by others the next commit does. From then on what was left is not gone back to, since the rejected records that
belong to it are taken out (`rejects.py`).
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from headgate.lake.ledger import LEDGER, REJECTS, decode_ledger, ledger_snapshot, number, summary
from headgate.model import Range, TopicPartition

ABANDONED = "headgate.abandoned"
"""Table property: numbers of snapshots that a rollback has left, as pairs: after the first, up to the second."""
ROLLED_BACK_MS = "headgate.rolled-back-ms"
"""Table property: what was read before this belongs to what `headgate rollback` has left."""
FORGET = "headgate.forget-rejects"
"""Table property, from a rollback to the next commit: the rejected records that will be read again."""


@dataclass(frozen=True, slots=True)
class Forgetting:
    """What is to be taken out of the rejected table before the next commit to the main one."""

    ranges: dict[TopicPartition, Range]
    landed_number: int
    """Of the newest snapshot that was left, if it promised rejects: nobody is to land them any more. Otherwise 0."""

    def encode(self) -> str:
        ranges = [[p.topic, p.partition, r.start, r.end] for p, r in sorted(self.ranges.items())]
        return json.dumps({"ranges": ranges, "landed": self.landed_number}, separators=(",", ":"))


def forgetting(table: Table) -> Forgetting | None:
    """None if no rollback waits for it, or somebody has committed since who does not know this."""
    carrier = ledger_snapshot(table)
    if carrier is not None and number(carrier) > max((last for _, last in _abandoned(table)), default=0):
        return None
    return _noted(table)


def _noted(table: Table) -> Forgetting | None:
    text = table.properties.get(FORGET)
    if text is None:
        return None
    stored = json.loads(text)
    ranges = (Range(TopicPartition(topic, number_), start, end) for topic, number_, start, end in stored["ranges"])
    return Forgetting({r.partition: r for r in ranges}, stored["landed"])


def without_abandoned(table: Table, snapshots: Iterable[Snapshot]) -> list[Snapshot]:
    pairs = _abandoned(table)
    return [s for s in snapshots if not any(after < number(s) <= to for after, to in pairs)]


def _abandoned(table: Table) -> list[tuple[int, int]]:
    return [(after, to) for after, to in json.loads(table.properties.get(ABANDONED, "[]"))]


def is_abandoned(table: Table) -> bool:
    """Whether others took the table to what a rollback had left."""
    carrier = ledger_snapshot(table)
    return carrier is not None and not without_abandoned(table, [carrier])


def left_behind(table: Table) -> list[Snapshot]:
    """What others have rolled the table back from, if nobody has noted that: ledgers after the one in force."""
    carrier = ledger_snapshot(table)
    return [] if carrier is None else _after(table, carrier)


def _after(table: Table, carrier: Snapshot) -> list[Snapshot]:
    later = (s for s in table.snapshots() if number(s) > number(carrier) and LEDGER in summary(s))
    return sorted(without_abandoned(table, later), key=number)


def leaving(table: Table, to: Snapshot) -> dict[str, str]:
    """The properties that make it final that the table is, or is about to be, at this ledger."""
    left = _after(table, to)
    if not left:
        return {}
    then, before = decode_ledger(summary(to)[LEDGER]), _noted(table)
    ranges = dict[TopicPartition, Range]()
    for partition, noted in ({} if before is None else before.ranges).items():  # done or not: what is ahead comes again
        start = max(noted.start, then.next.get(partition, noted.start))
        if start < noted.end:
            ranges[partition] = Range(partition, start, noted.end)
    for ledger in (decode_ledger(summary(s)[LEDGER]) for s in left):
        for partition, end in ledger.next.items():
            start = then.next.get(partition, ledger.origin[partition])
            known = ranges.get(partition, Range(partition, start, start))
            ranges[partition] = Range(partition, min(start, known.start), max(end, known.end))
    promised = [number(s) for s in left if REJECTS in summary(s)]
    landed = max([*promised, 0 if before is None else before.landed_number], default=0)
    pending = Forgetting({p: r for p, r in ranges.items() if r.start < r.end}, landed)
    numbers = [number(s) for s in table.snapshots()]
    pairs = [(after, last) for after, last in _abandoned(table) if any(after < n <= last for n in numbers)]
    abandoned = json.dumps([*pairs, (number(to), number(left[-1]))])
    return {ABANDONED: abandoned, FORGET: pending.encode()}
