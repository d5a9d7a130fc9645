"""Counting every offset: is each one the ledger has passed in the table exactly once, and if not, which are not?

Read with Spark through Iceberg's own runtime, straight from the table's metadata file: an engine that did not write
the snapshots, and no second catalog to configure.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from headgate.config.pipeline import Table as TableConfig
from headgate.config.table import REJECTED_SUFFIX
from headgate.lake.ledger import read_ledger
from headgate.lake.skips import recorded_skips
from headgate.lake.tables import load_table
from headgate.model import Ledger, Range, Skip, TopicPartition

MOST_LISTED = 100
"""Ranges of missing or duplicate offsets listed per table; the counts are always complete."""

_LOOKS = 3

_KEY = ("_topic", "_kafka_partition", "_offset")


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """What was counted for one table."""

    table: str
    exists: bool = True
    rows: int = 0
    offsets: int = 0
    """Offsets the ledger has passed since its origins."""
    rejected: int = 0
    filtered: int = 0
    skipped: int = 0
    missing: int = 0
    """Offsets the ledger has passed that nothing accounts for."""
    duplicates: int = 0
    """Rows beyond the first for an offset (for tables with rows_per_record: any, offsets in more than one file)."""
    beyond: int = 0
    """Rows whose offset the ledger has not passed."""
    missing_ranges: tuple[Range, ...] = ()
    duplicate_ranges: tuple[Range, ...] = ()
    skips: tuple[Skip, ...] = ()
    problems: tuple[str, ...] = ()
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def rejects_differ(self) -> bool:
        return self.rejected != self.ledger.totals.rejected

    @property
    def ok(self) -> bool:
        return not self.problems


def verify_table(spark: SparkSession, catalog: Catalog, config: TableConfig) -> TableVerdict:
    """Counts at the newest snapshot. Rejects land a moment after their snapshot, so a difference in them alone is
    looked at again."""
    for _ in range(_LOOKS - 1):
        verdict = _verify_now(spark, catalog, config)
        if not verdict.rejects_differ:
            return verdict
        time.sleep(1.0)
    return _verify_now(spark, catalog, config)


def _verify_now(spark: SparkSession, catalog: Catalog, config: TableConfig) -> TableVerdict:
    table = load_table(catalog, config.name)
    if table is None:
        return TableVerdict(config.name, exists=False)
    ledger = read_ledger(table)
    landed = _offsets(spark, table.metadata_location)
    rejected_table = load_table(catalog, config.name + REJECTED_SUFFIX)
    rejected = _offsets(spark, rejected_table.metadata_location) if rejected_table else landed.limit(0)
    bounds = _bounds(spark, ledger)
    # The rejected table was read later: leave out what later snapshots added.
    rejected = rejected.join(F.broadcast(bounds), ["_topic", "_kafka_partition"]).filter("_offset < next")
    rejected = rejected.select(*landed.columns)
    rows, rejected_rows = landed.count(), rejected.count()
    repeated = _repeated(landed, by_file=config.rows_per_record == "any").unionByName(
        _repeated(rejected, by_file=False)
    )
    both = landed.select(*_KEY).unionByName(rejected.select(*_KEY)).distinct().cache()
    try:
        inside = both.join(F.broadcast(bounds), ["_topic", "_kafka_partition"], "left")
        beyond = inside.filter(
            F.col("next").isNull() | (F.col("_offset") >= F.col("next")) | (F.col("_offset") < F.col("origin"))
        ).count()
        gaps = _gaps(both, bounds).cache()
        absent = _total(gaps, "offsets")
        absent_ranges = _ranges(gaps)
    finally:
        both.unpersist()
    duplicates = _total(repeated, "extra")
    totals = ledger.totals
    skips = tuple(recorded_skips(catalog, table))
    missing_ranges: tuple[Range, ...] = ()
    if config.rows_per_record == "any":  # how many records became no row at all is not knowable
        missing = 0
    else:
        missing = absent - totals.skipped - totals.filtered
        if missing:  # ranges can be told from those filtered on purpose only where nothing was
            missing_ranges = absent_ranges if totals.filtered else _without(absent_ranges, skips)
    return TableVerdict(
        table=config.name,
        rows=rows,
        offsets=ledger.offsets,
        rejected=rejected_rows,
        filtered=totals.filtered,
        skipped=totals.skipped,
        missing=missing,
        duplicates=duplicates,
        beyond=beyond,
        missing_ranges=missing_ranges[:MOST_LISTED],
        duplicate_ranges=_islands(repeated),
        skips=skips,
        problems=tuple(
            text
            for wrong, text in (
                (missing > 0, f"{missing} offsets are missing"),
                (missing < 0, f"{-missing} more offsets landed than the ledger accounts for"),
                (duplicates, f"{duplicates} rows are duplicates"),
                (beyond, f"{beyond} rows lie beyond the ledger"),
                (
                    rejected_rows != totals.rejected,
                    f"{rejected_rows} rejected rows, the ledger counted {totals.rejected}",
                ),
                (rows != totals.rows, f"{rows} rows, the ledger counted {totals.rows}"),
            )
            if wrong
        ),
        ledger=ledger,
    )


def _offsets(spark: SparkSession, metadata_location: str) -> DataFrame:
    rows = spark.read.format("iceberg").load(metadata_location)
    return rows.select(*_KEY, F.col("_file") if "_file" in rows.columns else F.input_file_name().alias("_file"))


def _total(rows: DataFrame, column: str) -> int:
    return int(rows.agg(F.coalesce(F.sum(column), F.lit(0))).collect()[0][0])


def _bounds(spark: SparkSession, ledger: Ledger) -> DataFrame:
    rows = [(p.topic, p.partition, ledger.origin[p], at) for p, at in ledger.next.items()]
    return spark.createDataFrame(rows, "_topic STRING, _kafka_partition INT, origin BIGINT, next BIGINT")


def _repeated(offsets: DataFrame, by_file: bool) -> DataFrame:
    count = F.countDistinct("_file") if by_file else F.count(F.lit(1))
    return offsets.groupBy(*_KEY).agg((count - 1).alias("extra")).filter("extra > 0")


def _gaps(offsets: DataFrame, bounds: DataFrame) -> DataFrame:
    """Offsets of [origin, next) that are in no row, as ranges."""
    fences = bounds.selectExpr("_topic", "_kafka_partition", "origin - 1 AS _offset").unionByName(
        bounds.selectExpr("_topic", "_kafka_partition", "next AS _offset")
    )
    ordered = Window.partitionBy("_topic", "_kafka_partition").orderBy("_offset")
    return (
        offsets.join(bounds, ["_topic", "_kafka_partition"])
        .filter("_offset >= origin AND _offset < next")
        .select(*_KEY)
        .unionByName(fences)
        .withColumn("before", F.lag("_offset").over(ordered))
        .filter("_offset - before > 1")
        .selectExpr(
            "_topic", "_kafka_partition", "before + 1 AS start", "_offset AS end", "_offset - before - 1 AS offsets"
        )
    )


def _ranges(gaps: DataFrame) -> tuple[Range, ...]:
    found = gaps.orderBy("_topic", "_kafka_partition", "start").limit(10 * MOST_LISTED).collect()
    return tuple(Range(TopicPartition(r._topic, r._kafka_partition), r.start, r.end) for r in found)


def _islands(repeated: DataFrame) -> tuple[Range, ...]:
    """Neighbouring repeated offsets joined to ranges."""
    ordered = Window.partitionBy("_topic", "_kafka_partition").orderBy("_offset")
    found = (
        repeated.withColumn("island", F.col("_offset") - F.row_number().over(ordered))
        .groupBy("_topic", "_kafka_partition", "island")
        .agg(F.min("_offset").alias("start"), (F.max("_offset") + 1).alias("end"))
        .orderBy("_topic", "_kafka_partition", "start")
        .limit(MOST_LISTED)
        .collect()
    )
    return tuple(Range(TopicPartition(r._topic, r._kafka_partition), r.start, r.end) for r in found)


def _without(ranges: Sequence[Range], skips: Sequence[Skip]) -> tuple[Range, ...]:
    """The ranges minus those that Kafka is known to have skipped entirely."""
    known: dict[TopicPartition, list[tuple[int, int]]] = {}
    for skip in skips:
        if skip.is_whole:
            known.setdefault(skip.partition, []).append((skip.start, skip.end))
    left = []
    for gap in ranges:
        start = gap.start
        for skip_start, skip_end in sorted(known.get(gap.partition, [])):
            if skip_end <= start or skip_start >= gap.end:
                continue
            if skip_start > start:
                left.append(Range(gap.partition, start, skip_start))
            start = max(start, skip_end)
        if start < gap.end:
            left.append(Range(gap.partition, start, gap.end))
    return tuple(left)
