"""One whole consumer with its committer, as threads of this process, on a backlog or a light load; what it did."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from headgate.config.clients import librdkafka_settings
from headgate.config.pipeline import Pipeline
from headgate.consumer.worker import Worker
from headgate.kafka.channel import BEGINNING, Outbox, Tail, Topics, ensure_topics
from headgate.kafka.offsets import partitions_where
from headgate.lake.committer import Committer
from headgate.model.messages import CommitRecord, ConsumerState, CycleRecord, StartConsuming


class OneConsumer:
    """What a running consumer and its committer have told so far."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._topics = Topics(pipeline.name)
        self._settings = librdkafka_settings(pipeline)
        self._tail = Tail(
            self._settings,
            {
                (self._topics.control, 0): BEGINNING,
                (self._topics.cycles, 0): BEGINNING,
                (self._topics.commits, 0): BEGINNING,
            },
        )
        self.cycles: list[CycleRecord] = []
        self.commits: list[CommitRecord] = []
        self.ready = False

    @property
    def rows(self) -> int:
        return sum(commit.rows for commit in self.commits)

    def watch_until(self, done: Callable[["OneConsumer"], bool], deadline_s: float = 600) -> None:
        until = time.monotonic() + deadline_s
        while not done(self):
            if time.monotonic() > until:
                raise TimeoutError(f"{self.rows} rows after {deadline_s} s")
            for received in self._tail.poll(0.1):
                if isinstance(received.message, CycleRecord):
                    self.cycles.append(received.message)
                elif isinstance(received.message, CommitRecord):
                    self.commits.append(received.message)
                elif isinstance(received.message, ConsumerState):
                    self.ready = True


@contextmanager
def one_consumer(pipeline: Pipeline, spark: SparkSession) -> Iterator[OneConsumer]:
    """Runs it with all partitions of the pipeline's topics until the block ends."""
    settings, topics = librdkafka_settings(pipeline), Topics(pipeline.name)
    admin = AdminClient(dict(settings))
    ensure_topics(admin, topics, 1, 1)
    stop_committer, stop_worker, kill = threading.Event(), threading.Event(), threading.Event()
    committer = threading.Thread(target=Committer(pipeline, settings).run, args=(stop_committer,), daemon=True)
    worker = threading.Thread(target=Worker(pipeline, 1, lambda: spark).run, args=(stop_worker, kill), daemon=True)
    seen = OneConsumer(pipeline)
    committer.start()
    worker.start()
    try:
        seen.watch_until(lambda s: s.ready)
        outbox = Outbox(settings)
        everything = tuple(sorted(partitions_where(admin, pipeline.matches)))
        outbox.send(topics.control, StartConsuming("bench", 1, 1, "", everything), partition=1)
        outbox.flush()
        yield seen
    finally:
        stop_worker.set()
        worker.join(60)
        stop_committer.set()
        committer.join(60)
