"""A cluster as a JSON document (B-2), read with complaints that name the place, and written back."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from headgate.errors import ConfigError
from headgate.topology.cluster import ConsumerGroup, Node, Partition, Topic, Topology
from headgate.topology.validation import problems

MOST_COMPLAINTS = 10
LARGEST = 2**63
T = TypeVar("T")
_HALVES = re.compile(r"\\u[dD][89a-fA-F]")
"""Surrogates: two make a character, one alone is a text to Python but to no file and no terminal."""


def read_topology(text: str, source: str) -> Topology:
    """ConfigError naming `source` and everything that is wrong with it."""
    document = parse_json(text, source)
    root = _Place(document, source)
    topology = Topology.of(
        root.items("nodes", _node), root.items("topics", _topic), root.items("consumer_groups", _group, optional=True)
    )
    root.nothing_else()
    refuse(problems(topology), source)
    if not any(topic.get("rate") is not None for topic in document["topics"]):
        return topology
    unmeasured = {topic["name"] for topic in document["topics"] if topic.get("rate", 1.0) is None}
    return replace(
        topology,
        topics=tuple(replace(t, rate=0.0) if t.name in unmeasured else t for t in topology.topics),
        rates_known=True,
        unmeasured=frozenset(unmeasured),
    )


def parse_json(text: str, source: str) -> Any:
    try:
        document = json.loads(text)
        if _HALVES.search(text):
            json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        raise ConfigError(f"{source} holds half a character, {half}, which nothing can print: correct it") from error
    except ValueError as error:
        raise ConfigError(f"{source} is not JSON: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{source} is not JSON that can be read: it is nested too deeply") from error
    return document


def refuse(found: Sequence[str], source: str) -> None:
    """ConfigError if anything was found."""
    if found:
        more = f"\n  ... and {len(found) - MOST_COMPLAINTS} more" if len(found) > MOST_COMPLAINTS else ""
        raise ConfigError(f"{source} cannot be used:\n  " + "\n  ".join(found[:MOST_COMPLAINTS]) + more)


def as_document(topology: Topology) -> dict[str, Any]:
    """The document that `read_topology` reads back as the same cluster."""
    document: dict[str, Any] = {
        "nodes": [
            {"id": n.id, "online": n.online, "capacity": n.capacity} | ({"rack": n.rack} if n.rack else {})
            for n in topology.nodes
        ],
        "topics": [_topic_document(topic, topology) for topic in topology.topics],
    }
    if topology.consumer_groups:
        document["consumer_groups"] = [
            {"name": g.name, "members": g.members, "topics": list(g.topics)} for g in topology.consumer_groups
        ]
    return document


def _topic_document(topic: Topic, topology: Topology) -> dict[str, Any]:
    document: dict[str, Any] = {"name": topic.name}
    if topic.name in topology.unmeasured:
        document["rate"] = None
    elif topology.rates_known or topic.rate != 1.0:
        document["rate"] = topic.rate
    if topic.min_insync_replicas != 1:
        document["min_insync_replicas"] = topic.min_insync_replicas
    if topic.record_size_variation is not None:
        document["record_size_variation"] = topic.record_size_variation
    if topic.producer_rates:
        document["producer_rates"] = list(topic.producer_rates)
    document["partitions"] = [
        {"id": p.index, "leader": p.leader, "replicas": list(p.replicas), "isr": list(p.isr)} for p in topic.partitions
    ]
    return document


class _Place:
    """One object of the document and where it is; every key must be asked for."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: expected an object in braces, found {_kind(value)}")
        self._value, self._where, self._asked = value, where, set[str]()

    def take(self, key: str, kind: type | tuple[type, ...], what: str, default: Any = ...) -> Any:
        self._asked.add(key)
        if key not in self._value:
            if default is ...:
                raise ConfigError(f"{self._where}: {key} is missing")
            return default
        value = self._value[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool) or _endless(value):
            raise ConfigError(f"{self._where}: {key} must be {what}, not {_kind(value)}")
        return value

    def numbers(self, key: str, kind: type | tuple[type, ...], what: str, default: Any = ...) -> tuple[Any, ...]:
        values = self.take(key, list, f"a list of {what}", default)
        for value in values:
            if not isinstance(value, kind) or isinstance(value, bool) or _endless(value):
                raise ConfigError(f"{self._where}: {key} must be a list of {what}; it holds {_kind(value)}")
        return tuple(values)

    def items(self, key: str, read: "Callable[[_Place], T]", optional: bool = False) -> list[T]:
        values = self.take(key, list, "a list", [] if optional else ...)
        found = []
        for n, value in enumerate(values):
            place = _Place(value, f"{self._where}: {key}[{n}]")
            found.append(read(place))
            place.nothing_else()
        return found

    def nothing_else(self) -> None:
        if unknown := sorted(map(str, self._value.keys() - self._asked)):
            raise ConfigError(
                f"{self._where}: unknown {', '.join(unknown)}; known are {', '.join(sorted(self._asked))}"
            )


def _node(place: _Place) -> Node:
    return Node(
        place.take("id", int, "a whole number"),
        place.take("online", bool, "true or false", True),
        place.take("capacity", (int, float), "a number", 1.0),
        place.take("rack", (str, type(None)), "a text", None),
    )


def _topic(place: _Place) -> Topic:
    return Topic(
        place.take("name", str, "a text"),
        tuple(sorted(place.items("partitions", _partition), key=lambda partition: partition.index)),
        _rate(place),
        place.take("min_insync_replicas", int, "a whole number", 1),
        place.take("record_size_variation", (int, float), "a number", None),
        place.numbers("producer_rates", (int, float), "numbers", []),
    )


def _rate(place: _Place) -> float:
    """Null where nobody measured it; `read_topology` knows what that means once it has seen all topics."""
    rate = place.take("rate", (int, float, type(None)), "a number, or null if nobody measured it", 1.0)
    return 1.0 if rate is None else float(rate)


def _partition(place: _Place) -> Partition:
    replicas = place.numbers("replicas", int, "node ids")
    leader = place.take("leader", (int, type(None)), "a node id or null")
    return Partition(
        place.take("id", int, "a whole number"), leader, replicas, place.numbers("isr", int, "node ids", list(replicas))
    )


def _group(place: _Place) -> ConsumerGroup:
    topics = place.take("topics", list, "a list of topic names")
    return ConsumerGroup(
        place.take("name", str, "a text"), place.take("members", int, "a whole number"), tuple(map(str, topics))
    )


def _endless(value: Any) -> bool:
    """No number to count with: not finite, or beyond what any id, count or rate can be."""
    return isinstance(value, int | float) and not abs(value) < LARGEST


def _kind(value: Any) -> str:
    try:
        text = json.dumps(value)
    except RecursionError:
        return "something nested very deeply"
    return text if len(text) <= 40 else f"{text[:37]}..."
