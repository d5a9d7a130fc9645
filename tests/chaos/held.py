"""What a topic holds, read with a client of its own: the last word where more landed than was acknowledged."""

import re
import time
from collections.abc import Mapping
from uuid import uuid4

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from headgate.model import TopicPartition

_ID = re.compile(rb'(?:\{"id":)?(\d+)')
"""How the generator's records begin, raw ones and JSON, spoiled or not."""
_DEADLINE_S = 300.0


def held_by(brokers: str, partition: TopicPartition) -> dict[int, int]:
    """Offset → id of every record of a partition."""
    reader = Consumer({"bootstrap.servers": brokers, "group.id": f"reckoning-{uuid4()}", "enable.auto.commit": False})
    try:
        first, end = reader.get_watermark_offsets(Place(partition.topic, partition.partition), timeout=60)
        reader.assign([Place(partition.topic, partition.partition, first)])
        held, at, until = dict[int, int](), first, time.monotonic() + _DEADLINE_S
        while at < end:
            assert time.monotonic() < until, f"{partition}: read up to {at} of {end} only"
            for message in reader.consume(10_000, timeout=5):
                if message.error() is None:
                    begins = _ID.match(message.value() or b"")
                    assert begins, f"{partition}: no record of the generator at {message.offset()}"
                    offset = message.offset()
                    assert offset is not None
                    held[offset], at = int(begins[1]), offset + 1
        return held
    finally:
        reader.close()


def repeated(held: Mapping[int, int], landed: Mapping[int, int | None], acknowledged: int) -> tuple[int, int] | None:
    """How many records, and how many of those that were rejected, a partition holds more often than once.

    None if the lake does not hold just what the partition does, or that is not what was acknowledged.
    """
    if held.keys() != landed.keys() or any(id_ is not None and id_ != held[at] for at, id_ in landed.items()):
        return None
    different = len(set(held.values()))
    rejected = [held[at] for at, id_ in landed.items() if id_ is None]
    if different != acknowledged:
        return None
    return len(held) - different, len(rejected) - len(set(rejected))
