"""The load generator: writes records to explicit partitions so that each follows its rate in a `Workload`.

What is written depends on the workload, the record format and the seed alone; the pace only says when. So a run can be
repeated, and the counts a broker must hold afterwards are known exactly: `LoadReport` holds what was acknowledged.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from math import inf

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from headgate.errors import ConfigError
from headgate.kafka.load_pace import Pace, RealTime
from headgate.kafka.load_records import FORMATS, RecordFormat, RecordSize
from headgate.kafka.load_report import LoadProgress, LoadReport
from headgate.kafka.load_stream import Stream, split_count
from headgate.kafka.load_topics import BROKER_DEFAULT, ENVELOPE_BYTES, prepare_topics
from headgate.kafka.offsets import all_end_offsets
from headgate.model import TopicPartition
from headgate.simulation.workload import Workload, time_until, volumes

log = logging.getLogger(__name__)

_PROGRESS_EVERY_S = 0.2


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

    def _streams(self) -> dict[TopicPartition, Stream]:
        admin = AdminClient({**self._client_settings, "bootstrap.servers": self._bootstrap}, logger=log)
        partitions = prepare_topics(admin, self._topics, self._replication, self._size.largest)
        # Ids go on where the partition ends, so that no two runs give the same id.
        ends = all_end_offsets(admin, partitions)
        return {p: Stream(p, ends[p], self._size, self._format, self._bad_share, self._seed) for p in partitions}

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
        streams: Mapping[TopicPartition, Stream],
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

    def _hand_over(self, producer: Producer, stream: Stream, sizes: list[int], stop: threading.Event) -> bool:
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
        self, streams: Mapping[TopicPartition, Stream], t_s: float, end_s: float, behind_s: float
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
