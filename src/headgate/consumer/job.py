"""The Spark work of a cycle for one table: ranges in, Parquet files and numbers out. No record visits the driver."""

import logging
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F

from headgate.config.clients import reader_settings
from headgate.config.pipeline import Pipeline, Table
from headgate.config.table import REJECTED_SUFFIX
from headgate.consumer import counting, parquet, reading
from headgate.consumer.decode import META, REASON
from headgate.consumer.files import Warehouse
from headgate.consumer.gaps import gaps
from headgate.consumer.isolate import isolate
from headgate.consumer.query import BadRecord, TableQuery
from headgate.consumer.spark import local_folders, reason, what_is_gone, workers_have_headgate
from headgate.consumer.standing import Seen, StandingQuery
from headgate.errors import ConsumerError, SparkLost
from headgate.lake.latency import QUANTILE_POINTS, merge_points
from headgate.model import CycleStats, Range, Skip, TopicPartition

log = logging.getLogger(__name__)

_WORTH_A_TASK_BYTES = 8_000_000
"""Payload from which another task, and so another file, is worth it where there are cores to run it."""
_CORES_OF_A_STRANGER = 8
_OBSERVED_S = 10.0
_WARM_UP_RECORDS = 100
_PARTITION_VALUE = "_headgate_by"


@dataclass(frozen=True, slots=True)
class JobResult:
    ranges: tuple[Range, ...]
    """What was read; shorter than asked where finding bad records used up its bound."""
    files: tuple[str, ...]
    rejected_files: tuple[str, ...]
    skips: tuple[Skip, ...]
    stats: CycleStats
    sizes: dict[TopicPartition, float] = field(default_factory=dict)
    """Measured bytes per record of some of the partitions."""


@dataclass(frozen=True, slots=True)
class Written:
    files: tuple[str, ...]
    rows: int
    timestamps_ms: tuple[int, ...]


