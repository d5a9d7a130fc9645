"""Announcements and Parquet files made by hand, for tests that need no Spark."""

import json
import time
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.model import Announcement, CycleStats, Range, Skip, TopicPartition

_numbers = count(1)

FIELDS = (
    ("value", "string"),
    ("_topic", "string"),
    ("_kafka_partition", "integer"),
    ("_offset", "long"),
    ("_timestamp", "timestamp"),
)


def spark_schema(*extra: tuple[str, str]) -> str:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (*FIELDS, *extra)]
    return json.dumps({"type": "struct", "fields": fields})


def write_file(path: Path, ranges: tuple[Range, ...], extra: dict[str, pa.Array] | None = None) -> str:
    """A Parquet file that holds exactly these ranges."""
    rows = [(r.partition.topic, r.partition.partition, offset) for r in ranges for offset in range(r.start, r.end)]
    table = pa.table(
        {
            "value": pa.array([f"{t}-{p}-{o}" for t, p, o in rows], pa.string()),
            "_topic": pa.array([t for t, _, _ in rows], pa.string()),
            "_kafka_partition": pa.array([p for _, p, _ in rows], pa.int32()),
            "_offset": pa.array([o for _, _, o in rows], pa.int64()),
            "_timestamp": pa.array([1_700_000_000_000_000 + o for _, _, o in rows], pa.timestamp("us", tz="UTC")),
            **(extra or {}),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return str(path)


def announce(
    *ranges: tuple[str, int, int, int],
    files: tuple[str, ...] = (),
    rejected_files: tuple[str, ...] = (),
    skips: tuple[Skip, ...] = (),
    table: str = "lake.t",
    id: str | None = None,
    rows: int | None = None,
    rejected: int = 0,
    schema: str | None = None,
    incarnation: str = "life",
) -> Announcement:
    """An announcement of (topic, partition, start, end) ranges; rows default to what the ranges hold."""
    read = tuple(Range(TopicPartition(t, p), s, e) for t, p, s, e in ranges)
    held = sum(r.offsets for r in read) - sum(s.offsets for s in skips) - rejected
    now_ms = int(time.time() * 1000)
    return Announcement(
        id=id or f"a{next(_numbers)}",
        table=table,
        consumer_id=1,
        incarnation=incarnation,
        cycle=1,
        ranges=read,
        files=files,
        rejected_files=rejected_files,
        skips=skips,
        schema=schema or spark_schema(),
        began_at_ms=now_ms,
        announced_at_ms=now_ms,
        stats=CycleStats(records=held + rejected, rows=held if rows is None else rows, rejected=rejected),
    )
