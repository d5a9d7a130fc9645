"""Turns as expressions of Spark: what its tasks make of them is what was written down."""

from collections import Counter

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headgate.producers.spark import partition_of, tasks_of
from headgate.producers.turns import Turns

BEHIND = Turns(rounds=(0, 1), first=(0,), rows=600)
"""Partition 0 is 600 rows behind."""


def written(spark: SparkSession, tasks: int, known: bool) -> Counter[int]:
    frame = spark.range(0, 6_000, 1, tasks)
    assert tasks_of(frame) == tasks
    placed = frame.withColumn("partition", partition_of(BEHIND, tasks if known else None))
    return Counter({row["partition"]: row["count"] for row in placed.groupBy("partition").count().collect()})


@pytest.mark.parametrize("tasks", [1, 10])
def test_a_gap_is_made_up_for_once_however_many_tasks_write(spark: SparkSession, tasks: int) -> None:
    """600 rows for partition 0 and half of the other 5,400."""
    assert written(spark, tasks, known=True) == {0: 3_300, 1: 2_700}


def test_where_the_number_of_tasks_is_not_known_early_ones_make_up_for_more(spark: SparkSession) -> None:
    """Ten tasks of 600 rows: 300, 100, 50, 30, 20, 14, 10, 8, 6 and 5 of them first, 543 in all."""
    counts = written(spark, 10, known=False)
    assert counts.total() == 6_000
    assert counts[0] - counts[1] == pytest.approx(543, abs=10)


def test_an_empty_frame_can_be_written(spark: SparkSession) -> None:
    empty = spark.createDataFrame([], "value string")
    assert empty.withColumn("partition", partition_of(BEHIND, tasks_of(empty))).collect() == []


@pytest.mark.parametrize(("adaptive", "tasks"), [("true", None), ("false", 5)])
def test_a_plan_that_is_adapted_while_it_runs_is_not_run_to_count_its_tasks(
    spark: SparkSession, adaptive: str, tasks: int | None
) -> None:
    settings = {"spark.sql.adaptive.enabled": adaptive, "spark.sql.shuffle.partitions": "5"}
    before = {name: spark.conf.get(name) or "" for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        shuffled = spark.range(0, 100, 1, 4).groupBy((F.col("id") % 7).alias("n")).count()
        assert tasks_of(shuffled) == tasks
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
