"""The load generator: writes records to explicit partitions so that each follows its rate in a `Workload`.

What is written depends on the workload, the record format and the seed alone; the pace only says when. So a run can be
repeated, and the counts a broker must hold afterwards are known exactly: `LoadReport` holds what was acknowledged.
"""

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import floor, inf
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from headgate.errors import ConfigError
from headgate.kafka.load_records import FORMATS, RecordFormat, RecordSize
from headgate.kafka.load_topics import BROKER_DEFAULT, ENVELOPE_BYTES, all_end_offsets, prepare_topics
from headgate.model import TopicPartition
from headgate.simulation.workload import Workload, time_until, volumes

log = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------- pace


class Pace(Protocol):
    """When records are written. What is written does not depend on it."""

    def slice_s(self, workload: Workload, end_s: float) -> float:
        """The workload is cut into slices of this length, each written at its end."""
        ...

    def begin(self) -> None: ...

    def wait_until(self, t_s: float, stop: threading.Event) -> float:
        """Returns when the slice ending at `t_s` is due or `stop` is set: how many seconds too late that is."""
        ...


class RealTime:
    """Workload seconds are real seconds; a generator that falls behind catches up as fast as it can."""

    _SLICE_S = 0.02

    def __init__(self) -> None:
        self._begun_s = time.monotonic()

    def slice_s(self, workload: Workload, end_s: float) -> float:
        return self._SLICE_S

    def begin(self) -> None:
        self._begun_s = time.monotonic()

    def wait_until(self, t_s: float, stop: threading.Event) -> float:
        ahead_s = self._begun_s + t_s - time.monotonic()
        if ahead_s > 0:
            stop.wait(ahead_s)
        return max(0.0, -ahead_s)


class NoWaiting:
    """The same records as in real time, as fast as the brokers take them."""

    _SLICE_BYTES = 1 << 18

    def slice_s(self, workload: Workload, end_s: float) -> float:
        if end_s == inf:
            raise ValueError("without waiting a load needs an end: give a duration or a count")
        total_bytes = sum(volumes(workload, 0.0, end_s).values())
        return end_s / max(1, floor(total_bytes / self._SLICE_BYTES))

    def begin(self) -> None:
        """Nothing to remember."""

    def wait_until(self, t_s: float, stop: threading.Event) -> float:
        return 0.0


# ------------------------------------------------------------------------------------------------------- report


@dataclass(frozen=True, slots=True)
class PartitionReport:
    records: int
    """Acknowledged by the brokers, bad ones included: this many offsets."""
    bad: int
    """How many of them cannot be decoded, on purpose."""
    payload_bytes: int
    """Key and value bytes of the acknowledged records."""
    first_offset: int | None
    last_offset: int | None
    failed: int
    """Given up after all retries. Kafka may hold some of them nevertheless: it did not answer."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    partitions: Mapping[TopicPartition, PartitionReport]
    elapsed_s: float
    """Real time from the first record to the last acknowledgement."""
    interrupted: bool
    """Stopped before its duration or count was reached."""
    errors: Mapping[str, int]
    """What the failed records failed of, and how often."""

    @property
    def records(self) -> int:
        return sum(report.records for report in self.partitions.values())

    @property
    def bad(self) -> int:
        return sum(report.bad for report in self.partitions.values())

    @property
    def payload_bytes(self) -> int:
        return sum(report.payload_bytes for report in self.partitions.values())

    @property
    def failed(self) -> int:
        return sum(report.failed for report in self.partitions.values())

    def as_json(self) -> dict[str, dict[str, dict[str, int | None]]]:
        """{topic: {partition: {"records", "bytes", "bad", …}}}."""
        topics: dict[str, dict[str, dict[str, int | None]]] = {}
        for partition, report in sorted(self.partitions.items()):
            topics.setdefault(partition.topic, {})[str(partition.partition)] = {
                "records": report.records,
                "bytes": report.payload_bytes,
                "bad": report.bad,
                "failed": report.failed,
                "first_offset": report.first_offset,
                "last_offset": report.last_offset,
            }
        return topics


@dataclass(frozen=True, slots=True)
class LoadProgress:
    t_s: float
    """How far into the workload the generator is."""
    end_s: float
    """Where it ends; infinite if it runs until it is stopped."""
    target_bytes_per_s: float
    """The workload's total at this moment."""
    records: int
    payload_bytes: int
    failed: int
    behind_s: float
    """How late the newest slice was written; more than a moment means that the machine or the brokers are full."""


