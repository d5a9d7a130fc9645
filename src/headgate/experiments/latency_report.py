"""The report of the latency experiment: tables with the published numbers beside ours, in Markdown."""

import math
from dataclasses import replace
from itertools import groupby

import numpy as np

from headgate.experiments.campaign import Results
from headgate.experiments.clairvoyant import bound, bound_of_the_curve
from headgate.experiments.latency_cases import EAGER, TableRow, case, golden_batches
from headgate.policies.binpack_lag import Algorithm2
from headgate.policies.fixed_size import overprovisioned_size
from headgate.policies.linear import Linear
from headgate.policies.optimal import PAPER_EVENTS, offline
from headgate.simulation.arrivals import Arrivals, burst, counted, even
from headgate.simulation.run import RunSettings, simulate
from headgate.simulation.traces import w1, w2_stand_in

SLA_POINTS = 3.0
"""The spec's acceptance band."""
COST_SHARE = 0.10
COUNT_SHARE, COUNT_STEPS = 0.25, 1.0
"""Steps up and down may differ by this share or by this many, whichever is more. The spec has no band for them."""

HEAD = (
    "| policy | runs | SLA %: mean (min … max) | replica-min | up / down | max s "
    "| published: SLA, replica-min, up/down | verdict |\n|---|---|---|---|---|---|---|---|\n"
)


TUNED = """The constants of ours were tuned on W1 (five seeds, the reported ones among them), with about two dozen
settings tried; how quickly its price follows the debt, with two seeds of the W2 stand-in in view, too. Its structure
was chosen with draws of the families in view: seeds 3000 and 3001, which no report shows, and for the price of overload
and backlog the first reported draw of spiky, regime switch and correlated bursts.
"""
"""Also in docs/choose-a-policy.md."""

_SETTING = """Each row is the mean of the runs its second column counts: seeds × decision periods 1.03 s and 1.07 s, for
held-out families the seeds at 1.03 s. An experiment that was stopped early has fewer of the later seeds.

Simulated event by event: burst producer, random keys, one replica at the start, 15 s before the first decision,
start-up 3 s billed, mu 200 records/s, SLO 500 ms, rates counted over one second, lag as it stands when looked at.

Published policies run on an eager group with a cooldown of 10 s and literal reassignment; ours runs on Headgate's own
way of changing hands, where only what moves pauses and who goes is drained first. So does the fair baseline:
Algorithm 2 with exactly those moves. Start-up, cooldown and periods are not in the paper; they were fixed before the
first run and not tuned.

*Reproduced* means: mean SLA within 3 points, cost within 10 % and steps up and down within 25 % or one step of the
printed numbers, as far as they are printed. *Target* rows are ours against what was asked of it. W2 is a stand-in with
the published curve's knots and noise, not the authors' trace. All runs: [runs.csv](runs.csv).
"""


def report(rows: list[TableRow], extra: list[TableRow], results: Results, seeds: int, quick: bool) -> str:
    most = max((run.seed + 1 for run in results.runs), default=seeds)
    command = f"headgate experiment latency --seeds {most}" + (" --quick" if quick else "")
    parts = [
        f"# Latency experiments, re-run\n\nCommand: `{command}`.\n\n{_SETTING}\n{TUNED}\n{results.provenance()}",
        "![latency over time](latency-w1.png)\n",
        "![late records against cost](front-w1.png)\n",
    ]
    for table, group in groupby(rows, key=lambda r: r.table):
        lines = [_line(row, results) for row in group]
        parts.append(f"## {table}\n\n{HEAD}" + "".join([*lines, *_optimal(table)]))
    parts.append(_golden())
    if not quick:
        parts.append(_more_steps())
        parts.append(_bounds(results))
    parts.append(_diagnosis(results))
    for table, group in groupby(extra, key=lambda r: r.table):
        parts.append(f"## {table}\n\n{HEAD}" + "".join(_line(row, results) for row in group))
    parts.append(
        "## Distributions\n\n![CDF, W1](cdf-w1.png)\n\n![CDF, skewed](cdf-skewed.png)\n\n"
        "![CDF, heartbeats](cdf-heartbeat.png)\n\n![CDF, 500 ms rebalances](cdf-tr05.png)\n\n"
        "![CDF, 2 s rebalances](cdf-tr2.png)\n\n![by replica](replicas-w1.png)\n"
    )
    return "\n".join(parts)


