"""What several benchmarks run on: a pipeline file, a load in the background, and the age of committed records."""

import multiprocessing
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from confluent_kafka.admin import AdminClient

from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.errors import HeadgateError
from headgate.kafka.channel import BEGINNING, Tail
from headgate.kafka.internal_topics import Topics, ensure_topics
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_records import FIELDS_DDL, FixedSize
from headgate.model import Announcement, TopicPartition
from headgate.model.messages import LedgerState
from headgate.simulation.workload import Workload
from headgate.simulation.workload_shapes import Steady

T = TypeVar("T")

TOPIC, TABLE = "load", "lake.load"
RECORD_BYTES = 300


def make_pipeline(home: Path, name: str, bootstrap: str, consumers: int = 1, **sections: str) -> Pipeline:
    """One topic of JSON records into one table; `sections` are more lines of the file, in YAML's flow style."""
    file = home / f"{name}.yaml"
    lines = {
        "name": name,
        "home": str(home / name),
        "kafka": f"{{brokers: '{bootstrap}'}}",
        "topics": f"[{TOPIC}]",
        "tables": f"[{{name: {TABLE}, format: json, schema: '{FIELDS_DDL}'}}]",
        **sections,
    }
    file.write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
    pipeline = load_pipeline(file)
    ensure_topics(AdminClient({"bootstrap.servers": bootstrap}), Topics(pipeline.name), 1, consumers)
    return pipeline


@contextmanager
def load(bootstrap: str, partitions: int, workload: Workload) -> Iterator[None]:
    """Produces until the block ends, in a process of its own: what is measured must not wait for its Python."""
    processes = multiprocessing.get_context("spawn")
    ready, stop = processes.Event(), processes.Event()
    producing = processes.Process(target=_produce, args=(bootstrap, partitions, workload, ready, stop), daemon=True)
    producing.start()
    try:
        if not ready.wait(30):
            raise HeadgateError("the load did not start within 30 s")
        yield
    finally:
        stop.set()
        producing.join(30)


def _produce(bootstrap: str, partitions: int, workload: Workload, ready: Event, stop: Event) -> None:
    generator = LoadGenerator(bootstrap, {}, {TOPIC: partitions}, workload, FixedSize(RECORD_BYTES))
    ending = threading.Event()
    generating = threading.Thread(target=generator.run, kwargs={"stop": ending}, daemon=True)
    generating.start()
    ready.set()
    stop.wait()
    ending.set()
    generating.join(30)


def spread(partitions: int, bytes_per_s: float) -> Steady:
    return Steady.spread([TopicPartition(TOPIC, n) for n in range(partitions)], bytes_per_s)


def told(pipeline: Pipeline, topic: str, kind: type[T]) -> list[T]:
    """Everything of this kind on one of the pipeline's own topics."""
    tail = Tail(librdkafka_settings(pipeline), {(topic, 0): BEGINNING})
    try:
        return [r.message for r in tail.read_to_end() if isinstance(r.message, kind)]
    finally:
        tail.close()


def committed(pipeline: Pipeline) -> list[tuple[Announcement, int]]:
    """What was accepted, as announced, with when its commit was told of, in milliseconds since the epoch."""
    topics = Topics(pipeline.name)
    states = told(pipeline, topics.ledger, LedgerState)
    at_ms = {v.announcement_id: s.at_ms for s in states for v in s.verdicts if v.accepted}
    return [(a, at_ms[a.id]) for a in told(pipeline, topics.announcements, Announcement) if a.id in at_ms]


def committed_files(pipeline: Pipeline) -> list[tuple[str, int]]:
    """Every data file with when its commit was told of; also of snapshots that have expired since."""
    return [(path, at_ms) for announcement, at_ms in committed(pipeline) for path in announcement.files]


def ages_s(files: Sequence[tuple[str, int]], first_ms: int, last_ms: int, partitions: int) -> npt.NDArray[np.float64]:
    """How old each record produced in this span was when it was committed. HeadgateError unless all of them were, from
    so many partitions: what hangs must not make the others look fresh."""
    parts, offsets, produced, committed_at = [], [], [], []
    for path, committed_ms in files:
        rows = pq.read_table(
            path.removeprefix("file://").removeprefix("file:"), columns=["_kafka_partition", "_offset", "_timestamp"]
        )
        parts.append(rows["_kafka_partition"].to_numpy())
        offsets.append(rows["_offset"].to_numpy())
        produced.append(rows["_timestamp"].cast("timestamp[ms]", safe=False).cast("int64").to_numpy())
        committed_at.append(np.full(len(rows), committed_ms))
    part, offset, produced_ms = np.concatenate(parts), np.concatenate(offsets), np.concatenate(produced)
    for partition in range(partitions):
        mine = np.sort(offset[part == partition])
        if not len(mine) or mine[-1] - mine[0] + 1 != len(mine) or produced_ms[part == partition].max() < last_ms:
            raise HeadgateError(f"records of partition {partition} did not land in time; nothing was measured")
    inside = (produced_ms >= first_ms) & (produced_ms < last_ms)
    ages: npt.NDArray[np.float64] = (np.concatenate(committed_at) - produced_ms)[inside] / 1000
    return ages
