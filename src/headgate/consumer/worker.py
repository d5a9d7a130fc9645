"""A consumer's life: commands, gather, Spark, announce, over and over, until it is told to stop (L-13).

The order within a cycle is what makes it safe: files are complete before they are announced, announcements are on
the brokers before a stop is acknowledged, and what it owns is on disk before it says so.
"""

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from confluent_kafka.admin import AdminClient
from prometheus_client import Counter, Gauge
from pyspark.sql import SparkSession

from headgate.config.clients import librdkafka_settings
from headgate.config.pipeline import Pipeline
from headgate.consumer.files import Warehouse
from headgate.consumer.gather import Pending, RateCap, choose_ranges
from headgate.consumer.job import JobResult, TableJob
from headgate.consumer.pace import Pace, Patience
from headgate.consumer.positions import Positions
from headgate.consumer.state import SavedState, StateFile
from headgate.errors import ConfigError, ConsumerError, HeadgateError, Outdated, SparkLost, Superseded
from headgate.failpoints import reach
from headgate.kafka.channel import BEGINNING, END, Outbox, Tail, Topics
from headgate.kafka.offsets import beginning_offsets, end_offsets
from headgate.model import Announcement, CycleStats, Range, Skip, TopicPartition
from headgate.model.messages import (
    BytesPerRecord,
    ConsumerLeft,
    ConsumerState,
    ConsumingStarted,
    ConsumingStopped,
    CycleRecord,
    LedgerState,
    StartConsuming,
    StateQuery,
    StopConsuming,
)

log = logging.getLogger(__name__)

_BYTES = Counter("headgate_consumer_bytes_total", "Payload bytes (key and value) read", ["consumer"])
_RECORDS = Counter("headgate_consumer_records_total", "Records read", ["consumer"])
_CYCLES = Counter("headgate_consumer_cycles_total", "Cycles, done or failed", ["consumer", "outcome"])
_PHASE = Gauge(
    "headgate_consumer_phase_seconds",
    "Duration of the last cycle's phases: gather, process, announce",
    ["consumer", "phase"],
)
_LAG = Gauge("headgate_consumer_lag_records", "Records of owned partitions left unread", ["consumer"])
_THROUGHPUT = Gauge(
    "headgate_consumer_throughput_bytes_per_second", "Payload bytes read per second over the last cycles", ["consumer"]
)
_CAPACITY = Gauge(
    "headgate_consumer_capacity_bytes_per_second",
    "Payload bytes per second of working time, as the consumer's full cycles measured it; 0 until one did",
    ["consumer"],
)
_BUSY = Gauge(
    "headgate_consumer_busy_ratio", "Share of the time spent working rather than waiting, 0 to 1", ["consumer"]
)

_GUESSED_BYTES_PER_RECORD = 50_000.0
"""Until the first records of a topic were read: a high guess costs one small cycle, a low one could mean gigabytes."""
_POLL_S = 0.1
_REMEMBERED_COMMANDS = 1000
_FAILED_WAIT_S = 5.0
_REFUSED_WAIT_S = 60.0
"""Longest waits before trying again; a refused announcement leaves files behind, so it is not repeated often."""