def _line(row: TableRow, results: Results) -> str:
    key = row.case.key
    sla, cost = results.spread(key, "sla_percent"), results.spread(key, "replica_minutes")
    if sla is None or cost is None:
        return f"| {row.case.policy} | 0 | not run | | | | | |\n"
    ups, downs, top = (results.spread(key, c) for c in ("ups", "downs", "max_s"))
    assert ups is not None
    assert downs is not None
    assert top is not None
    name = row.case.policy + (f" ({row.case.trace})" if "keys, 9" in row.table or "Heartbeat" in row.table else "")
    return (
        f"| {name} | {len(results.of(key))} | {sla.mean:.2f} ({sla.low:.2f} … {sla.high:.2f}) "
        f"| {cost.mean:.2f} ({cost.low:.1f} … {cost.high:.1f}) | {ups.mean:.1f} / {downs.mean:.1f} | {top.mean:.2f} "
        f"| {_published(row)} | {_verdict(row, sla.mean, cost.mean, ups.mean, downs.mean)} |\n"
    )


def _published(row: TableRow) -> str:
    if row.target is not None:
        return f"target: ≥ {row.target.sla_percent:g} at ≤ {row.target.replica_minutes:g}"
    if row.published is None:
        return row.note or "–"
    p = row.published
    counts = f"{p.ups}/{p.downs}" if p.ups is not None else "–"
    cost = "–" if p.replica_minutes is None else f"{p.replica_minutes:g}"
    return (
        f"{p.sla_percent:g}, {cost}, {counts}"
        + (f", max {p.max_s}" if p.max_s else "")
        + (f"; {row.note}" if row.note else "")
    )


def _verdict(row: TableRow, sla: float, cost: float, ups: float, downs: float) -> str:
    if row.target is not None:
        misses = []
        if sla < row.target.sla_percent - 1e-9:
            misses.append(f"SLA {sla:.2f} is below")
        if cost > row.target.replica_minutes:
            misses.append(f"cost is {cost - row.target.replica_minutes:.2f} above")
        return "target met" if not misses else "missed: " + ", ".join(misses)
    if row.published is None:
        return "–"
    p, off = row.published, []
    if p.sla_percent is not None and abs(sla - p.sla_percent) > SLA_POINTS:
        off.append(f"SLA {sla - p.sla_percent:+.1f} points")
    if p.replica_minutes is not None and abs(cost / p.replica_minutes - 1) > COST_SHARE:
        off.append(f"cost {cost / p.replica_minutes - 1:+.0%}")
    for name, steps, printed in (("up", ups, p.ups), ("down", downs, p.downs)):
        if printed is not None and abs(steps - printed) > max(COUNT_SHARE * printed, COUNT_STEPS):
            off.append(f"{steps - printed:+.1f} steps {name}")
    return "reproduced" if not off else f"not: {', '.join(off)}{_reason(row)}"


def _reason(row: TableRow) -> str:
    if row.case.key.startswith("w1/alg1-tr"):
        return " (the spec's own probe finds the same: the paper's Alg 1 suffers more than its model says)"
    if row.case.key == "w2/alg2":
        return " (see: Why Alg 2 steps more often on W2)"
    if row.case.trace.startswith("W2"):
        return " (stand-in trace; cooldown and start-up unpublished)"
    return ""


