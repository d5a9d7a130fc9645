"""One whole consumer with its committer, as threads of this process, and what it tells: to measure without a fleet."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from headgate.config.clients import librdkafka_settings
from headgate.config.pipeline import Pipeline
from headgate.consumer.spark import reason
from headgate.consumer.worker import Worker
from headgate.errors import HeadgateError
from headgate.kafka.channel import BEGINNING, Outbox, Tail
from headgate.kafka.internal_topics import Topics
from headgate.kafka.offsets import Mirror, partitions_where
from headgate.lake.committer import Committer
from headgate.model import TopicPartition
from headgate.model.messages import ConsumerState, CycleRecord, StartConsuming

log = logging.getLogger(__name__)

_START_DEADLINE_S = 120.0
POLL_S = 0.1
"""Signals are heard in between: two of them within one poll would be one."""


class OneConsumer:
    """What has been told so far."""

    def __init__(self, pipeline: Pipeline, thread: threading.Thread, failures: list[Exception]) -> None:
        topics = Topics(pipeline.name)
        starts = {(topics.control, 0): BEGINNING, (topics.cycles, 0): BEGINNING}
        self._tail = Tail(librdkafka_settings(pipeline), starts)
        self._thread = thread
        self._failures = failures
        self.cycles: list[CycleRecord] = []
        self.is_ready = False

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def listen(self, timeout_s: float) -> None:
        for received in self._tail.poll(timeout_s):
            if isinstance(received.message, CycleRecord):
                self.cycles.append(received.message)
            elif isinstance(received.message, ConsumerState):
                self.is_ready = True

    def wait_until_ready(self, stop: threading.Event) -> None:
        until = time.monotonic() + _START_DEADLINE_S
        while not self.is_ready and not stop.is_set():
            self.raise_failure()
            if time.monotonic() > until or not self.is_alive:
                raise HeadgateError(
                    "the consumer did not start; run `headgate check`, then `headgate consumer` to see why"
                )
            self.listen(POLL_S)

    def raise_failure(self) -> None:
        """Why it ended, if it did so by itself."""
        if self._failures:
            error = self._failures[0]
            why = str(error) if isinstance(error, HeadgateError) else reason(error)
            raise HeadgateError(f"the consumer ended: {why}") from error

    def close(self) -> None:
        self._tail.close()


@contextmanager
def one_consumer(
    pipeline: Pipeline,
    session: Callable[[], SparkSession],
    tell: Callable[[str], None] = lambda what: None,
    partitions: tuple[TopicPartition, ...] | None = None,
    mirror: Mirror | None = None,
    stop: threading.Event | None = None,
) -> Iterator[OneConsumer]:
    """Runs it with these partitions, or all of the pipeline's topics, until the block ends. The internal topics must
    exist. `mirror` takes the place of the pipeline's group; once `stop` is set, nobody waits for the start."""
    settings, topics = librdkafka_settings(pipeline), Topics(pipeline.name)
    if partitions is None:
        partitions = tuple(sorted(partitions_where(AdminClient(dict(settings)), pipeline.matches)))
    if not partitions:
        raise HeadgateError("none of the pipeline's topics exists; nothing to read")
    stopped, failures = stop or threading.Event(), list[Exception]()
    stop_committer, stop_worker, kill = threading.Event(), threading.Event(), threading.Event()
    commits = Committer(pipeline, settings, mirror=mirror)
    committer = threading.Thread(target=commits.run, args=(stop_committer,), daemon=True)

    def live() -> None:
        try:
            Worker(pipeline, 1, session).run(stop_worker, kill)
        except Exception as error:
            log.exception("the consumer ended unexpectedly")
            failures.append(error)

    worker = threading.Thread(target=live, daemon=True)
    seen = OneConsumer(pipeline, worker, failures)
    committer.start()
    worker.start()
    try:
        tell("starting the consumer")
        seen.wait_until_ready(stopped)
        outbox = Outbox(settings)
        outbox.send(topics.control, StartConsuming("one-consumer", 1, 1, "", partitions), partition=1)
        outbox.flush()
        yield seen
        if not stopped.is_set():
            seen.raise_failure()
    finally:
        stop_worker.set()
        worker.join(60)
        stop_committer.set()
        committer.join(60)
        seen.close()
