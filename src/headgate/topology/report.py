"""The whole report of a cluster: verdict, findings, nodes, failures (B-15 to B-20, B-26)."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from headgate.topology.checks import USUAL, Thresholds, findings_of
from headgate.topology.findings import Finding, Severity, counted, joined, listed
from headgate.topology.groups import Overlap, SharedNode
from headgate.topology.lints import Lint
from headgate.topology.load import SQF_SWEEPS, shared_sqf_load
from headgate.topology.potential import Potential, Potentials
from headgate.topology.round_robin import Precondition, preconditions
from headgate.topology.simulate import MOST_FAILURES, Consequence, Simulation
from headgate.topology.standing import Standing

MOST_SHARED, MOST_GROUPS = 100, 20
"""Shared nodes, and groups of each, that programs and pages are told."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    id: int
    online: bool
    leaders: int
    topics: int
    groups: int
    """Max groups that use it: more than one is an overlap."""
    default_load: float
    node_load: float
    """With a partitioner that balances nodes, or SQF with an instance per topic."""
    shared_sqf_load: float


@dataclass(frozen=True, slots=True)
class Report:
    source: str
    epoch: int
    nodes: int
    topics: int
    partitions: int
    groups: int
    partial: bool
    rates_known: bool
    unmeasured: tuple[str, ...]
    """Topics that count as idle because nobody measured them."""
    findings: tuple[Finding, ...]
    rows: tuple[NodeRow, ...]
    preconditions: tuple[Precondition, ...]
    shared: tuple[SharedNode, ...]
    """Nodes that several groups use, with those groups: the most used, and some groups of each (B-10)."""
    pairs: tuple[Overlap, ...] | None
    """Groups that overlap and where, if somebody asked (B-9)."""
    shared_sqf_gap: float
    simulation: Simulation | None
    potentials: Potentials | None

    @property
    def worst(self) -> Severity | None:
        return max((finding.severity for finding in self.findings), default=None)

    @property
    def verdict(self) -> str:
        size = (
            f"{counted(self.nodes, 'node')}, {counted(self.topics, 'topic')}, {counted(self.partitions, 'partition')}"
        )
        serious = [finding for finding in self.findings if finding.severity > Severity.note]
        if not serious:
            return f"HEALTHY: no node carries more than its share ({size})"
        more = f"; and {counted(len(serious) - 1, 'more finding')}" if len(serious) > 1 else ""
        return f"{serious[0].severity.name.upper()}: {serious[0].what}{more} ({size})"


def make_report(
    standing: Standing,
    source: str,
    thresholds: Thresholds = USUAL,
    simulation: Simulation | None = None,
    potentials: Potentials | None = None,
    most_pairs: int = 0,
) -> Report:
    """`most_pairs`: list so many pairs of groups that overlap. Looking for them takes time where there are many groups
    and few overlaps."""
    topology, overlaps = standing.topology, standing.overlaps
    balance = shared_sqf_load(standing.spreads, standing.bits.ids, SQF_SWEEPS)
    groups = overlaps.groups_per_node()
    found = findings_of(standing, thresholds)
    if simulation is not None:
        found += failure_findings(simulation, thresholds)
    if potentials is not None:
        found += potential_findings(potentials)
    return Report(
        source=source,
        epoch=topology.epoch,
        nodes=len(topology.nodes),
        topics=len(topology.topics),
        partitions=topology.partitions,
        groups=overlaps.count,
        partial=overlaps.partial,
        rates_known=topology.rates_known or len({topic.rate for topic in topology.topics}) > 1,
        unmeasured=tuple(sorted(topology.unmeasured)),
        findings=tuple(sorted(found, key=lambda finding: -finding.severity)),
        rows=tuple(
            NodeRow(
                id=node.id,
                online=node.online,
                leaders=standing.leaders[node.id],
                topics=standing.topics_led[node.id],
                groups=groups[node.id],
                default_load=standing.loads.default[node.id],
                node_load=standing.loads.node[node.id],
                shared_sqf_load=balance.load[node.id],
            )
            for node in topology.nodes
        ),
        preconditions=preconditions(standing, thresholds),
        shared=overlaps.most_shared(MOST_SHARED, MOST_GROUPS),
        pairs=tuple(overlaps.pairs(most_pairs)) if most_pairs else None,
        shared_sqf_gap=balance.gap,
        simulation=simulation,
        potentials=potentials,
    )


