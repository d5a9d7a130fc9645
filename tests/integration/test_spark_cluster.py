"""Consumers whose Spark is a cluster: a real master and worker in processes of their own, on loopback."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest
import yaml
from pyspark.sql import SparkSession

from headgate import jars
from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.controller.drain import is_drained
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_pace import NoWaiting
from headgate.kafka.load_records import FixedSize
from headgate.lake.catalogs import open_catalog
from headgate.lake.verify import verify_table
from headgate.model import TopicPartition
from headgate.simulation.workload_shapes import Steady
from tests.eventually import eventually
from tests.ports import free_port

DEADLINE_S = 240.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    home = Path(pyspark.__file__).parent
    master = f"127.0.0.1:{free_port()}"
    host, _, port = master.partition(":")
    folder = str(tmp_path / "work")
    parts = {
        "master.Master": ("--host", host, "--port", port, "--webui-port", "0"),
        "worker.Worker": (
            "--host",
            host,
            "--cores",
            "2",
            "--memory",
            "1g",
            "--webui-port",
            "0",
            "--work-dir",
            folder,
            f"spark://{master}",
        ),
    }
    java_home = str(jars.java().resolve().parent.parent)
    environment = {**os.environ, "SPARK_HOME": str(home), "JAVA_HOME": java_home, "SPARK_DAEMON_MEMORY": "256m"}
    with ExitStack() as going:
        for name, options in parts.items():
            said = going.enter_context((tmp_path / f"{name}.log").open("wb"))
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *options]
            process = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
            going.callback(process.wait)
            going.callback(process.terminate)
        log = tmp_path / "worker.Worker.log"
        eventually(lambda: "Successfully registered with master" in log.read_text(), "the cluster is there", DEADLINE_S)
        yield f"spark://{master}"


@pytest.mark.timeout(900)
def test_a_pipeline_whose_spark_is_a_cluster_lands_every_record_once_with_its_own_transform(
    broker: EmbeddedKafka, spark: SparkSession, cluster: str, tmp_path: Path, unique: str
) -> None:
    partitions = [TopicPartition(unique, n) for n in range(2)]
    load = LoadGenerator(
        broker.bootstrap, {}, {unique: 2}, Steady.spread(partitions, 1e5), FixedSize(300), pace=NoWaiting()
    )
    load.run(count=3000)
    (tmp_path / "sizes.py").write_text(
        "from pyspark.sql import functions as F\n"
        "@F.udf('int')\n"
        "def size(value):\n"
        "    return len(value)\n"
        "def with_size(records):\n"
        "    return records.withColumn('size', size('value'))\n"
    )
    file = tmp_path / "pipeline.yaml"
    written = {
        "name": unique,
        "home": "home",
        "kafka": {"brokers": broker.bootstrap},
        "topics": [unique],
        "tables": [{"name": "lake.t", "transform": "sizes:with_size"}],
        "consumer": {"spark": {"master": cluster, "conf": {"spark.executor.memory": "512m"}}},
        "fleet": {"kind": "threads"},
    }
    file.write_text(yaml.safe_dump(written))
    pipeline = load_pipeline(file)
    said = tmp_path / "run.log"
    with said.open("wb") as output:
        run = subprocess.Popen(
            [sys.executable, "-m", "headgate.cli.main", "run", str(file)], stdout=output, stderr=output
        )
        try:
            settings = librdkafka_settings(pipeline)
            eventually(lambda: is_drained(pipeline, settings), "everything is in the lake", DEADLINE_S)
        finally:
            run.terminate()
            assert run.wait(DEADLINE_S) == 0, said.read_text()
    verdict = verify_table(spark, open_catalog(pipeline.lake), pipeline.tables[0])
    assert (verdict.problems, verdict.rows) == ((), 3000)
    rows = open_catalog(pipeline.lake).load_table("lake.t").scan().to_arrow().select(["value", "size"]).to_pylist()
    assert [row["size"] for row in rows] == [len(row["value"]) for row in rows]
    assert list((tmp_path / "work").glob("app-*/*/stderr"))  # executors of the cluster did it
