"""The committer: reads announcements, commits each table once per interval, tells everyone where the ledger is.

It keeps no state of its own. What it has settled is in the tables' snapshots; where to go on reading is in the
ledger topic; and reading too much again is harmless, because the ledger recognises what it already holds.
"""

import logging
import math
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait

from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import Catalog

from headgate.config.pipeline import Pipeline
from headgate.config.table import REJECTED_SUFFIX, SKIPPED_SUFFIX
from headgate.errors import HeadgateError, KafkaUnavailable, LakeError, Outdated
from headgate.failpoints import reach
from headgate.kafka.internal_topics import Topics
from headgate.kafka.offsets import GroupMirror, Mirror, topic_ids
from headgate.lake.beside import Beside
from headgate.lake.catalogs import is_shared_by_threads, open_catalog
from headgate.lake.commit import CommitResult, TableCommitter
from headgate.lake.commit_report import show_problems, show_settled, show_start, show_waiting
from headgate.lake.intake import Intake
from headgate.lake.maintenance import expire_snapshots, snapshots_to_keep
from headgate.lake.pacing import Pacing
from headgate.lake.placing import Placing
from headgate.lake.table_state import SLOW_S, TableState
from headgate.lake.telling import Telling
from headgate.lake.turns import Turns
from headgate.lake.words import LastWords, last_words
from headgate.model import Announcement, TopicPartition

log = logging.getLogger(__name__)

