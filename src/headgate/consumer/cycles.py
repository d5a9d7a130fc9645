"""A consumer's cycles (L-13 to L-17): gather, Spark, announce. Two may be under way while whole batches wait.

Their order is what makes it safe: files are complete before they are announced, and cycles are announced in the order
in which they read.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from headgate.config.clients import librdkafka_settings
from headgate.config.pipeline import Pipeline
from headgate.consumer.accounts import Accounts, Times
from headgate.consumer.files import Warehouse
from headgate.consumer.job import JobResult, TableJob
from headgate.consumer.pace import Patience
from headgate.consumer.positions import Positions
from headgate.consumer.waiting import Batch, Look, Waiting
from headgate.errors import ConfigError, ConsumerError, HeadgateError, SparkLost, Superseded
from headgate.failpoints import reach
from headgate.kafka.channel import Outbox
from headgate.kafka.internal_topics import Topics
from headgate.model import Announcement, CycleStats, Range, Skip, TopicPartition
from headgate.model.messages import BytesPerRecord, CycleRecord

log = logging.getLogger(__name__)

_POLL_S = 0.1
_FAILED_WAIT_S = 5.0
_REFUSED_WAIT_S = 60.0
"""Longest waits before trying again; a refused announcement leaves files behind, so it is not repeated often."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """A cycle under way."""

    number: int
    stem: str
    batch: Batch
    began_s: float
    gathered_s: float
    began_at_ms: int
    """Before any of its files."""
    running: dict[str, Future[JobResult]]
    """The Spark work of each table."""


class Cycles:
    """`listen` waits for a message for so many seconds and obeys commands, `guard` raises if this life is over."""

    def __init__(
        self,
        pipeline: Pipeline,
        consumer_id: int,
        incarnation: str,
        spark: SparkSession,
        positions: Positions,
        outbox: Outbox,
        listen: Callable[[float], None],
        guard: Callable[[], None],
    ) -> None:
        self.id = consumer_id
        self.incarnation = incarnation
        self.number = 0
        self.called = False
        """A command waits until nothing is under way any more; so nothing more is begun."""
        self.accounts = Accounts(pipeline, consumer_id)
        self._pipeline = pipeline
        self._mine: dict[str, tuple[TopicPartition, ...]] = {}
        """Of the owned partitions, those that each table takes."""
        self.owned = frozenset()
        self._settings = pipeline.consumer
        self._topics = Topics(pipeline.name)
        self._positions = positions
        self._outbox = outbox
        self._listen = listen
        self._guard = guard
        self._patience = Patience()
        self._waiting = Waiting(pipeline, AdminClient(dict(librdkafka_settings(pipeline))))
        self._warehouse = Warehouse(pipeline.lake)
        self._jobs = {t.name: TableJob(spark, pipeline, t, self._warehouse) for t in pipeline.tables}
        self._under_way: deque[Cycle] = deque()
        """Oldest first."""
        self._done_s = 0.0
        """When the last cycle was announced."""
        self._stumbled = False
        """A cycle came to nothing, so those begun behind it will, too; nothing more is begun until they are gone."""
        self._error = ""
        self._failures = 0
        threads = self._most_under_way * len(self._jobs)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"consumer-{self.id}")

    def warm_up(self) -> None:
        for job in self._jobs.values():
            job.warm_up(f"warm-up-{self.incarnation}")

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._owned

    @owned.setter
    def owned(self, partitions: frozenset[TopicPartition]) -> None:
        topics = {p.topic for p in partitions}
        for table in self._pipeline.tables:
            matching = set(filter(table.matches, topics))
            self._mine[table.name] = tuple(p for p in partitions if p.topic in matching)
        self._owned = partitions

    @property
    def are_under_way(self) -> bool:
        return bool(self._under_way)

    @property
    def errors(self) -> str:
        """Everything that is wrong right now, for a person to read."""
        return "; ".join(filter(None, (self._error, *self._patience.errors, *self._waiting.unreadable.values())))

    def turn(self, stop: threading.Event, kill: threading.Event) -> None:
        """Begins a cycle or finishes the oldest one; an error in it costs cycles, never the consumer's life."""
        try:
            self._guard()
            self._listen(0.0)
            begun = self._may_begin(stop) and self._begin(stop, kill)
            if not begun and self._under_way:
                self._finish()
                self._error, self._failures = "", 0
        except (Superseded, ConfigError, SparkLost):
            raise
        except HeadgateError as error:
            self._failures += 1
            self._error = str(error)
            self.accounts.failed()
            log.warning("consumer %d, cycle %d: %s", self.id, self.number, error)
            self._drop_all()
            stop.wait(min(_FAILED_WAIT_S, 0.2 * 2 ** min(self._failures, 10)))

    def settled(self, outcomes: dict[str, str]) -> None:
        """Tables that heard from the committer: why they start again at the ledger, or empty if all is well."""
        for table, refusal in outcomes.items():
            if refusal:
                self._patience.failed(table, refusal, _REFUSED_WAIT_S)
            else:
                self._patience.fine(table)

    def close(self) -> None:
        self._pool.shutdown()
        self.accounts.forget()

    # Beginning and finishing

    @property
    def _most_under_way(self) -> int:
        one = self._settings.rate_cap_bytes_per_s is not None or any(j.one_at_a_time for j in self._jobs.values())
        return 1 if one else self._settings.cycles_at_once

    def _may_begin(self, stop: threading.Event) -> bool:
        """One cycle at a time, and one more beside it while a whole batch waits: what of a cycle is not work of Spark's
        cores is then done beside that of another."""
        if not self._under_way:
            self._stumbled = False
            return not stop.is_set()
        enough = len(self._under_way) >= self._most_under_way or self.called or self._stumbled or stop.is_set()
        return not enough and self._under_way[-1].batch.full_again

    def _begin(self, stop: threading.Event, kill: threading.Event) -> bool:
        began_s = time.monotonic()
        self._give_up_on_lost_announcements(began_s)
        self._announce_missing_tables()
        look = self._gather(stop, kill)
        if kill.is_set() or (self._under_way and not self._waiting.is_full(look)):
            return False
        batch = self._waiting.choose(look, self.number)
        reach("cycle.gathered")
        self.number += 1
        stem = f"{self.id:05d}-{self.incarnation}-{self.number:08d}"
        running, began_at_ms = {}, _now_ms()
        for table, ranges in batch.ranges.items():
            running[table] = self._pool.submit(self._jobs[table].run, ranges, stem)
            self._positions.taken(table, ranges)
        self._under_way.append(Cycle(self.number, stem, batch, began_s, time.monotonic(), began_at_ms, running))
        return True

    def _finish(self) -> None:
        """Waits for the oldest cycle and announces it."""
        cycle = self._under_way[0]
        results = self._results(cycle)
        processed_s = time.monotonic()
        if results:
            reach("cycle.files-written")
        self._guard()
        self._under_way.popleft()  # from here on its files may be in the lake
        # What it shared with the cycle before it was counted there.
        gather_s = min(cycle.batch.asked_s, max(0.0, cycle.gathered_s - self._done_s))
        process_s = processed_s - max(cycle.gathered_s, self._done_s)
        results = self._announce(cycle, results, gather_s, process_s)
        announced_s = time.monotonic()
        total_s = announced_s - max(cycle.began_s, self._done_s)
        self._done_s = announced_s
        self._account(cycle, results, Times(gather_s, process_s, announced_s - processed_s, total_s))

    def _results(self, cycle: Cycle) -> dict[str, JobResult]:
        results: dict[str, JobResult] = {}
        for table, future in cycle.running.items():
            try:
                results[table] = future.result()
            except ConsumerError as error:
                if isinstance(error, SparkLost):
                    raise
                self._put_back(table)
                self._patience.failed(table, str(error), _FAILED_WAIT_S)
                self.accounts.failed()
                log.warning("consumer %d, cycle %d: %s", self.id, cycle.number, error)
        return results

    def _drop_all(self) -> None:
        """Nothing of the cycles under way was announced; their files are in nobody's way, and go."""
        while self._under_way:
            for table, future in self._under_way.popleft().running.items():
                error = future.exception()
                if error is None:
                    self._drop(table, future.result())
                elif isinstance(error, HeadgateError):
                    self._put_back(table)
                else:
                    raise error

    def _put_back(self, table: str) -> None:
        self._positions.put_back(table)
        self._stumbled = True

    def _drop(self, table: str, result: JobResult) -> None:
        self._put_back(table)
        self._warehouse.remove((*result.files, *result.rejected_files))

    def _give_up_on_lost_announcements(self, now_s: float) -> None:
        for table in self._pipeline.tables:
            oldest_s = self._positions.oldest_unsettled_s(table.name)
            if oldest_s is not None and now_s - oldest_s > self._pipeline.verdict_deadline_s:
                silence = f"no verdict for {now_s - oldest_s:.0f} s; is the committer running?"
                log.warning("consumer %d: %s: %s", self.id, table.name, silence)
                self._patience.failed(table.name, silence, _FAILED_WAIT_S)
                self._positions.give_up_waiting(table.name)
            for partition in self._positions.start_again(table.name, now_s, self._pipeline.verdict_deadline_s):
                log.warning("consumer %d: %s starts again at the ledger for %s", self.id, partition, table.name)

    def _announce_missing_tables(self) -> None:
        """A table that does not exist yet is announced empty, so that it is there before its first record."""
        for table in self._pipeline.tables:
            mine = bool(self._mine[table.name])
            quiet = self._positions.unsettled(table.name) < self._patience.in_flight(table.name, 1)
            if mine and quiet and self._positions.exists(table.name) is False:
                stem = f"{self.id:05d}-{self.incarnation}-schema"
                schema_only = self._announcement(table.name, self.number, stem, _now_ms(), (), ())
                self._positions.announced(schema_only, time.monotonic())
                self._outbox.send(self._topics.announcements, schema_only)

    def _gather(self, stop: threading.Event, kill: threading.Event) -> Look:
        """L-14: until `batch_bytes` are there or `wait_s` have passed. Listens meanwhile, so commands never wait."""
        until = time.monotonic() + self._settings.wait_s
        while True:
            look = self._waiting.look(self._reading(), self.owned)
            late = time.monotonic() >= until or self._under_way
            if late or self._waiting.is_full(look) or stop.is_set() or kill.is_set():
                return look
            self._listen(min(_POLL_S, max(0.0, until - time.monotonic())))

    def _reading(self) -> dict[str, dict[TopicPartition, int]]:
        """Where each table goes on in the owned partitions; tables that are as far ahead as they may be wait."""
        reading = {}
        for table in self._pipeline.tables:
            ahead = self._positions.unsettled(table.name) + sum(table.name in c.running for c in self._under_way)
            if ahead < self._patience.in_flight(table.name, self._settings.max_uncommitted_cycles):
                reading[table.name] = self._positions.reading(table.name, self._mine[table.name])
        return reading

    def _announce(
        self, cycle: Cycle, results: dict[str, JobResult], gather_s: float, process_s: float
    ) -> dict[str, JobResult]:
        """Tells the committer, in the order of the cycles; gives what was told. What does not go on where the last
        announcement ended is read again: a cycle before it failed, was cut short, or was refused."""
        told = {}
        skips = cycle.batch.skips
        for table in skips.keys() - cycle.running.keys():
            results = {**results, table: JobResult((), (), (), (), CycleStats())}
        for table, result in results.items():
            ranges, all_skips = _joined(result.ranges, skips.get(table, []))
            if not self._positions.fits(table, ranges):
                self._drop(table, result)
                continue
            stats = replace(result.stats, gather_s=gather_s, process_s=process_s)
            announcement = self._announcement(
                table,
                cycle.number,
                cycle.stem,
                cycle.began_at_ms,
                ranges,
                result.files,
                result.rejected_files,
                (*all_skips, *result.skips),
                stats,
            )
            self._positions.announced(announcement, time.monotonic())
            self._outbox.send(self._topics.announcements, announcement)
            told[table] = result
            if list(result.ranges) != cycle.batch.ranges.get(table, []):  # cut short: the rest is read again
                self._put_back(table)
        self._outbox.flush()
        if told:
            reach("cycle.announced")
        return told

    def _announcement(
        self,
        table: str,
        number: int,
        stem: str,
        began_at_ms: int,
        ranges: tuple[Range, ...],
        files: tuple[str, ...],
        rejected_files: tuple[str, ...] = (),
        skips: tuple[Skip, ...] = (),
        stats: CycleStats | None = None,
    ) -> Announcement:
        return Announcement(
            id=stem,
            table=table,
            consumer_id=self.id,
            incarnation=self.incarnation,
            cycle=number,
            ranges=ranges,
            files=files,
            rejected_files=rejected_files,
            skips=skips,
            schema=self._jobs[table].schema,
            began_at_ms=began_at_ms,
            announced_at_ms=_now_ms(),
            stats=stats or CycleStats(),
        )

    def _account(self, cycle: Cycle, results: dict[str, JobResult], times: Times) -> None:
        payload_bytes = sum(r.stats.payload_bytes for r in results.values())
        sizes = {p: size for r in results.values() for p, size in r.sizes.items()}
        self._waiting.took(payload_bytes, sizes)
        self.accounts.done(results, times, cycle.batch.peak, cycle.batch.left_records)
        if not results:
            return
        record = CycleRecord(
            consumer_id=self.id,
            incarnation=self.incarnation,
            cycle=cycle.number,
            at_ms=_now_ms(),
            partitions=len(self.owned),
            tables=len(results),
            records=sum(r.stats.records for r in results.values()),
            rows=sum(r.stats.rows for r in results.values()),
            payload_bytes=payload_bytes,
            gather_s=times.gather_s,
            process_s=times.process_s,
            announce_s=times.announce_s,
            wait_s=times.wait_s,
            lag_records=cycle.batch.left_records,
            peak=cycle.batch.peak,
            sizes=tuple(BytesPerRecord(p.topic, p.partition, self._waiting.measured_size(p)) for p in sorted(sizes)),
            error=self.errors,
        )
        log.debug("consumer %d: cycle %d: %d records in %.2f s", self.id, cycle.number, record.records, times.busy_s)
        self._outbox.send(self._topics.cycles, record)


def _joined(ranges: tuple[Range, ...], skips: list[Skip]) -> tuple[tuple[Range, ...], tuple[Skip, ...]]:
    """Ranges that begin where the ledger is: what retention took is part of the range, and named as a skip."""
    starts = {skip.partition: skip.start for skip in skips}
    covered = {r.partition for r in ranges}
    extended = [Range(r.partition, starts.get(r.partition, r.start), r.end) for r in ranges]
    extended += [Range(s.partition, s.start, s.end) for s in skips if s.partition not in covered]
    return tuple(sorted(extended)), tuple(skips)


def _now_ms() -> int:
    return int(time.time() * 1000)
