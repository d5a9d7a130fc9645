"""`headgate status`: what a pipeline is doing now."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.live import Live

from headgate.cli.logs import log_to
from headgate.cli.output import Output, as_document
from headgate.cli.pipeline_file import PipelineArgument, find_pipeline
from headgate.cli.view import render
from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.controller.status import PipelineStatus, StatusReader
from headgate.errors import HeadgateError
from headgate.kafka.internal_topics import Topics
from headgate.kafka.offsets import partitions_where


def status(
    file: PipelineArgument = None,
    home: Annotated[Path | None, typer.Option(help="Instead of FILE: a folder that `demo --home` kept.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Print once and end.")] = False,
    output: Annotated[Output, typer.Option(help="text for people; json for programs, printed once.")] = Output.text,
    interval_s: Annotated[float, typer.Option(help="Seconds between updates.", min=0.2)] = 1.0,
) -> None:
    """Consumers, partitions, rates, lag, latency and the last decisions; live until Ctrl-C.

    Everything is read from the pipeline's own Kafka topics, so this works from any machine that reaches the brokers
    and disturbs nothing.
    """
    pipeline = load_pipeline(find_pipeline(file, home))
    log_to(None)
    check_it_ran(pipeline)
    reader = StatusReader(pipeline)
    try:
        if output is Output.json:
            typer.echo(json.dumps(as_json(reader.refresh()), indent=2))
        elif once:
            Console().print(render(reader.refresh(), reader.decisions, pipeline.name))
        else:
            with Live(render(reader.refresh(), reader.decisions, pipeline.name), screen=False) as live:
                while True:
                    time.sleep(interval_s)
                    live.update(render(reader.refresh(), reader.decisions, pipeline.name))
    except KeyboardInterrupt:
        pass
    finally:
        reader.close()


def check_it_ran(pipeline: Pipeline) -> None:
    """A pipeline without internal topics never ran; waiting for them would only time out."""
    control = Topics(pipeline.name).control
    if not partitions_where(AdminClient(dict(librdkafka_settings(pipeline))), lambda topic: topic == control):
        raise HeadgateError(
            f"pipeline {pipeline.name} has never run on these brokers; start it with: headgate run FILE"
        )


def as_json(current: PipelineStatus) -> dict[str, Any]:
    fields: dict[str, Any] = as_document(current)
    return fields | {"bytes_per_s": current.bytes_per_s, "lag_records": current.lag_records}
