"""`client`: whatever the Kafka client does by itself, as a baseline under a name like the others (A-11)."""

from itertools import repeat

from headgate.producers.protocol import Choice, ClusterView

UNASSIGNED = -1
"""What Kafka's clients take for "choose yourself"."""


class ClientDefault:
    """Only for bindings: the number it answers is no partition."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        return UNASSIGNED

    def bound(self, topic: str, cluster: ClusterView) -> Choice:
        return repeat(UNASSIGNED).__next__
