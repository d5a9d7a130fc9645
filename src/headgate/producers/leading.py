"""Which nodes began or ceased to lead, as far as views tell that each show only one producer's topics (B-34)."""

from dataclasses import dataclass

from headgate.producers.protocol import ClusterView

NodeSet = frozenset[int]


@dataclass(frozen=True, slots=True)
class Change:
    began: NodeSet
    """Lead a topic that was known, and led none of the view's topics before. A first view of a topic tells nothing: it
    may have been led like that all the time."""
    ended: NodeSet
    """Led the view's topics and lead them no more; and they are not there, or lead nothing else that was seen."""


class LastLeaders:
    """By cluster and topic, who led it when it was last seen by whichever producer."""

    def __init__(self) -> None:
        self._led: dict[str, dict[str, NodeSet]] = {}

    def of(self, cluster: str) -> NodeSet:
        return frozenset().union(*self._led.get(cluster, {}).values())

    def follow(self, view: ClusterView) -> Change:
        last = self._led.setdefault(view.cluster, {})
        known = [topic for topic in view.leaders if topic in last]
        led = frozenset[int]().union(*(last[topic] for topic in known))
        lead = frozenset[int]().union(*(view.leaders[topic] for topic in known))
        last |= {topic: frozenset(leaders) for topic, leaders in view.leaders.items()}
        elsewhere = self.of(view.cluster) & frozenset(view.nodes)
        return Change(lead - led, led - view.leading - elsewhere)
