"""Runs of the partitioner experiment as words: means with intervals, changes against the baseline, shares of nodes."""

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from statistics import mean

from headgate.experiments.intervals import Interval, Verdict
from headgate.experiments.partitioners_cases import BASELINE, SCENARIOS, Cell, Loads, expected
from headgate.experiments.partitioners_results import Results, Run

TIMES = ("avg_ms", "p50_ms", "p95_ms", "p99_ms", "p999_ms")
MORE_IS_BETTER = {"mib_per_s"}


def value(metric: str) -> Callable[[Run], float]:
    return lambda run: float(getattr(run, metric))


def shown(results: Results, cell: Cell, metric: str, phase: str = "") -> str:
    found = results.interval(cell, value(metric), phase)
    return "" if found is None else str(found)


def cell_row(results: Results, cell: Cell, phase: str = "") -> list[str]:
    """Partitioner, runs, throughput, average, percentiles, maximum, time."""
    runs = results.of(cell, phase)
    metrics = [shown(results, cell, metric, phase) for metric in ("mib_per_s", *TIMES)]
    most = f"{max(run.max_ms for run in runs):,.0f}" if runs else ""
    return [f"`{cell.partitioner}`", f"{len(runs)}", *metrics, most, shown(results, cell, "seconds", phase)]


def compared(results: Results, cell: Cell, metric: str, phase: str = "") -> tuple[Interval, Interval] | None:
    """The cell's interval and the baseline's; None for the baseline itself, and without runs."""
    baseline = Cell(cell.part, cell.scenario, cell.acks, BASELINE)
    ours, theirs = (results.interval(c, value(metric), phase) for c in (cell, baseline))
    return None if cell == baseline or ours is None or theirs is None else (ours, theirs)


def change(results: Results, cell: Cell, metric: str, phase: str = "") -> str:
    """Like `+1.2 %, level`; empty where there is nothing to compare."""
    both = compared(results, cell, metric, phase)
    return "" if both is None else change_of(*both, metric)


def change_of(ours: Interval, theirs: Interval, metric: str) -> str:
    verdict = ours.against(theirs, metric in MORE_IS_BETTER)
    word = verdict.value if verdict in (Verdict.level, Verdict.unknown) else f"**{verdict.value}**"
    return f"{ours.change_percent(theirs):+.1f} %, {word}"


def shares_row(results: Results, chosen: Sequence[Cell]) -> list[str]:
    """Led, as predicted, held with copies, as predicted; cells that differ in acknowledgements only."""
    runs = [run for cell in chosen for run in results.of(cell)]
    predicted = expected(chosen[0].partitioner, SCENARIOS[chosen[0].scenario].topology)
    return [
        percents(mean_shares([run.led_shares for run in runs])),
        percents(predicted.led if predicted else {}),
        percents(mean_shares([run.held_shares for run in runs])),
        percents(predicted.held if predicted else {}),
    ]


def mean_shares(found: Sequence[Loads]) -> Loads:
    return {node: mean(shares.get(node, math.nan) for shares in found) for node in (found[0] if found else {})}


def percents(shares: Loads) -> str:
    return " / ".join(f"{100 * share:.1f}" for _, share in sorted(shares.items()))


def leaders(scenario: str) -> str:
    """How many partitions each node leads, like `1 + 2`."""
    (layout,) = SCENARIOS[scenario].topics.values()
    nodes = range(1, SCENARIOS[scenario].nodes + 1)
    return " + ".join(str(sum(replicas[0] == node for replicas in layout)) for node in nodes)


def prose(text: str) -> list[str]:
    """Lines of a paragraph, or of one point of a list."""
    indent = "  " if text.startswith("- ") else ""
    return textwrap.wrap(" ".join(text.split()), 118, subsequent_indent=indent, break_on_hyphens=False)


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (heading, ("---",) * len(heading), *rows)]
