"""What `headgate simulate` tells of a comparison: a table with its conclusion for people, JSON for programs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from headgate.config.units import BYTES_PER_S
from headgate.experiments.what_if import Comparison
from headgate.experiments.what_if_scores import Score
from headgate.experiments.what_if_world import Resolution

_COARSE = 0.02
"""Share of the goal that one packet may take before results depend on it (docs/simulate.md)."""


@contextmanager
def progress_bar() -> Iterator[Callable[[str, float], None]]:
    columns = (TextColumn("{task.description:<32}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda what, share: bar.update(task, description=escape(what[:32]), completed=share)


def as_json(comparison: Comparison) -> dict[str, Any]:
    trace, best = comparison.trace, comparison.cheapest
    return {
        "trace": {
            "duration_s": trace.duration_s,
            "interval_s": trace.step_s,
            "partitions": len(trace.partitions),
            "records": float(trace.records.sum()),
            "bytes": float(trace.bytes.sum()),
        },
        "circumstances": asdict(comparison.circumstances),
        "resolution": asdict(comparison.resolution) | {"latency_s": comparison.resolution.latency_s},
        "notes": list(comparison.notes),
        "policies": [asdict(score) for score in comparison.scores],
        "cheapest_that_meets_the_goal": best.policy if best else None,
    }


def show(comparison: Comparison, plot: Path | None) -> None:
    console, trace, world, cut = Console(), comparison.trace, comparison.circumstances, comparison.resolution
    console.print(
        f"[bold]Traffic[/]: {_span(trace.duration_s)} in {len(trace.partitions)} partitions, "
        f"{_rate(float(trace.bytes.sum()) / trace.duration_s)} on average, "
        f"{_rate(float(trace.bytes_per_s.max()))} in the busiest {trace.step_s:.3g} s"
    )
    live = world.engine == "controller"
    moves = "handovers of the live controller, landing" if live else f"{world.protocol} moves of"
    starts = "starts as published, on average" if world.starts else "starts of"
    console.print(
        f"[bold]World[/]: {moves} {world.pause_s:.3g} s, {starts} {world.start_s:.3g} s; every "
        f"record waits {world.fixed_s:.3g} s for its cycle and commit; arrivals within an interval: {world.spacing}"
    )
    console.print(f"[bold]Resolution[/]: {_resolution(cut)}; a decision every {cut.period_s:.3g} s")
    if cut.step_s is None and cut.latency_s > _COARSE * (world.slo_s - world.fixed_s):
        console.print(
            "[yellow]That is coarse for this goal: raise --packets, or look at a shorter time with --last.[/]"
        )
    for note in comparison.notes:
        console.print(f"[yellow]Note[/]: {escape(note)}")
    console.print(_table(comparison))
    console.print("● on the front: no other policy is both cheaper and more often in time", style="dim")
    for score in comparison.scores:
        if why := _why(score):
            console.print(f"{escape(score.policy)}: {why}", highlight=False)
    console.print(_conclusion(comparison), highlight=False)
    if plot is not None:
        console.print(f"Plot: {plot}")


def _resolution(cut: Resolution) -> str:
    if cut.step_s is not None:
        return f"a flow in steps of {cut.step_s:.3g} s; latencies are exact to about 2 %"
    return (
        f"{cut.packets:,} packets of {cut.packet_bytes:,} bytes, {cut.records_per_packet:.3g} records each; a consumer "
        f"does {cut.packets_per_s:.4g} a second, so latencies are exact to about {1000 * cut.latency_s:.3g} ms"
    )


def _table(comparison: Comparison) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("policy", no_wrap=True)
    for name in ("in time", "repl-min", "cost", "moves", "up/down", "p50 s", "p99 s", "worst s"):
        table.add_column(name, justify="right", no_wrap=True)
    for score in comparison.scores:
        table.add_row(
            f"{'●' if score.on_front else ' '} {escape(score.policy)}",
            f"[{'green' if score.meets_goal else 'red'}]{score.sla_percent:.2f} %[/]",
            f"{score.replica_minutes:.1f}",
            f"{score.money:.2f}",
            f"{score.moves:.0f}",
            f"{score.ups:.0f}/{score.downs:.0f}",
            *(f"{value:.2f}" for value in (score.p50_s, score.p99_s, score.worst_s)),
        )
    return table


def _why(score: Score) -> str:
    """What made records late, and how much seeds differ."""
    seeds = score.sla_by_seed
    spread = f"{min(seeds):.2f} to {max(seeds):.2f} % over {len(seeds)} seeds" if len(seeds) > 1 else ""
    causes = _causes(score)
    return "; ".join(part for part in (f"late because of {causes}" if causes else "", spread) if part)


def _causes(score: Score) -> str:
    ordered = sorted(score.causes.items(), key=lambda item: -item[1])
    return ", ".join(f"{cause} {share:.2f} %" for cause, share in ordered if share >= 0.005)


def _conclusion(comparison: Comparison) -> str:
    best, goal = comparison.cheapest, 100 * comparison.circumstances.quantile
    wanted = f"{goal:g} % within {comparison.circumstances.slo_s:g} s"
    if best is not None:
        return f"[bold]Cheapest that meets the goal[/] of {wanted}: [bold]{escape(best.policy)}[/]"
    nearest = max(comparison.scores, key=lambda s: s.sla_percent)
    return (
        f"[bold]No policy meets the goal[/] of {wanted}; {escape(nearest.policy)} comes nearest with "
        f"{nearest.sla_percent:.2f} %. Look at what made records late, at fleet.max_consumers and at hot partitions."
    )


def _rate(bytes_per_s: float) -> str:
    return BYTES_PER_S.format(float(f"{bytes_per_s:.3g}"))


def _span(duration_s: float) -> str:
    for size, word in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if duration_s >= 2 * size:
            return f"{duration_s / size:.1f} {word}"
    return f"{duration_s:.0f} seconds"
