"""Partitions and offsets of the pipeline's topics, asked in bulk, and the group offsets mirrored back to Kafka."""

import ctypes
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, Uuid
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec, TopicDescription

from headgate.errors import KafkaUnavailable
from headgate.kafka.leaders import Leaders
from headgate.model import TopicPartition

log = logging.getLogger(__name__)

_NO_ID = str(Uuid(0, 0))
"""What brokers answer that give topics no ids."""

_IN_ONE_REQUEST = 250
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_ANSWER_S = 5.0
"""For the offsets of a group to be written."""


def partitions_where(
    admin: AdminClient, wanted: Callable[[str], bool], deadline_s: float = 15
) -> frozenset[TopicPartition]:
    """All partitions of the topics for which `wanted` holds."""
    try:
        topics = admin.list_topics(timeout=deadline_s).topics
    except KafkaException as error:
        raise KafkaUnavailable(f"no Kafka broker answered within {deadline_s:g} s: {error.args[0].str()}") from error
    return frozenset(
        TopicPartition(name, number)
        for name, topic in topics.items()
        if topic.error is None and wanted(name)
        for number in topic.partitions
    )


@dataclass(frozen=True, slots=True)
class TopicIds:
    """Kafka's own ids of topics, which outlive everything but deleting them."""

    known: dict[str, str] = field(default_factory=dict)
    """Without topics that are gone."""
    unanswered: dict[str, str] = field(default_factory=dict)
    """Of these nothing is known this time, and why."""


def topic_ids(admin: AdminClient, topics: Iterable[str], deadline_s: float = 15) -> TopicIds:
    names = sorted(topics)
    if not names:
        return TopicIds()
    found, unanswered = {}, {}
    until_s = time.monotonic() + deadline_s + 5
    for name, future in admin.describe_topics(TopicCollection(names), request_timeout=deadline_s).items():
        try:
            described = future.result(max(0.0, until_s - time.monotonic()))
            found[name] = str(described.topic_id)
            _let_go_of_id(described)
        except (KafkaException, TimeoutError) as error:
            if not _is_about_nothing(error):
                log.info("no description of topic %s this time: %s", name, _told(error))
                unanswered[name] = _told(error)
    return TopicIds({name: known for name, known in found.items() if known != _NO_ID}, unanswered)


def _is_about_nothing(error: Exception) -> bool:
    """The topic does not exist, or not any more."""
    return isinstance(error, KafkaException) and error.args[0].code() in _GONE


def _told(error: Exception) -> str:
    return str(error.args[0].str()) if isinstance(error, KafkaException) else "no answer in time"


def _let_go_of_id(described: TopicDescription) -> None:
    """confluent-kafka 2.16 counts a reference too many to each id that it describes, which is then never freed: a
    hundred bytes for each topic and commit. Only where one made by hand has fewer is there one too many."""
    by_hand = TopicDescription("", Uuid(1, 2), False, [])
    if sys.getrefcount(described.topic_id) == sys.getrefcount(by_hand.topic_id) + 1:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(described.topic_id))


def end_offsets(
    admin: AdminClient, partitions: Iterable[TopicPartition], read_committed: bool = True, deadline_s: float = 15
) -> dict[TopicPartition, int]:
    """One past the last offset readers may see; partitions without a leader right now are left out."""
    return _offsets(admin, partitions, OffsetSpec.latest(), read_committed, deadline_s)


def all_end_offsets(
    admin: AdminClient, partitions: Iterable[TopicPartition], deadline_s: float = 30.0
) -> dict[TopicPartition, int]:
    """Of all of them: not all brokers know at once who leads a new topic, and one may refuse for a moment to lead a
    partition that it has just been given."""
    missing, ends = set(partitions), dict[TopicPartition, int]()
    until_s = time.monotonic() + deadline_s
    while missing:
        try:
            ends |= end_offsets(admin, missing, read_committed=False)
        except KafkaUnavailable as error:
            log.info("asking again: %s", error)
        missing -= ends.keys()
        if missing and time.monotonic() > until_s:
            raise KafkaUnavailable(f"{min(missing)} has no leader after {deadline_s:g} s: look at the brokers' logs")
        if missing:
            time.sleep(0.05)
    return ends


