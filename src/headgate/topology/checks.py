"""The checks of a cluster as findings (B-15, B-16, B-17): topics by themselves, nodes, overlaps, consumer groups."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headgate.topology.cluster import Topic
from headgate.topology.findings import MOST_EVIDENCE, Finding, Severity, counted, joined, listed
from headgate.topology.lints import Lint
from headgate.topology.simulate import Pressure
from headgate.topology.standing import Standing


@dataclass(frozen=True, slots=True)
class Thresholds:
    uneven_skew: float = 1.0
    """A topic is reported when its busiest node leads more than this many times an even share (B-15)."""
    overload: float = 1.2
    """A node is reported when it carries more than this many times its fair share."""


USUAL = Thresholds()
MOST_GROUPS = 3
"""Groups named for a node that several use."""


def findings_of(standing: Standing, thresholds: Thresholds = USUAL) -> list[Finding]:
    """Worst first."""
    found = [
        *_offline_nodes(standing),
        *_of_moves(standing),
        *_of_topics(standing, thresholds),
        *_of_nodes(standing, thresholds),
        *_unmeasured(standing),
        *_of_overlaps(standing, thresholds),
        *_of_consumer_groups(standing),
    ]
    return sorted(found, key=lambda finding: (-finding.severity, _ORDER.get(finding.kind, len(_ORDER))))


_ORDER = {
    kind: place
    for place, kind in enumerate(
        (
            *("offline", "unwritable", "node-offline", "moving", "under-replicated", "no-replication", "single-node"),
            *("overloaded-node", "unmeasured", "idle-node", "one-node", "uneven", "overlap", "leader-away"),
        )
    )
}
"""Records in danger before load, causes before what follows from them."""


@dataclass(frozen=True, slots=True)
class _About:
    severity: Severity
    what: str
    do: str


_TOPICS = {
    Lint.OFFLINE: _About(
        Severity.critical,
        "with partitions that nobody leads: they can be neither written nor read",
        "Bring back a node that holds an in-sync replica; only if it is lost for good, allow an unclean election.",
    ),
    Lint.UNWRITABLE: _About(
        Severity.critical,
        "with fewer replicas in sync than min.insync.replicas: producers with acks=all are refused",
        "Bring the missing nodes back, or move their replicas to live ones (`headgate topology advise`).",
    ),
    Lint.UNDER_REPLICATED: _About(
        Severity.warning,
        "with replicas that are not in sync",
        "Look for offline or slow nodes; a replica that never catches up protects nothing.",
    ),
    Lint.NO_REPLICATION: _About(
        Severity.warning,
        "without a second replica: one failure takes them away",
        "Give them a replication factor of 2 or more.",
    ),
    Lint.ONE_NODE: _About(
        Severity.warning,
        "whose several partitions are all led by one node: nothing is balanced",
        "Move leaders to other nodes (`headgate topology advise`).",
    ),
    Lint.CROWDED: _About(
        Severity.note,
        "with more partitions than nodes that lead them",
        "Fine while every node leads equally many; otherwise use a partitioner that balances nodes (`node`).",
    ),
}


def _of_topics(standing: Standing, thresholds: Thresholds) -> Iterator[Finding]:
    topics = {topic.name: topic for topic in standing.topology.topics}
    everybody = len(standing.topology.nodes) > 1
    for lint, about in _TOPICS.items():
        names = sorted(standing.lints[lint])
        if lint is Lint.ONE_NODE and not everybody:
            continue  # nothing could be balanced anyway; `_of_nodes` says so
        if names:
            yield Finding(
                about.severity,
                lint.value,
                f"{counted(len(names), 'topic')} {about.what}",
                listed(_EVIDENCE[lint](topics[name]) for name in names),
                about.do,
            )
    uneven = [(standing.topics[name].spread, name) for name in standing.lints[Lint.UNEVEN]]
    uneven = [(spread, name) for spread, name in uneven if spread.skew > thresholds.uneven_skew]
    if uneven:
        uneven.sort(key=lambda found: (-found[0].skew, found[1]))
        lonely = "" if standing.overlaps.partial else " No overlap makes that worse, so nothing needs to be moved."
        yield Finding(
            Severity.warning,
            Lint.UNEVEN.value,
            f"{counted(len(uneven), 'topic')} whose busiest node has up to {uneven[0][0].skew:.2f} times an even share",
            listed(f"{name}: {_counts(spread.counts)}, skew {spread.skew:.2f}" for spread, name in uneven),
            f"Let producers use the `node` or `sqf` partitioner, or even the leaders out.{lonely}",
        )


def _offline(topic: Topic) -> str:
    missing = [p for p in topic.partitions if p.leader is None]
    return f"{topic.name}: partition {joined([p.index for p in missing])}, replicas on {joined(_holders(missing))}"


def _unwritable(topic: Topic) -> str:
    short = [p for p in topic.partitions if p.leader is not None and len(p.isr) < topic.min_insync_replicas]
    fewest = min(len(p.isr) for p in short)
    return (
        f"{topic.name}: partition {joined([p.index for p in short])} down to {fewest} in sync, "
        f"{topic.min_insync_replicas} required"
    )


def _lagging(topic: Topic) -> str:
    behind = {id for p in topic.partitions for id in p.replicas if id not in p.isr}
    short = [p.index for p in topic.partitions if len(p.isr) < len(p.replicas)]
    return f"{topic.name}: partition {joined(short)}, missing on node {joined(behind)}"


_EVIDENCE: dict[Lint, Callable[[Topic], str]] = {
    Lint.OFFLINE: _offline,
    Lint.UNWRITABLE: _unwritable,
    Lint.UNDER_REPLICATED: _lagging,
    Lint.NO_REPLICATION: lambda topic: f"{topic.name}: node {joined(_holders(topic.partitions))}",
    Lint.ONE_NODE: lambda topic: (
        f"{topic.name}: {len(topic.partitions)} partitions on node {joined(set(topic.led_by()))}"
    ),
    Lint.CROWDED: lambda topic: f"{topic.name}: {len(topic.partitions)} partitions on {len(topic.led_by())} nodes",
}


def _offline_nodes(standing: Standing) -> Iterator[Finding]:
    """First among equals: what follows is mostly its doing."""
    offline = [node.id for node in standing.topology.nodes if not node.online]
    if offline:
        yield Finding(
            Severity.warning,
            "node-offline",
            f"node {joined(offline)} {'is' if len(offline) == 1 else 'are'} offline: the others carry the load",
            (),
            "Bring it back; if it stays away, move its replicas to live nodes (`headgate topology advise`).",
        )


def _of_moves(standing: Standing) -> Iterator[Finding]:
    moves = standing.topology.moves
    if moves is None:
        yield Finding(
            Severity.note,
            "moves-unknown",
            "the brokers did not say whether partitions are being moved: replicas may be those of two places",
            (),
            "Give this login the right to describe the cluster, or make sure that no reassignment is under way.",
        )
    elif moves:
        yield Finding(
            Severity.warning,
            "moving",
            f"{counted(len(moves), 'partition')} being moved: their replicas are those of both places meanwhile",
            listed(map(str, moves)),
            "Wait until it is done before you plan anything, or take it back (`headgate topology cancel`).",
        )


def _of_nodes(standing: Standing, thresholds: Thresholds) -> Iterator[Finding]:
    topology, online = standing.topology, standing.topology.online
    if len(topology.nodes) == 1:
        yield Finding(
            Severity.warning,
            "single-node",
            "the cluster has one node: there is neither balance nor fault tolerance",
            (),
            "Add nodes, then raise the replication factor and spread the leaders.",
        )
    capacity = {node.id: node.capacity for node in topology.nodes if node.online}
    pressure = Pressure.of(standing.loads.default, capacity)
    if pressure is not None and pressure.skew > thresholds.overload:
        level = Pressure.of(standing.loads.node, capacity)
        assert level is not None
        yield Finding(
            Severity.warning,
            "overloaded-node",
            f"node {pressure.busiest} carries {pressure.skew:.2f} times its fair share of the "
            + ("traffic that was measured" if topology.unmeasured else "traffic"),
            (
                f"{counted(standing.leaders[pressure.busiest], 'leader')} of "
                f"{counted(standing.topics_led[pressure.busiest], 'topic')}, load {pressure.load:.4g}",
                f"with a partitioner that balances nodes the busiest would be node {level.busiest}, "
                f"{level.skew:.2f} times its share",
            ),
            "Move leaders away from it (`headgate topology advise`), or balance nodes in the producers.",
        )
    idle = [id for id in online if not standing.leaders[id]]
    if idle and len(idle) < len(online):
        yield Finding(
            Severity.warning,
            "idle-node",
            f"{counted(len(idle), 'online node')} leading nothing: {joined(idle)}",
            (),
            "Give them leaders (`headgate topology advise`); after a restart, run a preferred leader election.",
        )
    away = [
        f"{topic.name}-{p.index}: led by node {p.leader}, belongs to node {p.replicas[0]}"
        for topic in topology.topics
        for p in topic.partitions
        if p.leader is not None and p.leader != p.replicas[0] and p.replicas[0] in online and p.replicas[0] in p.isr
    ]
    if away:
        yield Finding(
            Severity.note,
            "leader-away",
            f"{counted(len(away), 'partition')} not led by the preferred replica although it is in sync",
            listed(away),
            "Run a preferred leader election (kafka-leader-election --election-type preferred --all-topic-partitions).",
        )


def _unmeasured(standing: Standing) -> Iterator[Finding]:
    """A node may be overloaded by what nobody measured, so a cluster with such topics is never called healthy."""
    names = sorted(standing.topology.unmeasured)
    if names:
        yield Finding(
            Severity.warning,
            "unmeasured",
            f"{counted(len(names), 'topic')} without a measured rate: what nodes carry of them is not known",
            listed(f"{name}: led by {_leaders(standing.topics[name].spread.counts)}" for name in names),
            "Measure all topics alike (--measure 10s), or give the missing rates in a file (--from).",
        )


def _of_overlaps(standing: Standing, thresholds: Thresholds) -> Iterator[Finding]:
    overlaps = standing.overlaps
    if not overlaps.partial:
        return
    capacity = {node.id: node.capacity for node in standing.topology.nodes if node.online}
    pressure = Pressure.of(standing.loads.node, capacity)
    shared = overlaps.most_shared(MOST_EVIDENCE + 1, MOST_GROUPS)
    pressed = pressure is not None and pressure.skew > thresholds.overload
    yield Finding(
        Severity.warning if pressed else Severity.note,
        "overlap",
        f"{overlaps.sharing_count:,} of {counted(overlaps.count, 'group')} of topics share "
        f"{counted(overlaps.shared_count, 'node')} in part: "
        + ("no partitioner that looks at one topic can level that" if pressed else "the load is level all the same"),
        listed(map(str, shared), of=overlaps.shared_count),
        "Give the groups separate nodes or the same ones (`headgate topology advise`); if they must share, use one "
        "SQF instance for the producers of a machine, or collectors.",
    )


def _of_consumer_groups(standing: Standing) -> Iterator[Finding]:
    sizes = {topic.name: len(topic.partitions) for topic in standing.topology.topics}
    empty, few, idle, uneven = [], [], [], 0
    for group in standing.topology.consumer_groups:
        partitions = sum(sizes[topic] for topic in group.topics)
        sized = f"{group.name}: {counted(group.members, 'member')} for {counted(partitions, 'partition')}"
        if not group.members:
            empty.append(f"{group.name}: {', '.join(group.topics) or 'no topics'}")
        elif group.members < partitions:
            each, more = divmod(partitions, group.members)
            few.append(sized + (f", some read {each + 1} and some {each}" if more else f", {each} each"))
            uneven += more > 0
        elif group.members > partitions:
            idle.append(sized)
    if few:
        unevenly = f", {uneven:,} of them some more than others" if uneven else ""
        yield Finding(
            Severity.note,
            "overloaded-member",
            f"{counted(len(few), 'consumer group')} with fewer members than partitions: they read several{unevenly}",
            listed(few),
            "If they fall behind, add members, up to one for each partition; a number that divides the partitions "
            "gives all the same.",
        )
    if empty:
        yield Finding(
            Severity.note,
            "empty-group",
            f"{counted(len(empty), 'consumer group')} without a member: nobody reads for them",
            listed(empty),
            "Start their consumers, or remove the group if it is of the past.",
        )
    if idle:
        yield Finding(
            Severity.note,
            "idle-member",
            f"{counted(len(idle), 'consumer group')} with more members than partitions: the rest stands by",
            listed(idle),
            "Keep them as standbys on purpose, or stop them, or add partitions.",
        )


def _counts(counts: dict[int, int]) -> str:
    busiest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} on node {node}" for node, count in busiest[:4]) + (" …" if len(counts) > 4 else "")


def _leaders(counts: dict[int, int]) -> str:
    return f"node {joined(set(counts))}" if counts else "nobody"


def _holders(partitions: object) -> set[int]:
    return {id for p in partitions for id in p.replicas}  # type: ignore[attr-defined]
