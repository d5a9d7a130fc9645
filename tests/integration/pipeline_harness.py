"""A pipeline under test: real committer and consumers in threads, on the run's broker and Spark session.

The test plays the controller: it waits for a consumer's first word, commands it, and reads its answers. Leaving the
`with` block stops everything, and fails if a consumer or the committer ended by an error nobody asked for.
"""

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyspark.sql import DataFrame, SparkSession

from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline, Table
from headgate.config.table import REJECTED_SUFFIX
from headgate.consumer.worker import Worker
from headgate.controller.drain import is_drained
from headgate.kafka.channel import BEGINNING, Outbox, Tail
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.internal_topics import Topics, ensure_topics
from headgate.kafka.offsets import all_end_offsets
from headgate.lake.catalogs import open_catalog
from headgate.lake.committer import Committer
from headgate.lake.verify import TableVerdict, verify_table
from headgate.model import TopicPartition
from headgate.model.messages import (
    ConsumerState,
    ConsumingStarted,
    ConsumingStopped,
    Position,
    StartConsuming,
    StateQuery,
    StopConsuming,
)
from tests.eventually import eventually

T = TypeVar("T")
Record = tuple[bytes | None, bytes | None]

QUICK: dict[str, dict[str, Any]] = {
    "lake": {"commit_interval_s": "200 ms"},
    "consumer": {"wait_s": "200 ms", "heartbeat_s": "300 ms"},
    "controller": {"discover_s": "500 ms"},
}
"""Seconds per test instead of the defaults' tens."""

_names = itertools.count(1)


def new_name() -> str:
    """A word no other pipeline of this run uses."""
    return f"p{os.getpid()}x{next(_names)}"


class Running:
    """Something that runs in a thread until it is told to stop."""

    def __init__(self, name: str, target: Callable[[], None], stop: threading.Event) -> None:
        self.failure: BaseException | None = None
        self.stop_event = stop
        self._target = target
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._target()
        except BaseException as error:  # noqa: BLE001 (shown by `ended`, or when the pipeline is left)
            self.failure = error

    @property
    def alive(self) -> bool:
        return self.thread.is_alive()

    def ended(self, deadline_s: float = 60) -> None:
        self.thread.join(deadline_s)
        assert not self.alive, f"{self.thread.name} has not ended after {deadline_s:g} s"

    def stop(self) -> None:
        self.stop_event.set()
        self.ended()


class RunningWorker(Running):
    def __init__(self, worker: Worker) -> None:
        self.worker, self.kill_event = worker, threading.Event()
        stop = threading.Event()
        super().__init__(f"consumer-{worker.id}", lambda: worker.run(stop, self.kill_event), stop)

    @property
    def id(self) -> int:
        return self.worker.id

    @property
    def life(self) -> str:
        return self.worker.incarnation

    def kill(self) -> None:
        """As sudden as a thread's end can be: no farewell, what it owns stays in its state file."""
        self.kill_event.set()
        self.ended()


