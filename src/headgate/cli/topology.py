"""`headgate topology`: which nodes carry more than their share, what failures would do, and what to do about it."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headgate.cli.logs import log_to
from headgate.cli.quantities import positive_bytes, positive_s
from headgate.cli.topology_apply import carry_out, chosen_plan, judged
from headgate.cli.topology_source import (
    CLUSTER,
    Brokers,
    Change,
    From,
    Internal,
    Measure,
    PipelineOption,
    Source,
    live_cluster,
    load_source,
    write,
)
from headgate.cli.topology_view import (
    print_advice,
    print_recoveries,
    print_report,
    print_simulation,
    print_spares,
    print_verdict,
)
from headgate.cli.topology_watch import looking, watching
from headgate.errors import ConfigError
from headgate.topology import advice as advising
from headgate.topology.advice_page import advice_page
from headgate.topology.checks import USUAL, Thresholds
from headgate.topology.document import as_document
from headgate.topology.findings import Severity
from headgate.topology.page import page
from headgate.topology.potential import potential_overlaps
from headgate.topology.report import Report, as_json, make_report
from headgate.topology.safety import refuse_moving
from headgate.topology.simulate import MOST_FAILURES, MOST_SCENARIOS, spares_of
from headgate.topology.simulate import Failures as Trials
from headgate.topology.simulate import simulate as simulated
from headgate.topology.standing import Standing

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Kafka's topology: which nodes carry more than their share, and what to do.

  [bold]headgate topology report --brokers kafka-1:9092[/]   what is wrong, worst first
  [bold]headgate topology report --from cluster.json[/]      the same for a file, in CI
  [bold]headgate topology simulate --failures 2 …[/]         what failures would do
  [bold]headgate topology advise …[/]                        reassignments and what they bring

Exit codes: 0 nothing to report, 1 findings as bad as --fail-on, 2 unusable
input, 4 no broker answered.""",
)


MOST_RECOVERIES = 10
FOR_FAILURES = 0.8
"""Of the time limit; what is left is for overlaps after failures."""


class Output(StrEnum):
    table = "table"
    json = "json"
    html = "html"


class FailOn(StrEnum):
    note = "note"
    warning = "warning"
    critical = "critical"
    never = "never"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="For people, for programs, or as a page.")]
FailOnOption = Annotated[FailOn, typer.Option(help="Exit with code 1 if a finding is at least this bad.")]
Failures = Annotated[int, typer.Option(help="Simulate failures of up to this many nodes.", min=0, max=MOST_FAILURES)]
Scenarios = Annotated[int, typer.Option(help="At most so many failures; beyond that a sample.", min=1)]
TimeLimit = Annotated[float, typer.Option(help="At most so long for failures (30s).", parser=positive_s)]
Unclean = Annotated[bool, typer.Option("--unclean", help="Replicas that are behind may lead (and lose records).")]
Overload = Annotated[float, typer.Option(help="Report a node above so many times its share.", min=1.0)]
Skew = Annotated[float, typer.Option(help="Report a topic if a node has more than so many even shares.", min=1.0)]


@app.command()
def report(
    source: From = CLUSTER,
    brokers: Brokers = None,
    pipeline: PipelineOption = None,
    change: Change = None,
    output: OutputOption = Output.table,
    fail_on: FailOnOption = FailOn.warning,
    failures: Failures = 1,
    scenarios: Scenarios = MOST_SCENARIOS,
    time_limit: TimeLimit = 5.0,
    unclean: Unclean = False,
    overload: Overload = USUAL.overload,
    uneven: Skew = USUAL.uneven_skew,
    overlaps: Annotated[int, typer.Option(help="List up to so many pairs of groups that share nodes.", min=0)] = 0,
    measure: Measure = None,
    internal: Internal = False,
) -> None:
    """A verdict in one line, then what is wrong, worst first, each with evidence and what to do.

    [bold]headgate topology report --brokers kafka-1:9092 --measure 10s[/]
    [bold]headgate topology report --from cluster.json --fail-on critical[/]
    [bold]headgate topology report --brokers … --change plan.json[/]   before you apply it
    [bold]headgate topology report --brokers … -o html > topology.html[/]
    """
    log_to(None)
    found = load_source(source, brokers, pipeline, change, internal, measure)
    standing = Standing(found.topology)
    made = _report(standing, found, Thresholds(uneven, overload), failures, scenarios, time_limit, unclean, overlaps)
    if output is Output.json:
        typer.echo(json.dumps(as_json(made), indent=2))
    elif output is Output.html:
        typer.echo(page(made, standing), nl=False)
    else:
        print_report(Console(), made)
    _leave(made, fail_on)


