"""Messages on the pipeline's own topics: how they are sent and how they are read.

Readers use explicit partitions and offsets and no consumer group, so nothing here ever triggers a rebalance.
"""

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition

from headgate.errors import KafkaUnavailable, Outdated
from headgate.kafka.codec import RELEASE, VERSION, AnotherVersion, NotAMessage, Origin, decode, encode, origin_of
from headgate.kafka.internal_topics import MOST_MESSAGE_BYTES

log = logging.getLogger(__name__)

AT_WORK_S = 60.0
"""A message of another version that is older than this tells of an upgrade or its undoing, not of somebody at work."""
_PURGE_S = 5.0


class Outbox:
    """Sends messages; thread-safe. `send` returns at once, `flush` returns when everything is on the brokers.

    A client that lost track of what the brokers have (they lost what they had acknowledged, say) refuses everything
    from then on, for good. It is replaced; what it had not sent is told as failed, and whoever sent it says it again.
    """

    def __init__(
        self, settings: Mapping[str, Any], sender: str = "", client: Callable[[dict[str, Any]], Producer] = Producer
    ) -> None:
        self._sender = sender
        self._client = client
        self._settings = {
            **settings,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 0,
            "message.max.bytes": MOST_MESSAGE_BYTES,
            "compression.type": "lz4",
        }
        self._producer = client(self._settings)
        self._failures: list[str] = []
        self._is_broken = False
        self._replacing = threading.Lock()

    def send(self, topic: str, message: Any, partition: int = 0, key: str | None = None) -> None:
        value, headers = encode(message, self._sender)
        producer = self._working()
        try:
            producer.produce(
                topic, value=value, key=key, partition=partition, headers=headers, on_delivery=self._delivered
            )
        except (BufferError, KafkaException) as error:  # too many waiting, or too large a message
            self._look_at(error.args[0] if isinstance(error, KafkaException) else None)
            raise KafkaUnavailable(f"cannot send a {type(message).__name__} of {len(value)} bytes: {error}") from error
        producer.poll(0)

    def _working(self) -> Producer:
        with self._replacing:
            if self._is_broken:
                log.warning("the Kafka client of %s cannot go on and is replaced", self._sender or "this process")
                self._producer.purge()
                self._producer.flush(_PURGE_S)  # or nobody would be told of what it still held
                self._producer, self._is_broken = self._client(self._settings), False
            return self._producer

    def _look_at(self, error: KafkaError | None) -> None:
        if error is not None and (error.fatal() or error.code() == KafkaError._FATAL):
            self._is_broken = True

    def _delivered(self, error: KafkaError | None, record: Any) -> None:
        if error is not None:
            self._look_at(error)
            self._failures.append(f"{record.topic()}[{record.partition()}]: {error.str()}")

    def flush(self, deadline_s: float = 30) -> None:
        """Raises KafkaUnavailable unless everything sent so far was acknowledged by all in-sync replicas."""
        left = self._producer.flush(deadline_s)
        failures, self._failures = self._failures, []
        if left or failures:
            open_ = [f"{left} messages not acknowledged within {deadline_s:g} s"] if left else []
            raise KafkaUnavailable("; ".join([*open_, *failures[:3]]))


@dataclass(frozen=True, slots=True)
class Received:
    topic: str
    partition: int
    offset: int
    message: Any
    written_ms: int = 0
    """By the broker's clock; by the writer's on topics that an earlier version of Headgate made."""
    origin: Origin = field(default_factory=Origin)


BEGINNING, END = OFFSET_BEGINNING, OFFSET_END
LOOK_EVERY_S = 5.0
"""How often it is asked whether a client still fetches."""
AGAIN_S = 2.0
"""Once it seems not to: long enough for a healthy one to have got on. Both together, and a new client's start, are
shorter than a heartbeat's deadline by default, or consumers would be taken for dead that only the reader does not
hear."""
_LOOK_S, _LOOKS_S = 1.0, 3.0
"""How long is waited for an answer on one partition, and on all of them."""
_BY_TIME_S = 15.0


@dataclass(frozen=True, slots=True)
class Last:
    """Start so that only the newest `records` remain to be read (L-34: never work through a backlog)."""

    records: int