def _optimal(table: str) -> list[str]:
    """The paper's Optimal rows: arithmetic on the trace, not a simulation (E-37)."""
    if not table.startswith(("Table 2", "Table 3")):
        return []
    is_w1 = table.startswith("Table 2")
    sizes = offline(golden_batches(w1() if is_w1 else w2_stand_in()), PAPER_EVENTS)
    cost, printed = sum(sizes) / 60, 32.7 if is_w1 else 414.11
    counts = "6/6" if is_w1 else "20/16"
    verdict = "reproduced" if abs(cost / printed - 1) <= COST_SHARE else f"not: cost {cost / printed - 1:+.0%}"
    if not is_w1:
        verdict += "; counts without a cooldown (A-6), stand-in"
    paper = f"100, {printed}, {counts}"
    return [f"| Optimal, v = 85 | – | 100 by definition | {cost:.2f} | {_steps(sizes)} | – | {paper} | {verdict} |\n"]


def _golden() -> str:
    """The arithmetic rows: exact, no simulation."""
    rates = np.ceil(w1())
    linear = [Linear().wanted(float(r), 5) for r in rates]
    lines = [f"| Linear, W1 | {sum(linear) / 60:.2f} | {_steps(linear)} | 25.52, 6/6 |"]
    for events, printed in ((85.0, "32.70, 6/6 in 4/4 actions"), (100.0, "28.88, 8/8")):
        sizes = offline(golden_batches(w1()), events)
        lines.append(f"| Optimal, W1, v = {events:g} | {sum(sizes) / 60:.2f} | {_steps(sizes)} | {printed} |")
    for events in (85.0, 100.0):
        sizes = offline(golden_batches(w2_stand_in()), events)
        printed = "414.11 published, on the authors' trace" if events == 85.0 else "–"
        lines.append(f"| Optimal, W2 stand-in, v = {events:g} | {sum(sizes) / 60:.2f} | {_steps(sizes)} | {printed} |")
    for name, peak in (("W1", 350.0), ("W2", 368.0)):
        size = overprovisioned_size(peak, 5, 200.0, 0.5)
        lines.append(f"| Overprovisioned, {name} | {size} replicas | – | 5 |")
    return (
        "## Golden arithmetic\n\nceil(rate) of each second split equally over 5 partitions. Optimal has no violations "
        "by definition and ignores f_up; it is no lower bound at an SLA below 100 (A-14).\n\n"
        "| row | replica-min | up/down | expected |\n|---|---|---|---|\n" + "\n".join(lines) + "\n"
    )


def _steps(sizes: list[int]) -> str:
    steps = np.diff([1, *sizes, 1])  # starts with one replica and ends with one
    return f"{int(steps[steps > 0].sum())}/{int(-steps[steps < 0].sum())}"


def _bounds(results: Results) -> str:
    """What knowing the future would save at most."""
    lines = []
    for name, key, rates, shares, goal in (
        ("W1", "w1/ours", w1(), even(5), 99.5),
        ("W1", "w1/ours999", w1(), even(5), 99.9),
        ("W2 stand-in", "w2/ours", w2_stand_in(0), even(5), 99.5),
    ):
        cost, sla = results.spread(key, "replica_minutes"), results.spread(key, "sla_percent")
        if cost is None or sla is None:
            continue
        batches = burst(rates, shares, np.random.default_rng([0, 5])).per_second()
        keys = bound(batches, 100.0, goal)
        curve, here = (bound_of_the_curve(rates, shares, 100.0, x) for x in (goal, sla.mean))
        lines.append(
            f"| {name} | {goal:g} | {keys.replica_minutes:.2f} | {curve.replica_minutes:.2f} | {cost.mean:.2f} at "
            f"{sla.mean:.2f} % | {here.replica_minutes:.2f} | {cost.mean / here.replica_minutes - 1:+.1%} |"
        )
    return (
        "## How far from the best possible\n\nTwo bounds from below; neither pays for start-up or moves. The first "
        "knows every batch and places it anew each second. The second knows the curve of the total, to the record, but "
        "not where keys will fall: what no policy without knowledge of the future can beat.\n\n"
        "| trace | goal % | knows the keys | knows the curve | ours | the curve's bound at our SLA | above it |\n"
        "|---|---|---|---|---|---|---|\n" + "\n".join(lines) + "\n" + _on_w2(results)
    )


