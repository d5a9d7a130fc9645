"""A producer for a collector cluster that is not cut off when that is lost: it turns to the main cluster (B-44)."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from operator import itemgetter
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from headgate.errors import ConfigError
from headgate.producers.confluent import BalancedProducer, as_bytes
from headgate.producers.nodes import refuse_key
from headgate.producers.protocol import KeyBlind, Partitioner
from headgate.producers.registry import DEFAULT, build_partitioner

log = logging.getLogger(__name__)

OnDelivery = Callable[[Any, Any], None]

UNANSWERED = (KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
TRY_AGAIN = (
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.KAFKA_STORAGE_ERROR,
)
"""A client with `retries=0` reports these instead of trying again."""
ANSWER_S = 5.0
CLOSE_S = 30.0
PURGED_S = 5.0
"""A client reports what it gives up within this time."""
HELD = 100_000
"""So many records may wait for their turn at the main cluster, as many as the client's own queue holds."""


@dataclass(frozen=True, slots=True)
class _Record:
    topic: str
    value: str | bytes | None
    key: str | bytes | None
    on_delivery: OnDelivery | None
    timestamp_ms: int
    headers: Any

    def write(self, producer: BalancedProducer, on_delivery: OnDelivery | None) -> None:
        others = {"on_delivery": on_delivery, "timestamp": self.timestamp_ms, "headers": self.headers}
        producer.produce(self.topic, self.value, self.key, **others)

    def refused(self, error: KafkaError) -> None:
        """By a client at once, when nobody waits for its answer any more."""
        log.error("the main cluster's client does not take a record of topic %s: %s", self.topic, error.str())
        if self.on_delivery is not None:
            value, key = as_bytes(self.value), as_bytes(self.key)
            self.on_delivery(error, Message(topic=self.topic, value=value, key=key, error=error))


def unacknowledged(error: KafkaError) -> bool:
    """Whether the main cluster might take what the collector did not; other errors it would have, too."""
    return error.code() in UNANSWERED or error.code() in TRY_AGAIN


