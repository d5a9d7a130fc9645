"""Announcements as they come in, kept for each table until they are committed."""

import logging
import time
from collections.abc import Iterable, Mapping

from confluent_kafka.admin import AdminClient

from headgate.errors import HeadgateError, KafkaUnavailable
from headgate.kafka.channel import Received, Tail
from headgate.kafka.offsets import end_offsets
from headgate.lake.table_state import TableState
from headgate.model import Announcement, TopicPartition
from headgate.model.messages import LedgerState

log = logging.getLogger(__name__)

_MOST_PENDING = 5_000

Settings = Mapping[str, str | int | float | bool]


class Intake:
    def __init__(self, topic: str, settings: Settings, admin: AdminClient, tables: Mapping[str, TableState]) -> None:
        self._place = TopicPartition(topic, 0)
        self._settings = settings
        self._admin = admin
        self._tables = tables
        self._tail: Tail | None = None
        self._read_to = 0

    @property
    def is_open(self) -> bool:
        return self._tail is not None

    @property
    def next(self) -> int:
        """Everything before this offset was taken in."""
        return 0 if self._tail is None else self._tail.next[self._place]

    def open(self, said: Mapping[str, LedgerState]) -> None:
        """Reads from where the tables' ledgers are settled. A new table has none before the others'."""
        if self._tail is not None:
            return
        end = end_offsets(self._admin, {self._place}, read_committed=False).get(self._place)
        if end is None:
            raise KafkaUnavailable(f"no end offset of {self._place.topic} yet, which may be without a leader")
        # Beyond the end it is another topic's: this one was made anew.
        settled = {name: words.announcements_next for name, words in said.items() if words.announcements_next <= end}
        start = min(settled.values(), default=0) if len(settled) == len(said) else 0
        for name, state in self._tables.items():
            state.settled_to = settled.get(name, start)
        tail = Tail(self._settings, {(self._place.topic, self._place.partition): start})
        try:
            for page in tail.pages_to_end():
                self._take(page)
                if not self._has_room():  # the rest is read in later turns
                    break
        except HeadgateError:
            tail.close()
            self._read_to = 0
            for state in self._tables.values():
                state.pending.clear()
            raise
        self._tail = tail

    def take(self, wait_s: float = 0.0) -> None:
        """Whatever has come, as far as there is room; waits so long for something to come."""
        assert self._tail is not None
        if not self._has_room():
            time.sleep(wait_s)
        while self._has_room() and (batch := self._tail.poll(wait_s)):
            self._take(batch)
            if wait_s:
                return

    def close(self) -> None:
        if self._tail is not None:
            self._tail.close()

    def _has_room(self) -> bool:
        return sum(state.waiting for state in self._tables.values() if not state.is_stuck) < _MOST_PENDING

    def _take(self, batch: Iterable[Received]) -> None:
        for received in batch:
            self._follow(received.offset)
            announcement = received.message
            if not isinstance(announcement, Announcement):
                log.warning("ignored a %s on the announcements topic", type(announcement).__name__)
            elif announcement.table not in self._tables:
                log.warning("ignored an announcement for table %s, which this pipeline lacks", announcement.table)
            else:
                state = self._tables[announcement.table]
                # What is before it was settled by a committer before this one; another table is not so far.
                is_news = received.offset >= state.settled_to
                # Of a table that is stuck only so many are kept: what is dropped is announced again, the ledger knows.
                if is_news and not (state.is_stuck and state.waiting >= _MOST_PENDING):
                    state.pending.append(announcement)

    def _follow(self, offset: int) -> None:
        if offset < self._read_to:
            log.warning(
                "%s goes on at %d instead of %d: it was made anew or has lost its end; nothing is lost, what is gone "
                "is announced again", self._place.topic, offset, self._read_to,
            )  # fmt: skip
            for state in self._tables.values():
                state.go_back(offset)
        self._read_to = offset + 1
