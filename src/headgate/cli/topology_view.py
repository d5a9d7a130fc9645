"""How `headgate topology` looks in the terminal."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headgate.topology.advice import Advice, Plan
from headgate.topology.effect_rows import effect_rows, pressed
from headgate.topology.findings import Finding, Severity, counted, joined
from headgate.topology.groups import Overlap
from headgate.topology.lints import Lint
from headgate.topology.report import Report, coverage
from headgate.topology.simulate import Consequence, Pressure, Recovery, Simulation, Spare

_MOST_NODES, _MOST_SCENARIOS = 20, 10
_STYLE = {Severity.critical: "bold red", Severity.warning: "yellow", Severity.note: "cyan"}


def print_report(console: Console, report: Report) -> None:
    print_verdict(console, report)
    for finding in report.findings:
        print_finding(console, finding)
    console.print()
    console.print(_nodes(report))
    if not report.rates_known:
        console.print("Every topic counts alike: no traffic is known (--measure 10s, --pipeline FILE).", style="dim")
    if report.shared_sqf_gap:
        console.print(f"shared SQF is exact to {report.shared_sqf_gap:.2g}", style="dim")
    if report.pairs is not None:
        _print_pairs(console, report.pairs)
    if report.simulation is not None:
        print_simulation(console, report.simulation)
    if report.potentials is not None and report.potentials.pairs:
        left = "" if report.potentials.complete else ": a sample; raise --time-limit for more, up to a limit"
        console.print(f"{coverage(report.potentials)} for overlaps after failures{left}", style="dim")
    console.print("\n[bold]Round robin would be enough if[/]")
    for c in report.preconditions:
        sign = {True: "[green]yes[/]", False: "[red]no[/] ", None: "[dim]?[/]  "}[c.holds]
        console.print(f"  {sign} {c.what} [dim]({escape(c.evidence)})[/]", highlight=False)


def print_verdict(console: Console, report: Report) -> None:
    style = _STYLE[report.worst] if report.worst and report.worst > Severity.note else "bold green"
    console.print(f"[{style}]{escape(report.verdict)}[/]", highlight=False, soft_wrap=True)


def print_finding(console: Console, finding: Finding) -> None:
    style = _STYLE[finding.severity]
    console.print(f"\n[{style}]{finding.severity.name}[/] {escape(finding.what)}", highlight=False)
    for line in finding.evidence:
        console.print(f"    {escape(line)}", highlight=False)
    console.print(f"  [bold]→[/] {escape(finding.do)}", highlight=False)


def _print_pairs(console: Console, pairs: Sequence[Overlap]) -> None:
    console.print("\n[bold]Groups of topics that share nodes in part[/]" + ("" if pairs else ": none"))
    for pair in pairs:
        shared = f"on node {joined(pair.shared)}"
        console.print(f"  {escape(pair.first.short())} and {escape(pair.second.short())} {shared}", highlight=False)


def print_simulation(console: Console, simulation: Simulation) -> None:
    console.print("\n[bold]If nodes failed, worst first[/]")
    table = _table(
        "failed", "offline", "no acks=all", "newly uneven", "busiest", "its share", "with node", "SQF", "overlap"
    )
    for c in simulation.consequences[:_MOST_SCENARIOS]:
        table.add_row(*_consequence(c))
    console.print(table)
    for size, (seen, total) in simulation.covered.items():
        left = "" if seen == total else ": a sample; raise --scenarios and --time-limit for more"
        console.print(f"{seen:,} of {total:,} failures of {size} node(s) simulated{left}", style="dim")


def _consequence(c: Consequence) -> Iterable[str]:
    counts = (str(len(c.new.get(lint, ()))) for lint in (Lint.OFFLINE, Lint.UNWRITABLE, Lint.UNEVEN))
    busiest = (f"node {c.default.busiest}", f"{c.default.skew:.2f}") if c.default else ("–", "–")
    shares = (f"{pressure.skew:.2f}" if pressure else "–" for pressure in (c.node, c.shared_sqf))
    return (joined(c.failed), *counts, *busiest, *shares, "yes" if c.partial else "no")


def print_recoveries(console: Console, recoveries: Iterable[Recovery]) -> None:
    console.print("\n[bold]When the nodes are back and in sync[/]")
    table = _table("nodes", "busiest, times its share", "leading nothing", "after leaders went home")
    for recovery in recoveries:
        idle = f"node {joined(recovery.idle)}" if recovery.idle else "–"
        table.add_row(joined(recovery.nodes), pressed(recovery.back), idle, pressed(recovery.home))
    console.print(table)
    console.print(
        "Kafka brings leaders home some minutes later by itself, or at once with kafka-leader-election --election-type "
        "preferred --all-topic-partitions.",
        style="dim",
    )


def print_spares(console: Console, spares: Sequence[Spare], nodes: int) -> None:
    console.print("\n[bold]What a standby for each node would change when it fails, and cost[/]")
    table = _table(
        *("node", "busiest without", "with it", "keeps up"),
        *("topics", "capacity", "traffic", "shared", "per topic"),
    )
    for spare in spares:
        table.add_row(
            str(spare.node),
            _loaded(spare.load_without),
            _loaded(spare.load_with),
            str(spare.broken_without),
            str(spare.affected_topics),
            f"{spare.capacity:g}",
            f"{spare.replica_traffic:.4g}",
            str(spare.shared_spares),
            str(spare.separate_spares),
        )
    console.print(table)
    console.print(
        "Busiest: the load of the busiest node if this one fails. Keeps up: topics that could not be written without "
        "the standby. Traffic: what is written to it all the time. Shared, per topic: standbys needed.",
        style="dim",
    )
    if len(spares) < nodes:
        console.print(f"{len(spares):,} of {nodes:,} nodes: raise --time-limit for more", style="dim")


def print_advice(console: Console, advice: Advice) -> None:
    if not advice.plans:
        console.print("[bold green]Nothing to gain[/]: no reassignment makes this cluster more even.")
    for n, plan in enumerate(advice.plans):
        best = " [green](best)[/]" if n == 0 else ""
        console.print(f"\n[bold]{plan.name}[/]{best}: {escape(plan.what)}", highlight=False)
        cost = f"{counted(len(plan.change), 'partition')} to change, {counted(plan.copies, 'replica')} to copy"
        console.print(f"  {cost}", highlight=False)
        console.print(_effect(plan))
    for plan, why in advice.rejected:
        console.print(f"[dim]not {plan.name}: {escape(why)}[/]", highlight=False)
    for word in advice.words:
        console.print(f"[bold]→[/] {escape(word)}", highlight=False)
    if advice.new_partitions:
        shown = sorted(advice.new_partitions.items())
        listed = ", ".join(f"{name} to {count}" for name, count in shown[:5]) + (" …" if len(shown) > 5 else "")
        console.print(
            f"[bold]→[/] For equal node sets on all nodes, raise the partitions of: {escape(listed)}", highlight=False
        )


def _effect(plan: Plan) -> Table:
    table = _table("", "before", "after")
    for row in effect_rows(plan, _MOST_NODES):
        table.add_row(*row)
    return table


def _loaded(pressure: Pressure | None) -> str:
    """Not its share, which is one of fewer nodes after a failure."""
    return f"{pressure.load:.4g} (node {pressure.busiest})" if pressure else "–"


def _nodes(report: Report) -> Table:
    table = _table("node", "leaders", "topics", "groups", "load: default", "node", "shared SQF")
    shown = sorted(report.rows, key=lambda row: -row.default_load)[:_MOST_NODES]
    for row in sorted(shown, key=lambda row: row.id):
        name = str(row.id) if row.online else f"[red]{row.id} offline[/]"
        loads = (f"{load:.4g}" for load in (row.default_load, row.node_load, row.shared_sqf_load))
        table.add_row(name, str(row.leaders), str(row.topics), str(row.groups), *loads)
    if len(report.rows) > len(shown):
        table.add_row(f"… {len(report.rows) - len(shown)} more", *[""] * 6)
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for n, column in enumerate(columns):
        table.add_column(column, justify="left" if n == 0 else "right")
    return table
