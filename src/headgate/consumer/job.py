"""The Spark work of a cycle for one table: ranges in, Parquet files and numbers out. No record visits the driver."""

import json
import logging
import math
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F

from headgate.config.clients import java_settings
from headgate.config.pipeline import Pipeline, Table
from headgate.config.table import REJECTED_SUFFIX
from headgate.config.transform import import_transform
from headgate.consumer.decode import META, RAW_KEY, RAW_VALUE, REASON, decoder, with_meta
from headgate.consumer.files import Warehouse
from headgate.consumer.spark import settle, ship_modules
from headgate.errors import ConfigError, ConsumerError, LakeError, SparkLost
from headgate.lake.latency import QUANTILE_POINTS
from headgate.lake.spark_types import iceberg_schema
from headgate.model import CycleStats, Range, Skip, TopicPartition

log = logging.getLogger(__name__)

_MEASURED_RANGES = 8
"""Record sizes are measured for this many partitions a cycle, in turn: each costs two expressions per record."""
_ISOLATION_JOBS = 64
"""Most Spark jobs spent per cycle on finding the records a transform fails on; the rest of the range waits."""
_ISOLATION_S = 30.0
"""And most time, so that commands do not wait for it longer than their deadline."""
_WORTH_A_TASK_BYTES = 8_000_000
"""Payload from which another task, and so another file, is worth it where there are cores to run it."""
_EXACT_SKIPS = 20
_CORES_OF_A_STRANGER = 8
_OBSERVED_S = 10.0
_PARTITION_VALUE = "_headgate_value"
_LONGEST_FOLDER = 40
"""Longer partition values are hashed in folder names; file systems allow 255 bytes for everything in them."""


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
class _Bad:
    """A record the transform fails on."""

    partition: TopicPartition
    offset: int
    reason: str


