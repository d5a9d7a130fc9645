"""The report's sections on what the paper left untested (B-61), and on the simulator."""

from collections.abc import Sequence
from statistics import mean

from headgate.experiments.partitioners import Plan
from headgate.experiments.partitioners_cases import KILLED_NODE, SCENARIOS, SLOW_NODE, Cell, Part, cells, expected
from headgate.experiments.partitioners_faults import AWAY, BACK, BEFORE, FAILING, HEALTHY, RETURNING, SLOW
from headgate.experiments.partitioners_results import Results
from headgate.experiments.partitioners_simulated import SETTINGS, Simulated, highest_load
from headgate.experiments.partitioners_tables import (
    cell_row,
    change,
    leaders,
    mean_shares,
    percents,
    prose,
    shares_row,
    shown,
    table,
)
from headgate.topology.failures import failed


def limited(results: Results, plan: Plan) -> list[str]:
    heading = ("scenario", "acks", "partitioner", "runs", "MiB/s", "avg ms", "bound", "throughput", "average latency")
    rows = []
    for cell in cells(Part.limited):
        predicted = expected(cell.partitioner, SCENARIOS[cell.scenario].topology)
        bound = f"{plan.limit_mib_per_s / max(predicted.led.values()):.2f}" if predicted else ""
        changes = [change(results, cell, metric) for metric in ("mib_per_s", "avg_ms")]
        rows.append((cell.scenario, cell.acks, *cell_row(results, cell)[:4], bound, *changes))
    return [
        "## Where nodes limit",
        "",
        *prose(
            f"""Kafka's own quota lets every node take {plan.limit_mib_per_s:g} MiB/s from the producer, so that nodes
            are the bottleneck; {plan.limited_records:,} records a run. *Bound*: the limit over the largest predicted
            share, which is what the busiest node allows. Records carry some bytes beside their value. What Kafka
            forgives in the first second is sent before the clock starts."""
        ),
        "",
        *table(heading, rows),
        "",
    ]


def three_nodes(results: Results) -> list[str]:
    heading = ("acks", "partitioner", "runs", "MiB/s", "avg ms", "throughput", "average latency", "led, %", "predicted")
    rows = []
    for cell in cells(Part.three):
        changes = [change(results, cell, metric) for metric in ("mib_per_s", "avg_ms")]
        rows.append((cell.acks, *cell_row(results, cell)[:4], *changes, *shares_row(results, [cell])[:2]))
    return [f"## Three nodes: leaders {leaders('U3')}, three copies", "", *table(heading, rows), ""]


def several_producers(results: Results) -> list[str]:
    heading = ("partitioner", "runs", "MiB/s", "avg ms", "throughput", "led, %", "predicted")
    rows = [
        (*cell_row(results, cell)[:4], change(results, cell, "mib_per_s"), *shares_row(results, [cell])[:2])
        for cell in cells(Part.several)
    ]
    return [
        "## Several producers",
        "",
        *prose(
            """Producer X writes topic A (one partition on node 1, two on node 2), producer Y as many records to topic B
            (nodes 2 and 3): the cluster of B-25. `sqf, shared` is one object for both, otherwise each has its own."""
        ),
        "",
        *table(heading, rows),
        "",
    ]


def slow_node(results: Results, plan: Plan) -> list[str]:
    heading = ("partitioner", "runs", "healthy: avg ms", "p99", "slow: avg ms", "p99", "average latency", "led, %")
    rows = []
    for cell in cells(Part.slow):
        led = percents(mean_shares([run.led_shares for run in results.of(cell, SLOW)]))
        times = [*_latency(results, cell, HEALTHY), *_latency(results, cell, SLOW)]
        rows.append((*cell_row(results, cell, SLOW)[:2], *times, change(results, cell, "avg_ms", SLOW), led))
    faults = plan.faults
    frozen_ms, running_ms = 1000 * faults.frozen_s, 1000 * faults.running_s
    return [
        "## A slow node",
        "",
        *prose(
            f"""Three nodes, one partition each, acks 1, {faults.records_per_s:,} records/s of each producer in batches
            of {faults.linger_ms} ms, all at once. Node {SLOW_NODE} stands still for {frozen_ms:.0f} ms and works for
            {running_ms:.0f} ms, in turn (SIGSTOP and SIGCONT of its process, as a starved machine behaves; Kafka's
            quotas are the same for all nodes, and its throttles pass replicas in sync by)."""
        ),
        "",
        *table(heading, rows),
        "",
        "![latency with a slow and with a killed node](faults.png)",
        "",
    ]


