"""Views of a live cluster: from the metadata that any Kafka client can ask for, without further rights."""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import ClusterMetadata

from headgate.errors import HeadgateError
from headgate.producers.protocol import ClusterView

log = logging.getLogger(__name__)

ONE_BY_ONE = 5
"""Up to so many topics are asked for by name; for more, one answer about the whole cluster is cheaper."""
AGAIN_S = 0.2
"""After a question that nobody answered."""


class Client(Protocol):
    """A producer, consumer or admin client of confluent-kafka."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata: ...


def view_of(answers: Iterable[ClusterMetadata], topics: Iterable[str]) -> ClusterView:
    """Of those topics that exist. A leader that is gone counts for none, though metadata may name it for a moment."""
    partitions, available, leaders = {}, {}, {}
    cluster, live, wanted = "", set[int](), set(topics)
    for answer in answers:
        cluster, live = answer.cluster_id or "", set(answer.brokers)
        for name in wanted & answer.topics.keys():
            found = sorted(answer.topics[name].partitions.items())
            led: dict[int, list[int]] = {id: [] for id in sorted(live)}
            for index, partition in found:
                if partition.leader in live:
                    led[partition.leader].append(index)
            if found:
                partitions[name] = tuple(index for index, _ in found)
                leaders[name] = {id: tuple(led[id]) for id in led if led[id]}
                available[name] = tuple(sorted(index for ids in led.values() for index in ids))
    # The answers may be of different instants: a node that leads in one of them is there.
    nodes = live.union(*leaders.values()) if leaders else live
    return ClusterView(cluster, partitions, available, leaders, tuple(sorted(nodes)))


def ask(client: Client, topics: Iterable[str], timeout_s: float) -> ClusterView:
    """One view of these topics; KafkaException if nobody answers in time."""
    wanted = sorted(topics)
    if len(wanted) > ONE_BY_ONE:
        return view_of([client.list_topics(timeout=timeout_s)], wanted)
    return view_of([client.list_topics(name, timeout=timeout_s) for name in wanted], wanted)


def same(a: ClusterView | None, b: ClusterView) -> bool:
    return a is not None and _content(a) == _content(b)


def _content(view: ClusterView) -> tuple[object, ...]:
    return view.cluster, view.nodes, view.partitions, view.leaders


class Follower:
    """Asks in the background, at once when woken, and tells of every change. Ends with its client."""

    def __init__(
        self,
        client: Callable[[], Client | None],
        changed: Callable[[ClusterView], None],
        every_s: float,
        answer_s: float,
    ) -> None:
        """`client` answers None once there is none any more (a weak reference), so that following keeps none alive."""
        self._client, self._changed, self._every_s, self._answer_s = client, changed, every_s, answer_s
        self._topics: frozenset[str] = frozenset()
        self._view: ClusterView | None = None
        self._asking = threading.Lock()
        self._wake, self._ended = threading.Event(), False
        self._thread: threading.Thread | None = None

    def include(self, topic: str) -> None:
        """From now on this topic, too. Waits for the first answer about it; without one, the next will do."""
        if topic in self._topics:
            return
        with self._asking:
            if topic in self._topics:  # another thread has waited for it
                return
            wanted = self._topics | {topic}
            self._refresh(wanted)
            self._topics = wanted
            if self._thread is None:
                self._thread = threading.Thread(target=self._follow, name="headgate-topology", daemon=True)
                self._thread.start()

    def look(self) -> None:
        """Something happened: ask now and not at the next turn."""
        self._wake.set()

    def end(self) -> None:
        self._ended = True
        self._wake.set()

    def _follow(self) -> None:
        pause_s = self._every_s
        while True:
            self._wake.wait(pause_s)
            self._wake.clear()
            if self._ended or self._client() is None:
                return
            with self._asking:
                try:
                    answered = self._refresh(self._topics)
                except HeadgateError as error:  # of the partitioner; nobody is there to be told but the log
                    log.warning("the new topology cannot be used, so the last one stands: %s", error)
                    answered = False
            pause_s = self._every_s if answered else min(AGAIN_S, self._every_s)

    def _refresh(self, topics: frozenset[str]) -> bool:
        client = self._client()
        if client is None:
            return False
        try:
            view = ask(client, topics, self._answer_s)
        except KafkaException as error:
            log.info("no answer about the topology, so the last one stands: %s", error)
            return False
        if not same(self._view, view):
            self._changed(view)
            self._view = view
        return True