# ---------------------------------------------------------------------------------------------------- generator

_PROGRESS_EVERY_S = 0.2
_ROUNDING_BYTES = 1e-3
"""A record is due when all but this much of it has accumulated: sums of floats are not exact."""


class Carry:
    """Turns bytes due into whole records; the part of a record that is left waits for the next slice.

    So a partition's records always add up to the integral of its rate, less a part of one record.
    """

    def __init__(self, size: RecordSize, chance: random.Random) -> None:
        self._size = size
        self._chance = chance
        self._target_bytes = 0.0
        self._written_bytes = 0
        self._next = size.draw(chance)

    def complete(self, due_bytes: float) -> list[int]:
        """Sizes of the records that these bytes complete."""
        self._target_bytes += due_bytes
        sizes = []
        while self._written_bytes + self._next <= self._target_bytes + _ROUNDING_BYTES:
            sizes.append(self._take())
        return sizes

    def regardless(self, count: int) -> list[int]:
        """Sizes of the next `count` records, due or not."""
        return [self._take() for _ in range(count)]

    def _take(self) -> int:
        size = self._next
        self._written_bytes += size
        self._next = self._size.draw(self._chance)
        return size


def split_count(count: int, shares: Mapping[TopicPartition, float]) -> dict[TopicPartition, int]:
    """`count` records divided in proportion to `shares`, whole and exact: largest remainders get the rest."""
    total = sum(shares.values())
    exact = {partition: count * share / total for partition, share in shares.items()}
    split = {partition: floor(part + 1e-9) for partition, part in exact.items()}
    by_remainder = sorted(exact, key=lambda partition: split[partition] - exact[partition])
    for partition in by_remainder[: count - sum(split.values())]:
        split[partition] += 1
    return split


class _Stream:
    """One partition: what it is to receive, and what the brokers acknowledged."""

    def __init__(
        self,
        partition: TopicPartition,
        first_id: int,
        size: RecordSize,
        make: RecordFormat,
        bad_share: float,
        seed: int,
    ) -> None:
        def chance(of: str) -> random.Random:
            return random.Random(f"{seed}/{partition}/{of}")

        self.partition = partition
        self.carry = Carry(size, chance("size"))
        self.maker = make(partition, size.largest, chance("content"))
        if size.smallest < self.maker.smallest_bytes:
            raise ConfigError(
                f"a record of {size.smallest} bytes cannot hold the fields of {partition}: "
                f"let records have {self.maker.smallest_bytes} bytes or more, or use the raw format"
            )
        self._bad_share = bad_share
        self._bad_chance = chance("bad")
        self._next_id = first_id
        self.queued = 0
        self.errors: Counter[str] = Counter()
        self.records = self.bad = self.payload_bytes = 0
        self.first_offset: int | None = None
        self.last_offset: int | None = None

    def next_record(self, size: int) -> tuple[bytes, bytes, Callable[[KafkaError | None, Message], None]]:
        """Key, value and who is to be told of its delivery."""
        key, value = self.maker.make(self._next_id, size)
        self._next_id += 1
        self.queued += 1
        if self._bad_share and self._bad_chance.random() < self._bad_share:
            return key, self.maker.spoil(value), self._bad_delivered
        return key, value, self._delivered

    def _bad_delivered(self, error: KafkaError | None, message: Message) -> None:
        self.bad += error is None
        self._delivered(error, message)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors[error.str()] += 1
            return
        offset = message.offset()
        if self.first_offset is None:
            self.first_offset = offset
        self.last_offset = offset
        self.records += 1
        self.payload_bytes += len(message.key() or b"") + len(message.value() or b"")

    def report(self) -> PartitionReport:
        return PartitionReport(
            self.records,
            self.bad,
            self.payload_bytes,
            self.first_offset,
            self.last_offset,
            self.errors.total(),
        )


