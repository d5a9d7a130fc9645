"""The committer: reads announcements, commits each table once per interval, tells everyone where the ledger is.

It keeps no state of its own. What it has settled is in the tables' snapshots; where to go on reading is in the
ledger topic; and reading too much again is harmless, because the ledger recognises what it already holds.
"""

import logging
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait

from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import Catalog

from headgate.config.pipeline import Pipeline
from headgate.config.table import REJECTED_SUFFIX, SKIPPED_SUFFIX
from headgate.errors import HeadgateError, KafkaUnavailable, LakeError, Outdated
from headgate.failpoints import reach
from headgate.kafka.channel import Received, Tail
from headgate.kafka.internal_topics import Topics
from headgate.kafka.offsets import GroupMirror, Mirror, beginning_offsets, end_offsets, partitions_where, topic_ids
from headgate.lake.beside import Beside
from headgate.lake.catalogs import is_shared_by_threads, open_catalog
from headgate.lake.commit import CommitResult, TableCommitter
from headgate.lake.commit_report import show_problems, show_settled, show_start, show_waiting
from headgate.lake.maintenance import expire_snapshots, snapshots_to_keep
from headgate.lake.table_state import SLOW_S, TableState
from headgate.lake.telling import Telling
from headgate.lake.turns import Turns
from headgate.lake.words import LastWords, last_words
from headgate.model import Announcement, TopicPartition

log = logging.getLogger(__name__)

_IDLE_S = 1.0
"""Longest wait for announcements: heartbeats and new partitions have their turn as well."""
_POLL_S = 0.1
_EXPIRE_EVERY = 25
_MOST_PENDING = 5_000
_MOST_AT_ONCE = 8
"""Tables that are committed to side by side: commits mostly wait, for a catalog or an object store."""
_PATIENCE_S = 1.0
"""How long a turn waits for a slow table before it goes on with the others."""
_FIRST_LOOK_S = 10.0
_LAST_PATIENCE_S = 15.0
"""For each of the last turns."""
_MIRROR_REST_S = 10.0
"""After the group's offsets could not be written. They are a mirror, and nothing waits for them."""


