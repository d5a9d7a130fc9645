"""One partition under load: bytes due become whole records, records get ids, and their deliveries are counted."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from math import floor

from confluent_kafka import KafkaError, Message

from headgate.errors import ConfigError
from headgate.kafka.load_records import RecordFormat, RecordSize
from headgate.kafka.load_report import PartitionReport
from headgate.model import TopicPartition

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


class Stream:
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
