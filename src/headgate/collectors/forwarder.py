"""The forwarder: reads a collector cluster as a member of a consumer group and writes to the main cluster (B-42, B-43).

At least once: a source offset is committed only when the main cluster has acknowledged every record before it. Who
takes a partition over goes on at the committed offset, so what was sent after it is there twice.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headgate.collectors.metrics import IN_FLIGHT, PARTITIONS, WAITING
from headgate.collectors.offsets import Offsets
from headgate.collectors.placement import Counts, Placement
from headgate.collectors.progress import Account, Progress
from headgate.collectors.topics import Route
from headgate.errors import ConfigError, ForwardingError
from headgate.kafka.accepted import accepted
from headgate.producers.confluent import BalancedProducer

log = logging.getLogger(__name__)

IDLE_S = 0.05
"""How long to wait for a record; or for an acknowledgement, when no further record may be sent."""
PATIENCE_S = 1.0
"""How long to leave the group waiting while nothing may be sent. Pausing costs what was fetched ahead."""
AT_ONCE = 500
"""Records between two looks at acknowledgements."""
LARGEST_BYTES = 1024 * 1024
"""What a record is taken for until one was seen: Kafka's own limit, unless it was raised."""
FOR_GOOD = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._FATAL)
"""Errors of the consumer that waiting does not mend."""
PURGED_S = 5.0
"""The client reports what it takes back within this time."""
PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


@dataclass(frozen=True, slots=True)
class Limits:
    in_flight_records: int = 10_000
    """More are not sent before acknowledgements come: the source partitions are paused."""
    in_flight_bytes: int = 64 * 1024 * 1024
    commit_every_s: float = 1.0
    look_every_s: float = 30.0
    """At topics: their partitions, and new ones that match the pattern."""
    tell_every_s: float = 10.0
    drain_s: float = 30.0
    """How long to wait for acknowledgements before a partition is given up; what is left, its next owner repeats."""


