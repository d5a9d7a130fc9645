"""Fleets by name: whatever is installed under the entry point group `headgate.fleets`.

An entry point is a function that makes a fleet from the pipeline and the Spark session this process would share.
"""

import sys
from collections.abc import Callable

from pyspark.sql import SparkSession

from headgate.config.pipeline import Pipeline
from headgate.consumer import class_archive
from headgate.consumer.worker import Worker
from headgate.errors import ConfigError
from headgate.fleet import Fleet
from headgate.fleet.processes import ProcessFleet
from headgate.fleet.threads import ThreadFleet
from headgate.packing.registry import named

GROUP = "headgate.fleets"

Session = Callable[[], SparkSession]


def build_fleet(pipeline: Pipeline, session: Session) -> Fleet:
    make: Callable[[Pipeline, Session], Fleet] = named(GROUP, "fleet", pipeline.fleet.kind)
    return make(pipeline, session)


def threads(pipeline: Pipeline, session: Session) -> Fleet:
    return ThreadFleet(lambda number: Worker(pipeline, number, session), pipeline.fleet.stop_deadline_s)


def processes(pipeline: Pipeline, session: Session) -> Fleet:
    if pipeline.file is None:
        raise ConfigError("a fleet of processes needs the pipeline as a file that each process can read")
    class_archive.make_beside()
    command = [sys.executable, "-m", "headgate.cli.consumer", str(pipeline.file), "--id"]
    return ProcessFleet(lambda number: [*command, str(number)], pipeline.home, pipeline.fleet.stop_deadline_s)
