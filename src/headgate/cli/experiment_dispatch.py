"""`headgate experiment dispatch`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def dispatch(
    jobs: Annotated[int, typer.Option(help="Jobs per run; more make the intervals narrower.", min=2_000)] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Another seed, other arrivals.")] = 1,
    out: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("docs/experiments/dispatch"),
) -> None:
    """Dispatching policies and the real partitioners in the simulator, beside queueing theory (B-49, B-50)."""
    from headgate.experiments.dispatch import run

    screen = Console(stderr=True)
    with screen.status("simulating") as line:
        file = run(out, jobs, seed, line.update)
    Console().print(f"Report: {file}")
