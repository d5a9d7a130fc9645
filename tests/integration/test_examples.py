"""What the repository shows people to copy must work as it stands."""

from pathlib import Path

from pyspark.sql import SparkSession

from headgate.config.loader import load_pipeline
from headgate.consumer.files import Warehouse
from headgate.consumer.job import TableJob

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline.yaml"


def test_every_table_of_the_example_pipeline_can_be_built(spark: SparkSession) -> None:
    pipeline = load_pipeline(EXAMPLE, {"KAFKA_PASSWORD": "x", "CATALOG_TOKEN": "x"})
    for table in pipeline.tables:
        assert "_offset" in TableJob(spark, pipeline, table, Warehouse(pipeline.lake)).schema
