"""The ledger topic: what committers said last of each table, and a person's word that one begins anew."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyiceberg.catalog import Catalog

from headgate.config.pipeline import Pipeline
from headgate.errors import LakeError
from headgate.kafka.channel import AT_WORK_S, BEGINNING, Outbox, Tail
from headgate.kafka.internal_topics import Topics
from headgate.lake.tables import load_table
from headgate.model.messages import LedgerState

HEARTBEAT_S = 5.0
"""A committer speaks of every table at least this often."""
SILENT_S = 4 * HEARTBEAT_S
"""Who has not spoken for so long is not at work."""


@dataclass(frozen=True, slots=True)
class LastWords:
    """Of each of the pipeline's tables."""

    said: dict[str, LedgerState]
    unread: frozenset[str]
    """Tables of which another release of Headgate spoke last, in messages that this one does not read."""
    outdated: tuple[str, ...] = ()
    """Committers of older releases that are at work."""

    def existed(self, table: str) -> bool:
        """Of what cannot be read it is assumed: a table that is gone is worse made again than asked about."""
        return self.said[table].exists if table in self.said else table in self.unread

    def check_that_nobody_commits(self, table: str) -> None:
        check_that_nobody_older_works(self.outdated)
        said = self.said.get(table)
        if said is not None and time.time() - said.at_ms / 1000 < SILENT_S:
            raise LakeError(
                f"a committer is at work, or was a moment ago: stop the pipeline, wait {SILENT_S:g} s, try again"
            )


def check_that_nobody_older_works(outdated: Collection[str]) -> None:
    """What an older release says is not read, a farewell neither."""
    if outdated:
        raise LakeError(f"{next(iter(outdated))} is at work, or was lately: stop it, wait {AT_WORK_S:g} s, try again")


def last_words(pipeline: Pipeline, settings: Mapping[str, str | int | float | bool]) -> LastWords:
    topic = Topics(pipeline.name).ledger
    tail = Tail(settings, {(topic, 0): BEGINNING})
    try:
        words = [received.message for received in tail.read_to_end(newest_of=topic)]
    finally:
        tail.close()
    tables = {table.name for table in pipeline.tables}
    said = {w.table: w for w in words if isinstance(w, LedgerState) and w.table in tables}
    return LastWords(said, frozenset(tables & tail.unread_keys[topic] - said.keys()), tuple(tail.outdated))


def begin_anew(pipeline: Pipeline, settings: Mapping[str, str], catalog: Catalog, table: str) -> None:
    """A person's word that a table which is gone from the catalog is to begin again, where `start_from` says."""
    if table not in {t.name for t in pipeline.tables}:
        raise LakeError(f"{table} is not one of the pipeline's tables; nothing was changed")
    if load_table(catalog, table) is not None:
        raise LakeError(f"{table} is in the catalog; drop it first, or give the pipeline another name for it")
    words = last_words(pipeline, settings)
    if not words.existed(table):
        return
    words.check_that_nobody_commits(table)
    said = words.said.get(table)
    nothing = LedgerState(
        table=table,
        at_ms=int(time.time() * 1000),
        committer="by hand",
        sequence=0,
        snapshot_id=0,
        exists=False,
        positions=(),
        verdicts=(),
        announcements_next=said.announcements_next if said is not None else 0,
    )
    outbox = Outbox(settings, "headgate maintain")
    outbox.send(Topics(pipeline.name).ledger, nothing, key=table)
    outbox.flush()
