"""Applies a reassignment to a live cluster: throttled, watched to its end, cancellable (B-23)."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ElectionType, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError as KafkaPythonError
from kafka.errors import UnknownBrokerIdError

from headgate.errors import ConfigError, KafkaUnavailable
from headgate.model import TopicPartition
from headgate.topology.cluster import Move, Topology
from headgate.topology.reassignment import Reassignment
from headgate.topology.safety import objections

ANSWER_S = 30.0
POLL_S = 0.5
SILENCE_S = 120.0
"""How long the brokers may say nothing while a reassignment is watched."""
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADERS, _FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


@dataclass(frozen=True, slots=True)
class Progress:
    done: int
    total: int


class NotConfigured(KafkaUnavailable):
    def __init__(self, failed: Mapping[ConfigResource, Exception]) -> None:
        self.left = tuple(failed)
        """Who did not do as asked."""
        names = [f"{resource.restype.name.lower()} {resource.name}" for resource in self.left]
        named = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
        super().__init__(_not_done(next(iter(failed.values())), f"not configured: {named}; "))


class LeftUnderWay(KafkaUnavailable):
    """What was begun could not be taken back: Kafka may go on copying, so the throttle stays."""


class Reassigner:
    """Kafka's own reassignment. Partitions are moved by kafka-python, the only client that can."""

    def __init__(self, admin: AdminClient, kafka_python: Mapping[str, Any]) -> None:
        self._admin, self._settings = admin, kafka_python
        self._mover = self._new_mover()

    def _new_mover(self) -> KafkaAdminClient:
        wait_ms = int(ANSWER_S * 1000)
        try:
            return KafkaAdminClient(**self._settings, request_timeout_ms=wait_ms, bootstrap_timeout_ms=wait_ms)
        except (KafkaPythonError, ValueError, AssertionError) as error:
            raise KafkaUnavailable(f"no broker answered the reassignment client: {error!r}") from error

    def moves(self) -> tuple[Move, ...]:
        """What Kafka is moving now, whoever asked for it."""
        found = self._asked(lambda: self._mover.list_partition_reassignments())
        moves = [
            Move(
                TopicPartition(at.topic, at.partition),
                tuple(id for id in said["replicas"] if id not in said["adding_replicas"]),
                tuple(id for id in said["replicas"] if id not in said["removing_replicas"]),
            )
            for at, said in found.items()
        ]
        return tuple(sorted(moves, key=lambda move: move.at))

    def under_way(self) -> frozenset[TopicPartition]:
        return frozenset(move.at for move in self.moves())

    def apply(
        self,
        topology: Topology,
        change: Reassignment,
        throttle_bytes_per_s: int | None,
        told: Callable[[Progress], None],
        cancelled: Callable[[], bool] = lambda: False,
        may_add_replicas: bool = False,
    ) -> bool:
        """True when all is done, False when it was cancelled: then what was not done yet is as before.

        ConfigError, and nothing applied, if anything speaks against it. After any other error what was begun is taken
        back, or LeftUnderWay says that it could not be.
        """
        against = objections(topology, change, sorted(self.under_way()), may_add_replicas)
        if not against and throttle_bytes_per_s is not None:
            against = self._throttles_in_force(topology)
        if against:
            shown = [*against[:10], *([f"… and {len(against) - 10} more"] if len(against) > 10 else [])]
            raise ConfigError("nothing was applied:\n  " + "\n  ".join(shown))
        throttled = _throttled(topology, change)
        with self._throttle(throttled, throttle_bytes_per_s if throttled.nodes else None):
            try:
                self._begin(topology, change)
                done = self._watch(change, told, cancelled)
            except KeyboardInterrupt:
                done = False
            except BaseException:  # Kafka may have accepted the request all the same, and be copying
                self._take_back(change)
                raise
            if not done:
                self._take_back(change)
                return False
        self._elect(topology, change)
        return True

    def _take_back(self, change: Reassignment) -> None:
        try:
            self.cancel(change.replicas)
        except (KafkaUnavailable, KeyboardInterrupt) as error:
            raise LeftUnderWay(
                f"up to {len(change)} partitions are still being moved and could not be taken back "
                f"({str(error) or 'interrupted'}); throttles stay as they are: run `headgate topology cancel` when the "
                "brokers answer, or it goes on"
            ) from error

    def cancel(self, partitions: Iterable[TopicPartition], deadline_s: float = 60.0) -> int:
        """Brings partitions that are still being moved back to where they were; how many those were."""
        moving = self.under_way() & frozenset(partitions)
        if moving:
            self._alter(dict.fromkeys(moving))
        until = time.monotonic() + deadline_s
        while self.under_way() & moving:
            if time.monotonic() > until:
                raise KafkaUnavailable(
                    f"a cancelled reassignment did not end within {deadline_s:g} s: look again later"
                )
            time.sleep(POLL_S)
        return len(moving)

    def remove_throttles(self, topology: Topology) -> None:
        """After somebody's reassignment was left half-finished."""
        names = [topic.name for topic in topology.topics]
        self._configure(
            [_resource(ResourceType.BROKER, str(id), dict.fromkeys(_RATES)) for id in sorted(topology.online)]
            + [_resource(ResourceType.TOPIC, name, {_LEADERS: None, _FOLLOWERS: None}) for name in names]
        )

    def close(self) -> None:
        self._mover.close()

    def _begin(self, topology: Topology, change: Reassignment) -> None:
        refused = self._alter(change.replicas)
        if refused:
            self.cancel(change.replicas)
            # What needed no copy was done at once, so it has to be done again the other way round.
            before = {topic.name: topic.partitions for topic in topology.topics}
            self._alter({at: before[at.topic][at.partition].replicas for at in change.replicas if at not in refused})
            shown = [f"{at}: {why}" for at, why in sorted(refused.items())[:10]]
            raise ConfigError("Kafka refused, and nothing was applied:\n  " + "\n  ".join(shown))

    def _watch(self, change: Reassignment, told: Callable[[Progress], None], cancelled: Callable[[], bool]) -> bool:
        """A broker that restarts meanwhile is waited for, within bounds."""
        ours, heard_s = frozenset(change.replicas), time.monotonic()
        while True:
            try:
                left, heard_s = self.under_way() & ours, time.monotonic()
            except KafkaUnavailable:
                if time.monotonic() - heard_s > SILENCE_S:
                    raise
                time.sleep(POLL_S)
                continue
            told(Progress(len(ours) - len(left), len(ours)))
            if not left:
                return True
            if cancelled():
                return False
            time.sleep(POLL_S)

    def _alter(self, replicas: Mapping[TopicPartition, Sequence[int] | None]) -> dict[TopicPartition, str]:
        """What Kafka refused, and why."""
        wanted = {KafkaPythonPartition(at.topic, at.partition): new for at, new in replicas.items()}
        answers = self._asked(lambda: self._mover.alter_partition_reassignments(wanted))
        return {
            TopicPartition(at.topic, at.partition): error.__name__ for at, error in answers.items() if error is not None
        }

    def _asked(self, question: Callable[[], Any]) -> Any:
        """Again for a while where a broker that is gone was asked: the client then learns of another one."""
        until = time.monotonic() + ANSWER_S
        while True:
            try:
                return question()
            except KafkaPythonError as error:
                is_stuck = isinstance(error, UnknownBrokerIdError)  # with a controller that is gone, for good
                if not (error.retriable or is_stuck) or time.monotonic() > until:
                    raise KafkaUnavailable(_not_done(error)) from error
                if is_stuck:
                    self._mover.close()
                    self._mover = self._new_mover()
                time.sleep(POLL_S)

    def _elect(self, topology: Topology, change: Reassignment) -> None:
        """Leadership goes to the first replicas, as far as they are there; Kafka would do that by itself some minutes
        later."""
        partitions = [
            KafkaTopicPartition(at.topic, at.partition)
            for at, replicas in change.replicas.items()
            if replicas[0] in topology.online
        ]
        if not partitions:
            return
        with _answering():
            answers = self._admin.elect_leaders(ElectionType.PREFERRED, partitions).result(ANSWER_S)
        failed = {
            f"{at.topic}-{at.partition}: {error.str()}"
            for at, error in answers.items()
            if error is not None and error.code() not in (KafkaError.NO_ERROR, KafkaError.ELECTION_NOT_NEEDED)
        }
        if failed:
            raise KafkaUnavailable(
                "the replicas are where they should be, but not all leaders: " + "; ".join(sorted(failed)[:5])
            )

    def _throttles_in_force(self, topology: Topology) -> list[str]:
        return [
            f"node {id} already has {name}: another reassignment was left half-finished; end it with "
            "`headgate topology cancel`"
            for id in sorted(topology.online)
            for name in self._rates_of(id)
        ]

    def _rates_of(self, node: int) -> dict[str, str]:
        """The throttles that a node itself says are set on it."""
        with _answering():  # librdkafka takes one broker per question, and asks that broker
            (answer,) = self._admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node))]).values()
            settings = answer.result(ANSWER_S)
        return {
            name: settings[name].value
            for name in _RATES
            if name in settings and settings[name].source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
        }

    @contextmanager
    def _throttle(self, what: "_Throttled", bytes_per_s: int | None) -> Iterator[None]:
        """In force on every node before the first byte is copied; nodes learn of settings one after the other."""
        if bytes_per_s is None:
            yield
            return
        rates = {name: str(bytes_per_s) for name in _RATES}
        off = [_resource(ResourceType.BROKER, str(id), dict.fromkeys(_RATES)) for id in what.nodes]
        off += [_resource(ResourceType.TOPIC, topic, dict.fromkeys(values)) for topic, values in what.topics.items()]
        left_under_way = False
        try:
            # Topics first: a node that knows of its rate knows of what came before.
            self._configure([_resource(ResourceType.TOPIC, topic, values) for topic, values in what.topics.items()])
            self._configure([_resource(ResourceType.BROKER, str(id), rates) for id in what.nodes])
            until = time.monotonic() + ANSWER_S
            while any(self._rates_of(id) != rates for id in what.nodes):
                if time.monotonic() > until:
                    raise KafkaUnavailable(f"the throttle was not in force after {ANSWER_S:g} s: nothing was moved")
                time.sleep(0.1)
            yield
        except LeftUnderWay:
            left_under_way = True
            raise
        finally:
            if not left_under_way:
                self._configure(off)

    def _configure(self, resources: list[ConfigResource]) -> None:
        """Who does not answer is asked again: the client may believe in a controller that is away, until it looks."""
        try:
            self._ask_to_configure(resources)
        except NotConfigured as error:
            with suppress(KafkaException):
                self._admin.list_topics(timeout=ANSWER_S)
            self._ask_to_configure(error.left)

    def _ask_to_configure(self, resources: Sequence[ConfigResource]) -> None:
        """All at once, so a broker that does not answer keeps nobody else from hearing."""
        topics = [resource for resource in resources if resource.restype is ResourceType.TOPIC]
        brokers = [[resource] for resource in resources if resource.restype is ResourceType.BROKER]
        answers: dict[ConfigResource, Future[None]] = {}
        for together in ([topics] if topics else []) + brokers:  # librdkafka takes one broker per request
            with _answering():
                answers |= self._admin.incremental_alter_configs(together, request_timeout=ANSWER_S)
        settle(answers, ANSWER_S)


