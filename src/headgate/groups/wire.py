"""What members and the controller say to each other: JSON over HTTP, each message a dataclass, checked on arrival."""

import http.client
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import quote, urlsplit

from pydantic import TypeAdapter, ValidationError

from headgate.errors import ConfigError, HeadgateError
from headgate.groups.placement import Joining
from headgate.model import TopicPartition
from headgate.packing.least_loaded import Item
from headgate.policies.seen import number

MOST_BYTES = 64 * 2**20
"""No message of ours comes near; more is somebody else's."""

ByTopic = dict[str, list[int]]
Message = TypeVar("Message")


class ControllerUnreachable(HeadgateError):
    """The group's controller did not answer in time, or not in our words; members go on without it."""


@dataclass(frozen=True, slots=True)
class MemberData:
    """What a member's subscription carries as user data; it differs from one generation to the next.

    That difference matters: a member that joins again with nothing new to say gets its old assignment back and causes
    no rebalance, unless it happens to be the leader (E-26).
    """

    owned: ByTopic = field(default_factory=dict)
    generation: int = -1
    handle: int | None = None

    def joining(self, topics: Iterable[str]) -> Joining:
        return Joining(frozenset(topics), partitions_of(self.owned), self.generation, self.handle)


@dataclass(frozen=True, slots=True)
class MemberOfGroup:
    topics: list[str]
    data: MemberData


@dataclass(frozen=True, slots=True)
class AssignmentRequest:
    """From the leader of a rebalance (E-24)."""

    group: str
    generation: int
    """The last one the leader knows; -1 if it has just joined."""
    members: dict[str, MemberOfGroup]
    partitions: ByTopic


@dataclass(frozen=True, slots=True)
class AssignmentAnswer:
    plan: int
    """Version of the plan that this follows; 0 when there is none yet."""
    assignment: dict[str, ByTopic]
    loads: dict[str, dict[int, tuple[float, float]]] = field(default_factory=dict)
    """Rate and lag of each partition, for the leader to fall back on when the controller is gone."""

    def items(self) -> dict[TopicPartition, Item]:
        return {
            TopicPartition(topic, n): Item(number(rate), number(lag))
            for topic, loads in self.loads.items()
            for n, (rate, lag) in loads.items()
        }


@dataclass(frozen=True, slots=True)
class Beat:
    """From every member, a few times a second."""

    group: str
    member: str
    generation: int
    handle: int | None = None
    heartbeat_s: float = 0.0
    """Its heartbeat.interval: how long it may take to hear of a rebalance (E-30)."""
    pauses_s: list[float] = field(default_factory=list)
    """Revoked to assigned, of each rebalance since the last beat (E-29)."""
    records: int = 0
    """Its largest batch since the last beat, and the time from getting it to asking for more (E-3)."""
    busy_s: float = 0.0
    fallbacks: int = 0
    """Assignments it made as leader without the controller, since its start."""


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    rejoin: bool = False


def decoded(kind: type[Message], text: bytes) -> Message:
    """ValueError with everything that is wrong, if it is not such a message."""
    try:
        return TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        found = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3])
        raise ValueError(f"not a {kind.__name__}: {found}") from None


def encoded(message: object) -> bytes:
    return TypeAdapter(type(message)).dump_json(message)


def by_topic(partitions: Iterable[TopicPartition]) -> ByTopic:
    found: ByTopic = {}
    for p in sorted(partitions):
        found.setdefault(p.topic, []).append(p.partition)
    return found


def partitions_of(value: Mapping[str, Iterable[int]]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, n) for topic, numbers in value.items() for n in numbers)


class Line:
    """A member's line to the controller: one question, one answer, and never longer than the deadline."""

    def __init__(self, controller: str, timeout_s: float) -> None:
        parts = urlsplit(controller if "//" in controller else f"http://{controller}")
        try:
            self._host, self._port = parts.hostname, parts.port
        except ValueError:
            self._host = None
        if parts.scheme not in ("http", "https") or not self._host or not timeout_s > 0:
            raise ConfigError(
                f"controller must be the address that `headgate group run` prints, such as http://10.0.0.5:8787, with "
                f"a timeout above 0, not {controller!r} and {timeout_s:g} s"
            )
        self._secure = parts.scheme == "https"
        self._timeout_s = timeout_s

    def ask(self, path: str, message: object, answer: type[Message]) -> Message:
        """ControllerUnreachable for every reason there is."""
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        until = time.monotonic() + self._timeout_s
        connection = kind(self._host or "", self._port, timeout=self._timeout_s)
        try:
            connection.request("POST", quote(path), encoded(message), {"Content-Type": "application/json"})
            response = connection.getresponse()
            body = b""
            while chunk := response.read1(65536):  # not read(): a server that drips would hold up the whole group
                body += chunk
                if time.monotonic() > until or len(body) > MOST_BYTES:
                    raise ControllerUnreachable(f"the controller's answer was not complete in {self._timeout_s:g} s")
            if response.status != 200:
                raise ControllerUnreachable(
                    f"the controller answered {response.status}: {body[:200].decode(errors='replace')}"
                )
            return decoded(answer, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ControllerUnreachable(f"no answer from the controller: {error}") from error
        finally:
            connection.close()
