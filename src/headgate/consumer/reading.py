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
from headgate.kafka.leaders import Leaders

SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
"""As Spark's connector has it, without the kind of timestamp."""
READ, FOLDER = "headgate.read", "headgate.folder"
"""Properties of the job: as JSON `cycle`, a name for it, `shares`, each with its ranges, and how many records are to be
`made_up` instead; and where files go."""

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
_POLL_S = 0.02
_SILENCE_S = 20.0
"""Without a record that should be there, the task fails; the cycle is tried again."""
_HOPELESS = (KafkaError._AUTHENTICATION, KafkaError._SSL)
_KEPT_CLIENTS = 2
_MOST_KEPT_PARTITIONS = 2_000

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
Seen = dict[tuple[str, int], tuple[int, int]]
"""Records and bytes of each partition."""
Counts = dict[str, dict[int, Seen]]
"""By cycle and share."""


class Counting(AccumulatorParam[Counts]):
    """How tasks tell what they read. A share that is read again, as some queries make Spark do, counts once."""

    def zero(self, value: Counts) -> Counts:
        return {}

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:
        for cycle, shares in value2.items():
            value1.setdefault(cycle, {}).update(shares)
        return value1


def reader(
    settings: Mapping[str, str], counts: Accumulator[Counts]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow` on numbers in a row; each stands for the share whose turn it is when shares take turns."""

    def read(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            for number in batch.column(0).to_pylist():
                yield from read_share(settings, counts, number)

    return read


def task_folder() -> str:
    return _property(FOLDER)


def read_share(settings: Mapping[str, str], counts: Accumulator[Counts], number: int) -> Iterator[pa.RecordBatch]:
    task = json.loads(_property(READ))
    place = number % len(task["shares"])
    share = task["shares"][place]
    seen: Seen = {}
    client = _client(settings)
    if task["made_up"]:
        yield _made_up(task["made_up"])
    elif share:
        try:
            yield from _read(client, share, seen)
        except Exception:
            _forget(settings)
            raise
        _put_away(settings, len(share))
    counts.add({task["cycle"]: {place: seen}})


def _made_up(records: int) -> pa.RecordBatch:
    """Records that no topic holds; JSON, if anybody asks."""
    numbers = range(records)
    columns = {
        "key": pa.nulls(records),
        "value": [b"{}"] * records,
        "topic": ["made up"] * records,
        "partition": [0] * records,
        "offset": numbers,
        "timestamp": [1_000_000 * n for n in numbers],
        "headers": pa.nulls(records),
    }
    return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in _ARROW], schema=_ARROW)


def _property(name: str) -> str:
    context = TaskContext.get()
    told = context.getLocalProperty(name) if context else None
    if told is None:
        raise ConsumerError("a task of this query runs outside a cycle")
    return told


# One client per cluster, kept by the worker's process


class Client:
    def __init__(self, settings: Mapping[str, str]) -> None:
        self.trouble: KafkaError | None = None
        """The last that was reported, of connections and the like; it may have passed."""
        self.consumer = Consumer({**settings, "error_cb": self._note})
        self.leaders = Leaders(self.consumer)

    def _note(self, error: KafkaError) -> None:
        self.trouble = error


_clients: dict[tuple[tuple[str, str], ...], Client] = {}


def _client(settings: Mapping[str, str]) -> Client:
    key = tuple(sorted(settings.items()))
    client = _clients.pop(key, None) or Client(settings)
    _clients[key] = client
    while len(_clients) > _KEPT_CLIENTS:
        _clients.pop(next(iter(_clients))).consumer.close()
    return client


def _put_away(settings: Mapping[str, str], partitions: int) -> None:
    """What a client fetched ahead is dropped partition by partition, each time looking through all of it: one that read
    many becomes slower from cycle to cycle, and a new one is as fast as the first."""
    if _is_kept(partitions):
        _client(settings).consumer.unassign()
    else:
        _forget(settings)


def _is_kept(partitions: int) -> bool:
    return partitions <= _MOST_KEPT_PARTITIONS


def _forget(settings: Mapping[str, str]) -> None:
    client = _clients.pop(tuple(sorted(settings.items())), None)
    if client is not None:
        client.consumer.close()


# Reading


def _read(client: Client, share: Share, seen: Seen) -> Iterator[pa.RecordBatch]:
    """The records of these ranges, once each and in order within a partition."""
    left = {(topic, number): (start, end) for topic, number, start, end in share}
    records_left = sum(end - start for start, end in left.values())
    assigned = set(left)
    client.trouble = None
    if _is_kept(len(share)):  # of thousands that all fetch at once, what they fetched ahead takes longest to drop
        client.trouble = client.leaders.meet(topic for topic, _ in left)
    client.consumer.assign([TopicPartition(topic, number, start) for (topic, number), (start, _) in left.items()])
    at_once, heard_s = _FIRST_RECORDS, time.monotonic()
    while left:
        arrived = client.consumer.consume(max(1, min(at_once, records_left)), _POLL_S)
        taken = [message for message in arrived if _is_taken(message, left, client)]
        if taken:
            batch, size = _batch(taken, seen)
            yield batch
            records_left -= len(taken)
            at_once = max(1, min(_BATCH_RECORDS, _BATCH_BYTES * len(taken) // max(1, size)))
            heard_s = time.monotonic()
        if not left:
            return
        if finished := assigned - left.keys():  # or what comes after their ranges would be fetched as well
            client.consumer.incremental_unassign([TopicPartition(*partition) for partition in finished])
            assigned -= finished
        _check(client, left, time.monotonic() - heard_s)


def _check(client: Client, left: Mapping[tuple[str, int], tuple[int, int]], silent_s: float) -> None:
    """Raises if there is no hope, or nothing came for too long."""
    trouble = f": {client.trouble.str()}" if client.trouble else "; are the brokers well?"
    if client.trouble is not None and client.trouble.code() in _HOPELESS:
        raise ConsumerError(f"cannot read from Kafka{trouble}")
    if silent_s > _SILENCE_S:
        (topic, number), (start, _) = next(iter(left.items()))
        raise ConsumerError(f"nothing from {topic}/{number} at offset {start} for {_SILENCE_S:.0f} s{trouble}")


def _is_taken(message: Message, left: dict[tuple[str, int], tuple[int, int]], client: Client) -> bool:
    """Whether this is a record still to be read; notes how far its partition is."""
    error = message.error()
    partition: tuple[str, int] = (message.topic(), message.partition())  # type: ignore[assignment]
    if partition not in left:
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            client.trouble = error  # of no partition: such as that of a group, which nobody joins
        return False
    offset: int = message.offset()  # type: ignore[assignment]
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


def _batch(messages: list[Message], seen: Seen) -> tuple[pa.RecordBatch, int]:
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
