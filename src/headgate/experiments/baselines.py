"""E5: what people run today against Headgate's policies, on the same traces: SLA, cost and moves, measured."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from headgate.experiments import plots
from headgate.experiments.campaign import Case, Results, run_all
from headgate.experiments.clairvoyant import bound, fewest_late, without_foresight
from headgate.experiments.latency_cases import COOPERATIVE, EAGER, LOADS
from headgate.experiments.latency_report import TUNED
from headgate.packing.modified_any_fit import ModifiedWorstFit
from headgate.policies.binpack_lag import Algorithm2
from headgate.policies.fixed_size import EqualCount, LoadBalance
from headgate.policies.kubernetes import Hpa, Keda
from headgate.policies.sentinel import Sentinel
from headgate.policies.slo import Slo
from headgate.simulation.arrivals import Floats, Ints
from headgate.simulation.run import Decides, RunSettings
from headgate.simulation.traces import FAMILIES, Family

RECORD_BYTES = EAGER.record_bytes
CAPACITY = EAGER.group.capacity_records_per_s


def sentinel() -> Decides:
    """The thesis' policy with MWF; its two capacities keep their published ratio of 2.0 to 1.5."""
    return Sentinel(ModifiedWorstFit(), CAPACITY * RECORD_BYTES, 0.75 * CAPACITY * RECORD_BYTES)


POLICIES: dict[str, tuple[Callable[[], Decides], RunSettings]] = {
    "HPA, 70 % of capacity": (Hpa, EAGER),
    "KEDA, lagThreshold 10": (Keda, EAGER),
    "KEDA, lagThreshold 100": (partial(Keda, lag_threshold=100.0), EAGER),
    "3 replicas, equal counts": (partial(EqualCount, 3), EAGER),
    "5 replicas, equal counts": (partial(EqualCount, 5), EAGER),
    "3 replicas, load balanced": (partial(LoadBalance, 3), COOPERATIVE),
    "sentinel + MWF": (sentinel, COOPERATIVE),
    "Alg 2, moves like ours": (Algorithm2, COOPERATIVE),
    "ours, 99.5 %": (Slo, COOPERATIVE),
    "ours, thrift 4": (partial(Slo, thrift=4.0), COOPERATIVE),
}


def _drawn(family: Family, seed: int) -> tuple[Floats, Floats]:
    return family(2000 + seed)


def cases(quick: bool) -> list[Case]:
    found = []
    for trace, load in LOADS.items():
        if trace == "W2 stand-in skewed" or (quick and trace.startswith("W2")):
            continue
        for name, (make, settings) in POLICIES.items():
            found.append(Case(f"{trace}/{name}", name, trace, make, load, settings, periods_s=(1.03,)))
    for trace, family in FAMILIES.items() if not quick else ():
        for name, (make, settings) in POLICIES.items():
            drawn = partial(_drawn, family)
            found.append(Case(f"{trace}/{name}", name, trace, make, drawn, settings, periods_s=(1.03,)))
    return sorted(found, key=lambda c: c.trace.startswith("W2"))


def run(
    out: Path,
    seeds: int = 5,
    quick: bool = False,
    resume: bool = False,
    told: Callable[[str, int, int], None] = lambda *_: None,
    keep_old: bool = False,
) -> tuple[Path, str]:
    """Runs everything and writes runs.csv, a plot per trace and README.md into `out`; its path, and what code ran."""
    seeds = 1 if quick else seeds
    chosen = cases(quick)
    results = Results(out / "runs.csv", resume, keep_old)
    run_all(chosen, seeds, results, told)
    traces = list(dict.fromkeys(c.trace for c in chosen))
    for trace in traces:
        points: dict[str, list[tuple[str, float, float]]] = {"what people run today": [], "Headgate and Alg 2": []}
        for name in POLICIES:
            sla, cost = (results.spread(f"{trace}/{name}", c) for c in ("sla_percent", "replica_minutes"))
            if sla and cost:
                today = name.startswith(("HPA", "KEDA", "3 replicas, equal", "5 replicas"))
                points["what people run today" if today else "Headgate and Alg 2"].append((name, sla.mean, cost.mean))
        plots.sla_against_cost(points, f"{trace}: late records against cost", out / f"{trace.replace(' ', '-')}.png")
    file = out / "README.md"
    file.write_text(_report(traces, results, seeds, quick))
    return file, results.provenance()