class Forwarder:
    """One process's share of the forwarding; several of one group divide partitions and stand in for each other."""

    def __init__(
        self,
        source: Mapping[str, Any],
        producer: BalancedProducer,
        placement: Placement,
        route: Route,
        limits: Limits,
        tell: Callable[[Progress], None],
    ) -> None:
        """`source` and `producer` are made in `clients`."""
        self._offsets = Offsets()
        with accepted("--from-client cannot be used"):
            self._consumer = Consumer({**source, "on_commit": self._offsets.answered})
        self._producer, self._placement, self._route = producer, placement, route
        self._limits, self._tell = limits, tell
        self._topics: dict[str, Counts] = {}
        self._in_flight = self._in_flight_bytes = 0
        self._record_bytes = LARGEST_BYTES
        self._paused = False
        self._again: dict[tuple[str, int], int] = {}
        """Partitions to be read again, from these offsets on: what was read of them was given up before it was sent."""
        self._full_since_s: float | None = None
        self._failure: ForwardingError | None = None
        now_s = time.monotonic()
        self._account = Account(now_s)
        self._told_s = self._looked_s = self._committed_s = now_s

    def run(self, stop: threading.Event) -> Progress:
        """Until stopped, or until a record cannot be forwarded at all. Then waits for what is on its way, commits, and
        gives its partitions back; says what it did in all."""
        try:
            self._follow(self._route.open())
            while not stop.is_set() and self._failure is None:
                self._turn()
        finally:
            unanswered = self._end()
        if self._failure is not None:
            raise self._failure
        return self._account.in_all(time.monotonic(), unanswered)

    def _follow(self, seen: dict[str, Counts]) -> None:
        topics = self._fitting(seen)
        self._placement.follow(topics)
        for topic in topics.keys() & self._topics.keys():
            if topics[topic] != self._topics[topic]:
                log.warning("partitions of topic %s: %s; before %s", topic, topics[topic], self._topics[topic])
        if topics.keys() != self._topics.keys():
            callbacks = {"on_assign": self._assigned, "on_revoke": self._revoked, "on_lost": self._lost}
            self._consumer.subscribe(sorted(topics), **callbacks)
            log.info("forwarding %s", ", ".join(sorted(topics)))
        self._topics = topics

    def _fitting(self, seen: dict[str, Counts]) -> dict[str, Counts]:
        """A topic that only matched the pattern is left out, and the others are forwarded nevertheless."""
        asked = ((topic, self._placement.refusal(topic, counts)) for topic, counts in sorted(seen.items()))
        refusals = {topic: why for topic, why in asked if why is not None}
        if refusals and (self._route.by_name or seen.keys() == refusals.keys()):
            raise ConfigError("; ".join(refusals.values()))
        for why in refusals.values():
            log.warning("not forwarded: %s", why)
        return {topic: counts for topic, counts in seen.items() if topic not in refusals}

    def _turn(self) -> None:
        self._go_back()
        if self._has_room():
            self._full_since_s = None
            self._pause(False)
            message = self._consumer.poll(IDLE_S)
            if message is not None:  # and whatever else is there: waiting for more would delay the first
                batch = [message, *self._consumer.consume(self._may_follow(), 0)]
                for one in batch:
                    self._forward(one)
                self._record_bytes = max(1, max(map(len, batch)))
            self._producer.poll(0)
        else:
            self._producer.poll(IDLE_S)
            self._wait_for_room(time.monotonic())
        self._account.count()
        self._whatever_is_due(time.monotonic())

    def _may_follow(self) -> int:
        """Records, so that all of them have room if none is larger than those of the last batch."""
        records = self._limits.in_flight_records - self._in_flight
        room_bytes = self._limits.in_flight_bytes - self._in_flight_bytes
        return max(0, min(AT_ONCE, records, room_bytes // self._record_bytes) - 1)

    def _wait_for_room(self, now_s: float) -> None:
        if self._full_since_s is None:
            self._full_since_s = now_s
        elif now_s - self._full_since_s > PATIENCE_S:
            self._pause(True)
            message = self._consumer.poll(0)  # else the group would take us for dead
            if message is not None:  # of a partition that was given to us just now
                self._forward(message)

    def _whatever_is_due(self, now_s: float) -> None:
        if now_s - self._committed_s >= self._limits.commit_every_s:
            self._offsets.commit(self._consumer)
            self._committed_s = now_s
        if now_s - self._told_s >= self._limits.tell_every_s:
            self._tell(self._progress(now_s))
            self._told_s = now_s
        if now_s - self._looked_s >= self._limits.look_every_s:
            self._follow(self._route.look(self._topics))
            self._looked_s = time.monotonic()

    # Records

    def _forward(self, message: Any) -> None:
        if message.error() is not None:
            self._met(message.error())
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if self._again and (topic, partition) in self._again:
            return
        watermark = self._offsets.watermark(topic, partition, offset)
        if watermark is None:  # given back a moment ago: it is its next owner's
            return
        key, value = message.key(), message.value()
        has_timestamp, timestamp_ms = message.timestamp()
        size = len(key or b"") + len(value or b"")
        sent_s = time.time()

        def delivered(error: KafkaError | None, written: Any) -> None:
            self._in_flight -= 1
            self._in_flight_bytes -= size
            if error is not None:
                self._failed(topic, partition, offset, error)
                return
            watermark.acknowledged(offset)
            delay_s = sent_s + written.latency() - timestamp_ms / 1000 if has_timestamp else None
            self._account.add(topic, delay_s)

        target = self._placement.partition(topic, partition, key)
        at_ms = timestamp_ms if has_timestamp else 0
        if skipped := watermark.sent(offset):  # also of a record that is refused at once: it must not be passed over
            self._account.skip(topic, skipped)
        try:
            self._producer.produce(topic, value, key, target, delivered, None, at_ms, message.headers())
        except KafkaException as error:
            self._failed(topic, partition, offset, error.args[0])
            return
        self._in_flight += 1
        self._in_flight_bytes += size

    def _failed(self, topic: str, partition: int, offset: int, error: KafkaError) -> None:
        """Nothing is skipped: nothing from this offset on is committed, and the forwarder ends."""
        if self._failure is None and error.code() not in PURGED:
            self._failure = ForwardingError(
                f"the main cluster does not take {topic}[{partition}] offset {offset}: {error.str()}. Nothing from "
                "there on is committed: mend the cause and start again (if it is too large: raise the topic's "
                "max.message.bytes, or lower --to-client batch.size)"
            )

    def _met(self, error: KafkaError) -> None:
        if error.code() in FOR_GOOD:
            self._failure = ForwardingError(f"the collector cluster cannot be read: {error.str()}")
        else:
            log.warning("the collector cluster: %s", error.str())

    def _has_room(self) -> bool:
        return self._in_flight < self._limits.in_flight_records and self._in_flight_bytes < self._limits.in_flight_bytes

    def _pause(self, pause: bool) -> None:
        if pause:  # always: partitions that were given to us meanwhile are not paused, and those we kept are
            self._consumer.pause(self._consumer.assignment())
        elif self._paused:
            self._consumer.resume(self._consumer.assignment())
        self._paused = pause

    # Partitions come and go

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._offsets.hold(consumer, partitions)
        log.info("partitions given: %s", _listed(partitions))

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """They leave with everything acknowledged and committed, so that the next owner repeats nothing."""
        self._settle(partitions)
        self._let_go(partitions)
        log.info("partitions given back: %s", _listed(partitions))

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Somebody else has them already, and repeats what is not committed."""
        self._let_go(partitions)
        log.warning("partitions lost, for the group did not hear of us: %s", _listed(partitions))

    def _let_go(self, partitions: list[TopicPartition]) -> int:
        """What the client has not sent of these it must not send any more: it would come after, or between, what their
        next owner sends. No client takes back single records, so all are, and partitions that stay are read again. How
        many were taken back."""
        given_up = self._in_flight if self._offsets.waiting(partitions) else 0
        self._offsets.forget(partitions)
        for at in partitions:
            self._again.pop((at.topic, at.partition), None)
        if given_up:
            self._producer.purge()
            until_s = time.monotonic() + PURGED_S
            while self._in_flight and time.monotonic() < until_s:
                self._producer.poll(IDLE_S)
            self._again |= self._offsets.begin_again()
            log.warning("%d records were not sent in time and are left to whoever has their partition", given_up)
        return given_up

    def _go_back(self) -> None:
        for (topic, partition), offset in list(self._again.items()):
            try:
                self._consumer.seek(TopicPartition(topic, partition, offset))
            except KafkaException as error:  # nothing is read of it until it can be
                log.info("%s[%d] cannot be read again yet: %s", topic, partition, error.args[0].str())
            else:
                del self._again[topic, partition]

    def _settle(self, partitions: list[TopicPartition]) -> None:
        until_s = time.monotonic() + self._limits.drain_s
        while self._in_flight and self._offsets.waiting(partitions) and time.monotonic() < until_s:
            self._producer.poll(IDLE_S)
        self._offsets.commit_now(self._consumer, partitions)

    def _end(self) -> int:
        """How many records stay without an answer."""
        held = [TopicPartition(*at) for at in self._offsets.held]
        self._settle(held)
        unanswered = self._let_go(held)  # before others may have them
        self._consumer.close()
        if self._in_flight:
            self._producer.purge()  # else closing would wait for them as long as the main cluster is away
        self._producer.close()
        return unanswered

    def _progress(self, now_s: float) -> Progress:
        waiting, partitions = self._waiting_at_the_source(), len(self._offsets.held)
        IN_FLIGHT.set(self._in_flight)
        WAITING.set(waiting)
        PARTITIONS.set(partitions)
        return self._account.lately(now_s, self._in_flight, waiting, partitions, self._paused)

    def _waiting_at_the_source(self) -> int:
        """From what fetched records say of their partition's end: it asks nobody."""
        waiting = 0
        for at in self._consumer.position([TopicPartition(*at) for at in self._offsets.held]):
            seen = self._consumer.get_watermark_offsets(at, cached=True)
            if seen is not None and at.offset >= 0:
                waiting += max(0, seen[1] - at.offset)
        return waiting


def _listed(partitions: list[TopicPartition]) -> str:
    return ", ".join(f"{at.topic}[{at.partition}]" for at in partitions) or "none"
