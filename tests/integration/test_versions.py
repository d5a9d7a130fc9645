"""Parts of different versions of Headgate on one pipeline: who is outdated ends or is refused, and says so."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headgate.controller.assembly import channel_of, controller_of
from headgate.controller.fleets import build_fleet
from headgate.controller.machine import Controller
from headgate.errors import Outdated
from headgate.kafka.codec import VERSION, encode
from headgate.kafka.embedded import EmbeddedKafka
from headgate.model.messages import ConsumerState, ControllerState, DecisionRecord, StateQuery
from tests.announcements import announce
from tests.eventually import eventually
from tests.integration.pipeline_harness import PipelineRun

TABLES = [{"name": "lake.t"}]


def send_as(run: PipelineRun, version: int, sender: str, topic: str, message: Any, partition: int = 0) -> None:
    """What a part of another version would write: the same headers, its version, and a body nobody here can read."""
    value, headers = encode(message, sender)
    written = {**dict(headers), "version": str(version).encode(), "schema": b"?" * 16, "release": b"9.9"}
    producer = Producer({"bootstrap.servers": run.bootstrap, "log_level": 2})
    producer.produce(topic, value=value + b"more", partition=partition, headers=list(written.items()))
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
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
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