class LoadGenerator:
    """Writes a workload to Kafka. One object, one run; `run` may be called in any thread."""

    def __init__(
        self,
        bootstrap: str,
        client_settings: Mapping[str, str],
        topics: Mapping[str, int | None],
        workload: Workload,
        record_size: RecordSize,
        *,
        record_format: str | RecordFormat = "json",
        bad_share: float = 0.0,
        replication: int = BROKER_DEFAULT,
        seed: int = 0,
        pace: Pace | None = None,
        delivery_timeout_s: float = 120.0,
    ) -> None:
        """`topics` are names with their partition counts, as for `prepare_topics`.

        A broker may be away for `delivery_timeout_s` before records count as failed.
        """
        if isinstance(record_format, str) and record_format not in FORMATS:
            raise ValueError(f"there is no record format {record_format!r}: choose one of {', '.join(FORMATS)}")
        if not 0 <= bad_share <= 1:
            raise ValueError(f"the share of bad records lies between 0 and 1, not at {bad_share:g}")
        if bad_share and record_format == "raw":
            raise ValueError("raw records cannot be bad, any bytes are good: use json or avro")
        self._bootstrap = bootstrap
        self._client_settings = dict(client_settings)
        self._topics = dict(topics)
        self._replication = replication
        self._workload = workload
        self._size = record_size
        self._format = FORMATS[record_format] if isinstance(record_format, str) else record_format
        self._bad_share = bad_share
        self._seed = seed
        self._pace = pace or RealTime()
        self._delivery_timeout_s = delivery_timeout_s
        self._given_up = threading.Event()

    def run(
        self,
        *,
        duration_s: float | None = None,
        count: int | None = None,
        stop: threading.Event | None = None,
        on_progress: Callable[[LoadProgress], None] | None = None,
    ) -> LoadReport:
        """Writes for `duration_s`, or exactly `count` records, or until `stop` is set; then waits for all answers.

        With a count the partitions' shares are those of the workload over the time it needs for that many.
        """
        if duration_s is not None and count is not None:
            raise ValueError("give a duration or a count, not both")
        if duration_s is None and count is None and stop is None:
            raise ValueError("a load without duration and count needs a way to stop it")
        stop = stop or threading.Event()
        end_s, quotas = inf if duration_s is None else duration_s, None
        if count is not None:
            end_s = self._time_for(count)
            quotas = split_count(count, volumes(self._workload, 0.0, end_s))
        slice_s = self._pace.slice_s(self._workload, end_s)
        streams = self._streams()
        producer = self._producer()
        begun_s = time.monotonic()
        self._pace.begin()
        finished = False
        try:
            finished = self._write(producer, streams, end_s, slice_s, quotas, stop, on_progress)
        finally:
            self._settle(producer)
        return LoadReport(
            {partition: stream.report() for partition, stream in streams.items()},
            time.monotonic() - begun_s,
            not finished,
            sum((stream.errors for stream in streams.values()), Counter()),
        )

    def _time_for(self, count: int) -> float:
        try:
            return time_until(self._workload, count * (self._size.smallest + self._size.largest) / 2)
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def give_up(self) -> None:
        """Stop waiting for answers after a stop: what is still in flight counts as failed. For any thread."""
        self._given_up.set()

    def _streams(self) -> dict[TopicPartition, _Stream]:
        admin = AdminClient({**self._client_settings, "bootstrap.servers": self._bootstrap}, logger=log)
        partitions = prepare_topics(admin, self._topics, self._replication, self._size.largest)
        # Ids go on where the partition ends, so that no two runs give the same id.
        ends = all_end_offsets(admin, partitions)
        return {p: _Stream(p, ends[p], self._size, self._format, self._bad_share, self._seed) for p in partitions}

    def _producer(self) -> Producer:
        return Producer(
            {
                "linger.ms": 5,
                "queue.buffering.max.kbytes": 64 * 1024,
                **self._client_settings,
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": int(self._delivery_timeout_s * 1000),
                "message.max.bytes": max(1_000_000, self._size.largest + ENVELOPE_BYTES),
            },
            logger=log,
        )

    def _write(
        self,
        producer: Producer,
        streams: Mapping[TopicPartition, _Stream],
        end_s: float,
        slice_s: float,
        quotas: Mapping[TopicPartition, int] | None,
        stop: threading.Event,
        on_progress: Callable[[LoadProgress], None] | None,
    ) -> bool:
        """True if the whole workload was handed to the producer."""
        t_s, number, shown_s = 0.0, 0, -inf
        while t_s < end_s:
            number += 1
            following_s = min(end_s, number * slice_s)
            behind_s = self._pace.wait_until(following_s, stop)
            for partition, due_bytes in volumes(self._workload, t_s, following_s).items():
                stream = streams.get(partition)
                if stream is None:
                    raise ConfigError(f"the workload names {partition}, which is not among the topics to load")
                sizes = stream.carry.complete(due_bytes)
                if quotas is not None:
                    sizes = sizes[: quotas[partition] - stream.queued]
                if not self._hand_over(producer, stream, sizes, stop):
                    return False
            producer.poll(0)
            t_s = following_s
            if on_progress and time.monotonic() - shown_s >= _PROGRESS_EVERY_S:
                shown_s = time.monotonic()
                on_progress(self._progress(streams, t_s, end_s, behind_s))
        for partition, quota in (quotas or {}).items():
            stream = streams[partition]
            rest = stream.carry.regardless(quota - stream.queued)
            if not self._hand_over(producer, stream, rest, stop):
                return False
        return True

    def _hand_over(self, producer: Producer, stream: _Stream, sizes: list[int], stop: threading.Event) -> bool:
        topic, number = stream.partition.topic, stream.partition.partition
        for i, size in enumerate(sizes):
            if i % 256 == 0:
                stream.maker.moment(int(time.time() * 1000))
                producer.poll(0)
                if stop.is_set():
                    return False
            key, value, delivered = stream.next_record(size)
            while True:
                try:
                    producer.produce(topic, value, key, number, on_delivery=delivered)
                    break
                except BufferError:  # the queue is full; it drains, or its records time out
                    if stop.is_set():
                        return False
                    producer.poll(0.1)
                except KafkaException as error:
                    stream.errors[error.args[0].str()] += 1
                    if error.args[0].fatal():
                        return False
                    break
        return not stop.is_set()

    def _settle(self, producer: Producer) -> None:
        """Waits until the fate of every record is known."""
        deadline_s = time.monotonic() + self._delivery_timeout_s + 10
        while producer.flush(0.5) and time.monotonic() < deadline_s and not self._given_up.is_set():
            pass
        if len(producer):
            producer.purge()
            producer.flush(5)

    def _progress(
        self, streams: Mapping[TopicPartition, _Stream], t_s: float, end_s: float, behind_s: float
    ) -> LoadProgress:
        return LoadProgress(
            t_s,
            end_s,
            sum(self._workload.rates(t_s).values()),
            sum(stream.records for stream in streams.values()),
            sum(stream.payload_bytes for stream in streams.values()),
            sum(stream.errors.total() for stream in streams.values()),
            behind_s,
        )