def settle(answers: "Mapping[ConfigResource, Future[None]]", within_s: float) -> None:
    """Waits for all of them, and only then complains, of everybody who did not do as asked."""
    until = time.monotonic() + within_s + 1  # the client itself gives up a moment earlier
    failed: dict[ConfigResource, Exception] = {}
    for resource, answer in answers.items():
        try:
            answer.result(max(0.0, until - time.monotonic()))
        except (KafkaException, TimeoutError) as error:
            failed[resource] = error
    if failed:
        raise NotConfigured(failed)


@dataclass(frozen=True, slots=True)
class _Throttled:
    nodes: tuple[int, ...]
    topics: dict[str, dict[str, str]]
    """Replicas that send and that receive, in Kafka's notation."""


def _throttled(topology: Topology, change: Reassignment) -> _Throttled:
    """The nodes and replicas between which records will be copied."""
    topics = {topic.name: topic for topic in topology.topics}
    nodes: set[int] = set()
    sending: dict[str, list[str]] = {}
    receiving: dict[str, list[str]] = {}
    for at, replicas in sorted(change.replicas.items()):
        before = topics[at.topic].partitions[at.partition].replicas
        if new := [id for id in replicas if id not in before]:
            sending.setdefault(at.topic, []).extend(f"{at.partition}:{id}" for id in before)
            receiving.setdefault(at.topic, []).extend(f"{at.partition}:{id}" for id in new)
            nodes.update(before, new)
    per_topic = {t: {_LEADERS: ",".join(sending[t]), _FOLLOWERS: ",".join(receiving[t])} for t in sending}
    return _Throttled(tuple(sorted(nodes & topology.online)), per_topic)


def _resource(kind: ResourceType, name: str, values: Mapping[str, str | None]) -> ConfigResource:
    entries = [
        ConfigEntry(
            key,
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in values.items()
    ]
    return ConfigResource(kind, name, incremental_configs=entries)


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except (KafkaException, TimeoutError) as error:
        raise KafkaUnavailable(_not_done(error)) from error


def _not_done(error: Exception, which: str = "") -> str:
    said = error.args[0].str() if isinstance(error, KafkaException) else repr(error)
    return (
        f"the brokers did not do as asked ({which}{said}): check with `headgate topology report`, and end what is half "
        "done with `headgate topology cancel`"
    )
