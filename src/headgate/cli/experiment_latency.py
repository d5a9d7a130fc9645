"""`headgate experiment latency` and `headgate experiment baselines`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Quick = Annotated[bool, typer.Option("--quick", help="One seed and the short trace only; a minute or two.")]
Seeds = Annotated[int, typer.Option(help="Runs per row are this many seeds times two decision periods.", min=1)]
Resume = Annotated[bool, typer.Option("--resume", help="Keep the runs already in DIR and only do the missing ones.")]

KeepOld = Annotated[
    bool, typer.Option("--keep-old", help="With --resume: keep runs of older code, too, and say how many there are.")
]


def latency(
    quick: Quick = False,
    seeds: Seeds = 5,
    out: Annotated[Path, typer.Option(help="Where tables, plots and runs.csv go.")] = Path("docs/experiments/latency"),
    resume: Resume = False,
    keep_old: KeepOld = False,
) -> None:
    """Re-runs every table of the latency paper beside its published numbers, with our policy in the same places."""
    from headgate.experiments.latency import run

    with _progress() as told:
        report = run(out, seeds, quick, resume, told, keep_old)
    _tell(report)


def baselines(
    quick: Quick = False,
    seeds: Seeds = 5,
    out: Annotated[Path, typer.Option(help="Where the table, the plot and runs.csv go.")] = Path(
        "docs/experiments/baselines"
    ),
    resume: Resume = False,
    keep_old: KeepOld = False,
) -> None:
    """Measures HPA, KEDA, equal counts, sentinel with MWF and ours on the same traces (E5)."""
    from headgate.experiments.baselines import run

    with _progress() as told:
        report = run(out, seeds, quick, resume, told, keep_old)
    _tell(report)


def _tell(report: tuple[Path, str]) -> None:
    file, note = report
    Console().print(f"{note}Report: {file}", highlight=False)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar, and the function that moves it."""
    columns = (TextColumn("{task.description:<44}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("starting")
        yield lambda what, done, of: bar.update(task, description=what[:44], completed=done, total=of)
