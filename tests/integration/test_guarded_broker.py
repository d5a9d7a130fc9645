"""A broker that asks who you are, encrypts, and allows no more than the docs say: each of the three Kafka clients of a
pipeline gets through, or says why.

The broker is the embedded one's program with other settings: SASL/PLAIN over TLS with a certificate made here.
"""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headgate import jars
from headgate.cli.main import app
from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.controller.calibration import calibrate
from headgate.controller.drain import is_drained
from headgate.controller.measured import Calibration
from headgate.controller.service import Service
from headgate.controller.status import StatusReader
from headgate.errors import HeadgateError
from headgate.kafka.broker_process import Node, server_properties
from headgate.kafka.java_programs import java_command
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_pace import NoWaiting
from headgate.kafka.load_records import FixedSize
from headgate.kafka.offsets import group_offsets
from headgate.lake.catalogs import open_catalog
from headgate.lake.verify import verify_table
from headgate.model import TopicPartition
from headgate.simulation.workload_shapes import Steady
from tests.eventually import eventually
from tests.ports import free_port

PASSWORD = "the-shop-s-secret"
DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class Guarded:
    bootstrap: str
    certificate: Path

    def client(self, password: str, user: str = "shop") -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(self.certificate),
        }

    @property
    def superuser(self) -> dict[str, str | int | float | bool]:
        return {"bootstrap.servers": self.bootstrap, "log_level": 2, **self.client("admin", "admin")}

    def allow(self, kind: ResourceType, name: str, *operations: AclOperation, prefix: bool = False) -> None:
        pattern = ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL
        allowed = [
            AclBinding(kind, name, pattern, "User:shop", "*", operation, AclPermissionType.ALLOW)
            for operation in operations
        ]
        admin = AdminClient(self.superuser)
        for done in admin.create_acls(allowed).values():
            done.result(30)

    def allow_pipeline(self, name: str, topic: str) -> None:
        """What docs/run-a-pipeline.md says that a pipeline needs, but for DescribeConfigs."""
        self.allow(ResourceType.TOPIC, topic, AclOperation.READ)
        own = (AclOperation.CREATE, AclOperation.ALTER, AclOperation.READ, AclOperation.WRITE)
        self.allow(ResourceType.TOPIC, f"__headgate.{name}.", *own, prefix=True)
        for group in (f"headgate-{name}", f"headgate-{name}-reader", "headgate-no-group"):
            self.allow(ResourceType.GROUP, group, AclOperation.READ)


def certificate(folder: Path) -> tuple[Path, Path]:
    """A key store for the broker and the certificate that clients trust."""
    store, public = folder / "broker.p12", folder / "ca.pem"
    keytool = [str(jars.java().with_name("keytool")), "-alias", "broker", "-storepass", "changeit"]
    made = ["-genkeypair", "-keyalg", "RSA", "-storetype", "PKCS12", "-validity", "2", "-dname", "CN=broker"]
    made += ["-ext", "SAN=ip:127.0.0.1", "-keystore", str(store)]
    subprocess.run([*keytool, *made], check=True, capture_output=True)
    exported = ["-exportcert", "-rfc", "-keystore", str(store), "-file", str(public)]
    subprocess.run([*keytool, *exported], check=True, capture_output=True)
    return store, public


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    store, public = certificate(folder)
    node = Node(1, free_port(), free_port())
    settings = server_properties(node, [node], folder / "data") + "\n".join(
        (
            f"listeners=SASL_SSL://127.0.0.1:{node.port},CONTROLLER://127.0.0.1:{node.controller_port}",
            f"advertised.listeners=SASL_SSL://127.0.0.1:{node.port}",
            "listener.security.protocol.map=SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name=SASL_SSL",
            "sasl.enabled.mechanisms=PLAIN",
            "sasl.mechanism.inter.broker.protocol=PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule "
            f'required username="admin" password="admin" user_admin="admin" user_shop="{PASSWORD}";',
            f"ssl.keystore.location={store}",
            "ssl.keystore.password=changeit",
            f"ssl.truststore.location={public}",
            "ssl.truststore.type=PEM",
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users=User:admin;User:ANONYMOUS",  # the latter is the broker's controller, which is not guarded
        )
    )
    file = folder / "server.properties"
    file.write_text(settings)
    format_, environment = java_command("-Dlog4j2.level=OFF", "kafka.tools.StorageTool", "format")
    format_ += ["--cluster-id", "Z3VhcmRlZC1icm9rZXItMQ", "--config", str(file)]
    subprocess.run(format_, env=environment, check=True, capture_output=True)
    command, environment = java_command("kafka.Kafka", str(file))
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    found = Guarded(f"127.0.0.1:{node.port}", public)
    try:
        admin = AdminClient(found.superuser)
        until = time.monotonic() + DEADLINE_S
        while True:
            try:
                admin.list_topics(timeout=2)
                break
            except KafkaException:
                assert process.poll() is None, (folder / "server.log").read_text()[-2000:]
                assert time.monotonic() < until
        yield found
    finally:
        process.kill()
        process.wait()


