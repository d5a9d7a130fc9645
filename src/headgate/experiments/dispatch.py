"""Dispatching policies in the simulator beside queueing theory (E-4, B-49), and the partitioners in the same place."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from headgate.errors import ConfigError
from headgate.experiments.plots import save
from headgate.producers.registry import build_partitioner
from headgate.simulation import dispatch_theory as theory
from headgate.simulation.dispatch import Change, DispatchPolicy, Outcome, World
from headgate.simulation.dispatch import run as simulate
from headgate.simulation.dispatch_policies import (
    ByPartitioner,
    Fallback,
    JoinIdle,
    JoinShortest,
    JoinShortestAdaptive,
    JoinShortestOfD,
    JoinShortestStale,
    RandomQueue,
    RoundRobin,
    Update,
)
from headgate.topology.cluster import Node, Partition, Topic, Topology

PICTURE = "waits.png"
PARTITIONERS = ("default-rr", "improved", "node", "sqf", "sqf-inflight", "jsq", "latency-weighted")


@dataclass(frozen=True, slots=True)
class Expected:
    wait_s: float
    half_s: float = 0.0
    """Half-width of its own interval where it was simulated by others; 0 for a formula."""

    def __str__(self) -> str:
        return f"{self.wait_s:.3f}" + (f" ± {self.half_s:.3f}" if self.half_s else "")


# B-49: what others found by simulation, for 4 queues at load 0.8 and 10 at 0.9.
_SIMULATED = {
    (4, 0.8): {"JSQ(2)": Expected(1.331, 0.011), "JSQ": Expected(0.947, 0.010), "JIQ, random": Expected(1.320, 0.012)},
    (10, 0.9): {"JSQ(2)": Expected(1.979, 0.014), "JSQ": Expected(0.905, 0.016), "JIQ, random": Expected(1.390, 0.029)},
}


def expectations(queues: int, load: float) -> dict[str, Expected]:
    return {
        "random": Expected(theory.mm1_wait_s(load, 1.0)),
        "round robin": Expected(theory.round_robin_wait_s(queues, load, 1.0)),
        "JIQ, hold": Expected(theory.mmn_wait_s(queues, load, 1.0)),
        **_SIMULATED[queues, load],
    }


def policies() -> dict[str, DispatchPolicy]:
    return {
        "random": RandomQueue(),
        "round robin": RoundRobin(),
        "JSQ(2)": JoinShortestOfD(2),
        "JSQ": JoinShortest(),
        "JIQ, random": JoinIdle(Fallback.random),
        "JIQ, hold": JoinIdle(Fallback.hold),
        "JSQ, polled every 0.5": JoinShortestStale(0.5),
        "JSQ, polled every 5": JoinShortestStale(5.0),
        "JSQ, gossip every 0.5": JoinShortestStale(0.5, Update.gossip),
        "JSQ, both every 1": JoinShortestStale(1.0, Update.both),
        "JSQ, adaptive": JoinShortestAdaptive(1.0),
    }


@dataclass(frozen=True, slots=True)
class Run:
    """One policy in one setting."""

    policy: str
    mean_s: float
    half_s: float
    expected: Expected | None
    messages_per_job: float
    cpu_us: float

    @property
    def agrees(self) -> str:
        if self.expected is None:
            return ""
        return "yes" if abs(self.mean_s - self.expected.wait_s) <= self.half_s + self.expected.half_s else "no"


def run(out: Path, jobs: int, seed: int, told: Callable[[str], None]) -> Path:
    lines = [
        "# Dispatching policies and partitioners in the simulator",
        "",
        f"`headgate experiment dispatch --jobs {jobs} --seed {seed}`. Times are in units of a job's mean work.",
        "Intervals are 99 %, from 20 batch means after the first tenth. Messages are those beside the jobs themselves;",
        "a question and its answer count as two.",
        "",
        f"![mean wait of each policy]({PICTURE})",
        "",
    ]
    settings: dict[str, list[Run]] = {}
    for queues, load, dispatchers in (*((*setting, 1) for setting in _SIMULATED), (10, 0.9, 4)):
        title = f"{queues} queues, load {load:g}, {dispatchers} dispatcher{'s' if dispatchers > 1 else ''}"
        settings[title] = list(_runs(queues, load, dispatchers, jobs, seed, told))
        lines += [f"## {title}", ""]
        if dispatchers == 1:
            pooled_s = theory.pooled_wait_s(queues, load, 1.0)
            lines += [f"A single server {queues} times as fast would wait {pooled_s:.3f}.", ""]
        lines += _table(settings[title])
    lines += list(_partitioners(jobs // 4, seed, told))
    file = out / "README.md"
    try:
        out.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n")
        draw(settings, out / PICTURE)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from error
    return file


def _runs(
    queues: int, load: float, dispatchers: int, jobs: int, seed: int, told: Callable[[str], None]
) -> Iterator[Run]:
    known = expectations(queues, load) if dispatchers == 1 else {}
    world = World(queues, queues * load, sets=(tuple(range(queues)),) * dispatchers)
    for name, policy in policies().items():
        told(f"{name}, {queues} queues")
        began_s = time.process_time()
        outcome = simulate(world, policy, jobs, seed)
        cpu_us = 1e6 * (time.process_time() - began_s) / jobs
        yield Run(name, *outcome.mean_wait_s(), known.get(name), outcome.messages_per_job, cpu_us)


def _table(runs: Sequence[Run]) -> list[str]:
    return [
        "| policy | mean wait | expected | agrees | messages per job | µs of CPU per job |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {r.policy} | {r.mean_s:.3f} ± {r.half_s:.3f} | {r.expected or ''} | {r.agrees} "
            f"| {r.messages_per_job:.2f} | {r.cpu_us:.1f} |"
            for r in runs
        ),
        "",
    ]


def draw(settings: Mapping[str, Sequence[Run]], file: Path) -> None:
    """A panel for each setting: mean waits with their intervals, and what theory or others expect."""
    figure = Figure(figsize=(4.2 * len(settings), 3.8))
    panels = figure.subplots(1, len(settings), sharey=True, squeeze=False)[0]
    for panel, (title, runs) in zip(panels, settings.items(), strict=True):
        names = [r.policy for r in runs]
        panel.barh(names, [r.mean_s for r in runs], xerr=[r.half_s for r in runs], color="tab:blue", alpha=0.6)
        known = [(r.expected.wait_s, name) for r, name in zip(runs, names, strict=True) if r.expected is not None]
        if known:
            panel.plot(*zip(*known, strict=True), "D", color="black", markersize=4, label="expected")
            panel.legend(fontsize=8)
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("mean wait, in a job's mean work")
    panels[0].invert_yaxis()
    save(figure, file)


def _partitioners(jobs: int, seed: int, told: Callable[[str], None]) -> Iterator[str]:
    """The unbalanced cluster of the paper's benchmark, healthy, with a failure, and with a slow node."""
    topology = Topology.of(
        [Node(1), Node(2)],
        [Topic("U2", tuple(Partition(n, r[0], r, r) for n, r in enumerate(((1, 2), (2, 1), (2, 1)))))],
    )
    yield "## The real partitioners: node 1 leads one partition, node 2 two"
    yield ""
    yield "*Healthy*: arrivals of 1.4 for two nodes that do 1 each; the default gives node 2 0.93 of that, those that"
    yield "balance nodes 0.7. *Failing*: arrivals of 0.7, and node 1 is away for 50 of every 500. *Slow*: node 1 does"
    yield "0.5 only, and arrivals are 0.9; half of them is nearly all that it can do."
    yield ""
    yield "| partitioner | healthy: wait | node 1 / node 2 | failing: wait | resends | slow: wait | node 1 / node 2 |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name in PARTITIONERS:
        told(f"partitioner {name}")
        healthy = _with(name, topology, 1.4, (), jobs, seed)
        failing = _with(name, topology, 0.7, _failures(jobs / 0.7), jobs, seed)
        slow = _with(name, topology, 0.9, (Change(0.0, 0, 0.5),), jobs, seed)
        yield (
            f"| {name} | {_wait(healthy)} | {_shares(healthy)} | {_wait(failing)} | {failing.resends} "
            f"| {_wait(slow)} | {_shares(slow)} |"
        )


def _failures(duration_s: float) -> tuple[Change, ...]:
    times = range(450, int(duration_s), 500)
    return tuple(change for at in times for change in (Change(at, 0, 0.0), Change(at + 50, 0, 1.0)))


def _with(
    name: str, topology: Topology, arrivals_per_s: float, changes: tuple[Change, ...], jobs: int, seed: int
) -> Outcome:
    seeded: dict[str, Any] = {"start": lambda: seed} | ({"seed": seed} if name == "jsq" else {})
    policy = ByPartitioner([build_partitioner(name, seeded)], topology, ["U2"])
    return simulate(World(2, arrivals_per_s, sets=policy.queue_sets, changes=changes), policy, jobs, seed)


def _wait(outcome: Outcome) -> str:
    mean_s, half_s = outcome.mean_wait_s()
    return f"{mean_s:.2f} ± {half_s:.2f}"


def _shares(outcome: Outcome) -> str:
    total = sum(outcome.served)
    return " / ".join(f"{100 * served / total:.0f} %" for served in outcome.served)