def beginning_offsets(
    admin: AdminClient, partitions: Iterable[TopicPartition], deadline_s: float = 15
) -> dict[TopicPartition, int]:
    """The oldest offset retention has left; partitions without a leader right now are left out."""
    return _offsets(admin, partitions, OffsetSpec.earliest(), False, deadline_s)


def _offsets(
    admin: AdminClient, partitions: Iterable[TopicPartition], spec: OffsetSpec, read_committed: bool, deadline_s: float
) -> dict[TopicPartition, int]:
    wanted = sorted(set(partitions))
    if not wanted:
        return {}
    level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
    answers: dict[KafkaTopicPartition, Any] = {}
    for some in in_requests(wanted):
        request = {KafkaTopicPartition(p.topic, p.partition): spec for p in some}
        answers |= admin.list_offsets(request, isolation_level=level, request_timeout=deadline_s)
    found = {}
    until_s = time.monotonic() + deadline_s + 5
    for asked, future in answers.items():
        try:
            offset = future.result(max(0.0, until_s - time.monotonic())).offset
        except (KafkaException, TimeoutError) as error:
            log.info("no offset of %s[%d] this time: %s", asked.topic, asked.partition, _told(error))
            continue
        if offset >= 0:  # a client that loses its broker while it waits may answer with a number below zero
            found[TopicPartition(asked.topic, asked.partition)] = offset
    if len(found) < len(wanted):
        _look_again(admin, deadline_s)
    if not found:
        raise KafkaUnavailable(f"the brokers gave no offsets for {len(wanted)} partitions within {deadline_s:g} s")
    return found


