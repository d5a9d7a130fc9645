"""`headgate doctor`: one screen about a pipeline's health, each line with what to do."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.cli.logs import log_to
from headgate.cli.output import Output
from headgate.cli.pipeline_file import PipelineArgument, find_pipeline
from headgate.config.loader import load_pipeline
from headgate.controller.health import diagnose
from headgate.controller.health_values import Finding, Verdict

_COLOURS = {Verdict.ok: "green", Verdict.warn: "yellow", Verdict.fail: "red", Verdict.unknown: "dim"}


def doctor(
    file: PipelineArgument = None,
    home: Annotated[Path | None, typer.Option(help="Instead of FILE: a folder that `demo --home` kept.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as failures, too.")] = False,
    output: Annotated[Output, typer.Option(help="text for people, json for programs.")] = Output.text,
) -> None:
    """Checks a pipeline's surroundings and its state: brokers, topics, retention, parts, clocks, lake, disk.

    Only reads, so it is safe at any time. Exit code 0 unless a check fails (with --strict: or warns), 1 otherwise.
    `check` asks whether a pipeline can start; this asks whether it is well.
    """
    from headgate.controller.health_facts import facts_of

    pipeline = load_pipeline(find_pipeline(file, home))
    log_to(None)
    with Console(stderr=True).status(f"asking about {pipeline.name}"):
        findings = diagnose(facts_of(pipeline))
    bad = {Verdict.fail, Verdict.warn} if strict else {Verdict.fail}
    failed = [finding for finding in findings if finding.verdict in bad]
    if output is Output.json:
        shown = {"pipeline": pipeline.name, "ok": not failed, "checks": [asdict(f) for f in findings]}
        typer.echo(json.dumps(shown, indent=2))
    else:
        Console().print(_table(findings))
    raise typer.Exit(1 if failed else 0)


def _table(findings: tuple[Finding, ...]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for finding in findings:
        said = Text(finding.evidence)
        if finding.advice:
            said.append(f"\n→ {finding.advice}", "bold")
        table.add_row(Text(finding.verdict, _COLOURS[finding.verdict]), finding.check, said)
    return table
