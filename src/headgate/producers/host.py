"""`sqf-host`: SQF over all producers of a host, whichever process they are in (B-36)."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakKeyDictionary

from headgate.errors import ConfigError
from headgate.producers.choices import give_back
from headgate.producers.host_memory import host_memory
from headgate.producers.leading import LastLeaders
from headgate.producers.nodes import NodeMaps, refuse_key
from headgate.producers.protocol import Choice, ClusterView
from headgate.producers.round_robin import DefaultRoundRobin, Seed, random_start
from headgate.producers.sqf import shortest_first

AHEAD = 64


class HostSqf:
    """Chooses `ahead` records of a topic at once, on what all processes have sent until then. So a record costs no
    look at the shared memory, and nodes differ by at most that many records for each process and topic."""

    def __init__(
        self,
        ahead: int = AHEAD,
        name: str | None = None,
        folder: Path | None = None,
        allow_keys: bool = False,
        start: Seed = random_start,
    ) -> None:
        """Those of the same `name` share, by default those of the same cluster; `folder` is where the memory is."""
        if ahead < 1:
            raise ConfigError(f"sqf-host chooses at least 1 record ahead, not {ahead}")
        self._ahead, self._name, self._folder, self.allow_keys = ahead, name, folder, allow_keys
        self._maps, self._offline = NodeMaps(start), DefaultRoundRobin(start)
        self._choices: WeakKeyDictionary[ClusterView, dict[str, Choice]] = WeakKeyDictionary()
        self._slots: WeakKeyDictionary[ClusterView, dict[int, int]] = WeakKeyDictionary()
        self._last_leaders = LastLeaders()

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        if key is not None and not self.allow_keys:
            raise refuse_key(topic)
        choices = self._choices.setdefault(cluster, {})
        if topic not in choices:
            choices[topic] = self.bound(topic, cluster)
        return choices[topic]()

    def taken_back(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int, cluster: ClusterView
    ) -> None:
        choices = self._choices.get(cluster, {})
        if topic in choices:
            give_back(choices, topic, partition)

    def bound(self, topic: str, cluster: ClusterView) -> Choice:
        nodes = self._maps.of(cluster).nodes_of.get(topic)
        if not nodes:
            return self._offline.bound(topic, cluster)
        memory = host_memory(self._name or cluster.cluster, self._folder)
        slot_of = self._slots_of(cluster)
        slots = [slot_of[node.id] for node in nodes]
        rotations = [node.rotation(topic) for node in nodes]
        refilling = threading.Lock()
        chosen: Iterator[int] = iter(())

        def choose() -> int:
            for partition in chosen:
                return partition
            return refill()

        def refill() -> int:
            nonlocal chosen
            with refilling:
                for partition in chosen:  # another thread was faster
                    return partition
                in_order = shortest_first(memory.usage(slots), self._ahead)
                given = Counter(in_order)
                memory.add(slots, [given[n] for n in range(len(slots))])
                chosen = iter([next(rotations[n]) for n in in_order])
                return next(chosen)

        return choose

    def usage(self, cluster: ClusterView) -> dict[int, int]:
        """What all processes together have sent, or are about to."""
        memory, slot_of = host_memory(self._name or cluster.cluster, self._folder), self._slots_of(cluster)
        return dict(zip(slot_of, memory.usage(list(slot_of.values())), strict=True))

    def _slots_of(self, cluster: ClusterView) -> dict[int, int]:
        if cluster not in self._slots:
            memory = host_memory(self._name or cluster.cluster, self._folder)
            slots = memory.slots(cluster.nodes, cluster.leading, self._last_leaders.follow(cluster))
            self._slots[cluster] = dict(zip(cluster.nodes, slots, strict=True))
        return self._slots[cluster]