class TableJob:
    def __init__(self, spark: SparkSession, pipeline: Pipeline, table: Table, warehouse: Warehouse) -> None:
        self._query = TableQuery(spark, pipeline, table)
        self._table = table
        self._warehouse = warehouse
        self._size_turns = counting.SizeTurns()
        self._bytes_per_record = 0.0
        self._cores = _cores(spark)
        self._local_folders = local_folders(spark)
        self._drops_observations = False
        self._standing = None
        if pipeline.consumer.reader != "connector" and workers_have_headgate(spark):
            self._standing = StandingQuery(self._query, {**reader_settings(pipeline), **reading.SETTINGS}, self._split)
        else:
            log.info("table %s is read with Spark's connector", table.name)
            cloudpickle.register_pickle_by_value(parquet)  # type: ignore[no-untyped-call]
        self._most_records: int | None = None
        """Fewer at a time while looking for bad records took too long to get anywhere."""
        self.schema = self._query.schema

    @property
    def one_at_a_time(self) -> bool:
        """Spark Connect looks the view `input` up when a query runs, not when it is made."""
        return self._query.is_remote and self._table.sql is not None

    def warm_up(self, stem: str) -> None:
        """Runs the whole way once with made-up records, so that the first real cycle does not pay for Spark's start."""
        try:
            if self._standing is not None:
                filesystem, folder, _ = self._warehouse.open(self._warehouse.data_folder(self._table.name, stem))
                wrote = bool(self._standing.run((), 1, filesystem, folder, made_up=_WARM_UP_RECORDS)[0])
            else:
                decoded = self._query.made_up(_WARM_UP_RECORDS).observe(Observation(), *counting.metrics([]))
                good, by = self._split(self._query.good(decoded))
                wrote = bool(self._save(good, self._table.name, stem, by, 1).files)
            if wrote:
                self._warehouse.remove_folder(self._warehouse.data_folder(self._table.name, stem))
        except (PySparkException, Py4JError) as error:
            log.info("table %s: warm-up ended early: %s", self._table.name, reason(error))

    def run(self, ranges: Sequence[Range], stem: str) -> JobResult:
        """Reads the ranges and writes their files below `stem`, a name no other cycle uses."""
        chosen = tuple(ranges) if self._most_records is None else first_records(ranges, self._most_records)
        try:
            result = self._tolerant(chosen, stem)
        except (Py4JNetworkError, ConnectionError) as error:
            raise SparkLost(f"Spark does not answer any more: {reason(error)}") from error
        except (ConsumerError, PySparkException, Py4JError, OSError) as error:
            if gone := what_is_gone(self._local_folders):
                raise SparkLost(gone) from error
            if isinstance(error, ConsumerError):
                raise
            raise ConsumerError(f"table {self._table.name}: {reason(error)}") from error
        if self._most_records is not None:
            self._most_records = None if chosen == tuple(ranges) else 2 * self._most_records
        return result

    def _tolerant(self, ranges: tuple[Range, ...], stem: str) -> JobResult:
        """Writes what can be written. Whatever fails is tried with Spark's connector before it is looked into; then
        records the transform fails on are found and rejected."""
        if self._standing is not None:
            try:
                return self._result(ranges, (), stem, *self._run_standing(self._standing, ranges, stem))
            except Py4JNetworkError:
                raise
            except (PySparkException, Py4JError) as error:
                log.warning("table %s: trying again with Spark's connector: %s", self._table.name, reason(error))
                stem = f"{stem}-again"
        try:
            return self._result(ranges, (), stem, *self._run_once(ranges, (), stem))
        except Py4JNetworkError:
            raise
        except (PySparkException, Py4JError) as error:
            self._probe(ranges, error)
            log.warning("table %s: a cycle failed, trying its records apart: %s", self._table.name, reason(error))
        fine, bad = isolate(ranges, self._fails, self._fails_again)
        if not fine:
            self._most_records = max(1, sum(r.offsets for r in ranges) // 16)
            raise ConsumerError(f"table {self._table.name}: no record could be told good or bad; trying with fewer")
        stem = f"{stem}-retried"
        return self._result(fine, bad, stem, *self._run_once(fine, bad, stem))

    # Writing

    def _result(
        self, ranges: tuple[Range, ...], bad: tuple[BadRecord, ...], stem: str, written: Written, seen: Seen
    ) -> JobResult:
        """Every record accounted for: a row, rejected, filtered on purpose, or a gap in the log."""
        records, bad_count = seen.records, seen.bad + len(bad)
        try:
            filtered = self._filtered(records, written.rows, bad_count)
        except ConsumerError:
            self._warehouse.remove(written.files)
            raise
        rejected_files = self._save_rejected(ranges, bad, stem, bad_count) if bad_count else ()
        stats = CycleStats(
            records=records,
            rows=written.rows,
            rejected=bad_count,
            filtered=filtered,
            payload_bytes=seen.payload_bytes,
            timestamps_ms=written.timestamps_ms,
        )
        if records:
            self._bytes_per_record = stats.payload_bytes / records
        return JobResult(ranges, written.files, rejected_files, self._skips(ranges, records), stats, seen.sizes)

    def _run_standing(self, standing: StandingQuery, ranges: tuple[Range, ...], stem: str) -> tuple[Written, Seen]:
        """Read by Spark's Python workers, with a plan that may be used again."""
        filesystem, folder, prefix = self._warehouse.open(self._warehouse.data_folder(self._table.name, stem))
        parts, seen = standing.run(ranges, self._files(ranges), filesystem, folder)
        written = _written(parts, prefix)
        if seen is not None:
            return written, seen
        if not written.rows:
            return written, self._counted(ranges)
        self._warehouse.remove(written.files)
        return self._run_once(ranges, (), f"{stem}-again")

    def _run_once(self, ranges: tuple[Range, ...], bad: tuple[BadRecord, ...], stem: str) -> tuple[Written, Seen]:
        """Read by Spark's connector, with a plan for these offsets."""
        measured = self._size_turns.choose(ranges)
        seen = Observation()
        decoded = self._query.decoded(ranges).observe(seen, *counting.metrics(measured))
        good, by = self._split(self._query.good(decoded, bad))
        written = self._save(good, self._table.name, stem, by, self._files(ranges))
        numbers = seen.get if written.rows else self._seen_or_counted(seen, ranges, measured)
        sizes = counting.sizes(measured, numbers)
        self._size_turns.measured(sizes)
        return written, _seen(numbers, sizes)

    def _counted(self, ranges: tuple[Range, ...]) -> Seen:
        """Of a batch that Spark did not have to read to know that nothing is left of it."""
        row = self._query.decoded(ranges).agg(*counting.metrics([])).collect()[0]
        return _seen(row.asDict(), {})

    def _seen_or_counted(
        self, seen: Observation, ranges: tuple[Range, ...], measured: Sequence[Range]
    ) -> dict[str, Any]:
        """What was observed of a batch of which no row was left. Where Spark can tell that from the query alone, it
        reads nothing, so nothing is observed and `get` never returns: then the records are counted by a job."""
        if not self._drops_observations:
            answers: list[dict[str, Any]] = []
            asking = threading.Thread(target=lambda: answers.append(seen.get), daemon=True)
            asking.start()
            asking.join(_OBSERVED_S)
            if answers:
                return answers[0]
            self._drops_observations = True
        counted = self._query.decoded(ranges).agg(*counting.metrics(measured)).collect()[0]
        return dict(counted.asDict())

    def _filtered(self, records: int, rows: int, rejected: int) -> int:
        dropped = records - rejected - rows
        if self._table.rows_per_record == "any":
            return 0
        if dropped < 0 or (dropped > 0 and self._table.rows_per_record == "one" and not self._table.where):
            raise ConsumerError(
                f"table {self._table.name}: {rows} rows came out of {records - rejected} records; if the transform "
                f"filters or multiplies on purpose, say so with rows_per_record: at_most_one or any"
            )
        return dropped

    def _split(self, good: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
        """With a column for each of the table's partition values, to split files by."""
        by = []
        for number, wanted in enumerate(self._table.partition_by):
            value = F.col(wanted.column)
            if wanted.transform != "identity":
                value = F.date_trunc(wanted.transform, value)
            by.append(f"{_PARTITION_VALUE}_{number}")
            good = good.withColumn(by[-1], _text(value))
        return good, tuple(by)

    def _files(self, ranges: Sequence[Range]) -> int:
        expected_bytes = sum(r.offsets for r in ranges) * self._bytes_per_record
        return file_count(expected_bytes, self._table.target_file_bytes, self._cores)

    def _save_rejected(
        self, ranges: tuple[Range, ...], bad: tuple[BadRecord, ...], stem: str, expected: int
    ) -> tuple[str, ...]:
        rejected = self._query.rejected(self._query.decoded(ranges), bad)
        written = self._save(rejected, self._table.name + REJECTED_SUFFIX, stem, (), 1)
        if written.rows != expected:
            self._warehouse.remove(written.files)
            raise ConsumerError(f"table {self._table.name}: the log changed while it was read; the cycle starts again")
        return written.files

    def _save(self, rows: DataFrame, table: str, stem: str, by: tuple[str, ...], files: int) -> Written:
        filesystem, folder, prefix = self._warehouse.open(self._warehouse.data_folder(table, stem))
        write = parquet.writer(filesystem, folder, by, "_timestamp", QUANTILE_POINTS)
        parts = rows.coalesce(files).mapInArrow(write, parquet.WRITTEN).collect()
        return _written(parts, prefix)

    def _skips(self, ranges: tuple[Range, ...], records: int) -> tuple[Skip, ...]:
        missing = sum(r.offsets for r in ranges) - records
        if missing == 0:
            return ()
        skips = gaps(self._query.read(ranges), ranges)
        if sum(s.offsets for s in skips) != missing:
            raise ConsumerError(f"table {self._table.name}: the log changed while it was read; the cycle starts again")
        return tuple(skips)

    # Records a transform fails on

    def _probe(self, ranges: Sequence[Range], error: Exception) -> None:
        """Raises unless Kafka can be read: then it was not the records' fault."""
        try:
            _try(self._query.decoded(ranges).select(*META, REASON))
        except (PySparkException, Py4JError) as reading:
            raise ConsumerError(f"cannot read from Kafka: {reason(reading)}") from reading
        if not self._query.may_fail:
            raise ConsumerError(f"table {self._table.name}: cannot write: {reason(error)}") from error

    def _fails(self, part: Range) -> str | None:
        try:
            _try(self._query.good(self._query.decoded((part,))))
        except (PySparkException, Py4JError) as error:
            return reason(error)
        return None

    def _fails_again(self, part: Range, why: str) -> str:
        """A single record is only called bad if it can be read and fails a second time: brokers and services that
        transforms call have their moments, too."""
        self._probe((part,), ConsumerError(why))
        again = self._fails(part)
        if again is None:
            raise ConsumerError(f"table {self._table.name}: fails on some tries only, trying again: {why}")
        return again


def _written(parts: Sequence[Row], prefix: str) -> Written:
    points = [(tuple(map(float, part.timestamps_ms)), part.rows) for part in parts]
    return Written(
        files=tuple(sorted({prefix + part.path for part in parts})),
        rows=sum(part.rows for part in parts),
        timestamps_ms=tuple(map(int, merge_points(points))),
    )


def _seen(numbers: dict[str, Any], sizes: dict[TopicPartition, float]) -> Seen:
    return Seen(int(numbers["records"] or 0), int(numbers["bytes"] or 0), int(numbers["bad"] or 0), sizes)


def _try(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def file_count(payload_bytes: float, target_file_bytes: int, cores: int) -> int:
    """Files of about the target size; a batch is usually smaller than one. Each file is a task, so where there are
    cores for more, a large batch becomes more files than that."""
    by_size = math.ceil(payload_bytes / target_file_bytes)
    by_work = min(cores, math.ceil(payload_bytes / _WORTH_A_TASK_BYTES))
    return max(1, by_size, by_work)


def first_records(ranges: Sequence[Range], records: int) -> tuple[Range, ...]:
    """As many offsets from the beginning of these ranges."""
    taken = []
    for read in ranges:
        if records <= 0:
            break
        taken.append(Range(read.partition, read.start, min(read.end, read.start + records)))
        records -= read.offsets
    return tuple(taken)


def _text(value: Column) -> Column:
    """For telling values apart, null and the empty text too."""
    return F.coalesce(F.concat(F.lit("v"), value.cast("string")), F.lit("null"))


def _cores(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except (AttributeError, PySparkException):  # Spark Connect does not say
        return _CORES_OF_A_STRANGER