class FallbackProducer:
    """Writes to the collector while it acknowledges within `lost_after_s`, else straight to the main cluster; asks
    every `again_s` whether the collector is back, and then writes to it again.

    What the collector has not acknowledged goes to the main cluster, in order. The collector may have it nevertheless:
    then it arrives twice. What it did acknowledge is forwarded when it is back, after what was written directly.
    `on_delivery` is called once for a record, by `poll` or `flush`, with the answer that counts. Several threads may
    share it.
    """

    def __init__(
        self,
        collector: Mapping[str, Any],
        main: Mapping[str, Any],
        *,
        partitioner: str | Partitioner = DEFAULT,
        lost_after_s: float = 10.0,
        again_s: float = 30.0,
    ) -> None:
        """`partitioner` is for what is written directly."""
        if not lost_after_s > 0 or not again_s > 0:
            raise ConfigError(f"lost_after_s and again_s must be above 0, not {lost_after_s} and {again_s}")
        patience = {"message.timeout.ms": round(1000 * lost_after_s), "linger.ms": min(5, 500 * lost_after_s)}
        chosen = build_partitioner(partitioner) if isinstance(partitioner, str) else partitioner
        self._takes_keys = not isinstance(chosen, KeyBlind) or chosen.allow_keys
        self._collector = BalancedProducer({**patience, **collector})
        self._main = BalancedProducer(main, partitioner=chosen)
        self._again_s = again_s
        self._back, self._closed = threading.Event(), threading.Event()
        self._numbers = count()
        self._lock = threading.Lock()
        """For what follows. Never held while reports are served: those take it."""
        self._direct = False
        self._at_collector = 0
        """Records without the collector's answer."""
        self._waiting: list[tuple[int, _Record]] = []
        """What goes to the main cluster, once the collector has answered for everything: a heap, for what was in flight
        may come back after what was not. The number is a record's place in the order of all."""

    @property
    def direct(self) -> bool:
        """Whether records are written straight to the main cluster."""
        return self._direct

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """BufferError if the client's queue is full, as ever: poll, and try again."""
        if key is not None and not self._takes_keys:  # now, and not when the collector is lost
            raise refuse_key(topic)
        at_ms = timestamp or round(1000 * time.time())  # it keeps its time, whichever way it goes
        record = _Record(topic, value, key, on_delivery, at_ms, headers)
        self._send_waiting()
        with self._lock:
            older = self._at_collector or self._waiting
            if self._direct and self._back.is_set() and not older:
                log.info("the collector answers again, so records are written to it")
                self._direct = False
            if not self._direct:
                self._to_collector(record)
            elif not older:
                record.write(self._main, on_delivery)
            elif len(self._waiting) < HELD:
                heappush(self._waiting, (next(self._numbers), record))
            else:
                raise BufferError("too many records wait for the main cluster: poll, and try again")

    def poll(self, timeout_s: float = 0) -> int:
        """As confluent-kafka's: how many reports were served."""
        first, second = (self._main, self._collector) if self._direct else (self._collector, self._main)
        served = int(first.poll(timeout_s)) + int(second.poll(0))
        self._send_waiting()
        return served

    def flush(self, timeout_s: float) -> int:
        """How many records are still without an answer."""
        until_s = time.monotonic() + timeout_s
        while True:
            self._collector.flush(max(0.0, until_s - time.monotonic()))
            self._send_waiting()
            self._main.flush(max(0.0, until_s - time.monotonic()))
            unanswered = self._at_collector + len(self._waiting) + len(self._main)
            if not unanswered or time.monotonic() >= until_s:
                return unanswered

    def close(self, timeout_s: float = CLOSE_S) -> int:
        """What the collector has not acknowledged by now goes to the main cluster. What that has not acknowledged in
        time either is reported as not delivered; how many records those were."""
        self._closed.set()
        self._collector.purge()
        unanswered = self.flush(timeout_s)
        if unanswered:
            self._give_up()
        self._collector.close()
        self._main.close()
        return unanswered

    def _give_up(self) -> None:
        """Closing would wait for what the clients still hold as long as their clusters are away."""
        for client in (self._collector, self._main):
            client.purge()
            client.flush(PURGED_S)
        with self._lock:
            waiting, self._waiting = sorted(self._waiting, key=itemgetter(0)), []
        unsent = KafkaError(KafkaError._PURGE_QUEUE, "closed before it was sent")
        _report([(record, unsent) for _, record in waiting])

    def _to_collector(self, record: _Record) -> None:
        number = next(self._numbers)

        def answered(error: Any, message: Any) -> None:
            lost = error is not None and unacknowledged(error)
            with self._lock:
                self._at_collector -= 1
                if lost:
                    heappush(self._waiting, (number, record))
                    self._go_direct(error)
            if not lost and record.on_delivery is not None:
                record.on_delivery(error, message)

        record.write(self._collector, answered)
        self._at_collector += 1

    def _go_direct(self, error: Any) -> None:
        if self._direct:
            return
        log.warning("the collector did not acknowledge in time (%s): writing to the main cluster", error.str())
        self._direct = True
        self._back.clear()
        self._collector.purge()  # what waits for the collector fails now, too
        threading.Thread(target=self._watch, name="headgate-collector", daemon=True).start()

    def _send_waiting(self) -> None:
        """In order, so not before the collector has answered for everything. What does not fit waits on."""
        if not self._waiting:
            return
        refused: list[tuple[_Record, KafkaError]] = []
        try:
            with self._lock:
                while self._waiting and not self._at_collector:
                    _, record = self._waiting[0]
                    try:
                        record.write(self._main, record.on_delivery)
                    except BufferError:
                        break
                    except KafkaException as error:
                        refused.append((record, error.args[0]))
                    except Exception as error:
                        log.exception("the main cluster's partitioner failed at a record of topic %s", record.topic)
                        refused.append((record, KafkaError(KafkaError._APPLICATION, repr(error))))
                    heappop(self._waiting)
        finally:
            _report(refused)

    def _watch(self) -> None:
        while not self._closed.wait(self._again_s):
            try:
                self._collector.list_topics(timeout=ANSWER_S)
            except (KafkaException, RuntimeError):  # still away, or closed meanwhile
                continue
            self._back.set()
            return


def _report(refused: Sequence[tuple[_Record, KafkaError]]) -> None:
    """In order, and each whatever the others' reports do."""
    with ExitStack() as reports:
        for record, reason in reversed(refused):
            reports.callback(record.refused, reason)
