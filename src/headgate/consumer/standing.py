"""A table's query that is planned once and run for every cycle: which offsets and where to, its tasks are told anew.

Planning a query costs more than reading and writing a second's worth of records. A plan is only kept where it cannot
remember anything: a straight line of steps that Spark computes again each time. A shuffle keeps its first results, and
`current_timestamp()` is a constant once planned.
"""

import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.fs as pafs
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from headgate.consumer import parquet
from headgate.consumer.decode import REASON
from headgate.consumer.query import TableQuery
from headgate.consumer.reading import FOLDER, READ, SCHEMA, Counting, Counts, reader, task_folder
from headgate.consumer.reading import Seen as Counted
from headgate.errors import ConsumerError
from headgate.lake.latency import QUANTILE_POINTS
from headgate.model import Range, TopicPartition

_OBSERVED = "headgate"
_FORGETFUL = frozenset({"Project", "Filter", "MapInArrow", "CollectMetrics", "Range", "InputAdapter", "Generate"})
"""Steps that keep nothing from one run to the next."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run read."""

    records: int
    payload_bytes: int
    bad: int
    sizes: dict[TopicPartition, float]
    """Mean bytes per record of each partition that had any."""


class StandingQuery:
    """`shaped` makes the table's rows of good records, with the columns `by` for splitting files."""

    def __init__(
        self,
        query: TableQuery,
        settings: dict[str, str],
        shaped: Callable[[DataFrame], tuple[DataFrame, tuple[str, ...]]],
    ) -> None:
        self._query = query
        self._settings = settings
        self._shaped = shaped
        self._counts = query.spark.sparkContext.accumulator(Counts(), Counting())
        self._numbers = itertools.count()
        self._kept: dict[int, list[DataFrame]] = {}
        """By number of tasks, those that no thread is running."""
        self._may_keep = query.may_be_planned_once
        self._lock = threading.Lock()

    def run(
        self, ranges: Sequence[Range], tasks: int, filesystem: pafs.FileSystem, folder: str, made_up: int = 0
    ) -> tuple[list[Row], Seen | None]:
        """What the writers told (`parquet.WRITTEN`), and what the readers saw; nothing unless all of them read to the
        end, which Spark need not let them."""
        rows = self._take(tasks) or self._plan(tasks, filesystem)
        cycle = str(next(self._numbers))
        shares = [[(r.partition.topic, r.partition.partition, r.start, r.end) for r in s] for s in share(ranges, tasks)]
        context = self._query.spark.sparkContext
        context.setLocalProperty(READ, json.dumps({"cycle": cycle, "shares": shares, "made_up": made_up}))
        context.setLocalProperty(FOLDER, folder)
        try:
            told = rows.collect()
        finally:
            context.setLocalProperty(READ, None)  # type: ignore[arg-type]  # forgets it
            read = self._counts.value.pop(cycle, {})
        if any(not row.path.startswith(folder) for row in told):
            raise ConsumerError("a cycle was given the files of another one")
        if read.keys() != set(range(tasks)):
            return told, None
        seen = _seen(read.values(), _observed(rows))
        self._give_back(tasks, rows)
        return told, seen

    def _take(self, tasks: int) -> DataFrame | None:
        with self._lock:
            kept = self._kept.get(tasks)
            return kept.pop() if kept else None

    def _give_back(self, tasks: int, rows: DataFrame) -> None:
        if self._may_keep:
            with self._lock:
                self._kept.setdefault(tasks, []).append(rows)

    def _plan(self, tasks: int, filesystem: pafs.FileSystem) -> DataFrame:
        rows = self._rows(tasks, filesystem)
        if self._may_keep and not is_forgetful(rows):
            self._may_keep = False
            rows = self._rows(tasks, filesystem)
        return rows

    def _rows(self, tasks: int, filesystem: pafs.FileSystem) -> DataFrame:
        # Numbers of its own, or Spark would take what a user's transform cached of one plan for the result of another.
        first = tasks * next(self._numbers)
        numbers = self._query.spark.range(first, first + tasks, 1, tasks)
        source = numbers.mapInArrow(reader(self._settings, self._counts), SCHEMA)
        decoded = self._query.decode(source).observe(_OBSERVED, F.expr(f"count({REASON}) AS bad"))
        good, by = self._shaped(self._query.good(decoded))

        def write(batches: parquet.Batches) -> parquet.Batches:
            return parquet.writer(filesystem, task_folder(), by, "_timestamp", QUANTILE_POINTS)(batches)

        # What the user's own query did to the number of tasks is not to be the number of files.
        good = good if self._may_keep else good.coalesce(tasks)
        return good.mapInArrow(write, parquet.WRITTEN)


def _seen(shares: Iterable[Counted], bad: int) -> Seen:
    records: Counter[TopicPartition] = Counter()
    sizes: Counter[TopicPartition] = Counter()
    for counted in shares:
        for partition, (some, size) in counted.items():
            records[TopicPartition(*partition)] += some
            sizes[TopicPartition(*partition)] += size
    return Seen(records.total(), sizes.total(), bad, {p: sizes[p] / records[p] for p in records})


def share(ranges: Sequence[Range], tasks: int) -> list[list[Range]]:
    """As many offsets for each task, cutting ranges where they are too long."""
    shares: list[list[Range]] = [[] for _ in range(tasks)]
    total, taken = sum(r.offsets for r in ranges), 0
    for read in ranges:
        start = read.start
        while start < read.end:
            task = taken * tasks // total
            room = -(-(task + 1) * total // tasks) - taken
            end = min(read.end, start + room)
            shares[task].append(Range(read.partition, start, end))
            taken += end - start
            start = end
    return shares


def is_forgetful(rows: DataFrame) -> bool:
    """Whether running this plan again computes everything again."""
    execution = rows._jdf.queryExecution()
    jvm = rows.sparkSession.sparkContext._jvm
    assert jvm is not None
    analyzed = execution.analyzed()
    clock = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    if not analyzed.deterministic() or analyzed.containsPattern(clock):
        return False
    step = execution.executedPlan()
    while step.subqueries().isEmpty() and _kind(step) in _FORGETFUL:
        if step.children().isEmpty():
            return True
        step = step.children().apply(0)
    return False


def _kind(step: Any) -> str:
    """A step's name; the wrapper around steps that are compiled together counts as what it wraps."""
    name = str(step.nodeName())
    return _kind(step.children().apply(0)) if name.startswith("WholeStageCodegen") else name


def _observed(rows: DataFrame) -> int:
    metrics = rows._jdf.queryExecution().observedMetrics()
    return int(metrics.apply(_OBSERVED).getLong(0))
