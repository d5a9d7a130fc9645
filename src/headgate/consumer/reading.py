"""Reading Kafka inside Spark's Python workers: ranges of offsets in, Arrow batches out.

Spark's connector asks the broker several times for every partition, one partition after the other; librdkafka asks once
for all of them. A worker keeps its client from task to task. Which ranges a task reads, it is told by a property of the
job, so that a query can be planned once and run for every cycle.

Runs where workers have Headgate: on this machine.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from pyspark import Accumulator, AccumulatorParam, TaskContext

from headgate.errors import ConsumerError

SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
"""As Spark's connector has it, without the kind of timestamp."""
PROPERTY = "headgate.task"
"""Of the job, as JSON: `cycle`, a name for it; `shares`, for each task its ranges; `folder`, where files go."""

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", _HEADERS),
    ]
)
_BATCH_BYTES = 4_000_000
_BATCH_RECORDS = 10_000
_FIRST_RECORDS = 500
"""Read before the size of records is known."""
_POLL_S = 0.1
_SILENCE_S = 60.0
"""Without a record that should be there, the task fails; the cycle is tried again."""
_KEPT_CLIENTS = 2

SETTINGS: Mapping[str, str] = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
    # At the end of the log the broker holds an answer back this long, and the next task's first request waits for it.
    "fetch.wait.max.ms": "20",
    # Reading ahead beyond the range is waste, waiting after the queue was full for a moment as well.
    "queued.min.messages": "1000",
    "queued.max.messages.kbytes": "8192",
    "fetch.queue.backoff.ms": "5",
}

Share = Sequence[tuple[str, int, int, int]]
"""Topic, partition, first offset, and the one after the last."""
Counts = dict[str, dict[tuple[str, int], tuple[int, int]]]
"""By cycle: records and bytes of each partition."""


class Counting(AccumulatorParam[Counts]):
    """How tasks tell what they read. Tasks of one cycle may share a partition."""

    def zero(self, value: Counts) -> Counts:
        return {}

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:
        for cycle, partitions in value2.items():
            mine = value1.setdefault(cycle, {})
            for partition, (records, size) in partitions.items():
                before = mine.get(partition, (0, 0))
                mine[partition] = (before[0] + records, before[1] + size)
        return value1


def reader(
    settings: Mapping[str, str], counts: Accumulator[Counts]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow` on a row per task."""

    def read(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in rows:
            yield from read_task(settings, counts)

    return read


def task_folder() -> str:
    return str(_task()["folder"])


def read_task(settings: Mapping[str, str], counts: Accumulator[Counts]) -> Iterator[pa.RecordBatch]:
    task = _task()
    context = TaskContext.get()
    assert context is not None
    share = task["shares"][context.partitionId()]
    client = _client(settings)
    seen: dict[tuple[str, int], tuple[int, int]] = {}
    if share:
        try:
            yield from _read(client, share, seen)
        except Exception:
            _forget(settings)
            raise
        client.unassign()
    counts.add({task["cycle"]: seen})


def _task() -> Any:
    context = TaskContext.get()
    told = context.getLocalProperty(PROPERTY) if context else None
    if told is None:
        raise ConsumerError("a task of this query runs outside a cycle")
    return json.loads(told)


# One client per cluster, kept by the worker's process


_clients: dict[tuple[tuple[str, str], ...], Consumer] = {}


def _client(settings: Mapping[str, str]) -> Consumer:
    key = tuple(sorted(settings.items()))
    client = _clients.pop(key, None) or Consumer(dict(settings))
    _clients[key] = client
    while len(_clients) > _KEPT_CLIENTS:
        _clients.pop(next(iter(_clients))).close()
    return client


def _forget(settings: Mapping[str, str]) -> None:
    client = _clients.pop(tuple(sorted(settings.items())), None)
    if client is not None:
        client.close()


# Reading


def _read(client: Consumer, share: Share, seen: dict[tuple[str, int], tuple[int, int]]) -> Iterator[pa.RecordBatch]:
    """The records of these ranges, once each and in order within a partition."""
    left = {(topic, number): (start, end) for topic, number, start, end in share}
    records_left = sum(end - start for start, end in left.values())
    client.assign([TopicPartition(topic, number, start) for (topic, number), (start, _) in left.items()])
    at_once, heard_s = _FIRST_RECORDS, time.monotonic()
    while left:
        arrived = client.consume(max(1, min(at_once, records_left)), _POLL_S)
        taken = [message for message in arrived if _is_taken(message, left)]
        if taken:
            batch, size = _batch(taken, seen)
            yield batch
            records_left -= len(taken)
            at_once = max(1, min(_BATCH_RECORDS, _BATCH_BYTES * len(taken) // max(1, size)))
            heard_s = time.monotonic()
        elif left and time.monotonic() - heard_s > _SILENCE_S:
            waiting = ", ".join(
                f"{topic}/{number} from {start}" for (topic, number), (start, _) in list(left.items())[:3]
            )
            raise ConsumerError(f"Kafka sent nothing for {_SILENCE_S:.0f} s of {waiting}; are the brokers well?")


def _is_taken(message: Message, left: dict[tuple[str, int], tuple[int, int]]) -> bool:
    """Whether this is a record still to be read; notes how far its partition is."""
    partition = (message.topic(), message.partition())
    error = message.error()
    offset: int = message.offset()  # type: ignore[assignment]  # null for a message of one's own only
    if partition not in left:
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise ConsumerError(f"cannot read from Kafka: {error.str()}")
        return False
    start, end = left[partition]
    if error is not None:
        if error.code() != KafkaError._PARTITION_EOF:
            raise ConsumerError(f"cannot read {partition[0]}/{partition[1]} from offset {start}: {error.str()}")
        if offset >= end:  # what is missing are gaps
            del left[partition]
        return False
    if offset < start:
        return False
    if offset + 1 >= end:
        del left[partition]
    else:
        left[partition] = (offset + 1, end)
    return offset < end


def _batch(messages: list[Message], seen: dict[tuple[str, int], tuple[int, int]]) -> tuple[pa.RecordBatch, int]:
    """These records, and their bytes; adds them to what was seen of their partitions."""
    keys = [m.key() for m in messages]
    values = [m.value() for m in messages]
    topics: list[str] = [m.topic() for m in messages]  # type: ignore[misc]
    numbers: list[int] = [m.partition() for m in messages]  # type: ignore[misc]
    total = 0
    for topic, number, key, value in zip(topics, numbers, keys, values, strict=True):
        size = (len(key) if key else 0) + (len(value) if value else 0)
        records, before = seen.get((topic, number), (0, 0))
        seen[topic, number] = (records + 1, before + size)
        total += size
    columns = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(topics, pa.string()),
        pa.array(numbers, pa.int32()),
        pa.array([m.offset() for m in messages], pa.int64()),
        pa.array([m.timestamp()[1] * 1000 for m in messages], pa.int64()).cast(_ARROW.field("timestamp").type),
        _headers([m.headers() for m in messages]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW), total


def _headers(of_messages: list[Any]) -> pa.Array:
    if not any(of_messages):
        return pa.nulls(len(of_messages), _HEADERS)
    rows = [headers and [{"key": key, "value": value} for key, value in headers] for headers in of_messages]
    return pa.array([row or None for row in rows], _HEADERS)
