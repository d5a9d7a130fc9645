"""What a cluster does whose nodes are the bottleneck: the same layouts and faults in the dispatch simulator (B-50).

On one machine nodes share processor and disk, so a node that gets more than its share finds more of both. In the
simulator a node is a queue of its own, and the partitioners are the very classes that producers use.
"""

import csv
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from headgate.experiments.partitioners_cases import (
    ADAPTIVE,
    BASELINE,
    KILLED_NODE,
    SCENARIOS,
    SHARED,
    SLOW_NODE,
    expected,
)
from headgate.producers.protocol import Partitioner
from headgate.producers.registry import build_partitioner
from headgate.simulation.dispatch import Change, Outcome, World, run
from headgate.simulation.dispatch_policies import ByPartitioner

AWAY, BETWEEN = 50.0, 500.0
"""The killed node is away for 50 mean service times, every 500."""


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    scenario: str
    loads: tuple[float, ...]
    """Arrivals over what all nodes together can do when healthy."""
    partitioners: tuple[str, ...] = (BASELINE, "node", "sqf", *ADAPTIVE)
    slow_speed: float | None = None
    killed: bool = False

    def changes(self, until: float) -> tuple[Change, ...]:
        if self.slow_speed is not None:
            return (Change(0.0, SLOW_NODE - 1, self.slow_speed),)
        times = range(int(BETWEEN - AWAY), int(until), int(BETWEEN)) if self.killed else ()
        queue = KILLED_NODE - 1
        return tuple(change for at in times for change in (Change(at, queue, 0.0), Change(at + AWAY, queue, 1.0)))


SETTINGS = (
    Setting("balanced, two nodes", "B2", (0.5, 0.7, 0.9)),
    Setting("unbalanced, two nodes", "U2", (0.5, 0.7, 0.9)),
    Setting("three nodes", "U3", (0.5, 0.7, 0.9)),
    Setting("several producers", "AB", (0.5, 0.7, 0.9), (BASELINE, "node", "sqf", SHARED)),
    Setting("slow node", "S", (0.4, 0.6, 0.75), slow_speed=0.5),
    Setting("killed node", "K", (0.4, 0.5, 0.6), killed=True),
)


@dataclass(frozen=True, slots=True)
class Simulated:
    """Times in units of a record's mean service time."""

    setting: str
    scenario: str
    partitioner: str
    load: float
    wait_mean: float
    wait_half: float
    """Of its 99 % interval, from batch means."""
    wait_p99: float
    shares: str
    """Of each node, in percent."""
    resends: int
    stable: bool
    """No node is sent more than it can do; otherwise waits grow as long as the simulation runs."""


def simulate(
    jobs: int, seed: int, told: Callable[[str], None] = lambda _: None, settings: Sequence[Setting] = SETTINGS
) -> list[Simulated]:
    rows = []
    for setting in settings:
        for name in setting.partitioners:
            told(f"{setting.name}, {name}")
            rows += [_simulated(setting, name, load, jobs, seed) for load in setting.loads]
    return rows


def _simulated(setting: Setting, name: str, load: float, jobs: int, seed: int) -> Simulated:
    scenario = SCENARIOS[setting.scenario]
    policy = ByPartitioner(_partitioners(name, len(scenario.topics), seed), scenario.topology, list(scenario.topics))
    arrivals = load * scenario.nodes
    world = World(scenario.nodes, arrivals, sets=policy.queue_sets, changes=setting.changes(jobs / arrivals))
    outcome = run(world, policy, jobs, seed)
    mean, half = outcome.mean_wait_s()
    return Simulated(
        setting.name,
        scenario.name,
        name,
        load,
        round(mean, 3),
        round(half, 3),
        round(float(np.percentile(outcome.waits_s[len(outcome.waits_s) // 10 :], 99)), 2),
        _shares(outcome),
        outcome.resends,
        _stable(setting, name, load),
    )


def _partitioners(name: str, producers: int, seed: int) -> list[Partitioner]:
    """One for each producer, all beginning alike."""
    params: dict[str, Any] = {"start": lambda: seed} | ({"seed": seed} if name == "jsq" else {})
    if name == SHARED:
        return [build_partitioner("sqf", params)] * producers
    return [build_partitioner(name, params) for _ in range(producers)]


def _stable(setting: Setting, name: str, load: float) -> bool:
    return load < highest_load(setting, name)


def highest_load(setting: Setting, name: str) -> float:
    """Arrivals that no node is overwhelmed by, over what all healthy nodes can do. Those that go by how fast nodes are
    use what there is. A killed node is away too shortly to count."""
    scenario = SCENARIOS[setting.scenario]
    speeds = dict.fromkeys(range(1, scenario.nodes + 1), 1.0)
    if setting.slow_speed is not None:
        speeds[SLOW_NODE] = setting.slow_speed
    predicted = expected(name, scenario.topology)
    if predicted is None:
        return sum(speeds.values()) / scenario.nodes
    return min(speeds[node] / share for node, share in predicted.led.items() if share > 0) / scenario.nodes


def _shares(outcome: Outcome) -> str:
    total = sum(outcome.served)
    return " / ".join(f"{100 * served / total:.0f}" for served in outcome.served)


def write_csv(rows: Sequence[Any], file: Path) -> None:
    """Rows of one dataclass."""
    with file.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow([field.name for field in fields(rows[0])])
        writer.writerows(map(astuple, rows))
