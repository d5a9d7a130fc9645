"""A producer for a collector cluster that is not cut off when that is lost: it turns to the main cluster (B-44)."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from operator import itemgetter
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from headgate.errors import ConfigError
from headgate.producers.confluent import FULL_S, BalancedProducer
from headgate.producers.protocol import Partitioner
from headgate.producers.registry import DEFAULT

log = logging.getLogger(__name__)

OnDelivery = Callable[[Any, Any], None]

UNANSWERED = (KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
"""Of records that the collector did not acknowledge in time; other errors the main cluster would have, too."""
ANSWER_S = 5.0


class FallbackProducer:
    """Writes to the collector while it acknowledges within `lost_after_s`, else straight to the main cluster; asks
    every `again_s` whether the collector is back, and then writes to it again.

    What the collector has not acknowledged goes to the main cluster, in order. The collector may have it nevertheless:
    then it arrives twice. What it did acknowledge is forwarded when it is back, after what was written directly.
    `on_delivery` is called once for a record, by `poll` or `flush`, with the answer that counts.
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
        self._collector = BalancedProducer({**patience, **collector})
        self._main = BalancedProducer(main, partitioner=partitioner)
        self._again_s = again_s
        self._direct = False
        self._back, self._closed = threading.Event(), threading.Event()
        self._numbers = count()
        self._returned: list[tuple[int, Callable[[], None]]] = []
        """What the collector did not acknowledge, with its place in the order of all records."""

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
        if self._direct and self._back.is_set():
            log.info("the collector answers again, so records are written to it")
            self._direct = False
        if self._direct:
            while len(self._collector):  # older records first
                self._collector.poll(FULL_S)
            self._send_returned()
            self._main.produce(topic, value, key, on_delivery=on_delivery, timestamp=timestamp, headers=headers)
            return
        number, at_ms = next(self._numbers), timestamp or round(1000 * time.time())  # it keeps its time and its turn

        def answered(error: Any, message: Any) -> None:
            if error is not None and error.code() in UNANSWERED:
                others = {"on_delivery": on_delivery, "timestamp": at_ms, "headers": headers}
                self._returned.append((number, partial(self._main.produce, topic, value, key, **others)))
                self._go_direct(error)
            elif on_delivery is not None:
                on_delivery(error, message)

        self._collector.produce(topic, value, key, on_delivery=answered, timestamp=at_ms, headers=headers)

    def poll(self, timeout_s: float = 0) -> int:
        """As confluent-kafka's: how many reports were served."""
        first, second = (self._main, self._collector) if self._direct else (self._collector, self._main)
        served = int(first.poll(timeout_s)) + int(second.poll(0))
        self._send_returned()
        return served

    def flush(self, timeout_s: float) -> int:
        """How many records are still without an answer."""
        until_s = time.monotonic() + timeout_s
        self._collector.flush(timeout_s)
        self._send_returned()
        self._main.flush(max(0.0, until_s - time.monotonic()))
        return len(self._collector) + len(self._returned) + len(self._main)

    def close(self) -> None:
        """What the collector has not acknowledged by now goes to the main cluster."""
        self._closed.set()
        self._collector.purge()
        while len(self._collector):
            self._collector.poll(FULL_S)
        self._send_returned()
        self._collector.close()
        self._main.close()

    def _go_direct(self, error: Any) -> None:
        if self._direct:
            return
        log.warning("the collector did not acknowledge in time (%s): writing to the main cluster", error.str())
        self._direct = True
        self._back.clear()
        self._collector.purge()  # what waits for the collector fails now, too
        threading.Thread(target=self._watch, name="headgate-collector", daemon=True).start()

    def _send_returned(self) -> None:
        """Once all that failed is known, for what was in flight may fail after what was not."""
        if not self._returned or len(self._collector):
            return
        returned, self._returned = sorted(self._returned, key=itemgetter(0)), []
        for _, produce in returned:
            while True:
                try:
                    produce()
                    break
                except BufferError:
                    self._main.poll(FULL_S)

    def _watch(self) -> None:
        while not self._closed.wait(self._again_s):
            try:
                self._collector.list_topics(timeout=ANSWER_S)
            except (KafkaException, RuntimeError):  # still away, or closed meanwhile
                continue
            self._back.set()
            return