def _more_steps() -> str:
    """What the counts of Table 3 depend on: one run for each thing that the paper leaves open."""
    arrivals = case("", "Alg 2", "W2 stand-in", Algorithm2).arrivals(0)
    dealt = counted([[math.ceil(rate / 5)] * 5 for rate in w2_stand_in(0)])
    runs: dict[str, tuple[Arrivals, Algorithm2, RunSettings]] = {
        "as in Table 3": (arrivals, Algorithm2(), EAGER),
        "a cooldown of 60 s": (arrivals, Algorithm2(cooldown_s=60.0), EAGER),
        "rates counted over 5 s": (arrivals, Algorithm2(), replace(EAGER, rate_window_s=5.0)),
        "keys dealt evenly": (dealt, Algorithm2(), EAGER),
    }
    lines = []
    for name, (load, policy, settings) in runs.items():
        outcome = simulate(load, policy, settings)
        steps = f"{outcome.ups} / {outcome.downs}"
        lines.append(f"| {name} | {outcome.sla_percent:.2f} | {outcome.replica_minutes:.1f} | {steps} |")
    return (
        "## Why Alg 2 steps more often on W2\n\nOne run each, seed 0, period 1.03 s; published are 98.9, 402.9 and "
        "20 / 16. Random keys make a partition's rate of one second noisy, and that noise crosses the limits of size. "
        "Counted over 5 s, or with as many records for every partition, it does not; a longer cooldown alone does "
        "less. How the authors counted rates is not published.\n\n"
        "| Alg 2 | SLA % | replica-min | up / down |\n|---|---|---|---|\n" + "\n".join(lines) + "\n"
    )


def _on_w2(results: Results) -> str:
    """Why the target on the two-hour trace is out of reach on the stand-in."""
    ups = results.spread("w2/ours", "ups")
    if ups is None:
        return ""
    least, started = bound_of_the_curve(w2_stand_in(0), even(5), 100.0, 99.5).replica_minutes, ups.mean * 3 / 60
    return (
        f"\nThe target of 325 on W2 was set for the authors' trace. On the stand-in {least:.1f} is the least for one "
        f"who knows the curve and pays nothing for changes; {ups.mean:.0f} start-ups of 3 s, as ours needs, are "
        f"another {started:.1f}.\n"
    )


def _diagnosis(results: Results) -> str:
    """Section 5.2 of the paper: what makes records late."""
    lines = []
    for name, key in (
        ("Alg 2, heartbeat 3 s", "w1/alg2"),
        ("Alg 2, heartbeat 500 ms", "w1/alg2-hb"),
        ("Linear", "w1/linear"),
        ("Alg 2, moves like ours", "w1/alg2-fair"),
        ("ours", "w1/ours"),
    ):
        columns = ("late_overload", "late_start_up", "late_scale_up", "late_scale_down", "late_reassignment", "max_s")
        found = [results.spread(key, c) for c in columns]
        if any(s is None for s in found):
            continue
        shown = [f"{s.mean:.0f}" if c != "max_s" else f"{s.mean:.2f}" for s, c in zip(found, columns, strict=True) if s]
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return (
        "## Why records were late, W1 (5.2)\n\nMean late records per run by cause. With 3 s heartbeats the highest "
        "latencies come from scale-downs, whose partitions wait for everybody's heartbeat; with 500 ms those peaks are "
        "gone.\n\n"
        "| policy | overload | start-up | scale-up rebalance | scale-down stall | reassignment | max s |\n"
        "|---|---|---|---|---|---|---|\n" + "\n".join(lines) + "\n"
    )
