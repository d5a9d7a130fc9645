"""A consumer's life: commands, gather, Spark, announce, over and over, until it is told to stop (L-13).

The order within a cycle is what makes it safe: files are complete before they are announced, announcements are on
the brokers before a stop is acknowledged, and what it owns is on disk before it says so.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from headgate.config.clients import librdkafka_settings
from headgate.config.pipeline import Pipeline
from headgate.consumer.cycles import Cycles
from headgate.consumer.positions import Positions
from headgate.consumer.state import SavedState, StateFile
from headgate.errors import HeadgateError, Outdated, Superseded
from headgate.failpoints import reach
from headgate.kafka.channel import BEGINNING, END, Outbox, Tail
from headgate.kafka.internal_topics import Topics
from headgate.model import TopicPartition
from headgate.model.messages import (
    ConsumerLeft,
    ConsumerState,
    ConsumingStarted,
    ConsumingStopped,
    LedgerState,
    StartConsuming,
    StateQuery,
    StopConsuming,
)

log = logging.getLogger(__name__)

_REMEMBERED_COMMANDS = 1000


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
        self._epoch = 0
        self._started_ms = 0
        self._turned_ms = 0
        self._commands: list[object] = []
        """Received while cycles were under way."""
        self._obeyed: dict[str, ConsumingStarted | ConsumingStopped] = {}
        """Answers to the commands of late, by their id."""
        self._ended = threading.Event()

    # Life

    def run(self, stop: threading.Event, kill: threading.Event) -> None:
        """Until `stop` (finish the cycle, announce, release everything) or `kill` (drop everything)."""
        self._outbox = Outbox(self._kafka, f"consumer {self.id}")
        self._cycles = Cycles(
            self._pipeline,
            self.id,
            self.incarnation,
            self._session(),
            self._positions,
            self._outbox,
            self._listen,
            self._guard,
        )
        self._cycles.warm_up()
        self._tail = self._resume()
        self._started_ms = self._turned_ms = _now_ms()
        heart = threading.Thread(target=self._beat, args=(kill,), name=f"heartbeat-{self.id}", daemon=True)
        reason = "stopped"
        try:
            # What was commanded meanwhile counts before the first word: partitions taken away from an earlier life
            # must not be reported as owned.
            self._listen(0.0)
            heart.start()
            while not (kill.is_set() or (stop.is_set() and not self._cycles.are_under_way)):
                self._cycles.turn(stop, kill)
                self._turned_ms = _now_ms()
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
            self._cycles.close()
            if heart.is_alive():
                heart.join(5)
            self._leave(silently=kill.is_set(), reason=reason)

    def _resume(self) -> Tail:
        """Picks up where this id left off: its partitions and its place among the commands (L-20)."""
        saved = self._state_file.load()
        offset = END
        if saved is not None:
            self._cycles.owned, self._epoch = saved.partitions, saved.epoch
            offset = END if saved.control_offset is None else saved.control_offset
        tail = Tail(self._kafka, {(self._topics.control, self.id): offset, (self._topics.ledger, 0): BEGINNING})
        self._control_offset = tail.next[self._topics.control, self.id]
        self._persist(self._cycles.owned)
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

    # Phase 4 (L-18): commands and the ledger

    def _listen(self, timeout_s: float) -> None:
        received, self._backlog = self._backlog, []
        received += self._tail.poll(timeout_s)
        for one in received:
            if isinstance(one.message, LedgerState):
                self._positions.on_ledger(one.message, self.incarnation)
            elif one.topic == self._topics.control:
                self._commands.append(one.message)
        self._control_offset = self._tail.next[self._topics.control, self.id]
        for reason in self._positions.refusals:
            log.warning("consumer %d starts again at the ledger: %s", self.id, reason)
        self._positions.refusals.clear()
        outcomes, self._positions.outcomes = self._positions.outcomes, {}
        self._cycles.settled(outcomes)
        self._cycles.called = bool(self._commands)
        if self._commands and not self._cycles.are_under_way:
            self._obey()

    def _obey(self) -> None:
        """All queued commands in order, then durable, then acknowledged (L-18, L-19). While no cycle is under way:
        nothing of a partition may be announced after it was given up."""
        commands, self._commands, self._cycles.called = self._commands, [], False
        reach("command.received")
        named, future = set(self._cycles.owned), set(self._cycles.owned)
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
                named |= set(command.partitions)
                self._positions.go_on(command.reached)
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
        self._positions.release(named - future)
        self._cycles.owned = frozenset(future)
        self._persist(self._cycles.owned)
        reach("command.persisted")
        for answer in answers:
            if isinstance(answer, ConsumerState):
                answer = replace(answer, partitions=tuple(sorted(self._cycles.owned)))
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
            partitions=tuple(sorted(self._cycles.owned)),
            at_ms=_now_ms(),
            started_at_ms=self._started_ms,
            cycle=self._cycles.number,
            cycle_finished_at_ms=self._turned_ms,
            uncommitted_cycles=self._positions.most_unsettled,
            throughput_bytes_per_s=self._cycles.accounts.pace.throughput_bytes_per_s,
            busy_share=self._cycles.accounts.pace.busy_share,
            capacity_bytes_per_s=self._cycles.accounts.pace.capacity_bytes_per_s,
            last_error=self._cycles.errors,
            full_cycles=self._cycles.accounts.pace.full_cycles,
        )

    def _beat(self, kill: threading.Event) -> None:
        """The heart beats beside the cycles, so that a long Spark job does not look like death."""
        while not kill.is_set():
            try:
                self._outbox.send(self._topics.control, self._describe(""))
            except (BufferError, HeadgateError) as error:
                log.warning("consumer %d: heartbeat not sent: %s", self.id, error)
            if self._ended.wait(self._settings.heartbeat_s):
                return


def _now_ms() -> int:
    return int(time.time() * 1000)
