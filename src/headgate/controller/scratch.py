"""A pipeline's double that nobody minds: its own lake and internal topics, which are removed again."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headgate.config.clients import librdkafka_settings
from headgate.config.pipeline import Lake, Pipeline
from headgate.errors import HeadgateError
from headgate.kafka.internal_topics import Topics, ensure_topics

_DEADLINE_S = 30.0


def scratch_of(pipeline: Pipeline, home: Path) -> Pipeline:
    """The names of its internal topics begin as the pipeline's do, so that whoever may run the one may run the other;
    nobody takes topics for a pipeline's by how they begin. The group is the pipeline's, to read as it does: nothing may
    be mirrored to it."""
    return pipeline.model_copy(
        update={
            "name": f"{pipeline.name}.calibration-{uuid.uuid4().hex[:8]}",
            "home": home,
            "start_from": "earliest",
            "lake": Lake(
                catalog={"type": "sql", "uri": f"sqlite:///{home}/catalog.db"}, warehouse=str(home / "warehouse")
            ),
            "kafka": pipeline.kafka.model_copy(update={"group": pipeline.group}),
            "consumer": pipeline.consumer.model_copy(update={"rate_cap_bytes_per_s": None}),
        }
    )


@contextmanager
def scratch(pipeline: Pipeline, folder: Path) -> Iterator[Pipeline]:
    """With room for one consumer, in a new folder within `folder`."""
    home = folder / uuid.uuid4().hex[:8]
    home.mkdir()
    double = scratch_of(pipeline, home)
    admin = AdminClient(dict(librdkafka_settings(double)))
    topics = Topics(double.name)
    brokers = len(admin.list_topics(timeout=15).brokers)
    try:
        ensure_topics(admin, topics, pipeline.kafka.internal_replication or min(3, brokers), 1)
        yield double
    except BaseException:
        _delete(admin, topics)  # what went wrong before says more than what is left behind
        raise
    else:
        if refusal := _delete(admin, topics):
            raise HeadgateError(
                f"topics that begin with __headgate.{double.name}. could not be deleted: {refusal}. Delete them, and "
                f"allow Delete on topics that begin with __headgate.{pipeline.name}. before calibrating again"
            )
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _delete(admin: AdminClient, topics: Topics) -> str:
    """Why they could not all be deleted, or nothing."""
    refusal = ""
    asked = admin.delete_topics(list(topics.settings()), operation_timeout=20, request_timeout=_DEADLINE_S)
    for future in asked.values():
        error = future.exception(2 * _DEADLINE_S)
        if isinstance(error, KafkaException) and error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            refusal = error.args[0].str()
    return refusal
