"""confluent-kafka's producer with a partitioner of ours: it chooses the partition, everything else is unchanged."""

import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import length_hint
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from headgate.errors import ConfigError
from headgate.producers.choices import Choices, give_back
from headgate.producers.client_default import UNASSIGNED
from headgate.producers.live import Follower
from headgate.producers.protocol import ClusterView, Listening, Partitioner
from headgate.producers.registry import DEFAULT, build_partitioner

OnDelivery = Callable[[Any, Any], None]

REFRESH_S = 1.0
ANSWER_S = 5.0
FULL_S = 0.05
"""How long to wait for a report when the queue is full, before another try."""

_produce = Producer.produce


class BalancedProducer(Producer):
    """Use it like `confluent_kafka.Producer`: delivery reports, flush, poll, transactions and errors are its own.

    >>> producer = BalancedProducer({"bootstrap.servers": "kafka-1:9092"}, partitioner="node")  # doctest: +SKIP
    >>> producer.produce("orders", b"...", on_delivery=report)  # doctest: +SKIP

    Producers that are given one partitioner object share what it knows. Who leads what is asked in the background,
    every `refresh_s` and whenever the client meets an error. The first record for a topic waits for that answer, at
    most `answer_s`; while nobody knows a topic, the client chooses. A record with a partition keeps it.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        /,
        *,
        partitioner: str | Partitioner = DEFAULT,
        refresh_s: float = REFRESH_S,
        answer_s: float = ANSWER_S,
        **others: Any,
    ) -> None:
        if not refresh_s > 0 or not answer_s > 0:
            raise ConfigError(f"refresh_s and answer_s must be above 0, not {refresh_s} and {answer_s}")
        chosen = build_partitioner(partitioner) if isinstance(partitioner, str) else partitioner
        self._choices = choices = Choices(chosen)
        self._follower = follower = Follower(weakref.ref(self), choices.follow, refresh_s, answer_s)
        self._hears: Callable[[OnDelivery | None], OnDelivery] | None = None
        settings = dict(config)
        if isinstance(chosen, Listening):
            _check_reports(settings)
            self._hears = _hearing(chosen, choices)
        # None for a record's callback would switch off the one in the settings, so that is handed in for every record.
        self._reported: OnDelivery | None = settings.get("on_delivery") or settings.get("dr_cb")
        settings["error_cb"] = _looking(settings.get("error_cb"), follower)
        super().__init__(settings, **others)

    @property
    def view(self) -> ClusterView | None:
        """Who leads the topics in use, as last heard."""
        return self._choices.view

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = UNASSIGNED,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        next_of = self._choices.next_of
        choice = next_of.get(topic)
        reported = callback or on_delivery or self._reported
        if choice is None or key is not None or partition >= 0 or headers is not None or timestamp:
            self._produce_with_care(topic, value, key, partition, reported, timestamp, headers)
            return
        partition = choice()
        try:
            _produce(self, topic, value, None, partition, reported)
        except BufferError:
            give_back(next_of, topic, partition)
            raise
        except KafkaException:
            self._follower.look()  # the topic may have been made anew with fewer partitions
            raise

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = UNASSIGNED,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> int:
        """One call of the client for each partition: it takes no notice of partitions inside a batch. What it did not
        take has its reason in `_error`, and can be handed in again."""
        reported = callback or on_delivery or self._reported
        batches: dict[int, list[dict[str, Any]]] = {}
        placed: list[tuple[int, dict[str, Any], dict[str, Any]]] = []
        for message in messages:
            message.pop("_error", None)  # of an earlier try: the client would leave it there
            where, handed = message.get("partition", partition), message
            if where == UNASSIGNED:
                where, own = self._placed(topic, message.get("key"), message.get("value"))
                if own and self._hears is not None:
                    handed = {**message, "callback": self._hears(message.get("callback") or reported)}
                if own:
                    placed.append((where, message, handed))
            batches.setdefault(where, []).append(handed)
        plain = super().produce_batch
        taken = sum(plain(topic, batch, where, on_delivery=reported) for where, batch in batches.items())
        for where, message, handed in reversed(placed):  # so that turns are given back in their order
            if "_error" in handed:
                message["_error"] = handed["_error"]
                full = handed["_error"].code() == KafkaError._QUEUE_FULL
                self._refused(full, topic, message.get("key"), message.get("value"), where)
        return taken

    def produce_all(self, topic: str, values: Sequence[str | bytes], on_delivery: OnDelivery | None = None) -> None:
        """One record without a key for each value, in order, without a line of Python for each. Where `produce` would
        raise BufferError it waits, and serves delivery reports meanwhile."""
        reported = on_delivery or self._reported
        self._follower.include(topic)
        ahead = self._choices.ahead(topic, len(values))
        produce = super().produce if ahead is not None else self.produce
        partitions = ahead if ahead is not None else [UNASSIGNED] * len(values)
        records, done = list(values), 0
        while done < len(records):
            handed = iter(records[done:])  # a list's iterator knows how much is left, which not every sequence's does
            try:
                _exhaust(map(produce, repeat(topic), handed, repeat(None), partitions[done:], repeat(reported)))
                return
            except BufferError:
                done = len(records) - length_hint(handed) - 1  # the one that was refused is next
                self.poll(FULL_S)

    def close(self, *args: Any) -> Any:
        self._follower.end()
        return super().close(*args)

    def _produce_with_care(
        self,
        topic: str,
        value: str | bytes | None,
        key: str | bytes | None,
        partition: int,
        reported: OnDelivery | None,
        timestamp: int,
        headers: Any,
    ) -> None:
        """A first record, one with a key, a partition or headers, a partitioner that looks at records or listens."""
        own = False
        if partition == UNASSIGNED:
            partition, own = self._placed(topic, key, value)
        heard = self._hears(reported) if own and self._hears is not None else reported
        try:
            _produce(self, topic, value, key, partition, heard, None, timestamp, headers)
        except (BufferError, KafkaException) as error:
            if own:
                self._refused(isinstance(error, BufferError), topic, key, value, partition)
            raise

    def _refused(
        self, full: bool, topic: str, key: str | bytes | None, value: str | bytes | None, partition: int
    ) -> None:
        """The client did not take a record that the partitioner had placed. Its turn goes back to where it came from,
        but only if there was no room: a partition that is no more would be refused again and again."""
        if not full:
            self._choices.given_up(topic, partition)
            self._follower.look()  # the topic may have been made anew with fewer partitions
        elif key is None and topic in self._choices.next_of:
            give_back(self._choices.next_of, topic, partition)
        else:
            self._choices.found_no_room(topic, as_bytes(key), as_bytes(value), partition)

    def _placed(self, topic: str, key: str | bytes | None, value: str | bytes | None) -> tuple[int, bool]:
        """The partition, and whether the partitioner chose it."""
        self._follower.include(topic)
        choice = self._choices.next_of.get(topic)
        if key is None and choice is not None:
            return choice(), True
        chosen = self._choices.chosen(topic, as_bytes(key), as_bytes(value))
        return (UNASSIGNED, False) if chosen is None else (chosen, True)


def _exhaust(calls: Iterator[None]) -> None:
    deque(calls, maxlen=0)


def as_bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _hearing(partitioner: Listening, choices: Choices) -> Callable[[OnDelivery | None], OnDelivery]:
    """Lets the partitioner hear each acknowledgement before the user does."""

    def hears(user: OnDelivery | None) -> OnDelivery:
        def delivered(error: Any, message: Any) -> None:
            view = choices.view
            if view is not None:
                latency_s = None if error is not None else message.latency()
                partitioner.acknowledged(message.topic(), message.partition(), latency_s, view)
            if user is not None:
                user(error, message)

        return delivered

    return hears


def _check_reports(settings: Mapping[str, Any]) -> None:
    if str(settings.get("delivery.report.only.error", False)).lower() == "true":
        raise ConfigError(
            "this partitioner learns from acknowledgements, and delivery.report.only.error keeps them away: "
            "remove that setting, or use node or sqf"
        )


def _looking(user: Callable[[Any], object] | None, follower: Follower) -> Callable[[Any], None]:
    """A client that meets an error, such as a broker that went away, is a reason to ask who leads now."""

    def met(error: Any) -> None:
        follower.look()
        if user is not None:
            user(error)

    return met