class Tail:
    """Follows partitions of the internal topics from given offsets. Garbage is counted, logged and passed over.

    What an older version of Headgate wrote is passed over, too, and told once. A newer version at work means that this
    one is the one to end: Outdated.

    A Kafka client may stop fetching a partition for good when its leader changes at a bad moment (librdkafka's issue
    4492), without a word and while it does everything else. So whoever polls looks now and then whether there is more
    than what came, and if so goes on with a new client.
    """

    def __init__(self, settings: Mapping[str, Any], start: Mapping[tuple[str, int], int | Last]) -> None:
        self._settings = {
            **settings,
            "group.id": "headgate-no-group",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": False,
            "fetch.wait.max.ms": 100,
        }
        self._consumer = Consumer(self._settings)
        self._looked_s = time.monotonic()
        self._behind: dict[tuple[str, int], int] = {}
        """Where partitions stood when somebody looked and there was more to read than had come."""
        self.garbage = 0
        self.passed_over: Counter[str] = Counter()
        """Per topic, how many of Headgate's own messages are of a version that is not ours."""
        self.unread_keys: defaultdict[str, set[str]] = defaultdict(set)
        """Per topic, the keys of those."""
        self.outdated: dict[str, str] = {}
        """Who of an older version is at work, and what to do about it."""
        self.next: dict[tuple[str, int], int] = {}
        """Next offset to read per partition, once known."""
        assigned = []
        for (topic, partition), offset in start.items():
            at = self._definite(topic, partition, offset)
            self.next[topic, partition] = max(at, 0)
            assigned.append(KafkaTopicPartition(topic, partition, at))
        self._consumer.assign(assigned)

    def _definite(self, topic: str, partition: int, start: int | Last) -> int:
        """A number instead of "the end", so that nothing sent after construction is missed."""
        if start == END:
            return self._watermarks(topic, partition)[1]
        if isinstance(start, Last):
            low, high = self._watermarks(topic, partition)
            return max(low, high - start.records)
        return start

    def _watermarks(self, topic: str, partition: int, deadline_s: float = 15) -> tuple[int, int]:
        until = time.monotonic() + deadline_s
        while True:
            try:
                low, high = self._consumer.get_watermark_offsets(
                    KafkaTopicPartition(topic, partition), timeout=max(0.1, until - time.monotonic())
                )
                return low, high
            except KafkaException as error:  # a partition just created may not be known to every broker yet
                if time.monotonic() > until:
                    raise KafkaUnavailable(f"no offsets of {topic}[{partition}]: {error.args[0].str()}") from error
                time.sleep(0.1)

    def poll(self, timeout_s: float = 0.0, most: int = 1000) -> list[Received]:
        """What has arrived, at most `most`; waits up to `timeout_s` only while there is nothing."""
        received = self._decoded(self._arrived(timeout_s, most))
        if time.monotonic() - self._looked_s > (AGAIN_S if self._behind else LOOK_EVERY_S):
            self._look()
        return received

    def _look(self) -> None:
        """Behind at two looks and not a record further: the client does not fetch any more. What nobody answers for is
        asked again."""
        behind, stuck = dict[tuple[str, int], int](), []
        until = time.monotonic() + _LOOKS_S
        for key in self.next:
            try:
                left_s = min(_LOOK_S, max(0.01, until - time.monotonic()))
                ends = self._consumer.get_watermark_offsets(KafkaTopicPartition(*key), timeout=left_s)
            except KafkaException as error:  # brokers that do not answer have nothing to tell
                log.debug("nobody says where %s[%d] ends: %s", *key, error)
                behind |= {key: self._behind[key]} if key in self._behind else {}
                continue
            at = max(self._position(key), ends[0] if ends else 0)
            if ends and at < ends[1]:
                behind[key] = at
                stuck += [key] if at == self._behind.get(key) else []
        self._behind = behind
        if stuck:
            topic, partition = stuck[0]
            said = "nothing came from %s[%d] for %.0f s though there is more; reading on with a new client"
            log.warning(said, topic, partition, time.monotonic() - self._looked_s)
            try:
                self._begin_anew(behind)
            except KafkaException as error:  # no file or thread is left for it, say
                log.warning("no new client could be made; going on with the old one: %s", error)
        self._looked_s = time.monotonic()

    def _begin_anew(self, behind: Mapping[tuple[str, int], int]) -> None:
        old = self._consumer
        places = {key: max(self._position(key), behind.get(key, 0)) for key in self.next}
        fresh = Consumer(self._settings)
        try:
            fresh.assign([KafkaTopicPartition(*key, at) for key, at in places.items()])
        except KafkaException:
            fresh.close()
            raise
        self._consumer, self._behind = fresh, {}
        try:  # beside what goes on: it may take its time
            threading.Thread(target=old.close, name="closing a client", daemon=True).start()
        except RuntimeError as error:
            log.warning("no thread is left to close the old client in (%s); it is closed here", error)
            old.close()

    def _arrived(self, timeout_s: float, most: int = 1000) -> list[Any]:
        """Asked for more than one, `consume` waits the whole time for the others."""
        first = self._consumer.consume(1, timeout_s) if timeout_s > 0 else []
        return [*first, *self._consumer.consume(most, 0.0)]

    def _decoded(self, records: Iterable[Any]) -> list[Received]:
        received = []
        for record in records:
            if record.error() is not None:
                log.warning("internal topic %s: %s", record.topic(), record.error().str())
                continue
            topic, partition, offset = record.topic(), record.partition(), record.offset()
            self.next[topic, partition] = offset + 1
            written_ms = record.timestamp()[1]
            try:
                message = decode(record.value(), record.headers())
            except AnotherVersion as error:
                self.garbage += 1
                self.passed_over[topic] += 1
                if record.key() is not None:
                    self.unread_keys[topic].add(record.key().decode(errors="replace"))
                self._met(topic, error, written_ms)
                continue
            except NotAMessage as error:
                self.garbage += 1
                log.warning("ignored record %s[%d]@%d: %s", topic, partition, offset, error)
                continue
            received.append(Received(topic, partition, offset, message, written_ms, origin_of(record.headers())))
        return received

    def _met(self, topic: str, error: AnotherVersion, written_ms: int) -> None:
        origin = error.origin
        if time.time() - written_ms / 1000 > AT_WORK_S:
            log.debug("%s: %s", topic, error)
            return
        if origin.version > VERSION:
            raise Outdated(
                f"{origin} is at work on this pipeline ({topic}); this is Headgate {RELEASE} (messages version "
                f"{VERSION}) and cannot understand it: upgrade this one. If the newer one is to go instead, stop it "
                f"and wait {AT_WORK_S:g} s"
            )
        who = str(origin)
        if who not in self.outdated:
            self.outdated[who] = f"{who} is refused: upgrade it to {RELEASE} (messages version {VERSION})"
            log.error("%s: %s", topic, self.outdated[who])

    def read_to_end(self, deadline_s: float = 30, newest_of: str | None = None) -> list[Received]:
        """Everything up to where the partitions end now.

        Of the topic `newest_of` only the newest record of each key is decoded: compaction lags behind, and a ledger
        is large.
        """
        until = time.monotonic() + deadline_s
        ends = self._ends()
        received: list[Received] = []
        newest: dict[bytes | None, Any] = {}
        while any(self._position(key) < end for key, end in ends.items()):
            if time.monotonic() > until:
                raise KafkaUnavailable(f"could not read {sorted(k[0] for k in ends)} to the end in {deadline_s:g} s")
            record: Any
            for record in self._arrived(0.2):
                if record.error() is None and record.topic() == newest_of:
                    newest[record.key()] = record
                    self.next[record.topic(), record.partition()] = record.offset() + 1
                else:
                    received += self._decoded([record])
        return received + self._decoded(newest.values())

    def pages_to_end(self, silence_s: float = 30) -> Iterator[list[Received]]:
        """Everything up to where the partitions end now, some at a time. Who stops in between reads on with `poll`."""
        ends = self._ends()
        until = time.monotonic() + silence_s
        while any(self._position(key) < end for key, end in ends.items()):
            if time.monotonic() > until:
                raise KafkaUnavailable(f"nothing came from {sorted(k[0] for k in ends)} for {silence_s:g} s")
            if records := self._arrived(0.2):
                if any(record.error() is None for record in records):
                    until = time.monotonic() + silence_s
                yield self._decoded(records)

    def _ends(self) -> dict[tuple[str, int], int]:
        """Where the partitions end; reading begins at their beginning if it was to begin before that."""
        ends = {}
        for topic, partition in self.next:
            low, high = self._watermarks(topic, partition)
            self.next[topic, partition] = max(self.next[topic, partition], low)
            ends[topic, partition] = high
        return ends

    def read_between(self, topic: str, start_ms: float, end_ms: float, deadline_s: float = 30) -> list[Received]:
        """What was written to partition 0 of a topic from one time to another; leaves what it followed before."""
        until = time.monotonic() + deadline_s
        start, end = (self._offset_at(topic, at_ms) for at_ms in (start_ms, end_ms))
        self._consumer.assign([KafkaTopicPartition(topic, 0, start)])
        self.next = {(topic, 0): start}
        received: list[Received] = []
        while self._position((topic, 0)) < end:
            if time.monotonic() > until:
                raise KafkaUnavailable(f"could not read {topic} within {deadline_s:g} s")
            received += self._decoded(self._arrived(0.2))
        return [r for r in received if r.offset < end]

    def _offset_at(self, topic: str, at_ms: float) -> int:
        """The first offset written at or after this time; the end if there is none."""
        asked = [KafkaTopicPartition(topic, 0, max(0, int(at_ms)))]
        until = time.monotonic() + _BY_TIME_S
        while True:
            try:
                found: int = self._consumer.offsets_for_times(asked, timeout=_BY_TIME_S)[0].offset
                return found if found >= 0 else self._watermarks(topic, 0)[1]
            except KafkaException as error:
                if time.monotonic() > until:
                    raise KafkaUnavailable(f"no offsets of {topic} by time: {error.args[0].str()}") from error
                time.sleep(0.5)  # while a leader changes, it fails at once

    def _position(self, key: tuple[str, int]) -> int:
        """Compaction and transactions leave holes, so ask the client rather than count records."""
        position: int = self._consumer.position([KafkaTopicPartition(*key)])[0].offset
        return max(position, self.next[key])

    def close(self) -> None:
        self._consumer.close()