@app.command()
def simulate(
    source: From = CLUSTER,
    brokers: Brokers = None,
    pipeline: PipelineOption = None,
    change: Change = None,
    output: OutputOption = Output.table,
    fail_on: FailOnOption = FailOn.never,
    failures: Failures = 1,
    scenarios: Scenarios = MOST_SCENARIOS,
    time_limit: TimeLimit = 60.0,
    unclean: Unclean = False,
    recovery: Annotated[
        bool, typer.Option("--recovery", help="Also: what comes after the worst failures, when the nodes are back.")
    ] = False,
    spare: Annotated[
        bool, typer.Option("--spare", help="Also: what a standby for each node would change, and cost.")
    ] = False,
    measure: Measure = None,
    internal: Internal = False,
) -> None:
    """Fails every node, or every set of nodes up to --failures, elects new leaders and compares.

    [bold]headgate topology simulate --brokers kafka-1:9092 --failures 2[/]
    [bold]headgate topology simulate --from cluster.json --recovery --spare[/]
    """
    log_to(None)
    found = load_source(source, brokers, pipeline, change, internal, measure)
    standing = Standing(found.topology)
    made = _report(standing, found, USUAL, failures, scenarios, time_limit, unclean)
    seen = made.simulation
    assert seen is not None
    tried = Trials(standing, unclean)
    recoveries = [tried.recovery(c.failed) for c in seen.consequences[:MOST_RECOVERIES]] if recovery else []
    spares = spares_of(standing, seen, max(1, failures), unclean, _limit(time_limit)) if spare else ()
    if output is Output.json:
        document = as_json(made)["simulation"] | {"verdict": made.verdict}
        document |= {"recoveries": [asdict(r) for r in recoveries]} if recovery else {}
        document |= {"spares": [asdict(s) for s in spares]} if spare else {}
        typer.echo(json.dumps(document, indent=2))
    elif output is Output.html:
        typer.echo(page(made, standing), nl=False)
    else:
        console = Console()
        print_verdict(console, made)
        print_simulation(console, seen)
        if recoveries:
            print_recoveries(console, recoveries)
        if spare:
            print_spares(console, spares, len(found.topology.online))
    _leave(made, fail_on)


@app.command()
def advise(
    source: From = CLUSTER,
    brokers: Brokers = None,
    pipeline: PipelineOption = None,
    change: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Judge (and with --apply carry out) this reassignment file instead."),
    ] = None,
    output: OutputOption = Output.table,
    plan: Annotated[str | None, typer.Option(help="Take this plan instead of the best one.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the plan as a Kafka reassignment file.")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Carry the plan out on the live cluster.")] = False,
    throttle: Annotated[
        float | None,
        typer.Option(
            metavar="BYTES",
            help="With --apply: copy at most so much per second and node ('50 MB').",
            parser=positive_bytes,
        ),
    ] = 50_000_000.0,
    yes: Annotated[bool, typer.Option("--yes", help="With --apply: do not ask.")] = False,
    measure: Measure = None,
    internal: Internal = False,
) -> None:
    """Reassignments that would make the cluster more even, and what each would bring. Nothing is changed.

    [bold]headgate topology advise --brokers kafka-1:9092 --save plan.json[/]
    [bold]headgate topology advise --brokers kafka-1:9092 --plan leaders --apply[/]

    With --apply Kafka's own reassignment does it, throttled, and this command waits; Ctrl-C takes it back.
    """
    log_to(None)
    found = load_source(source, brokers, pipeline, None, internal, measure)
    if apply and found.live is None:
        raise ConfigError(f"--apply needs a live cluster, and {found.name} is a file: give --brokers or --pipeline")
    made = judged(found, change) if change is not None else advising.advise(Standing(found.topology))
    if output is Output.json:
        typer.echo(json.dumps(advising.as_json(made), indent=2))
    elif output is Output.html:
        typer.echo(advice_page(made, found.topology, found.name), nl=False)
    else:
        print_advice(Console(), made)
    if save is None and not apply:
        return
    chosen = chosen_plan(made, plan)
    refuse_moving(found.topology, chosen.change)
    if save is not None:
        write(save, json.dumps(chosen.change.as_document(), indent=1) + "\n")
        typer.echo(f"plan {chosen.name} written to {save}", err=True)
    if apply:
        assert found.live is not None
        carry_out(found.live, found, chosen, int(throttle) if throttle else None, yes)


