"""Offsets that Kafka did not show: compacted away, transaction markers, aborted records. Never silent."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from headgate.model import Range, Skip, TopicPartition
from headgate.model.announcement import GAP

_EXACT_SKIPS = 20


def gaps(kafka: DataFrame, ranges: Sequence[Range]) -> list[Skip]:
    """The offsets of these ranges that the records do not have."""
    by_partition = Window.partitionBy("topic", "partition").orderBy("offset")
    offsets = kafka.select("topic", "partition", "offset")
    jumps = (
        offsets.withColumn("before", F.lag("offset").over(by_partition))
        .filter(F.col("offset") - F.col("before") > 1)
        .select("topic", "partition", (F.col("before") + 1).alias("start"), F.col("offset").alias("end"))
    )
    edges = offsets.groupBy("topic", "partition").agg(
        F.count(F.lit(1)).alias("records"), F.min("offset").alias("first"), F.max("offset").alias("last")
    )
    found = {TopicPartition(row.topic, row.partition): row for row in edges.collect()}
    inner: dict[TopicPartition, list[tuple[int, int]]] = {}
    for row in jumps.limit(_EXACT_SKIPS * len(ranges)).collect():
        inner.setdefault(TopicPartition(row.topic, row.partition), []).append((row.start, row.end))
    return [skip for r in ranges for skip in _of_range(r, found.get(r.partition), inner.get(r.partition, []))]


def _of_range(read: Range, edge: Any, inner: Sequence[tuple[int, int]]) -> list[Skip]:
    """The gaps of one range: exactly when they are few, as a count when they are many (a compacted topic)."""
    if edge is None:
        found, missing = [(read.start, read.end)], read.offsets
    else:
        found = [(read.start, edge.first), *sorted(inner), (edge.last + 1, read.end)]
        missing = read.offsets - edge.records
    found = [(start, end) for start, end in found if end > start]
    if missing == 0:
        return []
    if sum(end - start for start, end in found) != missing or len(found) > _EXACT_SKIPS:
        return [Skip(read.partition, read.start, read.end, missing, GAP)]
    return [Skip(read.partition, start, end, end - start, GAP) for start, end in found]