class TableJob:
    def __init__(self, spark: SparkSession, pipeline: Pipeline, table: Table, warehouse: Warehouse) -> None:
        # A session of its own, so that the view `input` of inline SQL cannot meet another table's.
        self._spark = spark.newSession() if hasattr(spark, "newSession") else spark
        settle(self._spark, pipeline.consumer.spark.conf)
        self._table = table
        self._warehouse = warehouse
        self._read_committed = pipeline.kafka.isolation == "read_committed"
        self._decode, self._columns = decoder(table)
        self._transform = import_transform(table.transform, pipeline.folder) if table.transform else None
        if self._transform is not None:
            ship_modules(spark, pipeline.folder)
        self._options = {f"kafka.{key}": value for key, value in java_settings(pipeline).items()}
        # A fixed group lets the connector keep its consumers between cycles; it neither joins nor commits.
        self._options["kafka.group.id"] = f"{pipeline.group}-reader"
        self._rotation = 0
        self._bytes_per_record = 0.0
        self._cores = _cores(spark)
        self._drops_observations = False
        self._most_records: int | None = None
        """Fewer at a time while looking for bad records took too long to get anywhere."""
        self.schema = self._checked_schema()

    def _checked_schema(self) -> str:
        """The table's schema as Spark's JSON; refuses what cannot work or loses where a record came from."""
        name = self._table.name
        try:
            good = self._good(self._read((Range(TopicPartition("unread", 0), 0, 0),)))
        except AnalysisException as error:
            raise ConfigError(f"table {name}: {_first_line(error)}; check where, sql and transform") from error
        except Exception as error:  # the user's function may fail in any way
            raise ConfigError(f"table {name}: the transform fails with {type(error).__name__}: {error}") from error
        if not isinstance(good, DataFrame):
            raise ConfigError(f"table {name}: the transform gives a {type(good).__name__}; it must return a DataFrame")
        missing = [column for column in META if column not in good.columns]
        if missing:
            raise ConfigError(
                f"table {name}: the transform drops {', '.join(missing)}; keep {', '.join(META)}, "
                f"they are how every record is accounted for"
            )
        if unknown := [by.column for by in self._table.partition_by if by.column not in good.columns]:
            raise ConfigError(
                f"table {name}: partition_by names {', '.join(unknown)}; the columns are {', '.join(good.columns)}"
            )
        schema = str(good.schema.json())
        try:
            iceberg_schema(schema)
        except LakeError as error:
            raise ConfigError(f"table {name}: {error}") from error
        return schema

    def warm_up(self, stem: str) -> None:
        """Runs the whole way once with made-up records, so that the first real cycle does not pay for Spark's start."""
        kafka = self._spark.range(100).selectExpr(
            "CAST(NULL AS BINARY) AS key",
            "CAST(CAST(id AS STRING) AS BINARY) AS value",
            "'warm-up' AS topic",
            "0 AS partition",
            "id AS offset",
            "current_timestamp() AS timestamp",
            "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
        )
        seen = Observation()
        try:
            decoded = self._decoded(kafka).observe(seen, *_input_metrics([]))
            self._save(self._transformed(decoded, ()), stem, 100)
            self._warehouse.remove_folder(self._warehouse.data_folder(self._table.name, stem))
        except (PySparkException, Py4JError) as error:
            log.info("table %s: warm-up ended early: %s", self._table.name, _reason(error))

    def run(self, ranges: Sequence[Range], stem: str) -> JobResult:
        """Reads the ranges and writes their files below `stem`, a name no other cycle uses."""
        chosen = tuple(ranges) if self._most_records is None else first_records(ranges, self._most_records)
        try:
            result = self._tolerant(chosen, stem)
        except (Py4JNetworkError, ConnectionError) as error:
            raise SparkLost(f"Spark does not answer any more: {_reason(error)}") from error
        except (PySparkException, Py4JError, OSError) as error:
            raise ConsumerError(f"table {self._table.name}: {_reason(error)}") from error
        self._rotation += _MEASURED_RANGES
        if self._most_records is not None:
            self._most_records = None if chosen == tuple(ranges) else 2 * self._most_records
        return result

    def _tolerant(self, ranges: tuple[Range, ...], stem: str) -> JobResult:
        """Writes what can be written; records the transform fails on are found and rejected."""
        try:
            return self._write(ranges, (), stem)
        except Py4JNetworkError:
            raise
        except (PySparkException, Py4JError) as error:
            self._probe(ranges, error)
            log.warning(
                "table %s: a record cannot be transformed, looking for it: %s", self._table.name, _reason(error)
            )
        fine, bad = self._isolate(ranges)
        return self._write(fine, bad, f"{stem}-retried")

    # Reading, and the two halves of a batch

    def _read(self, ranges: Iterable[Range]) -> DataFrame:
        assign: dict[str, list[int]] = {}
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for read in ranges:
            topic, number = read.partition.topic, read.partition.partition
            assign.setdefault(topic, []).append(number)
            starts.setdefault(topic, {})[str(number)] = read.start
            ends.setdefault(topic, {})[str(number)] = read.end
        return (
            self._spark.read.format("kafka")
            .options(**self._options)
            .option("assign", json.dumps(assign))
            .option("startingOffsets", json.dumps(starts))
            .option("endingOffsets", json.dumps(ends))
            .option("failOnDataLoss", "true")
            .option("includeHeaders", "true")
            .load()
        )

    def _decoded(self, kafka: DataFrame) -> DataFrame:
        return self._decode(with_meta(kafka))

    def _good(self, kafka: DataFrame, bad: Sequence[_Bad] = ()) -> DataFrame:
        return self._transformed(self._decoded(kafka), bad)

    def _transformed(self, decoded: DataFrame, bad: Sequence[_Bad]) -> DataFrame:
        good = decoded.filter(F.col(REASON).isNull())
        if bad:
            good = good.filter(~_is_one_of(bad))
        if self._table.where:
            good = good.filter(self._table.where)
        good = good.select(*(f"`{name}`" for name in self._columns), *META)
        if self._transform is not None:
            good = self._call_transform(good)
        elif self._table.sql:
            good.createOrReplaceTempView("input")
            good = self._spark.sql(self._table.sql)
        return good

    def _call_transform(self, good: DataFrame) -> DataFrame:
        """The user's code, in our process: whatever it raises costs this table's cycle and nothing else."""
        assert self._transform is not None
        try:
            made: DataFrame = self._transform(good)
            return made
        except (PySparkException, Py4JError):
            raise  # an analysis error, told like those of inline SQL
        except Exception as error:
            raise ConsumerError(f"table {self._table.name}: {self._table.transform} raised {error!r}") from error

    def _rejected(self, kafka: DataFrame, bad: Sequence[_Bad]) -> DataFrame:
        reason = F.col(REASON)
        for one in bad:
            reason = F.when(_is_one_of([one]), F.lit(one.reason)).otherwise(reason)
        return (
            self._decoded(kafka)
            .withColumn(REASON, reason)
            .filter(F.col(REASON).isNotNull())
            .select(
                F.col(RAW_KEY).alias("key"),
                F.col(RAW_VALUE).alias("value"),
                F.col(REASON).alias("reason"),
                F.current_timestamp().alias("rejected_at"),
                *META,
            )
        )

    # Writing

    def _write(self, ranges: tuple[Range, ...], bad: tuple[_Bad, ...], stem: str) -> JobResult:
        measured = [ranges[(self._rotation + i) % len(ranges)] for i in range(min(_MEASURED_RANGES, len(ranges)))]
        seen, written = Observation(), Observation()
        decoded = self._decoded(self._read(ranges))
        decoded = decoded.observe(seen, *_input_metrics(measured))
        good = self._transformed(decoded, bad).observe(written, F.count(F.lit(1)).alias("rows"))
        files = self._save(good, stem, sum(r.offsets for r in ranges))
        rows = int(written.get["rows"])
        numbers = seen.get if rows else self._seen_or_counted(seen, ranges, measured)
        records, bad_count = int(numbers["records"] or 0), int(numbers["bad"] or 0) + len(bad)
        if rows == 0:
            self._warehouse.remove(files)
            files = ()
        try:
            filtered = self._filtered(records, rows, bad_count)
        except ConsumerError:
            self._warehouse.remove(files)
            raise
        rejected_files: tuple[str, ...] = ()
        if bad_count:
            rejected_files = self._save_rejected(ranges, bad, stem, bad_count)
        skips = self._skips(ranges, records)
        stats = CycleStats(
            records=records,
            rows=rows,
            rejected=bad_count,
            filtered=filtered,
            payload_bytes=int(numbers["bytes"] or 0),
            timestamps_ms=tuple(int(t) for t in (numbers["timestamps"] or "").split(",") if t),
        )
        if records:
            self._bytes_per_record = stats.payload_bytes / records
        return JobResult(ranges, files, rejected_files, skips, stats, _sizes(measured, numbers))

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
        counted = self._decoded(self._read(ranges)).agg(*_input_metrics(measured)).collect()[0]
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

    def _save(self, good: DataFrame, stem: str, offsets: int) -> tuple[str, ...]:
        location = self._warehouse.data_folder(self._table.name, stem)
        by = self._table.partition_by
        for number, wanted in enumerate(by):
            value = F.col(wanted.column)
            if wanted.transform != "identity":
                value = F.date_trunc(wanted.transform, value)
            good = good.withColumn(f"{_PARTITION_VALUE}_{number}", _folder_name(value.cast("string")))
        files = file_count(offsets * self._bytes_per_record, self._table.target_file_bytes, self._cores)
        writer = good.coalesce(files).write.option("compression", "zstd")
        if by:  # one value a file, and the column itself stays in the file for Iceberg
            writer = writer.partitionBy(*(f"{_PARTITION_VALUE}_{n}" for n in range(len(by))))
        writer.parquet(location)
        return self._warehouse.list(location)

    def _save_rejected(
        self, ranges: tuple[Range, ...], bad: tuple[_Bad, ...], stem: str, expected: int
    ) -> tuple[str, ...]:
        location = self._warehouse.data_folder(self._table.name + REJECTED_SUFFIX, stem)
        counted = Observation()
        rejected = self._rejected(self._read(ranges), bad).observe(counted, F.count(F.lit(1)).alias("rows"))
        rejected.coalesce(1).write.option("compression", "zstd").parquet(location)
        files = self._warehouse.list(location)
        if int(counted.get["rows"]) != expected:
            self._warehouse.remove(files)
            raise ConsumerError(f"table {self._table.name}: the log changed while it was read; the cycle starts again")
        return files

    # Offsets that Kafka did not show

    def _skips(self, ranges: tuple[Range, ...], records: int) -> tuple[Skip, ...]:
        missing = sum(r.offsets for r in ranges) - records
        if missing == 0:
            return ()
        by_partition = Window.partitionBy("topic", "partition").orderBy("offset")
        offsets = self._read(ranges).select("topic", "partition", "offset")
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
        skips = [skip for r in ranges for skip in _skips_of(r, found.get(r.partition), inner.get(r.partition, []))]
        if sum(s.offsets for s in skips) != missing:
            raise ConsumerError(f"table {self._table.name}: the log changed while it was read; the cycle starts again")
        return tuple(skips)

    # Records a transform fails on

    def _probe(self, ranges: Sequence[Range], error: Exception) -> None:
        """Raises unless Kafka can be read: then it was not the records' fault."""
        try:
            self._decoded(self._read(ranges)).select(*META, REASON).write.format("noop").mode("overwrite").save()
        except (PySparkException, Py4JError) as reading:
            raise ConsumerError(f"cannot read from Kafka: {_reason(reading)}") from reading
        if self._transform is None and not self._table.sql and not self._table.where:
            raise ConsumerError(f"table {self._table.name}: cannot write: {_reason(error)}") from error

    def _isolate(self, ranges: Sequence[Range]) -> tuple[tuple[Range, ...], tuple[_Bad, ...]]:
        """The records the transform fails on; ranges are cut where the bound on jobs or time is reached.

        Halves a part that fails and doubles after one that does not: a few jobs for a single bad record, and no more
        than one for each when all are bad.
        """
        budget, until = _ISOLATION_JOBS, time.monotonic() + _ISOLATION_S
        bad: list[_Bad] = []
        kept: list[Range] = []
        for whole in ranges:
            low, high, size = whole.start, whole.start, whole.offsets  # a bad record is known to be in [low, high)
            while low < whole.end and budget > 0 and time.monotonic() < until:
                part = Range(whole.partition, low, min(low + size, whole.end))
                budget -= 1
                reason = self._fails(part)
                if reason is None:
                    low = part.end
                    size = max(1, (high - low) // 2) if low < high else 2 * size
                elif part.offsets == 1:
                    reason = self._fails_again(part, reason)
                    bad.append(_Bad(whole.partition, low, reason))
                    low = high = part.end
                    size = 1
                else:
                    high = part.end
                    size = part.offsets // 2
            if low > whole.start:
                kept.append(Range(whole.partition, whole.start, low))
        if not kept:
            self._most_records = max(1, sum(r.offsets for r in ranges) // 16)
            raise ConsumerError(f"table {self._table.name}: no record could be told good or bad; trying with fewer")
        return tuple(kept), tuple(bad)

    def _fails_again(self, part: Range, reason: str) -> str:
        """A single record is only called bad if it can be read and fails a second time: brokers and services that
        transforms call have their moments, too."""
        self._probe((part,), ConsumerError(reason))
        again = self._fails(part)
        if again is None:
            raise ConsumerError(f"table {self._table.name}: fails on some tries only, trying again: {reason}")
        return again

    def _fails(self, part: Range) -> str | None:
        try:
            self._good(self._read((part,))).write.format("noop").mode("overwrite").save()
        except (PySparkException, Py4JError) as error:
            return _reason(error)
        return None


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


def _cores(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except (AttributeError, PySparkException):  # Spark Connect does not say
        return _CORES_OF_A_STRANGER


def _input_metrics(measured: Sequence[Range]) -> list[Column]:
    """What is counted while the batch streams by: totals, timestamp quantiles, and sizes of some partitions.

    SQL text rather than column functions: each of those is several calls into the JVM, every cycle.
    """
    size = f"(coalesce(octet_length({RAW_KEY}), 0) + coalesce(octet_length({RAW_VALUE}), 0))"
    points = ", ".join(f"{i / (QUANTILE_POINTS - 1):g}D" for i in range(QUANTILE_POINTS))
    metrics = [
        "count(1) AS records",
        f"sum({size}) AS bytes",
        f"count({REASON}) AS bad",
        # As text: an observed array would come back as a JVM object.
        f"array_join(percentile_approx(unix_millis(_timestamp), array({points}), 200), ',') AS timestamps",
    ]
    for number, read in enumerate(measured):
        here = f"_kafka_partition = {read.partition.partition} AND _topic = '{read.partition.topic}'"
        metrics.append(f"count(CASE WHEN {here} THEN 1 END) AS records_{number}")
        metrics.append(f"sum(CASE WHEN {here} THEN {size} END) AS bytes_{number}")
    return [F.expr(metric) for metric in metrics]


def _sizes(measured: Sequence[Range], numbers: dict[str, Any]) -> dict[TopicPartition, float]:
    return {
        read.partition: numbers[f"bytes_{i}"] / numbers[f"records_{i}"]
        for i, read in enumerate(measured)
        if numbers[f"records_{i}"]
    }


def _folder_name(value: Column) -> Column:
    """Spark puts null and the empty text into one folder, and so into one file; here they differ."""
    short = F.when(F.length(value) <= _LONGEST_FOLDER, value).otherwise(F.sha2(value, 256))
    return F.coalesce(F.concat(F.lit("v"), short), F.lit("null"))


def _is_one_of(bad: Sequence[_Bad]) -> Column:
    conditions = (
        f"_offset = {one.offset} AND _kafka_partition = {one.partition.partition} AND _topic = '{one.partition.topic}'"
        for one in bad
    )
    return F.expr(" OR ".join(f"({one})" for one in conditions))


def _skips_of(read: Range, edge: Any, inner: Sequence[tuple[int, int]]) -> list[Skip]:
    """The gaps of one range: exactly when they are few, as a count when they are many (a compacted topic)."""
    if edge is None:
        gaps, missing = [(read.start, read.end)], read.offsets
    else:
        gaps = [(read.start, edge.first), *sorted(inner), (edge.last + 1, read.end)]
        missing = read.offsets - edge.records
    gaps = [(start, end) for start, end in gaps if end > start]
    if missing == 0:
        return []
    if sum(end - start for start, end in gaps) != missing or len(gaps) > _EXACT_SKIPS:
        return [Skip(read.partition, read.start, read.end, missing, "gap")]
    return [Skip(read.partition, start, end, end - start, "gap") for start, end in gaps]


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__


def _reason(error: BaseException) -> str:
    """The line of a Spark error that tells a person what happened: the Python exception, or the root cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in reversed(lines):
        if line.startswith(("Caused by: ", "pyspark.errors", "SparkRuntimeException")):
            return line.removeprefix("Caused by: ")[:300]
    python = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) and ":" in line]
    return (python[-1] if python else _first_line(error))[:300]
