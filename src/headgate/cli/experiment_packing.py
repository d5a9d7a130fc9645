"""`headgate experiment packing`: the twelve published packers and ours on E3."""

import platform
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def packing(
    quick: Annotated[
        bool, typer.Option(help="100 iterations, three δ, two seeds: a minute instead of an hour.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(help="Random walks per δ; the published band asks for 8.", min=1)] = None,
    out: Annotated[Path, typer.Option(help="Folder for report.md, rows.csv, optimum.csv and pareto.png.")] = Path(
        "experiments/packing"
    ),
) -> None:
    """Packs a random walk of 200 rates again and again with every packer, and compares consumers and moves."""
    from headgate.experiments import e3, packing_report
    from headgate.experiments import packing as experiment
    from headgate.packing.exact import Exact

    Exact()  # needed at the end, so better missed before the hour than after it
    settings = experiment.Settings.quick() if quick else experiment.Settings()
    if seeds is not None:
        settings = replace(settings, seeds=seeds)
    published = len(e3.PUBLISHED)
    units = sum(published + (len(experiment.PRICES) if c.start == "uniform" else 1) for c in settings.cases())
    units += 2 * len(settings.exact_cases())
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task("starting", total=units)

        def advance(what: str) -> None:
            progress.update(task, description=what, advance=1)

        rows = experiment.measure(settings, advance)
        exact = experiment.distances(settings, advance)
    command = f"headgate experiment packing{' --quick' if quick else ''} --seeds {settings.seeds} --out {out}"
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("headgate", "numpy", "ortools"))
    preamble = (
        f"Written by `{command}`: {settings.iterations} iterations, 200 partitions;",
        f"seeds 1 to {settings.seeds} for the uniform start, seed 1 for the others.",
        f"Python {platform.python_version()}, {versions}.",
    )
    verdicts = packing_report.write(out, rows, exact, preamble)
    for verdict in verdicts:
        console.print(f"{'[green]met[/]' if verdict.passed else '[red]missed[/]'}  {verdict.what}: {verdict.shown_by}")
    console.print(f"The report is {out / 'report.md'}.")
