"""The latency paper re-run: every table, beside its published numbers, with plots and a report."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from headgate.experiments import plots
from headgate.experiments.campaign import Results, run_all, run_case
from headgate.experiments.latency_cases import TableRow, held_out, sweeps, tables, variants
from headgate.experiments.latency_report import report

Told = Callable[[str, int, int], None]


def run(
    out: Path,
    seeds: int = 5,
    quick: bool = False,
    resume: bool = False,
    told: Told = lambda *_: None,
    keep_old: bool = False,
) -> tuple[Path, str]:
    """Runs everything and writes runs.csv, plots and README.md into `out`; the report's path, and what code ran.

    Quick leaves out the two-hour trace, the sweeps and the held-out families, and uses one seed.
    """
    rows = tables()
    extra = [*variants(), *sweeps(), *held_out()]
    if quick:
        rows = [r for r in rows if not r.case.trace.startswith("W2")]
        extra, seeds = [], 1
    results = Results(out / "runs.csv", resume, keep_old)
    unique = {row.case.key: row.case for row in (*rows, *extra)}
    run_all(unique.values(), seeds, results, told)
    told("plots", 0, 1)
    _plots(out, [*rows, *extra], results, quick)
    file = out / "README.md"
    file.write_text(report(rows, extra, results, seeds, quick))
    told("done", 1, 1)
    return file, results.provenance()


def _plots(out: Path, rows: list[TableRow], results: Results, quick: bool) -> None:
    cases = {row.case.key: row.case for row in rows}
    seen = {
        name: run_case(cases[key], 0, 1.03)
        for name, key in (
            ("Alg 2", "w1/alg2"),
            ("Linear", "w1/linear"),
            ("Alg 2, heartbeat 500 ms", "w1/alg2-hb"),
            ("ours, 99.5 %", "w1/ours"),
        )
    }
    plots.latency_over_time(seen, out / "latency-w1.png")
    plots.replicas_over_time(seen["Alg 2"], "Alg 2 on W1, heartbeat 3 s", out / "replicas-w1.png")
    plots.cdf(seen, "W1, even keys", out / "cdf-w1.png")
    beats = {"Alg 2, heartbeat 3 s": seen["Alg 2"], "Alg 2, heartbeat 500 ms": seen["Alg 2, heartbeat 500 ms"]}
    plots.cdf(beats, "W1, even keys, by heartbeat", out / "cdf-heartbeat.png")
    for end, pause, file in (("tr0.5", "500 ms", "cdf-tr05.png"), ("tr2", "2 s", "cdf-tr2.png")):
        slow = {
            name: run_case(cases[key], 0, 1.03)
            for name, key in (("Alg 1", f"w1/alg1-{end}"), ("Alg 2", f"w1/alg2-{end}"), ("ours", f"w1/ours-{end}"))
        }
        plots.cdf(slow, f"W1, rebalances of {pause}", out / file)
    skewed = {
        name: run_case(cases[key], 0, 1.03)
        for name, key in (("Alg 2", "w1s/alg2"), ("Linear", "w1s/linear"), ("ours", "w1s/ours"))
    }
    plots.cdf(skewed, "W1, skewed keys", out / "cdf-skewed.png")
    points = {
        "published and fair": [
            _point(results, name, key)
            for name, key in (
                ("Alg 2", "w1/alg2"), ("Linear", "w1/linear"), ("ratio", "w1/ratio"), ("Alg 2 fair", "w1/alg2-fair"),
                ("Alg 1", "w1/alg1"), ("over", "w1/over"),
            )
        ]
    }  # fmt: skip
    if not quick:
        points["Alg 2, f_up and f_down swept"] = [
            _point(results, f"{u}/{d}", f"w1/f{u}-{d}") for u in (0.7, 0.8, 0.9) for d in (0.3, 0.4, 0.5)
        ]
        knob = [("", f"w1/ours-k{k:g}") for k in (0.25, 0.5, 2.0, 4.0, 8.0)]
        points["ours"] = [_point(results, n, k) for n, k in [("99.5 %", "w1/ours"), ("99.9 %", "w1/ours999"), *knob]]
    else:
        points["ours"] = [_point(results, n, k) for n, k in (("99.5 %", "w1/ours"), ("99.9 %", "w1/ours999"))]
    plots.sla_against_cost(points, "W1, even keys: late records against cost", out / "front-w1.png", ("ours",))


def _point(results: Results, name: str, key: str) -> tuple[str, float, float]:
    sla, cost = results.spread(key, "sla_percent"), results.spread(key, "replica_minutes")
    return name, sla.mean if sla else np.nan, cost.mean if cost else np.nan
