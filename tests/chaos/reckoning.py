"""The reckoning: what was acknowledged against what landed, counted by Spark and by DuckDB, which wrote none of it.

A partition that holds more than was acknowledged is compared with its topic, record by record: brokers that die one
after the other may take a batch twice that they were sent once, and then the lake has to hold it twice.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from confluent_kafka import KafkaException
from pyiceberg.catalog import Catalog

from headgate.config.pipeline import Pipeline
from headgate.config.table import REJECTED_SUFFIX
from headgate.kafka.load_report import LoadReport
from headgate.lake.catalogs import open_catalog
from headgate.lake.tables import load_table
from headgate.model import TopicPartition
from tests.chaos.held import held_by, repeated
from tests.chaos.parts import QUICK_JVM
from tests.chaos.scene import Scene


@dataclass(frozen=True, slots=True)
class Outcome:
    acknowledged: int
    rows: int
    rejected: int
    violations: tuple[str, ...]
    repeated: int = 0
    """Records that Kafka holds more often than they were sent, and so does the lake."""

    def sentence(self) -> str:
        if not self.violations:
            return f"{self.acknowledged:,} records acknowledged, {self.rows:,} rows and {self.rejected:,} rejects: all"
        return "\n".join((f"{len(self.violations)} violations:", *self.violations))


def count(
    scene: Scene,
    pipeline: Pipeline,
    partitions: Iterable[TopicPartition],
    reports: Sequence[LoadReport],
    violations: Sequence[str],
) -> Outcome:
    """`violations` are those known before; what is found here comes after them."""
    acknowledged: Counter[TopicPartition] = Counter()
    found = list(violations)
    for report in reports:
        for partition, counts in report.partitions.items():
            acknowledged[partition] += counts.records
        if report.failed:
            found.append(f"the producer was not answered for {report.failed} records: {dict(report.errors)}")
    rows = rejected = again = rejected_again = 0
    catalog = open_catalog(pipeline.lake)
    for topic, table in scene.tables.items():
        landed = _Landed(_files(catalog, table), _files(catalog, table + REJECTED_SUFFIX), scene.id_of(topic))
        numbers = landed.counts()
        for partition in (p for p in partitions if p.topic == topic):
            there, offsets, first, last, odd, spoiled = numbers.get(partition.partition, (0, 0, 0, -1, 0, 0))
            written = acknowledged[partition]
            rows, rejected = rows + there - spoiled, rejected + spoiled
            wrong = [
                f"{partition}: {text}"
                for is_wrong, text in (
                    (there != written, f"{there} rows and rejects, {written} records were acknowledged"),
                    (offsets != there, f"{there - offsets} rows are doubled"),
                    ((first, last) != (0, written - 1), f"offsets {first} to {last} instead of 0 to {written - 1}"),
                    (odd, f"{odd} rows hold another record than their offset says"),
                )
                if is_wrong
            ]
            if there > written and offsets == there:
                try:
                    held = held_by(pipeline.kafka.brokers, partition)
                except (AssertionError, KafkaException) as error:  # it comes after hours that are not to be lost
                    found += [*wrong, f"{partition}: the topic cannot be read: {error}"]
                    continue
                in_kafka = repeated(held, landed.rows(partition.partition), written)
                if in_kafka is not None:
                    again, rejected_again, wrong = again + in_kafka[0], rejected_again + in_kafka[1], []
            found += wrong
    bad = sum(report.bad for report in reports)
    if rejected - rejected_again != bad:
        found.append(f"{rejected} rejected rows, {bad} records were spoiled on purpose")
    return Outcome(acknowledged.total(), rows, rejected, tuple(found), again)


def verify(file: Path, deadline_s: float = 900.0) -> list[str]:
    """As a user would: `headgate verify`, which counts with Spark."""
    ran = subprocess.run(
        [sys.executable, "-m", "headgate", "verify", str(file), "--output", "json"],
        env={**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JVM},
        capture_output=True,
        text=True,
        timeout=deadline_s,
        check=False,
    )
    try:
        verdicts = json.loads(ran.stdout)
    except ValueError:
        return [f"headgate verify ended with exit code {ran.returncode}: {ran.stderr[-1000:]}"]
    found = [
        f"verify, {v['table']}: {problem}; missing {v['missing_ranges']}; doubled {v['duplicate_ranges']}"
        for v in verdicts
        for problem in v["problems"]
    ]
    found += [f"verify, {v['table']}: Kafka skipped {v['skipped']}, but it did not" for v in verdicts if v["skipped"]]
    if ran.returncode and not found:
        found.append(f"headgate verify ended with exit code {ran.returncode} and named no problem")
    return found


def _files(catalog: Catalog, name: str) -> list[str]:
    table = load_table(catalog, name)
    if table is None or table.current_snapshot() is None:
        return []
    return [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]


@dataclass(frozen=True, slots=True)
class _Landed:
    """A table's files and those of its rejects, as DuckDB reads them.

    The generator numbers a partition's records as the broker does, so that a row tells which record it is.
    """

    files: list[str]
    rejects: list[str]
    id_of: str

    def counts(self) -> dict[int, tuple[int, int, int, int, int, int]]:
        """Per partition: rows, distinct offsets, first, last, rows whose id is not their offset, rejected rows."""
        answer = self._ask(
            "SELECT p, count(*), count(DISTINCT o), min(o), max(o), "
            "count(*) FILTER (NOT reject AND id IS DISTINCT FROM o), count(*) FILTER (reject) FROM landed GROUP BY p"
        )
        return {row[0]: row[1:] for row in answer}

    def rows(self, partition: int) -> dict[int, int | None]:
        """Offset → id of one partition; nobody can tell the id of a rejected one."""
        return dict(
            self._ask(f"SELECT o, CASE WHEN NOT reject THEN coalesce(id, -1) END FROM landed WHERE p = {partition}")
        )

    def _ask(self, question: str) -> list[tuple[Any, ...]]:
        parts = []
        for files, content, is_reject in ((self.files, self.id_of, False), (self.rejects, "NULL", True)):
            if files:
                listed = ", ".join(f"'{path}'" for path in files)
                parts.append(
                    f"SELECT _kafka_partition AS p, _offset AS o, {content} AS id, {is_reject} AS reject "
                    f"FROM read_parquet([{listed}])"
                )
        if not parts:
            return []
        return duckdb.execute(f"WITH landed AS ({' UNION ALL '.join(parts)}) {question}").fetchall()
