"""What is counted while a batch streams by: records, bytes, undecodable ones, and record sizes of some partitions."""

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.consumer.decode import RAW_KEY, RAW_VALUE, REASON
from headgate.model import Range, TopicPartition

_AT_ONCE = 8
"""Partitions whose record sizes are measured in one cycle."""
_EVERY = 10
"""Sizes change slowly, and Spark counts what it observes without compiling it: known ones are looked at again in one
cycle of this many."""


class SizeTurns:
    """Whose record sizes to measure next: partitions not measured yet, and then everybody in turn."""

    def __init__(self) -> None:
        self._known: set[TopicPartition] = set()
        self._cycle = 0
        self._next = 0

    def choose(self, ranges: Sequence[Range]) -> list[Range]:
        self._cycle += 1
        new = [r for r in ranges if r.partition not in self._known][:_AT_ONCE]
        if new or self._cycle % _EVERY:
            return new
        first, self._next = self._next, self._next + _AT_ONCE
        return [ranges[(first + i) % len(ranges)] for i in range(min(_AT_ONCE, len(ranges)))]

    def measured(self, partitions: Iterable[TopicPartition]) -> None:
        self._known.update(partitions)


def metrics(measured: Sequence[Range]) -> list[Column]:
    """SQL text rather than column functions: each of those is several calls into the JVM, every cycle."""
    size = f"(coalesce(octet_length({RAW_KEY}), 0) + coalesce(octet_length({RAW_VALUE}), 0))"
    texts = ["count(1) AS records", f"sum({size}) AS bytes", f"count({REASON}) AS bad"]
    for number, read in enumerate(measured):
        here = f"_kafka_partition = {read.partition.partition} AND _topic = '{read.partition.topic}'"
        texts.append(f"count(CASE WHEN {here} THEN 1 END) AS records_{number}")
        texts.append(f"sum(CASE WHEN {here} THEN {size} END) AS bytes_{number}")
    return [F.expr(text) for text in texts]


def sizes(measured: Sequence[Range], numbers: dict[str, Any]) -> dict[TopicPartition, float]:
    """Mean bytes per record of the measured partitions that had any."""
    return {
        read.partition: numbers[f"bytes_{i}"] / numbers[f"records_{i}"]
        for i, read in enumerate(measured)
        if numbers[f"records_{i}"]
    }
