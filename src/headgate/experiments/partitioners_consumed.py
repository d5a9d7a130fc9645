"""How long until a consumer has a record (B-61): from the call of `produce` to the poll that returns it."""

import struct
import threading
import time
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from headgate.errors import KafkaUnavailable
from headgate.experiments.partitioners_cases import Cell
from headgate.experiments.partitioners_live import FREE, Brokers, Lane, Reports, flush, landed, lanes_of
from headgate.experiments.partitioners_results import Run, run_of

ACKNOWLEDGED, READ = "acknowledged", "read"
READ_S = 30.0
"""How long a consumer may take for the last records."""
AT_ONCE = 500
_SENT_AT = struct.Struct("d")


@dataclass(frozen=True, slots=True)
class Pace:
    """Far below what brokers can do, so that records do not wait for each other."""

    records_per_s: int = 5_000
    seconds: float = 3.0


def measure_consumed(cell: Cell, number: int, brokers: Brokers, pace: Pace, record_bytes: int) -> list[Run]:
    """Two lines: until records were acknowledged, and until they were read."""
    with lanes_of(cell, brokers, {"client.id": FREE}) as (lane,), ThreadPoolExecutor(1) as reading:
        ends, reports = brokers.ends(cell.topics), Reports()
        records, ready = round(pace.records_per_s * pace.seconds), threading.Event()
        starts = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]
        read = reading.submit(_read, brokers.bootstrap, starts, records, ready)
        ready.wait(READ_S)
        began_s = time.perf_counter()
        _send(lane, records, pace.records_per_s, b"x" * max(0, record_bytes - _SENT_AT.size), reports)
        flush(lane.producer)
        seconds, latencies_s = time.perf_counter() - began_s, read.result()
        led, held = landed(brokers.written_since(ends, cell.topics, len(reports.latencies_s)), cell.topics)
    return [
        run_of(cell, number, record_bytes, found_s, reports.failed, seconds, led, held, phase)
        for phase, found_s in ((ACKNOWLEDGED, reports.latencies_s), (READ, latencies_s))
    ]


def _send(lane: Lane, records: int, records_per_s: int, padding: bytes, reports: Reports) -> None:
    began_s = time.perf_counter()
    for n in range(records):
        while (early_s := began_s + n / records_per_s - time.perf_counter()) > 0:
            lane.producer.poll(min(early_s, 0.001))
        lane.producer.produce(lane.topic, _SENT_AT.pack(time.time()) + padding, on_delivery=reports)


def _read(bootstrap: str, starts: Sequence[TopicPartition], records: int, ready: threading.Event) -> "array[float]":
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "log_level": 0})
    latencies_s = array("d")
    try:
        consumer.assign(list(starts))
        consumer.poll(0)
        ready.set()
        until_s = time.monotonic() + READ_S
        while len(latencies_s) < records:
            first = consumer.poll(0.1)
            if first is not None:
                until_s = time.monotonic() + READ_S
                batch = [first, *consumer.consume(AT_ONCE, 0)]
                now_s = time.time()
                values = (message.value() for message in batch if message.error() is None)
                latencies_s.extend(now_s - _SENT_AT.unpack_from(value)[0] for value in values if value)
            elif time.monotonic() > until_s:
                raise KafkaUnavailable(
                    f"of {records} records a consumer got {len(latencies_s)}, and then none for {READ_S:g} s: the "
                    "machine may be overloaded, go on later with --resume"
                )
    finally:
        consumer.close()
    return latencies_s
