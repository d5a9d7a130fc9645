"""The four things that must hold for plain round robin to balance a cluster (B-18)."""

from dataclasses import dataclass

from headgate.topology.checks import Thresholds
from headgate.topology.findings import counted
from headgate.topology.simulate import Pressure
from headgate.topology.standing import Standing

ALIKE = 0.1
"""Variation (standard deviation over mean) below which sizes or producers count as alike."""


@dataclass(frozen=True, slots=True)
class Precondition:
    what: str
    holds: bool | None
    """None: nobody measured."""
    evidence: str


def preconditions(standing: Standing, thresholds: Thresholds) -> tuple[Precondition, ...]:
    return (_sizes(standing), _traffic(standing, thresholds), _collisions(standing), _producers(standing))


def _sizes(standing: Standing) -> Precondition:
    known = {t.name: t.record_size_variation for t in standing.topology.topics if t.record_size_variation is not None}
    what = "records of a topic are of one size"
    if not known:
        return Precondition(what, None, "no broker tells: give record_size_variation in a file, --from")
    worst = max(known, key=lambda name: known[name])
    return Precondition(what, known[worst] <= ALIKE, f"largest variation: {worst}, {known[worst]:.2f} of the mean")


def _traffic(standing: Standing, thresholds: Thresholds) -> Precondition:
    capacity = {node.id: node.capacity for node in standing.topology.nodes if node.online}
    pressure = Pressure.of(standing.loads.default, capacity)
    what = "partitions are balanced over nodes by traffic"
    if pressure is None:
        return Precondition(what, False, "no node is online")
    if unmeasured := len(standing.topology.unmeasured):
        return Precondition(what, None, f"nobody measured {counted(unmeasured, 'topic')}")
    return Precondition(
        what, pressure.skew <= thresholds.overload, f"node {pressure.busiest} has {pressure.skew:.2f} times its share"
    )


def _collisions(standing: Standing) -> Precondition:
    overlaps, online = standing.overlaps, standing.topology.online
    shared = sum(n > 1 for n in overlaps.groups_per_node().values())
    return Precondition(
        "few topics collide on a node",
        shared <= len(online) / 10,
        f"{shared} of {counted(len(online), 'node')} shared by groups that differ",
    )


def _producers(standing: Standing) -> Precondition:
    what = "the producers of a topic are alike"
    spread = {
        topic.name: max(topic.producer_rates) / (sum(topic.producer_rates) / len(topic.producer_rates)) - 1
        for topic in standing.topology.topics
        if len(topic.producer_rates) > 1 and sum(topic.producer_rates) > 0
    }
    if not spread:
        return Precondition(what, None, "no broker tells: give producer_rates in a file, --from")
    worst = max(spread, key=lambda name: spread[name])
    return Precondition(what, spread[worst] <= ALIKE, f"{worst}: the busiest is {spread[worst]:.0%} above the mean")
