"""Somebody deletes the folder of Spark's temporary files: no cycle works any more, and the consumer must not stay."""

import subprocess
import sys
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.kafka.embedded import EmbeddedKafka
from tests.integration.pipeline_harness import new_name

PIPELINE = """\
name: {name}
home: {home}
kafka: {{brokers: "{bootstrap}"}}
topics: [{name}]
tables:
  - {{name: lake.t, sql: "SELECT DISTINCT * FROM input", rows_per_record: any}}
"""
"""What is distinct is found by way of that folder."""

PROGRAM = """\
import shutil, sys
from pathlib import Path
from headgate.config import load_pipeline
from headgate.consumer.files import Warehouse
from headgate.consumer.job import TableJob
from headgate.consumer.spark import local_folders, start_session
from headgate.controller.service import _why_lost
from headgate.errors import SparkLost
from headgate.model import Range, TopicPartition

pipeline = load_pipeline(Path(sys.argv[1]))
spark = start_session("local[1]", Path(sys.argv[2]))
job = TableJob(spark, pipeline, pipeline.tables[0], Warehouse(pipeline.lake))
ranges = [Range(TopicPartition(sys.argv[3], 0), 0, 5)]
print(job.run(ranges, "before").stats.rows, repr(_why_lost(spark)))
for folder in local_folders(spark):
    shutil.rmtree(folder)
try:
    job.run(ranges, "after")
except SparkLost as error:
    print(error)
print(_why_lost(spark))
spark.stop()
"""


def test_a_cycle_that_fails_for_it_tells_that_spark_is_lost(broker: EmbeddedKafka, tmp_path: Path) -> None:
    topic, file = new_name(), tmp_path / "pipeline.yaml"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(5):
        producer.produce(topic, b"x", partition=0)
    assert producer.flush(30) == 0
    file.write_text(PIPELINE.format(name=topic, home=tmp_path / "home", bootstrap=broker.bootstrap))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file), str(tmp_path / "spark"), topic],
        capture_output=True,
        text=True,
        timeout=300,
    )
    before, failed, lost = done.stdout.splitlines()
    assert before == "5 ''", done.stderr
    assert failed == lost
    assert failed.startswith(f"somebody deleted {tmp_path}/spark/spark-local/blockmgr-")
    assert failed.endswith(", which Spark needs")
