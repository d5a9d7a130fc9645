"""`headgate experiment handovers`: how long decisions take on a live fleet, beside the published times."""

from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table


class FleetOption(StrEnum):
    processes = "processes"
    threads = "threads"


def handovers(
    quick: Annotated[
        bool, typer.Option("--quick", help="Under two minutes of load for each fleet, a window of 5 s: few decisions.")
    ] = False,
    fleet: Annotated[FleetOption, typer.Option(help="Where consumers run.")] = FleetOption.processes,
    home: Annotated[
        Path | None, typer.Option(help="Keep brokers, lakes and logs in this new folder. Default: removed at the end.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where README.md, samples.csv and handovers.png go.")] = Path(
        "docs/experiments/handovers"
    ),
) -> None:
    """Measures t1 to t4 of every decision (E4) on an embedded broker and a live fleet, without and with a warm spare.

    Twice the same load, 13 minutes each: steps, for t1, and then the random walks of E3. Needs Java and, with
    a fleet of processes, about 1 GB of memory for each of up to five consumers.
    """
    from headgate.cli.logs import log_to
    from headgate.errors import SetupError
    from headgate.experiments.handovers import draw, published, report, samples, table, write_csv
    from headgate.experiments.handovers_live import QUICK, Plan, run_live

    if home is not None and home.exists() and any(home.iterdir()):
        raise SetupError(f"{home} is not empty; choose another --home")
    console, plan = Console(), QUICK if quick else Plan()
    runs = []
    with TemporaryDirectory(prefix="headgate-handovers-") as temporary:
        root = Path(temporary) if home is None else home.absolute()
        for warm in (0, 1):
            place = root / f"{fleet.value}-{warm}"
            place.mkdir(parents=True)
            log_to(place / "headgate.log")
            with console.status("starting") as shown:
                runs.append(
                    run_live(
                        place,
                        fleet.value,
                        warm,
                        plan,
                        lambda text, warm=warm: shown.update(f"{fleet.value}, {warm} spare: {text}"),  # type: ignore[misc]
                    )
                )
    found = [sample for run in runs for sample in samples(run)]
    how = (
        f"`headgate experiment handovers{' --quick' if quick else ''} --fleet {fleet.value}`: for each fleet "
        f"{plan.steps} steps of {plan.step_s:g} s and {plan.walk_s:g} s of random walks on {plan.partitions} "
        f"partitions, at most {plan.most_consumers} consumers; sentinel with MWF, window {plan.window_s:g} s."
    )
    out.mkdir(parents=True, exist_ok=True)
    write_csv(found, out / "samples.csv")
    (out / "README.md").write_text(report(runs, found, how))
    draw(found, out / "handovers.png")
    for heading, *rows in (published(), table(found)):
        shown_table = Table(*heading, box=None, pad_edge=False, header_style="dim")
        for row in rows:
            shown_table.add_row(*row)
        console.print(shown_table)
        console.print()
    console.print(f"Report: {out / 'README.md'}")