class Worker:
    """One consumer. `session` gives the Spark session: shared between threads, or this process's own."""

    def __init__(
        self, pipeline: Pipeline, consumer_id: int, session: Callable[[], SparkSession], folder: Path | None = None
    ) -> None:
        self.id = consumer_id
        self.incarnation = f"{_now_ms():013d}-{uuid.uuid4().hex[:6]}"  # later lives sort after earlier ones
        self._pipeline = pipeline
        self._settings = pipeline.consumer
        self._session = session
        self._kafka = librdkafka_settings(pipeline)
        self._topics = Topics(pipeline.name)
        self._state_file = StateFile(folder or pipeline.home / "consumers" / str(consumer_id))
        self._positions = Positions(table.name for table in pipeline.tables)
        self._pace = Pace(pipeline.policy.capacity_estimate, self._settings.rate_cap_bytes_per_s or math.inf)
        self._cap = RateCap(self._settings.rate_cap_bytes_per_s, time.monotonic())
        self._sizes: dict[TopicPartition, float] = {}
        self._owned: frozenset[TopicPartition] = frozenset()
        self._epoch = 0
        self._cycle = 0
        self._cycle_finished_ms = 0
        self._started_ms = 0
        self._cycle_error = ""
        self._failures = 0
        self._patience = Patience()
        self._unreadable: dict[TopicPartition, str] = {}
        self._obeyed: dict[str, ConsumingStarted | ConsumingStopped] = {}
        """Answers to the commands of late, by their id."""
        self._ended = threading.Event()

    # Life

    def run(self, stop: threading.Event, kill: threading.Event) -> None:
        """Until `stop` (finish the cycle, announce, release everything) or `kill` (drop everything)."""
        self._admin = AdminClient(dict(self._kafka))
        self._outbox = Outbox(self._kafka, f"consumer {self.id}")
        spark = self._session()
        warehouse = Warehouse(self._pipeline.lake)
        self._jobs = {t.name: TableJob(spark, self._pipeline, t, warehouse) for t in self._pipeline.tables}
        for job in self._jobs.values():
            job.warm_up(f"warm-up-{self.incarnation}")
        self._tail = self._resume()
        self._started_ms = self._cycle_finished_ms = _now_ms()
        heart = threading.Thread(target=self._beat, args=(kill,), name=f"heartbeat-{self.id}", daemon=True)
        reason = "stopped"
        try:
            # What was commanded meanwhile counts before the first word: partitions taken away from an earlier life
            # must not be reported as owned.
            self._listen(0.0)
            heart.start()
            with ThreadPoolExecutor(len(self._jobs), thread_name_prefix=f"consumer-{self.id}") as pool:
                while not (stop.is_set() or kill.is_set()):
                    self._turn(pool, stop, kill)
        except Outdated:
            kill.set()
            raise
        except Superseded as error:
            log.warning("consumer %d: %s", self.id, error)
            kill.set()
        except BaseException as error:
            reason = repr(error)
            raise
        finally:
            self._ended.set()
            self._forget_gauges()
            if heart.is_alive():
                heart.join(5)
            self._leave(silently=kill.is_set(), reason=reason)

    def _forget_gauges(self) -> None:
        """A consumer that is gone has no lag; counters stay, they say what was done."""
        for gauge in (_LAG, _THROUGHPUT, _CAPACITY, _BUSY, _PHASE):
            gauge.remove_by_labels({"consumer": str(self.id)})

    def _resume(self) -> Tail:
        """Picks up where this id left off: its partitions and its place among the commands (L-20)."""
        saved = self._state_file.load()
        offset = END
        if saved is not None:
            self._owned, self._epoch = saved.partitions, saved.epoch
            offset = END if saved.control_offset is None else saved.control_offset
        tail = Tail(self._kafka, {(self._topics.control, self.id): offset, (self._topics.ledger, 0): BEGINNING})
        self._control_offset = tail.next[self._topics.control, self.id]
        self._persist(self._owned)
        backlog = tail.read_to_end(newest_of=self._topics.ledger)
        for received in backlog:
            if isinstance(received.message, LedgerState):
                self._positions.on_ledger(received.message, self.incarnation)
        self._backlog = [r for r in backlog if r.topic == self._topics.control]
        return tail

    def _leave(self, silently: bool, reason: str) -> None:
        self._tail.close()
        if silently:
            return
        try:
            self._guard()
            self._persist(frozenset())
            self._outbox.send(self._topics.control, ConsumerLeft(self.id, self.incarnation, _now_ms(), reason))
            self._outbox.flush(10)
        except HeadgateError as error:
            log.warning("consumer %d left without saying so: %s", self.id, error)

    def _turn(self, pool: ThreadPoolExecutor, stop: threading.Event, kill: threading.Event) -> None:
        """One cycle; an error in it costs this cycle's work, never the consumer's life."""
        try:
            self._guard()
            self._listen(0.0)
            self._one_cycle(pool, stop, kill)
            self._cycle_error, self._failures = "", 0
        except (Superseded, ConfigError, SparkLost):
            raise
        except HeadgateError as error:
            self._failures += 1
            self._cycle_error = str(error)
            _CYCLES.labels(self.id, "failed").inc()
            log.warning("consumer %d, cycle %d: %s", self.id, self._cycle, error)
            stop.wait(min(5.0, 0.2 * 2**self._failures))
        finally:
            self._cycle_finished_ms = _now_ms()

    # Phase 4 (L-18): commands and the ledger

    def _listen(self, timeout_s: float) -> None:
        received, self._backlog = self._backlog, []
        received += self._tail.poll(timeout_s)
        commands = []
        for one in received:
            if isinstance(one.message, LedgerState):
                self._positions.on_ledger(one.message, self.incarnation)
            elif one.topic == self._topics.control:
                commands.append(one.message)
        self._control_offset = self._tail.next[self._topics.control, self.id]
        for reason in self._positions.refusals:
            log.warning("consumer %d starts again at the ledger: %s", self.id, reason)
        self._positions.refusals.clear()
        outcomes, self._positions.outcomes = self._positions.outcomes, {}
        for table, refusal in outcomes.items():
            if refusal:
                self._patience.failed(table, refusal, _REFUSED_WAIT_S)
            else:
                self._patience.fine(table)
        if commands:
            self._obey(commands)

    def _obey(self, commands: list[object]) -> None:
        """All queued commands in order, then durable, then acknowledged (L-18, L-19)."""
        reach("command.received")
        future = set(self._owned)
        answers: list[ConsumingStarted | ConsumingStopped | ConsumerState] = []
        for command in commands:
            if not isinstance(command, StartConsuming | StopConsuming | StateQuery) or command.consumer_id != self.id:
                continue
            if command.epoch < self._epoch:
                log.info("consumer %d ignores %s of an earlier controller", self.id, type(command).__name__)
                continue
            self._epoch = command.epoch
            if isinstance(command, StateQuery):
                answers.append(self._describe(command.command_id))
                continue
            if command.command_id in self._obeyed:  # sent twice: acknowledged twice and done once (L-19)
                answers.append(self._obeyed[command.command_id])
                continue
            if command.incarnation > self.incarnation:
                raise Superseded(f"consumer {self.id} lives on as {command.incarnation}; {self.incarnation} ends")
            if command.incarnation not in ("", self.incarnation):
                continue  # meant for an earlier life; what that one owned may be somebody else's by now
            if isinstance(command, StartConsuming):
                future |= set(command.partitions)
                answers.append(
                    ConsumingStarted(command.command_id, self.id, self.incarnation, command.partitions, _now_ms())
                )
            else:
                future -= set(command.partitions)
                reached = self._positions.reached(command.partitions)
                answers.append(
                    ConsumingStopped(
                        command.command_id, self.id, self.incarnation, command.partitions, _now_ms(), reached
                    )
                )
        self._guard()
        self._positions.release(self._owned - future)
        self._owned = frozenset(future)
        self._persist(self._owned)
        reach("command.persisted")
        for answer in answers:
            if isinstance(answer, ConsumerState):
                answer = replace(answer, partitions=tuple(sorted(self._owned)))
            else:
                self._obeyed[answer.command_id] = answer
            self._outbox.send(self._topics.control, answer)
        while len(self._obeyed) > _REMEMBERED_COMMANDS:
            del self._obeyed[next(iter(self._obeyed))]
        self._outbox.flush()
        reach("command.acknowledged")

    def _persist(self, owned: frozenset[TopicPartition]) -> None:
        self._state_file.save(SavedState(self.incarnation, owned, self._control_offset, self._epoch))

    def _guard(self) -> None:
        """Ends this life if another one has written the state file since."""
        saved = self._state_file.load()
        if saved is not None and saved.incarnation != self.incarnation:
            raise Superseded(f"consumer {self.id} lives on as {saved.incarnation}; {self.incarnation} ends")

    def _describe(self, command_id: str) -> ConsumerState:
        return ConsumerState(
            command_id=command_id,
            consumer_id=self.id,
            incarnation=self.incarnation,
            partitions=tuple(sorted(self._owned)),
            at_ms=_now_ms(),
            started_at_ms=self._started_ms,
            cycle=self._cycle,
            cycle_finished_at_ms=self._cycle_finished_ms,
            uncommitted_cycles=self._positions.most_unsettled,
            throughput_bytes_per_s=self._pace.throughput_bytes_per_s,
            busy_share=self._pace.busy_share,
            capacity_bytes_per_s=self._pace.capacity_bytes_per_s,
            last_error=self._last_error,
            full_cycles=self._pace.full_cycles,
        )

    @property
    def _last_error(self) -> str:
        """Everything that is wrong right now, for a person to read."""
        return "; ".join(filter(None, (self._cycle_error, *self._patience.errors, *self._unreadable.values())))

    def _beat(self, kill: threading.Event) -> None:
        """The heart beats beside the cycles, so that a long Spark job does not look like death."""
        while not kill.is_set():
            try:
                self._outbox.send(self._topics.control, self._describe(""))
            except (BufferError, HeadgateError) as error:
                log.warning("consumer %d: heartbeat not sent: %s", self.id, error)
            if self._ended.wait(self._settings.heartbeat_s):
                return

    # Phases 1 to 3: gather, Spark, announce

    def _one_cycle(self, pool: ThreadPoolExecutor, stop: threading.Event, kill: threading.Event) -> None:
        began = time.monotonic()
        self._give_up_on_lost_announcements(began)
        self._announce_missing_tables()
        chosen, skips, peak, gather_s = self._gather(stop, kill)
        if kill.is_set():
            return
        reach("cycle.gathered")
        gathered = time.monotonic()
        self._cycle += 1
        stem = f"{self.id:05d}-{self.incarnation}-{self._cycle:08d}"
        running = {
            table: pool.submit(self._jobs[table].run, ranges, stem) for table, ranges in chosen.items() if ranges
        }
        results: dict[str, JobResult] = {}
        for table, future in running.items():
            try:
                results[table] = future.result()
            except ConsumerError as error:
                if isinstance(error, SparkLost):
                    raise
                self._patience.failed(table, str(error), _FAILED_WAIT_S)
                _CYCLES.labels(self.id, "failed").inc()
                log.warning("consumer %d, cycle %d: %s", self.id, self._cycle, error)
        processed = time.monotonic()
        if results:
            reach("cycle.files-written")
        for table in skips.keys() - results.keys() - running.keys():
            results[table] = JobResult((), (), (), (), CycleStats())
        self._guard()
        self._announce(results, skips, stem, gather_s, processed - gathered)
        announced = time.monotonic()
        self._account(results, peak, gather_s, processed - gathered, announced - processed, announced - began)

    def _give_up_on_lost_announcements(self, now_s: float) -> None:
        for table in self._pipeline.tables:
            oldest_s = self._positions.oldest_unsettled_s(table.name)
            if oldest_s is not None and now_s - oldest_s > self._settings.commit_deadline_s:
                silence = f"no verdict for {now_s - oldest_s:.0f} s; is the committer running?"
                log.warning("consumer %d: %s: %s", self.id, table.name, silence)
                self._patience.failed(table.name, silence, _FAILED_WAIT_S)
                self._positions.give_up_waiting(table.name)

    def _announce_missing_tables(self) -> None:
        """A table that does not exist yet is announced empty, so that it is there before its first record."""
        for table in self._pipeline.tables:
            mine = any(table.matches(p.topic) for p in self._owned)
            quiet = self._positions.unsettled(table.name) < self._patience.in_flight(table.name, 1)
            if mine and quiet and self._positions.exists(table.name) is False:
                schema_only = self._announcement(table.name, f"{self.id:05d}-{self.incarnation}-schema", (), ())
                self._positions.announced(schema_only, time.monotonic())
                self._outbox.send(self._topics.announcements, schema_only)

    def _gather(
        self, stop: threading.Event, kill: threading.Event
    ) -> tuple[dict[str, list[Range]], dict[str, list[Skip]], bool, float]:
        """L-14: until `batch_bytes` are there or `wait_s` have passed. Listens meanwhile, so commands never wait."""
        began = time.monotonic()
        until = began + self._settings.wait_s
        while True:
            asked = time.monotonic()
            pending, skips = self._pending()
            gather_s = time.monotonic() - asked
            allowance = self._cap.allowance(time.monotonic())
            waiting_bytes = sum(p.bytes for p in pending.values())
            full = waiting_bytes >= self._settings.batch_bytes and allowance >= self._settings.batch_bytes
            if full or time.monotonic() >= until or stop.is_set() or kill.is_set():
                break
            self._listen(min(_POLL_S, max(0.0, until - time.monotonic())))
        self._chosen_at_s = time.monotonic()
        budget = min(self._settings.batch_bytes, allowance)
        chosen: dict[str, list[Range]] = {}
        for (table, partition), (start, end) in choose_ranges(pending, budget, self._cycle).items():
            chosen.setdefault(table, []).append(Range(partition, start, end))
        self._lag = sum(p.end - p.start for p in pending.values()) - sum(
            r.offsets for ranges in chosen.values() for r in ranges
        )
        return chosen, skips, waiting_bytes >= self._settings.batch_bytes, gather_s

    def _pending(self) -> tuple[dict[tuple[str, TopicPartition], Pending], dict[str, list[Skip]]]:
        """What waits in Kafka per table and partition, and what retention took before it was read."""
        open_tables = {
            t.name: self._positions.reading(t.name, [p for p in self._owned if t.matches(p.topic)])
            for t in self._pipeline.tables
            if self._positions.unsettled(t.name)
            < self._patience.in_flight(t.name, self._settings.max_uncommitted_cycles)
        }
        partitions = {p for reading in open_tables.values() for p in reading}
        unreadable = {p: error for p, error in self._unreadable.items() if p in self._owned - partitions}
        if not partitions:
            self._unreadable = unreadable
            return {}, {}
        ends = end_offsets(self._admin, partitions, self._pipeline.kafka.isolation == "read_committed")
        begins = beginning_offsets(self._admin, partitions)
        pending: dict[tuple[str, TopicPartition], Pending] = {}
        skips: dict[str, list[Skip]] = {}
        for table, reading in open_tables.items():
            for partition, position in reading.items():
                if partition not in ends or partition not in begins:
                    unreadable[partition] = f"the brokers give no offsets of {partition}: no leader now, or deleted"
                    continue
                if position < begins[partition]:
                    gone = begins[partition] - position
                    skip = Skip(partition, position, begins[partition], gone, "retention")
                    skips.setdefault(table, []).append(skip)
                    position = begins[partition]
                if position > ends[partition]:
                    unreadable[partition] = (
                        f"{partition} ends at {ends[partition]} but the lake holds everything before {position}: the "
                        f"topic was deleted and made anew, or truncated; ingest it under another name"
                    )
                    continue
                pending[table, partition] = Pending(position, ends[partition], self._size(partition))
        self._unreadable = unreadable
        return pending, skips

    def _size(self, partition: TopicPartition) -> float:
        """Measured bytes per record of the partition, or of its neighbours until it has been read."""
        if partition in self._sizes:
            return self._sizes[partition]
        of_topic = [size for p, size in self._sizes.items() if p.topic == partition.topic]
        return sum(of_topic) / len(of_topic) if of_topic else _GUESSED_BYTES_PER_RECORD

    def _announce(
        self, results: dict[str, JobResult], skips: dict[str, list[Skip]], stem: str, gather_s: float, process_s: float
    ) -> None:
        for table, result in results.items():
            ranges, all_skips = _joined(result.ranges, skips.get(table, []))
            stats = replace(result.stats, gather_s=gather_s, process_s=process_s)
            announcement = self._announcement(
                table, stem, ranges, result.files, result.rejected_files, (*all_skips, *result.skips), stats
            )
            self._positions.announced(announcement, time.monotonic())
            self._outbox.send(self._topics.announcements, announcement)
        self._outbox.flush()
        if results:
            reach("cycle.announced")

    def _announcement(
        self,
        table: str,
        stem: str,
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
            cycle=self._cycle,
            ranges=ranges,
            files=files,
            rejected_files=rejected_files,
            skips=skips,
            schema=self._jobs[table].schema,
            announced_at_ms=_now_ms(),
            stats=stats or CycleStats(),
        )

    def _account(
        self,
        results: dict[str, JobResult],
        peak: bool,
        gather_s: float,
        process_s: float,
        announce_s: float,
        total_s: float,
    ) -> None:
        for result in results.values():
            for partition, size in result.sizes.items():
                known = self._sizes.get(partition, size)
                self._sizes[partition] = known + 0.3 * (size - known)
        payload_bytes = sum(r.stats.payload_bytes for r in results.values())
        records = sum(r.stats.records for r in results.values())
        self._cap.spend(payload_bytes, self._chosen_at_s)
        busy_s = gather_s + process_s + announce_s
        self._pace.add(payload_bytes, busy_s, total_s, peak)
        _BYTES.labels(self.id).inc(payload_bytes)
        _RECORDS.labels(self.id).inc(records)
        _CYCLES.labels(self.id, "done").inc()
        _LAG.labels(self.id).set(self._lag)
        _THROUGHPUT.labels(self.id).set(self._pace.throughput_bytes_per_s)
        _CAPACITY.labels(self.id).set(self._pace.capacity_bytes_per_s)
        _BUSY.labels(self.id).set(self._pace.busy_share)
        for phase, seconds in (("gather", gather_s), ("process", process_s), ("announce", announce_s)):
            _PHASE.labels(self.id, phase).set(seconds)
        if not results:
            return
        measured = {p: self._sizes[p] for r in results.values() for p in r.sizes}
        record = CycleRecord(
            consumer_id=self.id,
            incarnation=self.incarnation,
            cycle=self._cycle,
            at_ms=_now_ms(),
            partitions=len(self._owned),
            tables=len(results),
            records=records,
            rows=sum(r.stats.rows for r in results.values()),
            payload_bytes=payload_bytes,
            gather_s=gather_s,
            process_s=process_s,
            announce_s=announce_s,
            wait_s=max(0.0, total_s - busy_s),
            lag_records=self._lag,
            peak=peak,
            sizes=tuple(BytesPerRecord(p.topic, p.partition, size) for p, size in sorted(measured.items())),
            error=self._last_error,
        )
        log.debug("consumer %d: cycle %d: %d records in %.2f s", self.id, self._cycle, records, busy_s)
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
