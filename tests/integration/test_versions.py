"""Parts of different versions of Headgate on one pipeline: who is outdated ends or is refused, and says so."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.config.clients import librdkafka_settings
from headgate.controller.assembly import channel_of, controller_of
from headgate.controller.fleets import build_fleet
from headgate.controller.health_facts import consumers_heard_since
from headgate.controller.machine import Controller
from headgate.errors import LakeError, Outdated
from headgate.kafka.channel import Outbox
from headgate.kafka.codec import VERSION, encode
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.internal_topics import Topics, ensure_topics
from headgate.lake.catalogs import open_catalog
from headgate.lake.committer import Committer
from headgate.model.messages import ConsumerState, ControllerState, DecisionRecord, LedgerState, StateQuery
from tests.announcements import announce, write_file
from tests.eventually import eventually
from tests.integration.pipeline_harness import PipelineRun
from tests.integration.test_service import write_pipeline

TABLES = [{"name": "lake.t"}]


def send_as(
    run: PipelineRun | EmbeddedKafka,
    version: int,
    sender: str,
    topic: str,
    message: Any,
    partition: int = 0,
    key: str | None = None,
) -> None:
    """What a part of another version would write: the same headers, its version, and a body nobody here can read."""
    value, headers = encode(message, sender)
    written = {**dict(headers), "version": str(version).encode(), "schema": b"?" * 16, "release": b"9.9"}
    producer = Producer({"bootstrap.servers": run.bootstrap, "log_level": 2})
    producer.produce(topic, value=value + b"more", key=key, partition=partition, headers=list(written.items()))
    assert producer.flush(30) == 0


def state_of(consumer_id: int) -> ConsumerState:
    return ConsumerState("", consumer_id, "life", (), 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, "")


def stepped(controller: Controller, until: Callable[[], bool]) -> None:
    def look() -> bool:
        controller.step()
        return until()

    eventually(look, "the controller noticed")


def test_an_old_consumer_beside_a_new_controller_ends_and_says_why(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}) as run:
        worker = run.worker()
        send_as(run, VERSION + 1, "the controller", run.names.control, StateQuery("1-1", 1, 1), worker.id)
        worker.ended()
        failure, worker.failure = worker.failure, None
        assert isinstance(failure, Outdated)
        assert f"the controller of Headgate 9.9 (messages version {VERSION + 1}) is at work" in str(failure)
        assert "upgrade this one" in str(failure)


def test_a_new_controller_refuses_an_old_consumer_and_an_old_one_ends(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.kafka.channel.AT_WORK_S", 3600.0)  # longer than the test may take
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}) as run:
        fleet = build_fleet(run.pipeline, lambda: spark)
        channel = channel_of(run.pipeline)
        controller = controller_of(run.pipeline, fleet, channel, threading.Event())

        def alerts() -> list[str]:
            return [a for d in run.messages(run.names.decisions, DecisionRecord) for a in d.alerts]

        send_as(run, VERSION - 1, "consumer 3", run.names.control, state_of(3))
        stepped(controller, lambda: bool(channel.refused()))
        stepped(controller, lambda: bool(alerts()))
        (refused,) = alerts()
        with pytest.raises(LakeError, match=r"consumer 3 of Headgate 9\.9 .* is at work, or was lately"):
            consumers_heard_since(run.pipeline, run.settings, time.time() - 3600)
        assert f"consumer 3 of Headgate 9.9 (messages version {VERSION - 1}) is refused: upgrade it to" in refused
        assert run.messages(run.names.control, ControllerState)[-1].epoch == controller.epoch

        send_as(run, VERSION + 1, "consumer 4", run.names.control, state_of(4))
        with pytest.raises(Outdated, match=r"consumer 4 of Headgate 9\.9"):
            stepped(controller, lambda: False)
        channel.close()
        fleet.hand_over()


def test_an_old_committer_ends_rather_than_pass_over_announcements_it_cannot_read(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}) as run:
        committer = run.committer()
        send_as(run, VERSION + 1, "consumer 1", run.names.announcements, announce((run.topic("t"), 0, 0, 1)))
        committer.ended()
        failure, committer.failure = committer.failure, None
        assert isinstance(failure, Outdated)
        assert "consumer 1 of Headgate 9.9" in str(failure)


def test_decisions_of_an_older_release_are_counted_and_not_said_to_be_none(
    broker: EmbeddedKafka, tmp_path: Path, unique: str
) -> None:
    pipeline, file = write_pipeline(tmp_path, broker.bootstrap, unique), str(tmp_path / "pipeline.yaml")
    topics = Topics(pipeline.name)
    ensure_topics(AdminClient({"bootstrap.servers": broker.bootstrap}), topics, replication=1, consumers=1)
    decided = DecisionRecord(
        int(1000 * time.time()), 1, 1, "overload", "why", "applied", 1, 2, 1, 0, 0, (), (), (), (), ()
    )
    for _ in range(2):
        send_as(broker, VERSION - 1, "the controller", topics.decisions, decided)
    said = "2 records of its journal are of another release of Headgate, whose messages this one does not read"
    none = CliRunner().invoke(app, ["explain", file])
    assert str(none.exception) == f"no decision of pipeline {pipeline.name} can be read: {said}"
    assert "2 decisions of another release" in CliRunner().invoke(app, ["status", file, "--once"]).output

    outbox = Outbox(librdkafka_settings(pipeline))
    outbox.send(topics.decisions, decided)
    outbox.flush()
    one = CliRunner().invoke(app, ["explain", file, "--last", "3"])
    assert one.stderr == f"1 decision instead of 3: the journal holds no more; {said}\n"
    assert CliRunner().invoke(app, ["explain", file, "--last", "1"]).stderr == ""


def test_a_table_that_is_gone_after_an_upgrade_is_not_made_again_until_a_person_says_so(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.kafka.channel.AT_WORK_S", 0.0)  # the older release was stopped long ago
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}) as run:
        words = LedgerState("lake.t", 0, "an older one", 7, 1, True, (), (), 0)
        send_as(run, VERSION - 1, "the committer", run.names.ledger, words, key="lake.t")
        path = tmp_path / "warehouse/lake/t/data/first.parquet"
        first = announce((run.topic("t"), 0, 0, 2))
        first = replace(first, files=(write_file(path, first.ranges),))
        run.outbox.send(run.names.announcements, first)
        run.outbox.flush()
        committer = Committer(run.pipeline, run.settings)
        committer.turn()
        assert not open_catalog(run.pipeline.lake).table_exists("lake.t")

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr("headgate.kafka.channel.AT_WORK_S", 3600.0)
            at_work = CliRunner().invoke(app, ["maintain", str(tmp_path / "pipeline.yaml"), "--begin-anew", "lake.t"])
        assert at_work.exit_code != 0
        assert (
            f"the committer of Headgate 9.9 (messages version {VERSION - 1}) is at work"
            in f"{at_work.output}{at_work.exception}"
        )
        told = CliRunner().invoke(app, ["maintain", str(tmp_path / "pipeline.yaml"), "--begin-anew", "lake.t"])
        assert told.output == "lake.t: begins anew, at the earliest records\n"
        eventually(lambda: _is_made(run), "the table")


def _is_made(run: PipelineRun) -> bool:
    Committer(run.pipeline, run.settings).turn()
    return open_catalog(run.pipeline.lake).table_exists("lake.t")
