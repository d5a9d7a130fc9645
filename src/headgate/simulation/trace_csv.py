"""Traces as CSV: one row per interval and partition, in any order, as any metrics store can export them.

    time,partition,records,bytes          or          time,topic,partition,records,bytes
    0,orders-3,120,61440                              2025-11-15T10:00:00Z,orders,3,120,61440

`time` is when the interval begins. It lasts until the next time in the file; where that is more than 1.5 times the
usual step away, it lasts the usual step and nothing arrives in the rest. A partition without a row for an interval got
nothing then. `bytes` may be left out if the mean size of a record is given.
"""

import csv
import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from difflib import get_close_matches

import numpy as np

from headgate.errors import ConfigError
from headgate.model import TopicPartition
from headgate.simulation.arrivals import Floats
from headgate.simulation.recorded import USUAL, Trace

REQUIRED = ("time", "partition", "records")
OPTIONAL = ("topic", "bytes")
_SHOWN = 10
_LONGEST_S = 366 * 86_400.0
_LATEST_S = 1e11
"""In seconds this is the year 5138; in milliseconds since the epoch it is 1973."""
_MOST = {"records": 1e15, "bytes": 1e18}
"""In one row. More is a slip, and what is counted would no longer fit 64 bits."""
_Cell = tuple[float, TopicPartition]


class _Malformed(ValueError):
    """One row that cannot be used, and what would be allowed."""


def read_trace(lines: Iterable[str], name: str, record_bytes: float | None = None) -> Trace:
    """The trace in these lines; ConfigError with every wrong line, up to ten, if it cannot be used."""
    reader = csv.DictReader(lines, skipinitialspace=True)
    try:
        columns = _columns(reader.fieldnames, name)
        reader.fieldnames = columns
        rows, kind, problems = _Rows(record_bytes, "bytes" in columns), "", []
        for row in reader:
            try:
                kind = rows.take(row, reader.line_num, kind)
            except _Malformed as error:
                problems.append(f"line {reader.line_num}: {error}")
    except csv.Error as error:
        raise ConfigError(f"{name}: line {reader.line_num} is not CSV: {error}") from error
    if problems:
        more = f"\n  ... and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise ConfigError(f"{name}: {len(problems)} wrong rows\n  " + "\n  ".join(problems[:_SHOWN]) + more)
    return rows.trace(name)


def _columns(found: Iterable[str] | None, name: str) -> list[str]:
    columns = [str(column).strip().lower() for column in found or ()]
    missing = [column for column in REQUIRED if column not in columns]
    if missing:
        near = [m for c in columns if c not in REQUIRED + OPTIONAL for m in get_close_matches(c, missing, 1)]
        hint = f"; is one of them meant to be {near[0]!r}?" if near else ""
        raise ConfigError(
            f"{name}: the first line must name the columns time, partition (or topic and partition), records and, if "
            f"known, bytes; it lacks {', '.join(missing)} and has: {', '.join(columns) or 'nothing'}{hint}"
        )
    return columns


