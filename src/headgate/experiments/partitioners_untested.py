"""The report's sections on what the paper left untested (B-61), and on the simulator."""

import math
from collections.abc import Sequence
from statistics import mean

from headgate.experiments.partitioners import Plan
from headgate.experiments.partitioners_cases import (
    KILLED_NODE,
    SCENARIOS,
    SLOW_NODE,
    TWO_KILLED,
    Cell,
    Part,
    cells,
    expected,
)
from headgate.experiments.partitioners_consumed import ACKNOWLEDGED, READ
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
from headgate.experiments.partitioners_threads import PHASES
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


def two_killed_nodes(results: Results) -> list[str]:
    heading = (
        *("partitioner", "runs", "before: avg ms", "failing: avg ms", "p50", "average while failing"),
        *("back: avg ms", "lost", "sent to the node that is left, %"),
    )
    rows = []
    for cell in cells(Part.two_killed):
        failing = [shown(results, cell, metric, FAILING) for metric in ("avg_ms", "p50_ms")]
        lost = sum(run.failed for phase in (BEFORE, FAILING, RETURNING, BACK) for run in results.of(cell, phase))
        left = [100 * run.led_shares.get(1, 0.0) for run in results.of(cell, FAILING)]
        rows.append(
            (
                *cell_row(results, cell, BEFORE)[:2],
                shown(results, cell, "avg_ms", BEFORE),
                *failing,
                change(results, cell, "avg_ms", FAILING),
                shown(results, cell, "avg_ms", BACK),
                f"{lost}",
                f"{mean(left):.1f}" if left else "",
            )
        )
    killed = " and ".join(str(node) for node in TWO_KILLED)
    return [
        "## Two of three nodes killed",
        "",
        *prose(
            f"""One partition led by each node, three copies, acks 1. Nodes {killed} get SIGKILL at once. Brokers are
            also the controllers here, and one of three is no majority: nobody leads in their place, and producers are
            told of no change. Records for them wait until they are back, and latencies are of records sent in a phase,
            whenever they were acknowledged. A partitioner that counts what is on its way sends to the node that is
            left; the others go on as if nothing had happened."""
        ),
        "",
        *table(heading, rows),
        "",
    ]


def consumer_latency(results: Results, plan: Plan) -> list[str]:
    heading = ("partitioner", "runs", "acknowledged: avg ms", "p99", "read: avg ms", "p99", "average until read")
    rows = [
        (
            *cell_row(results, cell, READ)[:2],
            *_latency(results, cell, ACKNOWLEDGED),
            *_latency(results, cell, READ),
            change(results, cell, "avg_ms", READ),
        )
        for cell in cells(Part.consumed)
    ]
    return [
        "## Until a consumer has a record",
        "",
        *prose(
            f"""U2, acks all, {plan.pace.records_per_s:,} records/s for {plan.pace.seconds:g} s, one consumer of all
            partitions in a thread beside the producer. From the call of `produce` to the poll that returned the
            record. The rate is far below what brokers can do: it shows what a partitioner adds to a record that need
            not wait, and not what an overloaded node would do to its readers."""
        ),
        "",
        *table(heading, rows),
        "",
    ]


def threads_and_new_topics(results: Results) -> list[str]:
    heading = ("threads, topics", "partitioner", "runs", "calls/s", "average µs", "p99.9 µs", "time of all calls")
    rows = []
    for phase in PHASES:
        for cell in cells(Part.threads):
            runs = results.of(cell, phase)
            per_s = mean(run.records / run.seconds for run in runs) if runs else math.nan
            avg_us, most_us = (
                results.interval(cell, lambda run, name=name: 1000 * float(getattr(run, name)), phase)  # type: ignore[misc]
                for name in ("avg_ms", "p999_ms")
            )
            rows.append(
                (
                    phase,
                    *cell_row(results, cell, phase)[:2],
                    f"{per_s:,.0f}" if runs else "",
                    str(avg_us or ""),
                    str(most_us or ""),
                    change(results, cell, "seconds", phase),
                )
            )
    return [
        "## What stresses `improved`",
        "",
        *prose(
            """`improved` makes the choices of `default-rr` with one look-up fewer, and takes a lock when a topic is
            new (B-30). Here threads share one object and call `partition` as published, over and over, on one topic
            and on 20,000 that are all new at first; no broker takes part. A `BalancedProducer` makes these look-ups
            when the topology changes and not for a record, so none of this reaches its callers. Python runs one thread
            at a time: who meets a lock that is held waits until its holder has a turn, which is another thing than the
            contention between cores that the paper has in mind."""
        ),
        "",
        *table(heading, rows),
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