def in_requests(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    """As many at a time as librdkafka deals with well: it looks for each one in a list of all of them, twice."""
    for first in range(0, len(partitions), _IN_ONE_REQUEST):
        yield partitions[first : first + _IN_ONE_REQUEST]


def _look_again(admin: AdminClient, deadline_s: float) -> None:
    """The client keeps what it knows of topics, leaders and their epochs for minutes, also when a new partition or a
    restarted broker has made it wrong; this makes it look again, for the next time."""
    try:
        admin.list_topics(timeout=deadline_s)
    except KafkaException as error:
        log.info("nothing known of leaders either: %s", error.args[0].str())


def group_offsets(
    settings: Mapping[str, Any], group: str, partitions: Iterable[TopicPartition], deadline_s: float = 15
) -> dict[TopicPartition, int]:
    """What the group has committed; partitions it has nothing for are left out."""
    consumer = Consumer({**settings, "group.id": group, "enable.auto.commit": False})
    try:
        asked = [KafkaTopicPartition(p.topic, p.partition) for p in partitions]
        found = consumer.committed(asked, timeout=deadline_s) if asked else []
    except KafkaException as error:
        raise KafkaUnavailable(f"no offsets of group {group}: {error.args[0].str()}") from error
    finally:
        consumer.close()
    return {TopicPartition(at.topic, at.partition): at.offset for at in found if at.offset >= 0}


def written_at_ms(
    settings: Mapping[str, Any], positions: Mapping[TopicPartition, int], deadline_s: float = 10
) -> dict[TopicPartition, int]:
    """The timestamp of the first record at or after each offset; what does not come in time is left out."""
    small = {
        "message.max.bytes": 100_000,  # librdkafka refuses a smaller fetch.max.bytes; a larger record is still read
        "fetch.max.bytes": 100_000,
        "max.partition.fetch.bytes": 10_000,
        "queued.max.messages.kbytes": 1000,
    }
    consumer = Consumer({**settings, **small, "group.id": "headgate-no-group", "enable.auto.commit": False})
    found: dict[TopicPartition, int] = {}
    until = time.monotonic() + deadline_s
    try:
        Leaders(consumer).meet(p.topic for p in positions)
        consumer.assign([KafkaTopicPartition(p.topic, p.partition, offset) for p, offset in positions.items()])
        while len(found) < len(positions) and time.monotonic() < until:
            record: Any
            for record in consumer.consume(100, 0.2):
                if record.error() is None:
                    partition = TopicPartition(record.topic(), record.partition())
                    found.setdefault(partition, record.timestamp()[1])
    finally:
        consumer.close()
    return found


class Mirror(Protocol):
    """Where a committer tells how far the lake is, for others than Headgate."""

    def ask(self, positions: Mapping[TopicPartition, int]) -> None:
        """Has these written, and forgets what was asked before."""
        ...

    def is_written(self, patience_s: float) -> bool:
        """Whether what was asked last is written by now. KafkaUnavailable if it was refused, or took too long."""
        ...

    def close(self) -> None: ...


class NoMirror:
    """For a lake that is thrown away: nobody's lag may follow it."""

    def ask(self, positions: Mapping[TopicPartition, int]) -> None:
        """Tells nobody."""

    def is_written(self, patience_s: float) -> bool:
        return True

    def close(self) -> None:
        """Nothing is open."""


class GroupMirror:
    """Writes the lake's positions as the group's committed offsets, for every lag tool people already own.

    A consumer that never joins commits them. The admin client could, too, but once it lost the group's coordinator it
    never finds it again, and librdkafka 2.16 aborts the whole process when the brokers then come back.
    """

    def __init__(self, settings: Mapping[str, Any], group: str) -> None:
        self._group = group
        self._answers: list[tuple[KafkaError | None, dict[tuple[str, int], int]]] = []
        self._wanted: dict[tuple[str, int], int] = {}
        self._answer_by_s = 0.0
        self._consumer = Consumer(
            {**settings, "group.id": group, "enable.auto.commit": False, "on_commit": self._committed}
        )

    def ask(self, positions: Mapping[TopicPartition, int]) -> None:
        self._wanted = {(p.topic, p.partition): offset for p, offset in positions.items()}
        self._answers.clear()
        self._answer_by_s = time.monotonic() + _ANSWER_S
        offsets = [KafkaTopicPartition(*at, offset) for at, offset in sorted(self._wanted.items())]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            raise self._unavailable(error.args[0].str()) from error

    def is_written(self, patience_s: float) -> bool:
        """Offsets of topics that are gone count as written."""
        until = time.monotonic() + patience_s
        while True:
            self._consumer.poll(min(0.05, patience_s))
            for error, offsets in self._answers:
                if offsets == self._wanted:  # others are late answers to an earlier one
                    if error is not None:
                        raise self._unavailable(error.str())
                    return True
            now = time.monotonic()
            if now >= self._answer_by_s:
                raise self._unavailable(f"no answer within {_ANSWER_S:g} s")
            if now >= until:
                return False

    def _unavailable(self, why: str) -> KafkaUnavailable:
        return KafkaUnavailable(f"cannot mirror offsets to group {self._group}: {why}")

    def _committed(self, error: KafkaError | None, partitions: list[KafkaTopicPartition]) -> None:
        failures = [p.error for p in partitions if p.error is not None] or ([error] if error is not None else [])
        failed = next((failure for failure in failures if failure.code() not in _GONE), None)
        self._answers.append((failed, {(p.topic, p.partition): p.offset for p in partitions}))

    def close(self) -> None:
        """A client that waits for an answer would wait for a minute before it closes; nobody else does."""
        closing = threading.Thread(target=self._consumer.close, name="closing a client", daemon=True)
        closing.start()
        closing.join(_ANSWER_S)