def _report(traces: list[str], results: Results, seeds: int, quick: bool) -> str:
    command = f"headgate experiment baselines --seeds {seeds}" + (" --quick" if quick else "")
    parts = [
        "# Against what people run today (E5)\n\n"
        f"Command: `{command}`; mean of {seeds} seeds, event-exact, burst producer, mu 200 records/s, SLO 500 ms, "
        "start-up 3 s billed, one replica at the start, decisions looked for every 1.03 s.\n\n"
        "HPA and KEDA run their own loop on top of that: every 15 s, 10 % tolerance, scale-down after the highest\n"
        "recommendation of 5 minutes; their groups are Kafka's classic ones (eager, range assignment, heartbeat 3 s).\n"
        "KEDA never goes to zero here. Headgate's policies and the fair Algorithm 2 move partitions one by one.\n"
        f"W2 is a stand-in.\n\n{TUNED}\n{results.provenance()}"
    ]
    for trace in traces:
        lines = []
        for name in POLICIES:
            key = f"{trace}/{name}"
            found = [
                results.spread(key, c) for c in ("sla_percent", "replica_minutes", "ups", "downs", "moves", "max_s")
            ]
            if any(s is None for s in found):
                continue
            sla, cost, ups, downs, moves, top = (s for s in found if s is not None)
            lines.append(
                f"| {name} | {sla.mean:.2f} ({sla.low:.2f} … {sla.high:.2f}) | {cost.mean:.1f} | {ups.mean:.1f} / "
                f"{downs.mean:.1f} | {moves.mean:.0f} | {top.mean:.2f} |"
            )
        parts.append(
            f"## {trace}\n\n| policy | SLA %: mean (min … max) | replica-min | up / down | moves | max s |\n"
            "|---|---|---|---|---|---|\n" + "\n".join(lines) + f"\n\n![{trace}]({trace.replace(' ', '-')}.png)\n"
        )
    if not quick:
        parts.append(_unavoidable(results, seeds))
    return "\n".join(parts)


def _unavoidable(results: Results, seeds: int) -> str:
    """What nobody can do better who does not know what comes."""
    delay_s = math.ceil(EAGER.group.start_up_s) + 1  # noticed when its second is over
    found = {c.trace: c for c in cases(quick=False) if c.policy == "ours, 99.5 %" and c.trace in FAMILIES}
    lines = []
    for trace, case in found.items():
        sla, cost = (results.spread(case.key, c) for c in ("sla_percent", "replica_minutes"))
        if sla is None or cost is None:
            continue
        batches = [case.arrivals(seed).per_second() for seed in range(seeds)]
        known = [_known(b) for b in batches]
        unknown = [without_foresight(b, EAGER.slo_s * CAPACITY, delay_s) for b in batches]
        lines.append(
            f"| {trace} | {' / '.join(known)} | {np.mean([u.sla_percent for u in unknown]):.2f} at "
            f"{np.mean([u.replica_minutes for u in unknown]):.1f} | {sla.mean:.2f} at {cost.mean:.1f} |"
        )
    return (
        "## What is unavoidable where load jumps\n\n"
        "Replica-minutes for 99.5 % of one who knows every batch, and what becomes of one who knows nothing that comes "
        f"but has, {delay_s} s after it, and for good, whatever any second so far has needed. Both place every batch "
        "anew, at no cost. The second is late only with jumps higher than all before: nobody who pays for nothing "
        "beyond what was seen is late less often.\n\n"
        "| trace | knows all: replica-min for 99.5 %, draw by draw | never lets go: SLA % at replica-min | ours |\n"
        "|---|---|---|---|\n" + "\n".join(lines) + "\n"
    )


def _known(per_second: Ints) -> str:
    """What 99.5 % costs one who knows everything, or how much can be had at all."""
    try:
        return f"{bound(per_second, EAGER.slo_s * CAPACITY, 99.5).replica_minutes:.1f}"
    except ValueError:
        late = fewest_late(per_second, EAGER.slo_s * CAPACITY).min(axis=1).sum()
        return f"no more than {100 * (1 - late / per_second.sum()):.2f} %"
