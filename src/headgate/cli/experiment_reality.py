"""`headgate experiment reality`: a run that really happened beside the same traffic simulated."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from headgate.cli.output import Output
from headgate.cli.pipeline_file import PipelineArgument, find_pipeline


def reality(
    file: PipelineArgument = None,
    home: Annotated[Path | None, typer.Option(help="Instead of FILE: a folder that `demo --home` kept.")] = None,
    last: Annotated[float, typer.Option(help="Newest seconds of the journal to compare.", min=10.0)] = 86_400.0,
    seeds: Annotated[int, typer.Option(help="Simulated runs to average.", min=1)] = 3,
    out: Annotated[Path | None, typer.Option(help="Also write README.md and reality.png there.")] = None,
    output: Annotated[Output, typer.Option(help="text for people, json for programs.")] = Output.text,
) -> None:
    """Shows how far `simulate` can be trusted on a pipeline of yours.

    Replays what the pipeline's monitor recorded under the policy it ran with, and puts consumers, moves and latency
    beside what its journals say really happened. The brokers must be up; the pipeline need not run.
    """
    import json

    from headgate.cli.status import check_it_ran
    from headgate.config.clients import librdkafka_settings
    from headgate.config.loader import load_pipeline
    from headgate.controller.recording import read_recording
    from headgate.experiments.reality import draw, report, validate
    from headgate.kafka.internal_topics import Topics

    pipeline = load_pipeline(find_pipeline(file, home))
    check_it_ran(pipeline)
    settings = librdkafka_settings(pipeline)
    recording = read_recording(settings, Topics(pipeline.name), last, pipeline.monitor.poll_s)
    found = validate(pipeline, recording, seeds)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "README.md").write_text(report(found, f"Pipeline {pipeline.name}: real and simulated"))
        draw(found, recording, out / "reality.png")
    if output is Output.json:
        typer.echo(json.dumps({x.what: {"real": x.real, "simulated": x.simulated} for x in found.lines}, indent=2))
        return
    table = Table("", "real", "simulated", "difference", box=None)
    for line in found.lines:
        table.add_row(line.what, f"{line.real:.2f}", f"{line.simulated:.2f}", line.difference)
    Console().print(table)