def failure_findings(simulation: Simulation, thresholds: Thresholds) -> list[Finding]:
    """What single failures, or the smallest ones that were tried, would break."""
    found = []
    for lint, word in ((Lint.OFFLINE, "without a leader"), (Lint.UNWRITABLE, "refusing acks=all")):
        fatal = [c for c in simulation.consequences if lint in c.new]
        smallest = min((len(c.failed) for c in fatal), default=0)
        fatal = sorted((c for c in fatal if len(c.failed) == smallest), key=lambda c: -len(c.new[lint]))
        if fatal:
            found.append(
                Finding(
                    Severity.warning if smallest == 1 else Severity.note,
                    f"failure-{lint.value}",
                    f"{counted(len(fatal), 'failure')} of {counted(smallest, 'node')} would leave topics {word}",
                    listed(f"node {joined(c.failed)}: {counted(len(c.new[lint]), 'topic')}" for c in fatal),
                    "Raise the replication factor of these topics, or bring their replicas into sync.",
                )
            )
    pressed = [c for c in simulation.consequences if c.default and c.default.skew > thresholds.overload]
    if pressed:
        pressed.sort(key=lambda c: -c.default.skew if c.default else 0.0)
        found.append(
            Finding(
                Severity.note,
                "failure-overload",
                f"{counted(len(pressed), 'failure')} would leave a node with more than {thresholds.overload:g} times "
                "its share",
                listed(_pressed(c) for c in pressed),
                "Order the replicas so that a failed node's leaders go to different nodes, or balance nodes in the "
                "producers.",
            )
        )
    return found


def _pressed(consequence: Consequence) -> str:
    load, level = consequence.default, consequence.node
    assert load is not None
    assert level is not None
    return (
        f"without node {joined(consequence.failed)}: node {load.busiest} gets {load.skew:.2f} times its share "
        f"({level.skew:.2f} with the node partitioner)"
    )


def potential_findings(potentials: Potentials) -> list[Finding]:
    reachable = [p for p in potentials.found if p.witness is not None]
    reachable.sort(key=lambda p: (len(p.witness or ()), p.first.topics))
    return [*_reachable(potentials, reachable), *_beyond(potentials)]


def _reachable(potentials: Potentials, reachable: list[Potential]) -> Iterator[Finding]:
    if reachable:
        yield Finding(
            Severity.note,
            "potential-overlap",
            f"{counted(len(reachable), 'pair')} of groups share no leader now and would after a failure"
            + ("" if potentials.complete else f" (in a sample: {coverage(potentials)})"),
            listed(_witnessed(p) for p in reachable),
            "Keep the replicas of such groups on separate nodes, too.",
        )


def _beyond(potentials: Potentials) -> Iterator[Finding]:
    """Whoever tries few failures learns that there is more to try."""
    beyond = [p for p in potentials.found if p.witness is None]
    if beyond:
        tried = counted(potentials.most_failures, "failure")
        yield Finding(
            Severity.note,
            "shared-replicas",
            f"{counted(len(beyond), 'pair')} of groups share replicas, and no leader after {tried}: more might do it",
            listed(f"{p.first.short()} and {p.second.short()}: node {joined(p.shared_replicas)}" for p in beyond),
            f"Look further with --failures {potentials.most_failures + 1}."
            if potentials.most_failures < MOST_FAILURES
            else "Keep the replicas of such groups on separate nodes to be sure.",
        )


def coverage(potentials: Potentials) -> str:
    return f"{potentials.pairs_seen:,} of {counted(potentials.pairs, 'pair')} of groups looked at"


def _witnessed(potential: Potential) -> str:
    failing = joined(potential.witness or ())
    return f"{potential.first.short()} and {potential.second.short()}: if node {failing} fails"


def pair_as_json(pair: Overlap) -> dict[str, Any]:
    return {"first": pair.first.topics, "second": pair.second.topics, "shared_nodes": sorted(pair.shared)}


def as_json(report: Report) -> dict[str, Any]:
    status = "PARTIAL" if report.partial else "NONE"
    document = asdict(replace(report, shared=(), pairs=None)) | {"verdict": report.verdict, "status": status}
    for finding in document["findings"]:
        finding["severity"] = finding["severity"].name
    document["shared"] = [
        {"node": s.node, "groups": [g.topics for g in s.groups], "more_groups": s.more} for s in report.shared
    ]
    document["pairs"] = None if report.pairs is None else [pair_as_json(pair) for pair in report.pairs]
    if report.simulation is not None:
        document["simulation"] = {
            "complete": report.simulation.complete,
            "covered": {
                str(size): {"seen": seen, "scenarios": total}
                for size, (seen, total) in report.simulation.covered.items()
            },
            "consequences": [asdict(c) for c in report.simulation.consequences],
        }
    if report.potentials is not None:
        document["potentials"] = {
            "pairs_seen": report.potentials.pairs_seen,
            "pairs": report.potentials.pairs,
            "found": [
                {
                    "first": p.first.topics,
                    "second": p.second.topics,
                    "shared_replicas": sorted(p.shared_replicas),
                    "witness": p.witness,
                }
                for p in report.potentials.found
            ],
        }
    return document
