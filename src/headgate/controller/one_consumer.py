"""One whole consumer with its committer, as threads of this process, and what it tells: to measure without a fleet."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from headgate.config.clients import librdkafka_settings
from headgate.config.pipeline import Pipeline
from headgate.consumer.worker import Worker
from headgate.errors import HeadgateError
from headgate.kafka.channel import BEGINNING, Outbox, Tail
from headgate.kafka.internal_topics import Topics
from headgate.kafka.offsets import partitions_where
from headgate.lake.committer import Committer
from headgate.model import TopicPartition
from headgate.model.messages import ConsumerState, CycleRecord, StartConsuming

_START_DEADLINE_S = 120.0


class OneConsumer:
    """What has been told so far."""

    def __init__(self, pipeline: Pipeline, thread: threading.Thread) -> None:
        topics = Topics(pipeline.name)
        starts = {(topics.control, 0): BEGINNING, (topics.cycles, 0): BEGINNING}
        self._tail = Tail(librdkafka_settings(pipeline), starts)
        self._thread = thread
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

    def wait_until_ready(self) -> None:
        until = time.monotonic() + _START_DEADLINE_S
        while not self.is_ready:
            if time.monotonic() > until or not self.is_alive:
                raise HeadgateError(
                    "the consumer did not start; run `headgate check`, then `headgate consumer` to see why"
                )
            self.listen(0.5)

    def close(self) -> None:
        self._tail.close()


@contextmanager
def one_consumer(
    pipeline: Pipeline,
    session: Callable[[], SparkSession],
    tell: Callable[[str], None] = lambda what: None,
    partitions: tuple[TopicPartition, ...] | None = None,
) -> Iterator[OneConsumer]:
    """Runs it with these partitions, or all of the pipeline's topics, until the block ends. The internal topics must
    exist."""
    settings, topics = librdkafka_settings(pipeline), Topics(pipeline.name)
    if partitions is None:
        partitions = tuple(sorted(partitions_where(AdminClient(dict(settings)), pipeline.matches)))
    if not partitions:
        raise HeadgateError("none of the pipeline's topics exists; nothing to read")
    stop_committer, stop_worker, kill = threading.Event(), threading.Event(), threading.Event()
    committer = threading.Thread(target=Committer(pipeline, settings).run, args=(stop_committer,), daemon=True)
    worker = threading.Thread(target=Worker(pipeline, 1, session).run, args=(stop_worker, kill), daemon=True)
    seen = OneConsumer(pipeline, worker)
    committer.start()
    worker.start()
    try:
        tell("starting the consumer")
        seen.wait_until_ready()
        outbox = Outbox(settings)
        outbox.send(topics.control, StartConsuming("one-consumer", 1, 1, "", partitions), partition=1)
        outbox.flush()
        yield seen
    finally:
        stop_worker.set()
        worker.join(60)
        stop_committer.set()
        committer.join(60)
        seen.close()
