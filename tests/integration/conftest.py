"""One broker and one Spark session for all integration tests of a run; each test has its own topics and folder."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate import jars
from headgate.consumer.spark import start_session
from headgate.kafka.embedded import EmbeddedKafka

_names = itertools.count(1)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka"), 1) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """With the Kafka connector and with Iceberg's runtime, to read tables back by an engine that did not write them."""
    folder = tmp_path_factory.mktemp("spark")
    session = start_session(
        "local[2]", folder, "tests", jar_sets=(jars.SPARK, jars.ICEBERG), python_path=Path(__file__).parent
    )
    yield session
    session.stop()


@pytest.fixture
def unique() -> str:
    """A word no other test of this run uses, for names of topics and pipelines."""
    return f"t{os.getpid()}x{next(_names)}"
