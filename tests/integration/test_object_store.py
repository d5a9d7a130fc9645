"""A warehouse behind S3's protocol, served by a real HTTP server: no Hadoop jars, only the catalog's own settings."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from pyspark.sql import SparkSession

from headgate.kafka.embedded import EmbeddedKafka
from headgate.lake.catalogs import open_catalog
from headgate.lake.upkeep import maintain
from tests.eventually import eventually
from tests.integration.pipeline_harness import PipelineRun
from tests.ports import free_port

KEY = {"s3.access-key-id": "someone", "s3.secret-access-key": "secret", "s3.region": "us-east-1"}


def store(endpoint: str) -> pafs.S3FileSystem:
    return pafs.S3FileSystem(
        access_key="someone",
        secret_key="secret",
        region="us-east-1",
        endpoint_override=endpoint,
        allow_bucket_creation=True,
    )


@pytest.fixture
def s3_endpoint(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    with (tmp_path / "s3.log").open("wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=log, stderr=log)
    endpoint = f"http://127.0.0.1:{port}"

    def has_a_bucket() -> bool:
        assert server.poll() is None, (tmp_path / "s3.log").read_text()
        try:
            store(endpoint).create_dir("bucket")
        except OSError:
            return False
        return True

    try:
        eventually(has_a_bucket, "the S3 server answers")
        yield endpoint
    finally:
        server.terminate()
        server.wait(10)


def test_a_warehouse_in_an_object_store_gets_every_record_once_rejects_too_and_upkeep(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, s3_endpoint: str
) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "s3.endpoint": s3_endpoint, **KEY}
    table = {"name": "lake.t", "format": "json", "schema": "n INT, c STRING", "partition_by": ["c"]}
    lake = {"warehouse": "s3://bucket/warehouse", "catalog": catalog, "keep_snapshots": 1}
    with PipelineRun(tmp_path, broker, spark, [table], {"t": 2}, lake=lake) as run:
        for partition in (0, 1):
            good = [json.dumps({"n": n, "c": "ab"[n % 2]}).encode() for n in range(50)]
            run.produce("t", [*good, b"broken"], partition)
        run.run()
        run.wait_until_landed()
        landed, rejected = (run.iceberg(name).scan().to_arrow() for name in ("lake.t", "lake.t__rejected"))
        places = sorted(zip(landed["_kafka_partition"].to_pylist(), landed["_offset"].to_pylist(), strict=True))
        assert places == [(p, n) for p in (0, 1) for n in range(50)]
        assert sorted(rejected["_offset"].to_pylist()) == [50, 50]

        for _ in range(5):  # small files enough to be joined
            run.produce("t", good[:10], 0)
            run.wait_until_landed()
        run.stop()
        folder, files = "bucket/warehouse/lake/t/data", store(s3_endpoint)
        with files.open_output_stream(f"{folder}/orphan.parquet") as orphan:
            orphan.write(b"of a consumer that was killed")
        old = run.pipeline.lake.model_copy(update={"orphan_age_s": 0.01})  # every file counts as old
        done = maintain(open_catalog(old), "lake.t", old)
        assert done.compaction.files >= 12  # at least six of each value of c
        assert done.compaction.into == 2
        assert [path for path in done.sweep.orphans if "/data/" in path] == [f"{folder}/orphan.parquet"]
        assert not files.get_file_info(f"{folder}/orphan.parquet").is_file
        landed = run.iceberg("lake.t").scan().to_arrow()
        places = sorted(zip(landed["_kafka_partition"].to_pylist(), landed["_offset"].to_pylist(), strict=True))
        assert places == [*((0, n) for n in range(101) if n != 50), *((1, n) for n in range(50))]
