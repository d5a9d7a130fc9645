"""The records a load generator writes: how large they are and what is in them."""

import base64
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from io import BytesIO
from math import floor
from typing import Any, Protocol

import fastavro

from headgate.errors import ConfigError
from headgate.model import TopicPartition


class RecordSize(Protocol):
    """Bytes of key and value together."""

    @property
    def smallest(self) -> int: ...

    @property
    def largest(self) -> int: ...

    def draw(self, chance: random.Random) -> int: ...


@dataclass(frozen=True, slots=True)
class FixedSize:
    record_bytes: int

    @property
    def smallest(self) -> int:
        return self.record_bytes

    @property
    def largest(self) -> int:
        return self.record_bytes

    def draw(self, chance: random.Random) -> int:
        return self.record_bytes


@dataclass(frozen=True, slots=True)
class UniformSize:
    """Every size from smallest to largest is equally likely."""

    smallest: int
    largest: int

    def __post_init__(self) -> None:
        if self.largest < self.smallest:
            raise ValueError(f"record sizes from {self.smallest} to {self.largest} bytes: put the smaller one first")

    def draw(self, chance: random.Random) -> int:
        return self.smallest + floor(chance.random() * (self.largest - self.smallest + 1))


_DISTINCT_KEYS = 1000
"""Keys repeat, as those of real entities do."""
_ID_DIGITS = 9
"""Room for a billion records a partition when the smallest possible record is computed."""
_AMOUNT_LIMIT = 1000

FIELDS_DDL = "id BIGINT, topic STRING, partition INT, at TIMESTAMP, amount DOUBLE, padding STRING"
"""The fields of JSON and Avro records, as Spark names their types."""

AVRO_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "LoadRecord",
    "namespace": "headgate.load",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "topic", "type": "string"},
        {"name": "partition", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "amount", "type": "double"},
        {"name": "padding", "type": "string"},
    ],
}
"""What `--format avro` writes, without container or registry header."""


class RecordMaker(Protocol):
    """Makes one partition's records; key and value together have exactly the size that was asked for."""

    smallest_bytes: int

    def moment(self, now_ms: int) -> None:
        """The time that the following records carry."""
        ...

    def make(self, record_id: int, size: int) -> tuple[bytes, bytes]: ...

    def spoil(self, value: bytes) -> bytes:
        """As many bytes, but not decodable any more."""
        ...


_NOISE_BYTES = 1 << 20


@cache
def _noise(largest_bytes: int) -> bytes:
    """Characters without a pattern, so that records do not compress to nothing."""
    letters = base64.b64encode(random.Random(0).randbytes(_NOISE_BYTES * 3 // 4))
    return letters * (2 + largest_bytes // len(letters))


def _padding(noise: bytes, record_id: int, length: int) -> bytes:
    if length < 0:
        raise ConfigError(f"record {record_id} does not fit: let records be at least {-length} bytes larger")
    start = record_id * 7919 % _NOISE_BYTES
    return noise[start : start + length]


class JsonRecords:
    """{"id", "topic", "partition", "at", "amount", "padding"}, filled from a template: json.dumps is too slow here."""

    def __init__(self, partition: TopicPartition, largest_bytes: int, chance: random.Random) -> None:
        self._chance = chance
        self._noise = _noise(largest_bytes)
        self._fixed = f',"topic":{json.dumps(partition.topic)},"partition":{partition.partition},"at":"'.encode()
        self._middle = b""
        self.moment(0)
        longest = self._head(10**_ID_DIGITS - 1, float(_AMOUNT_LIMIT))
        self.smallest_bytes = len(str(_DISTINCT_KEYS - 1)) + len(longest) + len(b'"}')

    def moment(self, now_ms: int) -> None:
        at = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._middle = self._fixed + at.encode() + b'","amount":'

    def _head(self, record_id: int, amount: float) -> bytes:
        return b'{"id":%d%b%.2f,"padding":"' % (record_id, self._middle, amount)

    def make(self, record_id: int, size: int) -> tuple[bytes, bytes]:
        key = b"%d" % (record_id % _DISTINCT_KEYS)
        head = self._head(record_id, self._chance.random() * _AMOUNT_LIMIT)
        return key, b'%b%b"}' % (head, _padding(self._noise, record_id, size - len(key) - len(head) - 2))

    def spoil(self, value: bytes) -> bytes:
        return value[:-2] + b"xx"  # cut off inside a string, as by a producer that truncates


class RawRecords:
    """The id in decimal, a space, and noise."""

    smallest_bytes = _ID_DIGITS + 1 + len(str(_DISTINCT_KEYS - 1))

    def __init__(self, partition: TopicPartition, largest_bytes: int, chance: random.Random) -> None:
        self._noise = _noise(largest_bytes)

    def moment(self, now_ms: int) -> None:
        """Raw records carry no time of their own."""

    def make(self, record_id: int, size: int) -> tuple[bytes, bytes]:
        key = b"%d" % (record_id % _DISTINCT_KEYS)
        head = b"%d " % record_id
        return key, head + _padding(self._noise, record_id, size - len(key) - len(head))

    def spoil(self, value: bytes) -> bytes:
        raise ValueError("raw records cannot be bad, any bytes are good: use json or avro")


class AvroRecords:
    """The same fields as JSON by `AVRO_SCHEMA`, encoded without a container."""

    _SCHEMA = fastavro.parse_schema(AVRO_SCHEMA)

    def __init__(self, partition: TopicPartition, largest_bytes: int, chance: random.Random) -> None:
        self._chance = chance
        self._noise = _noise(largest_bytes)
        self._record = {"topic": partition.topic, "partition": partition.partition, "at": 0, "amount": 0.0}
        self.moment(int(time.time() * 1000))
        # One byte each for the id 0 and the empty padding's length; both are added back by their real lengths.
        self._fixed_bytes = len(self._encode(0, "")) - 2
        head = self._fixed_bytes + _zigzag_bytes(10**_ID_DIGITS - 1)
        self.smallest_bytes = len(str(_DISTINCT_KEYS - 1)) + head + 1

    def moment(self, now_ms: int) -> None:
        self._record["at"] = now_ms

    def _encode(self, record_id: int, padding: str) -> bytes:
        out = BytesIO()
        fastavro.schemaless_writer(out, self._SCHEMA, {**self._record, "id": record_id, "padding": padding})
        return out.getvalue()

    def make(self, record_id: int, size: int) -> tuple[bytes, bytes]:
        key = b"%d" % (record_id % _DISTINCT_KEYS)
        room = size - len(key) - self._fixed_bytes - _zigzag_bytes(record_id)
        length = room - _zigzag_bytes(room)
        if length + 1 + _zigzag_bytes(length + 1) <= room:
            length += 1
        if length + _zigzag_bytes(length) < room:  # one more letter would lengthen the length itself by a byte
            key = b"0" + key
        self._record["amount"] = round(self._chance.random() * _AMOUNT_LIMIT, 2)
        return key, self._encode(record_id, _padding(self._noise, record_id, length).decode("ascii"))

    def spoil(self, value: bytes) -> bytes:
        return b"\xff" * len(value)  # a number whose last byte never comes


def _zigzag_bytes(number: int) -> int:
    """Length of a non-negative Avro int or long."""
    return max(1, ((number << 1).bit_length() + 6) // 7)


RecordFormat = Callable[[TopicPartition, int, random.Random], RecordMaker]

FORMATS: dict[str, RecordFormat] = {"json": JsonRecords, "raw": RawRecords, "avro": AvroRecords}
