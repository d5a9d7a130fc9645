"""The peer: a Structured Streaming query from Spark's Kafka connector, with the same transform, into Spark's own
Iceberg sink."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate import jars
from headgate.consumer.spark import start_session
from headgate.kafka.load_records import FIELDS_DDL

NAME = "Structured Streaming into Iceberg"
CATALOG = "peer"


@contextmanager
def warm_session(home: Path, master: str = "local[2]") -> Iterator[SparkSession]:
    """Ours, with a catalog for the peer's tables."""
    catalog = {
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "hadoop",
        f"spark.sql.catalog.{CATALOG}.warehouse": str(home / "peer"),
    }
    spark = start_session(master, home / "spark", jar_sets=(jars.SPARK, jars.ICEBERG), conf=catalog)
    try:
        yield spark
    finally:
        spark.stop()


def start_query(
    spark: SparkSession, bootstrap: str, table: str, checkpoint: Path, source: Mapping[str, str]
) -> StreamingQuery:
    """Reads 300 B JSON records, parses them and appends to the table, which it makes if it is not there."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .options(**source)
        .load()
        .selectExpr(
            f"from_json(CAST(value AS STRING), '{FIELDS_DDL}') AS v",
            "topic AS _topic",
            "partition AS _kafka_partition",
            "offset AS _offset",
            "timestamp AS _timestamp",
        )
        .select("v.*", "_topic", "_kafka_partition", "_offset", "_timestamp")
    )
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.db")
    if not spark.catalog.tableExists(table):
        spark.createDataFrame([], records.schema).writeTo(table).create()
    return records.writeStream.option("checkpointLocation", str(checkpoint)).toTable(table)


def wait_for_batch(query: StreamingQuery, batch: int) -> None:
    while query.isActive and (query.lastProgress or {"batchId": -1})["batchId"] < batch:
        time.sleep(0.2)
    if (error := query.exception()) is not None:
        raise error