def write_pipeline(folder: Path, guarded: Guarded, name: str) -> Path:
    client = "\n".join(f"    {key}: {value}" for key, value in guarded.client("${SHOP_PASSWORD}").items())
    file = folder / "pipeline.yaml"
    file.write_text(
        f"""
name: {name}
home: home
kafka:
  brokers: "{guarded.bootstrap}"
  client:
{client}
topics: [{name}-orders]
tables: [{{name: lake.orders}}]
monitor: {{source: log_dirs, window_s: 4 s, min_span_s: 1 s}}
policy: {{consumer_capacity_bytes_per_s: 1 MB/s, packing_capacity_bytes_per_s: 800 kB/s}}
"""
    )
    return file


def partitions_of(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for n in range(2)]


def load_of(guarded: Guarded, topic: str) -> LoadGenerator:
    spread = Steady.spread(partitions_of(topic), 1e5)
    client = guarded.client("admin", "admin")
    return LoadGenerator(guarded.bootstrap, client, {topic: 2}, spread, FixedSize(200), pace=NoWaiting())


def test_a_pipeline_runs_on_a_broker_with_sasl_and_tls_with_all_its_clients(
    guarded: Guarded, spark: SparkSession, tmp_path: Path, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    file = write_pipeline(tmp_path, guarded, unique)
    topic = f"{unique}-orders"
    admin = AdminClient(guarded.superuser)
    forever = {"retention.ms": "-1", "retention.bytes": "-1"}  # log directories must not shrink (L-9)
    admin.create_topics([NewTopic(topic, 2, 1, config=forever)])[topic].result(30)
    load_of(guarded, topic).run(count=500)
    guarded.allow_pipeline(unique, topic)
    refused = doctor(file)
    assert (refused["broker"], refused["topics"], refused["retention"]) == ("ok", "unknown", "unknown")
    guarded.allow(ResourceType.TOPIC, topic, AclOperation.DESCRIBE_CONFIGS)
    guarded.allow(ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE)  # for log directories
    checked = CliRunner().invoke(app, ["check", str(file)])
    assert checked.exit_code == 0, checked.output
    assert PASSWORD not in checked.output

    pipeline = load_pipeline(file)
    service = Service(pipeline, session=lambda: spark)
    service.start()
    try:
        settings = librdkafka_settings(pipeline)
        reader = StatusReader(pipeline)
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until and not service.failed.is_set() and not is_drained(pipeline, settings):
            threading.Event().wait(0.5)
        measured = reader.refresh()
        reader.close()
        eventually(lambda: set(doctor(file).values()) == {"ok"}, "every check is passed")
    finally:
        service.stop()
    assert {p.partition.topic for p in measured.partitions} == {topic}  # log directories, read by kafka-python
    verdict = verify_table(spark, open_catalog(pipeline.lake), pipeline.tables[0])  # read by Spark's Java client
    assert (verdict.problems, verdict.rows) == ((), 500)
    assert PASSWORD not in "".join(p.read_text(errors="replace") for p in (tmp_path / "home").glob("*.log"))


def test_a_pipeline_may_be_calibrated_that_may_run_and_delete_its_internal_topics(
    guarded: Guarded, spark: SparkSession, tmp_path: Path, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    file = write_pipeline(tmp_path, guarded, unique)
    topic = f"{unique}-orders"
    load_of(guarded, topic).run(count=1200)  # twelve batches
    guarded.allow_pipeline(unique, topic)
    written = load_pipeline(file)
    pipeline = written.model_copy(
        update={"consumer": written.consumer.model_copy(update={"batch_bytes": 20_000, "max_uncommitted_cycles": 100})}
    )

    def measured() -> Calibration:
        return calibrate(pipeline, tmp_path, 60, lambda: spark, lambda _: None, threading.Event())

    with pytest.raises(HeadgateError, match=rf"allow Delete on topics that begin with __headgate\.{unique}\."):
        measured()
    guarded.allow(ResourceType.TOPIC, f"__headgate.{unique}.", AclOperation.DELETE, prefix=True)
    before = scratch_topics(guarded, unique)
    (one,) = measured().measured
    assert one.bytes_per_s.mean > 0
    eventually(lambda: scratch_topics(guarded, unique) == before, "its own are deleted")
    assert len(before) == 7  # of the first, which was not allowed to delete them
    mirrored = group_offsets(librdkafka_settings(pipeline), pipeline.group, partitions_of(topic))
    assert mirrored == {}  # the pipeline's group knows nothing of it


def scratch_topics(guarded: Guarded, name: str) -> set[str]:
    topics = AdminClient(guarded.superuser).list_topics(timeout=10).topics
    return {topic for topic in topics if topic.startswith(f"__headgate.{name}.calibration-")}


def doctor(file: Path) -> dict[str, str]:
    said = CliRunner().invoke(app, ["doctor", str(file), "--output", "json"])
    return {check["check"]: check["verdict"] for check in json.loads(said.stdout)["checks"]}


def test_a_wrong_password_is_told_and_not_shown(
    guarded: Guarded, tmp_path: Path, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "not-the-shop-s-secret")
    checked = CliRunner().invoke(app, ["check", str(write_pipeline(tmp_path, guarded, unique))])
    assert checked.exit_code == 1
    assert "Authentication failed" in checked.output
    assert "not-the-shop-s-secret" not in checked.output