_POLL_S, _CLOSELY_S = 0.1, 0.02
"""How long to wait for announcements before something else is looked at; the shorter while commits are under way."""
_EXPIRE_EVERY = 25
_MOST_AT_ONCE = 8
"""Tables that are committed to side by side: commits mostly wait, for a catalog or an object store."""
_PATIENCE_S = 1.0
"""How long a turn waits for a slow table before it goes on with the others."""
_LAST_PATIENCE_S = 15.0
"""For each of the last turns."""
_MIRROR_REST_S = 10.0
"""After the group's offsets could not be written."""
_LAST_MIRROR_S = 5.0
_MIRROR_SHARE = 0.2
"""Of a turn's patience, what it has for the group's offsets. They are a mirror, and nothing else waits for them."""


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
        self._settings: dict[str, str | int | float | bool] = dict(settings)
        self._admin = AdminClient(self._settings)
        self._telling = Telling(pipeline, self._settings, self.name)
        self._beside = Beside(_MOST_AT_ONCE, "commit")
        self._catalog = catalog
        self._tables: dict[str, TableState] = {}
        self._intake = Intake(Topics(pipeline.name).announcements, self._settings, self._admin, self._tables)
        self._placing = Placing(pipeline, self._admin)
        self._pacing = Pacing()
        self._earlier: LastWords | None = None
        self._topic_ids: dict[str, str] = {}
        self._group: Mirror = mirror or GroupMirror(self._settings, pipeline.group)
        self._mirrored: dict[TopicPartition, int] = {}
        self._to_mirror: dict[TopicPartition, int] = {}
        """The group was asked to take these."""
        self._mirror_rests_until = 0.0

    def run(self, stop: threading.Event) -> None:
        """Until `stop`; then commits what is announced by then. Kafka or catalog failing is waited out."""
        for table in self._pipeline.tables:
            show_start(table.name)
        delay_s = 0.0
        while not stop.wait(delay_s):
            try:
                self._await_work(stop)
                self.turn(_PATIENCE_S, self._pipeline.lake.commit_interval_s)
                delay_s = 0.0
            except Outdated:
                raise
            except HeadgateError as error:
                log.warning("committer: %s", error)
                delay_s = min(10.0, max(1.0, 2 * delay_s))
            except Exception:
                log.exception("committer: unexpected failure, trying again")
                delay_s = min(10.0, max(1.0, 2 * delay_s))
        self._last_turns()

    def _await_work(self, stop: threading.Event) -> None:
        """Until it is time for the next turn. A commit that outlasted its turn is told as soon as it ends."""
        every_s, tables = self._pipeline.lake.commit_interval_s, self._tables.values()
        while self._intake.is_open and not stop.is_set():
            self._settle_done()
            left_s = self._pacing.next_turn_s(tables, every_s) - time.monotonic()
            if left_s <= 0:
                return
            under_way = any(state.under_way is not None for state in tables)
            self._intake.take(min(left_s, _CLOSELY_S if under_way else _POLL_S))

    def _last_turns(self) -> None:
        """Everything announced before the stop is committed, so that a clean stop leaves no work to repeat."""
        self._mirror_rests_until = 0.0
        try:
            for _ in range(3):
                for state in self._tables.values():
                    state.rests_until = state.held_until = 0.0  # there is no later
                self.turn(_LAST_PATIENCE_S)
                if not any(state.waiting for state in self._tables.values()):
                    break
            else:
                log.warning("committer stopped with announcements left for its successor")
            self._mirror(_LAST_MIRROR_S)
        except HeadgateError as error:
            log.warning("committer stopped with announcements left for its successor: %s", error)
        finally:
            self._group.close()
            self._intake.close()

    def turn(self, patience_s: float = 30.0, every_s: float = 0.0) -> None:
        """Takes in announcements, commits every table that has some, publishes, mirrors. A table that fails rests for a
        while; one that takes longer than `patience_s` goes on beside the next turns. `every_s` lies between two commits
        to a table at least."""
        self._pacing.begin_turn(time.monotonic())
        self._open()
        self._settle_done()
        self._topic_ids = {**self._topic_ids, **self._placing.discover()}  # a new one: commits under way read the old
        said = self._words().said
        self._look(patience_s)
        for state in self._tables.values():
            self._placing.place(state, said.get(state.name))
        self._intake.open(said)
        self._intake.take()
        self._begin(every_s)
        self._settle_within(patience_s)
        self._complain_of_slow_ones()
        self._mirror(_MIRROR_SHARE * patience_s)

    def _look(self, patience_s: float) -> None:
        """The ledgers as they are when this committer begins."""
        unseen = [state for state in self._tables.values() if state.may_look(time.monotonic())]
        for state in unseen:
            state.looks(self._beside.submit(self._attempt, state, ()))
        if unseen:
            self._settle_within(patience_s)

    def _begin(self, every_s: float) -> None:
        now_s, due = self._pacing.turn_s, self._pacing.due(self._tables.values(), every_s)
        # Asked after the announcements came in: what was read of a topic made anew before is then known to be.
        ids = topic_ids(self._admin, {r.partition.topic for s in due for a in s.pending for r in a.ranges}, 5)
        self._topic_ids = {**self._topic_ids, **ids.known}
        ready = {state.name: state.hold_back(ids.unanswered) for state in due}
        for state in self._tables.values():
            if state.pending and state.name in ready:  # others only wait for their interval
                show_waiting(state.name)
            if ready.get(state.name) or state.is_heartbeat_due(now_s):
                some = ready.get(state.name, ())
                state.begins(self._beside.submit(self._attempt, state, some), some, self._intake.next, now_s)

    def _settle_within(self, patience_s: float) -> None:
        """Tells how commits went as they end; each is waited for until so long after it began."""
        until_s = time.monotonic() + patience_s
        expiries: list[Future[None]] = []
        while True:
            expiries += self._settle_done()
            running = [state.under_way for state in self._tables.values() if state.under_way is not None]
            left_s = max((one.began_s for one in running), default=-math.inf) + patience_s - time.monotonic()
            if left_s <= 0:
                break
            wait([one.result for one in running], left_s, FIRST_COMPLETED)
        wait(expiries, max(0.0, until_s - time.monotonic()))

    def _settle_done(self) -> list[Future[None]]:
        """Returns the expiries that begin with it."""
        unheard: KafkaUnavailable | None = None
        expiries = []
        for state in self._tables.values():
            if state.is_done:
                try:
                    if self._settle(state):
                        expiries.append(self._beside.submit(self._expire, state))
                except KafkaUnavailable as error:  # the others' commits have landed, too
                    unheard = error
                    state.published_at = -math.inf
        if unheard is not None:
            raise unheard
        return expiries

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
        for table in self._pipeline.tables:
            catalog = catalogs[table.name]
            self._tables[table.name] = TableState(TableCommitter(catalog, lake, table), catalog)

    def _words(self) -> LastWords:
        """What committers before this one said last."""
        if self._earlier is None:
            self._earlier = last_words(self._pipeline, self._settings)
        return self._earlier

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
        if done.is_look:
            return False
        state.settled_to = done.settled_to
        state.commits += bool(result.committed)
        self._telling.result(state, result)
        if not state.held:
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

    def _mirror(self, patience_s: float) -> None:
        """The group's offsets in Kafka follow the lake."""
        try:
            while self._to_mirror or self._ask_group():
                if not self._group.is_written(patience_s):
                    return
                self._mirrored |= self._to_mirror
                self._to_mirror = {}
                reach("commit.mirrored")
        except KafkaUnavailable as error:
            self._to_mirror = {}
            self._mirror_rests_until = time.monotonic() + _MIRROR_REST_S
            log.warning("%s; tried again in %g s", error, _MIRROR_REST_S)

    def _ask_group(self) -> bool:
        """Whether there was anything to ask. With several tables per topic, the slowest one counts."""
        positions: dict[TopicPartition, int] = {}
        for state in self._tables.values():
            if state.last is None or not state.last.exists:
                continue
            for partition, following in state.last.ledger.next.items():
                if partition.topic not in state.last.made_anew:
                    positions[partition] = min(following, positions.get(partition, following))
        changed = {p: at for p, at in positions.items() if self._mirrored.get(p) != at}
        if not changed or time.monotonic() < self._mirror_rests_until:
            return False
        self._group.ask(changed)
        self._to_mirror = changed
        return True