@app.command()
def watch(
    source: From = CLUSTER,
    brokers: Brokers = None,
    pipeline: PipelineOption = None,
    interval: Annotated[float, typer.Option(help="How often to look (5s).", parser=positive_s)] = 5.0,
    metrics_port: Annotated[int | None, typer.Option(help="Serve load per node as Prometheus metrics here.")] = None,
    output: Annotated[
        Output,
        typer.Option("--output", "-o", help="Lines for people, lines of JSON, or html: a page as well as lines."),
    ] = Output.table,
    output_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With -o html: the page, written anew at every change.")
    ] = None,
    times: Annotated[int | None, typer.Option(help="End after so many looks.", min=1)] = None,
    internal: Internal = False,
) -> None:
    """Says when leaders move and what that means; quiet while nothing changes. Until Ctrl-C.

    [bold]headgate topology watch --brokers kafka-1:9092 --metrics-port 9400[/]
    [bold]headgate topology watch --from cluster.json[/]   while you edit it
    [bold]headgate topology watch --brokers … -o html --output-file topology.html[/]
    """
    log_to(None)
    if (output is Output.html) != (output_file is not None):
        raise ConfigError("a page that follows the cluster takes both: -o html and --output-file FILE")
    with looking(source, brokers, pipeline, internal) as look:
        watching(look, interval, times, metrics_port, as_json=output is Output.json, page_file=output_file)


@app.command()
def export(
    brokers: Brokers = None,
    pipeline: PipelineOption = None,
    measure: Measure = None,
    internal: Internal = False,
) -> None:
    """Prints a live cluster as the JSON file that --from reads: to keep, to change, to check in CI.

    [bold]headgate topology export --brokers kafka-1:9092 > cluster.json[/]
    """
    log_to(None)
    found = load_source(CLUSTER, brokers, pipeline, None, internal, measure)
    if moves := found.topology.moves:
        typer.echo(f"{len(moves)} partitions are being moved: the file has the replicas of both places", err=True)
    typer.echo(json.dumps(as_document(found.topology), indent=1))


@app.command()
def cancel(brokers: Brokers = None, pipeline: PipelineOption = None) -> None:
    """Takes back every reassignment that is under way, whoever began it, and removes its throttles.

    [bold]headgate topology cancel --brokers kafka-1:9092[/]   after an --apply was killed
    """
    log_to(None)
    live = live_cluster(brokers, pipeline, internal=True)
    admin = live.admin()
    topology = live.reader(admin).read()
    mover = live.mover(admin)
    try:
        taken_back = mover.cancel(mover.under_way())
        mover.remove_throttles(topology)
    finally:
        mover.close()
    typer.echo(f"{taken_back} reassignments taken back, throttles removed")


def _report(
    standing: Standing,
    found: Source,
    thresholds: Thresholds,
    failures: int,
    scenarios: int,
    time_limit_s: float,
    unclean: bool,
    most_pairs: int = 0,
) -> Report:
    potentials, over = None, _limit(time_limit_s)
    seen = simulated(standing, failures, scenarios, unclean, out_of_time=_limit(FOR_FAILURES * time_limit_s))
    if failures:
        potentials = potential_overlaps(found.topology, standing.overlaps, failures, unclean=unclean, out_of_time=over)
    return make_report(standing, found.name, thresholds, seen, potentials, most_pairs)


def _limit(time_limit_s: float) -> Callable[[], bool]:
    until = time.monotonic() + time_limit_s
    return lambda: time.monotonic() > until


def _leave(made: Report, fail_on: FailOn) -> None:
    if fail_on is not FailOn.never and made.worst is not None and made.worst >= Severity[fail_on.value]:
        raise typer.Exit(1)