def killed_node(results: Results) -> list[str]:
    heading = (
        *("partitioner", "runs", "before: avg ms", "failing: avg ms", "p99", "average while failing"),
        *("away: avg ms", "returning: avg ms", "back: avg ms", "lost"),
        *("led before, % (predicted)", "led while away, % (predicted)"),
    )
    lasted_s = [run.seconds for run in results.runs if run.part == Part.killed and run.phase == FAILING]
    lasted = f" ({mean(lasted_s):.1f} s on average)" if lasted_s else ""
    return [
        "## A node killed at run time",
        "",
        *prose(
            f"""Leaders {leaders("K")}, two copies, acks all. Node {KILLED_NODE} gets SIGKILL; *failing* lasts until
            every producer knows the new leaders{lasted}, *returning* from its start until it leads again. Latencies are
            of records sent in that phase."""
        ),
        "",
        *table(heading, [_killed_row(results, cell) for cell in cells(Part.killed)]),
        "",
    ]


def _killed_row(results: Results, cell: Cell) -> list[str]:
    whole, phases = SCENARIOS[cell.scenario].topology, (BEFORE, FAILING, AWAY, RETURNING, BACK)
    avg = {phase: shown(results, cell, "avg_ms", phase) for phase in phases}
    failing = [*_latency(results, cell, FAILING), change(results, cell, "avg_ms", FAILING)]
    lost = sum(run.failed for phase in phases for run in results.of(cell, phase))
    led = []
    for phase, topology in ((BEFORE, whole), (AWAY, failed(whole, [KILLED_NODE]))):
        predicted = expected(cell.partitioner, topology)
        got = percents(mean_shares([run.led_shares for run in results.of(cell, phase)]))
        led.append(got + (f" ({percents({n: s for n, s in predicted.led.items() if s})})" if predicted else ""))
    runs = cell_row(results, cell, BEFORE)[:2]
    return [*runs, avg[BEFORE], *failing, avg[AWAY], avg[RETURNING], avg[BACK], f"{lost}", *led]


def _latency(results: Results, cell: Cell, phase: str) -> list[str]:
    return [shown(results, cell, metric, phase) for metric in ("avg_ms", "p99_ms")]


def in_the_simulator(simulated: Sequence[Simulated]) -> list[str]:
    lines = [
        "## In the simulator: every node a machine of its own",
        "",
        *prose(
            """The dispatch simulator with the same partitioner classes and layouts (B-50). Waits are in units of a
            record's mean service time; load is arrivals over what all healthy nodes can do. *Bound*: the load at
            which the busiest node is overwhelmed; beyond it a wait only says how long the simulation ran, and —
            stands for it. The slow node works at half its speed; the killed one is away for 50 of every 500."""
        ),
        "",
    ]
    for setting in SETTINGS:
        heading = ("partitioner", *(f"wait at {load:g}" for load in setting.loads), "nodes, %", "bound")
        rows = []
        for name in setting.partitioners:
            found = [row for row in simulated if (row.setting, row.partitioner) == (setting.name, name)]
            waits = [f"{row.wait_mean:.2f} ± {row.wait_half:.2f}" if row.stable else "—" for row in found]
            bound = "" if setting.killed else f"{highest_load(setting, name):.2f}"
            rows.append((f"`{name}`", *waits, found[0].shares if found else "", bound))
        lines += [f"{setting.name.capitalize()} ({setting.scenario}):", "", *table(heading, rows), ""]
    return [*lines, "![waits in the simulator](simulated.png)", ""]
