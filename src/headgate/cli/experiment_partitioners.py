"""`headgate experiment partitioners`: the producer benchmark on real brokers, beside the published tables."""

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headgate.jars import KAFKA_VERSION

if TYPE_CHECKING:
    from headgate.experiments.partitioners_cases import Part

LINE_EVERY_S = 20.0


def partitioners(
    quick: Annotated[bool, typer.Option("--quick", help="Two short runs of everything, to see that it works.")] = False,
    records: Annotated[int | None, typer.Option(help="Records of a run.", min=1_000, show_default="300,000")] = None,
    record_bytes: Annotated[int | None, typer.Option(help="Size of a record.", min=1, show_default="100")] = None,
    runs: Annotated[int | None, typer.Option(help="Runs of each cell of the paper.", min=1, show_default="20")] = None,
    more_runs: Annotated[
        int | None, typer.Option(help="Runs of each cell of what the paper left untested.", min=1, show_default="5")
    ] = None,
    part: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only this part, and the stored runs of the others as they are; repeat it. paper, limited, three, "
            "several, slow, killed, two_killed, consumed, threads.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the order of runs, and of the simulator.")] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the runs in --out and only do the missing ones.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Begin anew although there are runs in --out.")
    ] = False,
    home: Annotated[
        Path | None, typer.Option(help="Keep brokers and their logs in this new folder. Default: removed at the end.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where README.md, the CSV files and the plots go.")] = Path(
        "docs/experiments/partitioners"
    ),
) -> None:
    """Measures partitioners on two and three embedded brokers (B-57 to B-61), then the same layouts in the simulator.

    About 25 minutes on two cores that do nothing else. Ctrl-C keeps the runs that are done and writes the report of
    them; --resume goes on. What was written by hand below the mark in README.md is kept.
    """
    from headgate.errors import SetupError
    from headgate.experiments.partitioners import QUICK, Plan, run_all
    from headgate.experiments.partitioners_model import fit, predict
    from headgate.experiments.partitioners_plots import draw
    from headgate.experiments.partitioners_report import report, write
    from headgate.experiments.partitioners_results import Results, stored
    from headgate.experiments.partitioners_simulated import simulate, write_csv

    if home is not None and home.exists() and any(home.iterdir()):
        raise SetupError(f"{home} is not empty; choose another --home")
    parts = _parts(part)
    runs_file = out / "runs.csv"
    there = runs_file.exists() and (part is None or any(run.part in parts for run in stored(runs_file)))
    if there and not (resume or overwrite):
        raise SetupError(f"{out} holds runs: go on with --resume, begin anew with --overwrite, or choose another --out")
    plan = replace(QUICK if quick else Plan(), parts=parts)
    size = replace(plan.size, records=records or plan.size.records, record_bytes=record_bytes or plan.size.record_bytes)
    plan = replace(plan, size=size, runs=runs or plan.runs, more_runs=more_runs or plan.more_runs, seed=seed)
    asked = (
        f"{size.records:,} records of {size.record_bytes} bytes a run; {plan.runs} runs of each cell of the paper, "
        f"{plan.more_runs} of the others"
    )
    Console(stderr=True).print(f"{asked}.", highlight=False)
    results, stopped = Results(runs_file, resume, parts), ""
    with TemporaryDirectory(prefix="headgate-partitioners-") as temporary, _progress() as told:
        try:
            run_all(Path(temporary) if home is None else home.absolute(), plan, results, told)
        except KeyboardInterrupt:
            stopped = "Stopped before the end; --resume goes on. "
        simulated = simulate(
            10_000 if quick else 200_000, seed, lambda what: told(f"simulator: {what}", plan.total, plan.total)
        )
        model = fit(lambda what: told(f"simulator: {what}", plan.total, plan.total))
        predicted = predict(model)
    write_csv(simulated, out / "simulated.csv")
    write_csv(predicted, out / "published_simulated.csv")
    draw(results, simulated, out)
    options = f"{' --quick' if quick else ''} --records {size.records} --record-bytes {size.record_bytes}"
    options += "".join(f" --part {name}" for name in part or ())
    options += f" --runs {plan.runs} --more-runs {plan.more_runs} --seed {seed}"
    how = (
        f"`headgate experiment partitioners{options}`: {asked}. {stopped}Two and three embedded brokers, "
        f"{os.cpu_count()} cores, Python {platform.python_version()}, "
        f"confluent-kafka {metadata.version('confluent-kafka')}, Kafka {KAFKA_VERSION}."
    )
    write(out / "README.md", report(results, simulated, (model, predicted), plan, how))
    Console().print(f"{stopped}Report: {out / 'README.md'}", highlight=False)


def _parts(names: list[str] | None) -> "tuple[Part, ...]":
    from headgate.errors import ConfigError
    from headgate.experiments.partitioners_cases import Part

    if unknown := [name for name in names or () if name not in Part.__members__]:
        raise ConfigError(f"--part {unknown[0]} is none of {', '.join(Part.__members__)}")
    return tuple(member for name, member in Part.__members__.items() if not names or name in names)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on a terminal; elsewhere a line now and then."""
    screen, last_s = Console(stderr=True), time.monotonic()
    columns = (TextColumn("{task.description:<58}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=screen, disable=not screen.is_terminal) as bar:
        task = bar.add_task("starting")

        def told(what: str, done: int, of: int) -> None:
            nonlocal last_s
            bar.update(task, description=what[:58], completed=done, total=of)
            if not screen.is_terminal and time.monotonic() - last_s > LINE_EVERY_S:
                last_s = time.monotonic()
                screen.print(f"{done} of {of}: {what}", highlight=False)

        yield told