class PipelineRun:
    """One pipeline in a folder of its own. Topics have short names here; in Kafka the pipeline's name comes first."""

    def __init__(
        self,
        folder: Path,
        broker: EmbeddedKafka,
        spark: SparkSession,
        tables: Sequence[Mapping[str, Any]],
        topics: Mapping[str, int] | None = None,
        topic_settings: Mapping[str, str] | None = None,
        consumers: int = 3,
        **sections: Any,
    ) -> None:
        """`topics` are created with that many partitions; `sections` are the rest of the pipeline file; at most so many
        `consumers` run at once."""
        self.folder, self.spark = folder, spark
        self.bootstrap = broker.bootstrap
        self.name = sections.pop("name", None) or new_name()
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
        self._topic_settings = dict(topic_settings or {})
        for topic, partitions in (topics or {}).items():
            self.create(topic, partitions)
        listed = {} if "topics_pattern" in sections else {"topics": [self.topic(t) for t in topics or {}]}
        self.pipeline = self.load(tables, **listed, **sections)
        self.settings = librdkafka_settings(self.pipeline)
        self.names = Topics(self.name)
        ensure_topics(self.admin, self.names, replication=1, consumers=consumers)
        self.outbox = Outbox(self.settings)
        self._events = Tail(self.settings, {(self.names.control, 0): BEGINNING})
        self._heard: list[Any] = []
        self._running: list[Running] = []
        self._commands = itertools.count(1)
        self.epoch = 1

    # The pipeline file and its topics

    def load(self, tables: Sequence[Mapping[str, Any]], **sections: Any) -> Pipeline:
        """Writes the pipeline file (again) and loads it; `topics` of tables are short names."""
        written = [
            {**table, **({"topics": [self.topic(t) for t in table["topics"]]} if "topics" in table else {})}
            for table in tables
        ]
        content: dict[str, Any] = {"name": self.name, "tables": written, **sections}
        for section, quick in QUICK.items():
            content[section] = {**quick, **content.get(section, {})}
        content["kafka"] = {"brokers": self.bootstrap, **content.get("kafka", {})}
        file = self.folder / "pipeline.yaml"
        file.write_text(yaml.safe_dump(content))
        self._sections = dict(sections)
        return load_pipeline(file)

    def reload(self, tables: Sequence[Mapping[str, Any]]) -> None:
        """The same pipeline with other tables, for whoever starts from now on."""
        self.pipeline = self.load(tables, **self._sections)

    def topic(self, short: str) -> str:
        return f"{self.name}-{short}"

    def create(self, short: str, partitions: int = 1, **settings: str) -> None:
        name = self.topic(short)
        new = NewTopic(name, partitions, 1, config={**self._topic_settings, **settings})
        self.admin.create_topics([new])[name].result(30)
        eventually(lambda: name in self.admin.list_topics(timeout=10).topics, f"{name} is there")

    def add_partitions(self, short: str, total: int) -> None:
        name = self.topic(short)
        self.admin.create_partitions([NewPartitions(name, total)])[name].result(30)
        all_end_offsets(self.admin, [TopicPartition(name, number) for number in range(total)])  # their leaders lead

    def partitions(self, *shorts: str) -> tuple[TopicPartition, ...]:
        """All partitions of these topics, or of all that the pipeline reads."""
        wanted = {self.topic(short) for short in shorts}
        found = self.admin.list_topics(timeout=10).topics
        return tuple(
            TopicPartition(name, number)
            for name in sorted(found)
            if (name in wanted if wanted else self.pipeline.matches(name))
            for number in sorted(found[name].partitions)
        )

    def produce(self, short: str, records: Iterable[Record | bytes], partition: int = 0, **settings: Any) -> None:
        """Writes records in order; plain bytes are values without a key."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "message.max.bytes": 8_000_000, "log_level": 2, **settings}
        )
        failed: list[Any] = []
        for record in records:
            key, value = (None, record) if isinstance(record, bytes) else record
            producer.produce(
                self.topic(short),
                key=key,
                value=value,
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert producer.flush(30) == 0
        assert failed == []

    # Who runs

    def committer(self, catalog: Catalog | None = None) -> Running:
        committer, stop = Committer(self.pipeline, self.settings, catalog), threading.Event()
        running = Running("committer", lambda: committer.run(stop), stop)
        self._running.insert(0, running)
        return running

    def worker(self, number: int = 1, own: Iterable[TopicPartition] | None = None) -> RunningWorker:
        """A consumer that is there and, with `own`, has acknowledged these partitions."""
        running = RunningWorker(Worker(self.pipeline, number, lambda: self.spark))
        self._running.append(running)
        self.wait_for(ConsumerState, running)
        if own is not None:
            self.start_consuming(running, own)
        return running

    def run(self, own: Iterable[TopicPartition] | None = None) -> RunningWorker:
        """A committer and one consumer that owns everything."""
        self.committer()
        return self.worker(own=self.partitions() if own is None else own)

    def stop(self) -> None:
        """Stops everything; raises what anything ended by."""
        for running in reversed(self._running):  # consumers first, so that the committer takes their last words
            running.stop()
        for running in self._running:
            if running.failure is not None:
                raise running.failure

    # The test as controller

    def events(self, kind: type[T]) -> list[T]:
        """Everything consumers ever said of this kind."""
        while batch := self._events.poll(0.05):
            self._heard += [received.message for received in batch]
        return [event for event in self._heard if isinstance(event, kind)]

    def wait_for(self, kind: type[T], who: RunningWorker, when: Callable[[T], bool] = lambda _: True) -> T:
        def look() -> T | None:
            if who.failure is not None:
                raise who.failure
            said = [e for e in self.events(kind) if getattr(e, "incarnation", "") == who.life and when(e)]
            return said[-1] if said else None

        found = eventually(look, f"{kind.__name__} of consumer {who.id}")
        assert found is not None
        return found

    def send(self, command: StartConsuming | StopConsuming | StateQuery) -> None:
        self.outbox.send(self.names.control, command, partition=command.consumer_id)
        self.outbox.flush()

    def command_id(self) -> str:
        return f"{self.epoch}-{next(self._commands)}"

    def start_consuming(
        self, who: RunningWorker, partitions: Iterable[TopicPartition], reached: Iterable[Position] = ()
    ) -> ConsumingStarted:
        command = StartConsuming(self.command_id(), self.epoch, who.id, who.life, tuple(partitions), tuple(reached))
        self.send(command)
        return self.wait_for(ConsumingStarted, who, lambda e: e.command_id == command.command_id)

    def stop_consuming(self, who: RunningWorker, partitions: Iterable[TopicPartition]) -> ConsumingStopped:
        command = StopConsuming(self.command_id(), self.epoch, who.id, who.life, tuple(partitions))
        self.send(command)
        return self.wait_for(ConsumingStopped, who, lambda e: e.command_id == command.command_id)

    def error_of(self, who: RunningWorker, part: str) -> str:
        """Waits until the consumer reports an error that holds this text."""
        return self.wait_for(ConsumerState, who, lambda e: part in e.last_error).last_error

    def messages(self, topic: str, kind: type[T]) -> list[T]:
        """Everything of this kind on one of the pipeline's own topics, from its beginning."""
        tail = Tail(self.settings, {(topic, 0): BEGINNING})
        try:
            return [r.message for r in tail.read_to_end() if isinstance(r.message, kind)]
        finally:
            tail.close()

    # The lake

    def wait_until_landed(self, deadline_s: float = 180) -> None:
        def look() -> bool:
            for running in self._running:
                if running.failure is not None:
                    raise running.failure
            return is_drained(self.pipeline, self.settings)

        eventually(look, "the lake holds everything", deadline_s)

    def config(self, table: str) -> Table:
        return next(t for t in self.pipeline.tables if t.name == table)

    def iceberg(self, table: str) -> IcebergTable:
        return open_catalog(self.pipeline.lake).load_table(table)

    def read(self, table: str) -> DataFrame:
        """The table as Spark's Iceberg runtime sees it: an engine that did not write it."""
        return self.spark.read.format("iceberg").load(self.iceberg(table).metadata_location)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows, ordered by where they came from."""
        ordered = self.read(table).orderBy("_topic", "_kafka_partition", "_offset")
        return [row.asDict(recursive=True) for row in ordered.collect()]

    def rejected(self, table: str) -> list[dict[str, Any]]:
        return self.rows(table + REJECTED_SUFFIX)

    def verify(self, table: str) -> TableVerdict:
        return verify_table(self.spark, open_catalog(self.pipeline.lake), self.config(table))

    def assert_exactly_once(self, table: str) -> TableVerdict:
        """Every offset Kafka still shows is in the table once; what is not is accounted for."""
        verdict = self.verify(table)
        assert verdict.exists
        assert verdict.problems == ()
        return verdict

    def __enter__(self) -> "PipelineRun":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            for running in self._running:
                running.stop_event.set()
            for running in self._running:
                running.thread.join(10)
        self._events.close()
