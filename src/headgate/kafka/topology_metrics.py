"""Load per node as Prometheus metrics (B-26): averages over a cluster hide the node that suffers."""

from prometheus_client import Gauge

from headgate.topology.lints import Lint
from headgate.topology.simulate import Pressure
from headgate.topology.standing import Standing

NODE_LOAD = Gauge(
    "headgate_node_load", "Traffic a node gets, in the unit of the topics' rates", ["node", "partitioner"]
)
NODE_LEADERS = Gauge("headgate_node_leaders", "Partitions a node leads", ["node"])
NODE_GROUPS = Gauge("headgate_node_groups", "Groups of topics with different node sets that use a node", ["node"])
BUSIEST_LOAD = Gauge("headgate_busiest_node_load", "Traffic of the busiest node for its capacity", ["partitioner"])
LOAD_SKEW = Gauge("headgate_node_load_skew", "Traffic of the busiest node over its fair share", ["partitioner"])
UNMEASURED = Gauge("headgate_topics_unmeasured", "Topics that count as idle because nobody measured them")
TOPICS_WITH = Gauge("headgate_topics_with_lint", "Topics with this flaw", ["lint"])


def show(standing: Standing) -> None:
    """Nodes that are down show zero."""
    groups = standing.overlaps.groups_per_node()
    capacity = {node.id: node.capacity for node in standing.topology.nodes if node.online}
    for id in standing.bits.ids:
        NODE_LEADERS.labels(str(id)).set(standing.leaders[id])
        NODE_GROUPS.labels(str(id)).set(groups[id])
    for partitioner, load in (("default", standing.loads.default), ("node", standing.loads.node)):
        for id in standing.bits.ids:
            NODE_LOAD.labels(str(id), partitioner).set(load[id])
        pressure = Pressure.of(load, capacity)
        BUSIEST_LOAD.labels(partitioner).set(pressure.load if pressure else 0.0)
        LOAD_SKEW.labels(partitioner).set(pressure.skew if pressure else 0.0)
    UNMEASURED.set(len(standing.topology.unmeasured))
    for lint in Lint:
        TOPICS_WITH.labels(lint.value).set(len(standing.lints[lint]))
