"""What an operator asks of a pipeline: how is it, and why did it decide so? Running, stopped, and never started."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.config.clients import librdkafka_settings
from headgate.controller import health_facts
from headgate.controller.ports import STARTED
from headgate.controller.status import StatusReader
from headgate.kafka.channel import Outbox
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.internal_topics import Topics, ensure_topics
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_pace import NoWaiting
from headgate.kafka.load_records import FixedSize
from headgate.kafka.load_topics import prepare_topics
from headgate.kafka.offsets import GroupMirror
from headgate.lake.catalogs import open_catalog
from headgate.lake.tables import create_table
from headgate.model import TopicPartition
from headgate.model.messages import DecisionRecord
from headgate.simulation.workload_shapes import Steady
from tests.announcements import spark_schema
from tests.eventually import eventually
from tests.integration.test_service import running, wait_for, write_pipeline


def asked(command: str, file: Path, *more: str) -> tuple[int, Any]:
    result = CliRunner().invoke(app, [command, str(file), "--output", "json", *more])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


def verdicts(file: Path) -> tuple[int, dict[str, str], dict[str, str]]:
    code, report = asked("doctor", file)
    return (
        code,
        {c["check"]: c["verdict"] for c in report["checks"]},
        {c["check"]: c["evidence"] for c in report["checks"]},
    )


def test_a_pipeline_is_examined_and_its_decisions_explained_before_while_and_after_it_runs(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, unique: str
) -> None:
    pipeline = write_pipeline(tmp_path, broker.bootstrap, unique)
    file, topic = tmp_path / "pipeline.yaml", f"{unique}-a"
    partitions = [TopicPartition(topic, n) for n in range(2)]
    prepare_topics(AdminClient({"bootstrap.servers": broker.bootstrap}), {topic: 2}, 1)

    code, found, said = verdicts(file)
    assert (code, found["broker"], found["parts"], found["catalog"]) == (0, "ok", "warn", "warn")
    assert "never run" in said["parts"]
    never = CliRunner().invoke(app, ["explain", str(file)])
    assert "has never run on these brokers" in str(never.exception)

    load = LoadGenerator(
        broker.bootstrap, {}, {topic: 2}, Steady.spread(partitions, 1e5), FixedSize(300), pace=NoWaiting()
    )
    load.run(count=2000)  # before it starts, or its monitor would see a burst that no consumer can read
    with running(pipeline, spark):
        reader = StatusReader(pipeline)
        wait_for(reader, lambda s: bool(s.consumers) and s.rows > 0 and s.lag_records == 0, "everything lands")
        reader.close()

        def is_well() -> bool:
            code, found, said = verdicts(file)
            return code == 0 and set(found.values()) == {"ok"} and "consumer 1" in said["parts"]

        eventually(is_well, "every check is passed")
        _, (first, *_) = asked("explain", file, "--last", "9")

    assert first["decision"]["trigger"] == "unassigned"
    assert first["decision"]["outcome"] == "applied"
    assert {(m["partition"], m["old"], m["new"]) for m in first["decision"]["moves"]} == {(0, 0, 1), (1, 0, 1)}
    assert first["taken_at_ms"] <= first["decision"]["at_ms"]
    assert first["before"]["bytes_per_s"] is not None

    # Stopped: the journal still tells, and the doctor sees that nobody answers any more.
    _, (same,) = asked("explain", file, "--at", _iso(first["taken_at_ms"] + 1))
    assert same["decision"] == first["decision"]
    nothing = CliRunner().invoke(app, ["explain", str(file), "--at", "2001-01-01"])
    assert "took no decision up to 2001-01-01 00:00:00 UTC" in str(nothing.exception)
    shown = CliRunner().invoke(app, ["explain", str(file), "--last", "9"])
    text = shown.stdout
    assert "instead of 9: the journal holds no more" in shown.stderr
    assert "t3 consumers ready" in text
    assert f"{topic}-1 – → 1" in text

    # Records that the lake misses: the doctor looks up how old the first of them is.
    load.run(count=200)
    code, found, said = verdicts(file)
    assert (found["broker"], found["retention"]) == ("ok", "ok"), said

    # Another program moves the group's offsets: said, with both numbers, and no reason to fail.
    mirror = GroupMirror(librdkafka_settings(pipeline), pipeline.group)
    mirror.ask({partitions[0]: 3})
    assert mirror.is_written(5)
    mirror.close()
    code, found, said = verdicts(file)
    assert found["group"] == "warn"
    assert f"{topic}-0 3 instead of 1000" in said["group"]


def test_a_time_before_the_last_thousand_decisions_is_found_as_well(
    broker: EmbeddedKafka, tmp_path: Path, unique: str
) -> None:
    pipeline, file = write_pipeline(tmp_path, broker.bootstrap, unique), tmp_path / "pipeline.yaml"
    settings, topics = librdkafka_settings(pipeline), Topics(pipeline.name)
    ensure_topics(AdminClient({"bootstrap.servers": broker.bootstrap}), topics, replication=1, consumers=1)
    first_ms = int(1000 * time.time())
    outbox = Outbox(settings)

    def write(number: int, outcome: str) -> None:
        told = (first_ms + number, 1, number, "overload", f"number {number}", outcome)
        outbox.send(topics.decisions, DecisionRecord(*told, 1, 1, 0, 0, 0, (), (), (), (), ()))

    for number in range(1200):
        write(number, "applied")
    outbox.flush()
    _, (found,) = asked("explain", file, "--at", _iso(first_ms + 7))
    assert found["decision"]["reason"] == "number 7"
    _, several = asked("explain", file, "--at", _iso(first_ms + 201), "--last", "4")  # on both sides of the thousandth
    assert [d["decision"]["number"] for d in several] == [198, 199, 200, 201]
    for number in range(1200, 2200):  # a controller that starts again and again, and decides nothing
        write(number, STARTED)
    outbox.flush()
    _, newest = asked("explain", file, "--last", "2")
    assert [d["decision"]["number"] for d in newest] == [1198, 1199]


def test_a_ledger_that_is_lost_is_told_as_such_and_the_brokers_are_asked_all_the_same(
    broker: EmbeddedKafka, tmp_path: Path, unique: str
) -> None:
    pipeline, file = write_pipeline(tmp_path, broker.bootstrap, unique), tmp_path / "pipeline.yaml"
    prepare_topics(AdminClient({"bootstrap.servers": broker.bootstrap}), {f"{unique}-a": 2}, 1)
    name, catalog = pipeline.tables[0].name, open_catalog(pipeline.lake)
    table = create_table(catalog, pipeline.lake, name, spark_schema())
    table.append(table.schema().as_arrow().empty_table())  # a snapshot of another program, and none with a ledger
    code, found, said = verdicts(file)
    assert (code, found["broker"], found["catalog"], found["ledger"]) == (1, "ok", "ok", "fail")
    assert (found["topics"], found["group"]) == ("ok", "unknown")
    assert f"{name}: table {name}: no snapshot carries the ledger any more" in said["ledger"]

    # A catalog that answers no more since it was opened.
    Path(pipeline.lake.catalog["uri"].removeprefix("sqlite:///")).write_text("not a database any more")
    (unread,) = health_facts._ledgers(pipeline, catalog).unread
    assert "not a database" in unread


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


def test_brokers_and_a_catalog_that_do_not_answer_fail_in_words_and_without_secrets(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        """
name: nowhere
kafka: {brokers: "127.0.0.1:1", client: {sasl.password: hushhush}}
topics: [a]
tables: [{name: lake.t}]
lake: {catalog: {type: sql, uri: "postgresql+psycopg2://me:hushhush@127.0.0.1:1/lake"}}
"""
    )
    code, found, said = verdicts(file)
    assert (code, found["broker"], found["catalog"], found["hot"]) == (1, "fail", "fail", "unknown")
    assert "hushhush" not in json.dumps(said)