class _Rows:
    def __init__(self, record_bytes: float | None, has_bytes: bool) -> None:
        self._record_bytes = record_bytes
        self._has_bytes = has_bytes
        self._cells: dict[_Cell, tuple[float, float]] = {}
        self._lines: dict[_Cell, int] = {}

    def take(self, row: dict[str, str | None], line: int, kind: str) -> str:
        """Adds a row; returns how its time is written, which must be the same in all."""
        if None in row or None in row.values():
            raise _Malformed("has not as many fields as the first line")
        at_s, its_kind = _time(row["time"] or "")
        if kind and its_kind != kind:
            raise _Malformed(f"time is {its_kind} here and {kind} in the rows before; use one of them throughout")
        cell = (at_s, _partition(row))
        if cell in self._lines:
            raise _Malformed(f"{cell[1]} has a row for this time already, in line {self._lines[cell]}")
        records = _count("records", row["records"] or "")
        self._cells[cell] = (records, self._bytes(row, records))
        self._lines[cell] = line
        return its_kind

    def _bytes(self, row: dict[str, str | None], records: float) -> float:
        text = (row["bytes"] or "").strip() if self._has_bytes else ""
        if text:
            size = _count("bytes", text)
            if (size > 0) != (records > 0):
                raise _Malformed(f"{records:g} records cannot have {size:g} bytes; give both, or leave bytes empty")
            return size
        if self._record_bytes is None and records > 0:
            raise _Malformed("has no bytes, and capacity is in bytes; add a column bytes, or say --record-bytes")
        return records * (self._record_bytes or 0.0)

    def trace(self, name: str) -> Trace:
        times = sorted({at_s for at_s, _ in self._cells})
        if len(times) < 2:
            raise ConfigError(f"{name}: {len(times)} different times found; at least two are needed")
        if times[-1] - times[0] > _LONGEST_S:
            raise ConfigError(
                f"{name}: times span {(times[-1] - times[0]) / 86_400:.0f} days, more than a year; time is in seconds, "
                "or ISO 8601: are these milliseconds?"
            )
        starts, edges, notes = _intervals(times)
        row_of = {at_s: n for n, at_s in enumerate(starts)}
        partitions = tuple(sorted({p for _, p in self._cells}))
        column = {p: n for n, p in enumerate(partitions)}
        records, size = np.zeros((len(starts), len(partitions))), np.zeros((len(starts), len(partitions)))
        for (at_s, partition), (count, its_bytes) in self._cells.items():
            at = row_of[at_s], column[partition]
            records[at], size[at] = count, its_bytes
        return Trace(partitions, edges - edges[0], records, size, times[0], notes)


def _intervals(times: list[float]) -> tuple[list[float], Floats, tuple[str, ...]]:
    """Where intervals begin, all edges, and what was assumed."""
    step = float(np.median(np.diff(times)))
    starts, gaps, lost_s = [], 0, 0.0
    for at_s, following in zip(times, [*times[1:], times[-1] + step], strict=True):
        starts.append(at_s)
        if following - at_s > USUAL * step:
            starts.append(at_s + step)
            gaps, lost_s = gaps + 1, lost_s + following - at_s - step
    notes = (f"{gaps} gaps, {lost_s:g} s in all: nothing arrives in them",) if gaps else ()
    return starts, np.array([*starts, times[-1] + step]), notes


def _time(text: str) -> tuple[float, str]:
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            raise _Malformed(
                f"time is {text!r}; allowed are seconds, such as 12.5, and ISO 8601, such as 2025-11-15T10:00:00Z"
            ) from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp(), "ISO 8601"
    if not math.isfinite(seconds):
        raise _Malformed(f"time is {text!r}; it must be a finite number")
    if abs(seconds) > _LATEST_S:
        raise _Malformed(f"time is {text.strip()}, which looks like milliseconds; give seconds, or ISO 8601")
    return seconds, "in seconds"


def _partition(row: dict[str, str | None]) -> TopicPartition:
    written = (row["partition"] or "").strip()
    if "topic" in row:
        topic, number, allowed = (row["topic"] or "").strip(), written, "a topic and a number, such as orders and 3"
    else:
        topic, _, number = written.rpartition("-")
        allowed = "the topic, '-' and a number, such as orders-3"
    if not topic or not (number.isascii() and number.isdigit()):
        raise _Malformed(f"partition is {written!r}; allowed is {allowed}")
    return TopicPartition(topic, int(number))


def _count(what: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise _Malformed(f"{what} is {text!r}; it must be a number that is not negative") from None
    if not math.isfinite(value) or value < 0:
        raise _Malformed(f"{what} is {text.strip()}; it must be finite and not negative")
    if value > _MOST[what]:
        raise _Malformed(f"{what} is {text.strip()}; more than {_MOST[what]:g} in one row cannot be simulated")
    return value


def written(trace: Trace) -> Iterator[tuple[str, ...]]:
    """Rows of a CSV that reads back as this trace. Zeros are left out where time and partition are known without."""
    yield ("time", "topic", "partition", "records", "bytes")
    for row, start_s in enumerate(trace.edges_s[:-1]):
        at = f"{trace.started_at_s + start_s:.3f}"
        for column, p in enumerate(trace.partitions):
            if trace.records[row, column] > 0 or row == 0 or column == 0:
                counts = trace.records[row, column], trace.bytes[row, column]
                yield (at, p.topic, str(p.partition), *(f"{count:.12g}" for count in counts))