class Committer:
    def __init__(
        self,
        pipeline: Pipeline,
        settings: Mapping[str, str],
        catalog: Catalog | None = None,
        name: str | None = None,
        turns: Turns | None = None,
        mirror: Mirror | None = None,
    ) -> None:
        """`turns` are shared with upkeep in the same process. `mirror` takes the place of the pipeline's group."""
        self._turns = turns or Turns()
        self.name = name or f"committer-{uuid.uuid4().hex[:8]}"
        self._pipeline = pipeline
        self._topics = Topics(pipeline.name)
        self._settings: dict[str, str | int | float | bool] = dict(settings)
        self._admin = AdminClient(self._settings)
        self._telling = Telling(pipeline, self._settings, self.name)
        self._beside = Beside(_MOST_AT_ONCE, "commit")
        self._catalog = catalog
        self._tables: dict[str, TableState] = {}
        self._tail: Tail | None = None
        self._earlier: LastWords | None = None
        self._discovered_at = 0.0
        self._topic_ids: dict[str, str] = {}
        self._group: Mirror = mirror or GroupMirror(self._settings, pipeline.group)
        self._mirrored: dict[TopicPartition, int] = {}
        self._mirror_rests_until = 0.0

    def run(self, stop: threading.Event) -> None:
        """Until `stop`; then commits what is announced by then. Kafka or catalog failing is waited out."""
        for table in self._pipeline.tables:
            show_start(table.name)
        delay_s = 0.0
        while not stop.wait(delay_s):
            try:
                self._await_announcements(stop)
                began = time.monotonic()
                self.turn(_PATIENCE_S)
                delay_s = max(0.0, self._pipeline.lake.commit_interval_s - (time.monotonic() - began))
            except Outdated:
                raise
            except HeadgateError as error:
                log.warning("committer: %s", error)
                delay_s = min(10.0, max(1.0, 2 * delay_s))
            except Exception:
                log.exception("committer: unexpected failure, trying again")
                delay_s = min(10.0, max(1.0, 2 * delay_s))
        self._last_turns()

    def _await_announcements(self, stop: threading.Event) -> None:
        """What comes after a quiet interval need not wait for the end of the next."""
        until = time.monotonic() + _IDLE_S
        while self._tail is not None and not stop.is_set() and time.monotonic() < until:
            if any(state.pending for state in self._tables.values()):
                return
            self._take(self._tail.poll(_POLL_S))

    def _last_turns(self) -> None:
        """Everything announced before the stop is committed, so that a clean stop leaves no work to repeat."""
        self._mirror_rests_until = 0.0
        for state in self._tables.values():
            state.rests_until = 0.0  # there is no later
        try:
            for _ in range(3):
                self.turn(_LAST_PATIENCE_S)
                if not any(state.waiting for state in self._tables.values()):
                    break
            else:
                log.warning("committer stopped with announcements left for its successor")
        except HeadgateError as error:
            log.warning("committer stopped with announcements left for its successor: %s", error)
        finally:
            self._group.close()
            if self._tail is not None:
                self._tail.close()

    def turn(self, patience_s: float = 30.0) -> None:
        """One commit interval: take in announcements, commit every table that has some, publish, mirror. A table that
        fails rests for a while; one that takes longer than `patience_s` goes on beside the next turns."""
        self._open()
        self._discover()
        tail = self._follow()
        while self._has_room() and (batch := tail.poll(0.0)):
            self._take(batch)
        # Asked after the announcements came in: what was read of a topic made anew before is then known to be.
        named = {read.partition.topic for s in self._tables.values() for a in s.pending for read in a.ranges}
        ids = topic_ids(self._admin, named, deadline_s=5)
        self._topic_ids = {**self._topic_ids, **ids.known}  # a new one: commits under way read the old one
        settled_to = tail.next[self._topics.announcements, 0]
        for state in self._tables.values():
            if state.is_due(time.monotonic()) and not state.names_any(ids.unanswered):
                self._begin(state, settled_to)
        self._settle_within(patience_s)
        self._mirror()

    def _begin(self, state: TableState, settled_to: int) -> None:
        if state.pending:
            show_waiting(state.name)
        state.begins(self._beside.submit(self._attempt, state, tuple(state.pending)), settled_to)

    def _settle_within(self, patience_s: float) -> None:
        """Tells how commits went as they end; each is waited for until so long after it began."""
        until = time.monotonic() + patience_s
        expiries: list[Future[None]] = []
        unheard: KafkaUnavailable | None = None
        while True:
            for state in self._tables.values():
                if state.under_way is None or not state.under_way.result.done():
                    continue
                try:
                    if self._settle(state):
                        expiries.append(self._beside.submit(self._expire, state))
                except KafkaUnavailable as error:  # the others' commits have landed, too
                    unheard = error
                    state.published_at = 0.0
            running = [state.under_way for state in self._tables.values() if state.under_way is not None]
            left_s = max((commit.began_s for commit in running), default=0.0) + patience_s - time.monotonic()
            if left_s <= 0:
                break
            wait([commit.result for commit in running], left_s, FIRST_COMPLETED)
        wait(expiries, max(0.0, until - time.monotonic()))
        self._complain_of_slow_ones()
        if unheard is not None:
            raise unheard

    def _complain_of_slow_ones(self) -> None:
        for state in self._tables.values():
            if (age_s := state.commit_age_s) > SLOW_S:
                slow = f"a commit has been under way for {age_s:.0f} s: the catalog or the warehouse does not answer"
                self._telling.complaint(state, slow, self._words().said.get(state.name))

    def _open(self) -> None:
        """Not in the constructor: a catalog that is down when the committer starts is waited for, as later on."""
        if self._tables:
            return
        lake = self._pipeline.lake
        try:
            given = self._catalog
            shared = given or open_catalog(lake)
            own = given is None and not is_shared_by_threads(shared)
            catalogs = {t.name: open_catalog(lake) if own else shared for t in self._pipeline.tables}
        except LakeError:
            for table in self._pipeline.tables:
                show_problems(table.name, 1)
            raise
        self._tables = {
            t.name: TableState(TableCommitter(catalogs[t.name], lake, t), catalogs[t.name])
            for t in self._pipeline.tables
        }

    def _has_room(self) -> bool:
        return sum(state.waiting for state in self._tables.values() if not state.is_stuck) < _MOST_PENDING

    def _take(self, batch: Iterable[Received]) -> None:
        for received in batch:
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

    def _follow(self) -> Tail:
        """The announcements, from where the tables' ledgers are settled. A new table has none before the others'."""
        if self._tail is None:
            said, place = self._words().said, TopicPartition(self._topics.announcements, 0)
            end = end_offsets(self._admin, {place}, read_committed=False).get(place)
            if end is None:
                raise KafkaUnavailable(f"no end offset of {place.topic} yet, which may be without a leader")
            # Beyond the end it is another topic's: this one was made anew.
            settled = {
                name: words.announcements_next for name, words in said.items() if words.announcements_next <= end
            }
            start = min(settled.values(), default=0) if len(settled) == len(said) else 0
            for name, state in self._tables.items():
                state.settled_to = settled.get(name, start)
            tail = Tail(self._settings, {(place.topic, place.partition): start})
            try:
                for page in tail.pages_to_end():
                    self._take(page)
                    if not self._has_room():  # the rest is read in later turns
                        break
            except HeadgateError:
                tail.close()
                for state in self._tables.values():
                    state.pending.clear()
                raise
            self._tail = tail
        return self._tail

    def _words(self) -> LastWords:
        """What committers before this one said last."""
        if self._earlier is None:
            self._earlier = last_words(self._pipeline, self._settings)
        return self._earlier

    def _discover(self) -> None:
        """New topics and partitions: they begin at the beginning, unless the whole table is new (start_from)."""
        if time.monotonic() - self._discovered_at < self._pipeline.controller.discover_s and self._discovered_at:
            return
        everything = partitions_where(self._admin, self._pipeline.matches)
        ids = topic_ids(self._admin, {p.topic for p in everything})
        self._topic_ids = {**self._topic_ids, **ids.known}
        self._words()  # before threads ask for them
        for state in self._tables.values():
            if state.last is None and state.first_look is None and state.under_way is None:
                state.first_look = self._beside.submit(self._attempt, state, ())
        until = time.monotonic() + _FIRST_LOOK_S
        for table in self._pipeline.tables:
            state = self._tables[table.name]
            try:
                self._look(state, until)
                self._place(state, {p for p in everything if table.matches(p.topic)})
            except (LakeError, KafkaUnavailable) as error:  # one table's trouble does not stop the others
                log.warning("%s: new partitions wait: %s", table.name, error)
        self._discovered_at = time.monotonic()

    def _look(self, state: TableState, until_s: float) -> None:
        """The ledger as it is when this committer begins."""
        if state.first_look is None:
            return
        try:
            state.last = state.first_look.result(max(0.0, until_s - time.monotonic()))
        except TimeoutError as error:
            raise LakeError("the catalog or the warehouse does not answer") from error
        finally:
            if state.first_look.done():
                state.first_look = None

    def _place(self, state: TableState, partitions: set[TopicPartition]) -> None:
        """Where partitions begin that the ledger does not know."""
        if state.last is None:
            return  # not while its first commit is under way
        new_table = not state.placed and not state.last.ledger.next
        if new_table and (said := self._words().said.get(state.name)):
            # An earlier committer placed them and consumers may have read from there: its word stands.
            state.partitions = {**state.partitions, **said.following}
        new = partitions - state.last.ledger.next.keys() - state.partitions.keys()
        if new:
            if new_table and not state.partitions and self._pipeline.start_from == "latest":
                origins = end_offsets(
                    self._admin, new, read_committed=self._pipeline.kafka.isolation == "read_committed"
                )
                if missing := new - origins.keys():
                    raise KafkaUnavailable(f"no end offset of {len(missing)} partitions yet")
            else:  # it came up while we were looking, so all of it is new
                origins = beginning_offsets(self._admin, new)
            state.partitions = {**state.partitions, **origins}
            state.published_at = 0.0
        state.placed = True

    def _settle(self, state: TableState) -> bool:
        """Tells how a commit went; whether it is time to expire snapshots."""
        done = state.ends()
        try:
            result = done.result.result()
        except LakeError as error:  # one table's trouble does not stop the others
            log.warning("committer: %s", error)
            state.failed(done)
            self._telling.complaint(state, str(error), self._words().said.get(state.name))
            return False
        state.failures = 0
        state.last = result
        state.settled_to = done.settled_to
        state.commits += bool(result.committed)
        self._telling.result(state, result)
        show_settled(state.name)
        often = max(1, min(_EXPIRE_EVERY, snapshots_to_keep(self._pipeline.lake, result.ledger) // 2))
        return bool(result.committed) and state.is_time_to_expire(often)

    def _expire(self, state: TableState) -> None:
        """Upkeep must never cost a commit."""
        with self._turns.of(state.name):
            for suffix in ("", REJECTED_SUFFIX, SKIPPED_SUFFIX):
                try:
                    expire_snapshots(state.catalog, state.name + suffix, self._pipeline.lake)
                except Exception:  # catalogs fail in ways of their own
                    log.exception("expiry of %s%s failed; it is tried again later", state.name, suffix)

    def _attempt(self, state: TableState, pending: Sequence[Announcement]) -> CommitResult:
        """Catalogs and file systems fail in ways of their own; here they become one."""
        existed = state.last.exists if state.last is not None else self._words().existed(state.name)
        try:
            with self._turns.of(state.name):
                return state.committer.commit(pending, state.partitions, self._topic_ids, existed)
        except LakeError:
            raise
        except Exception as error:
            log.debug("commit to %s", state.name, exc_info=True)
            raise LakeError(f"cannot commit to {state.name}: {error!r}; trying again") from error

    def _mirror(self) -> None:
        """The group's offsets in Kafka follow the lake; with several tables per topic, the slowest one counts."""
        positions: dict[TopicPartition, int] = {}
        for state in self._tables.values():
            if state.last is None or not state.last.exists:
                continue
            for partition, following in state.last.ledger.next.items():
                if partition.topic not in state.last.made_anew:
                    positions[partition] = min(following, positions.get(partition, following))
        changed = {p: at for p, at in positions.items() if self._mirrored.get(p) != at}
        if not changed or time.monotonic() < self._mirror_rests_until:
            return
        try:
            self._group.write(changed)
            self._mirrored.update(changed)
            reach("commit.mirrored")
        except KafkaUnavailable as error:
            self._mirror_rests_until = time.monotonic() + _MIRROR_REST_S
            log.warning("%s; tried again in %g s", error, _MIRROR_REST_S)
