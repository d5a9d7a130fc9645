"""A KafkaConsumer whose placement follows a Headgate controller; everything else is kafka-python's own.

consumer = PlannedConsumer("payments", controller="http://10.0.0.5:8787", group_id="pay", bootstrap_servers=...)
for record in consumer:
    ...
"""

import inspect
import logging
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer
from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener, ConsumerRebalanceListener

from headgate.errors import ConfigError
from headgate.fleet.processes import MARK
from headgate.groups.assignor import PlannedAssignor
from headgate.groups.wire import Beat, BeatAnswer, ControllerUnreachable, Line

log = logging.getLogger(__name__)


def own_handle() -> int | None:
    """Which of a fleet's consumers this process is; None if no fleet started it."""
    name = Path(os.environ.get(MARK, "")).name
    return int(name) if name.isdigit() else None


class _Pauses(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """Times each rebalance from revoked to assigned, around the user's own listener (E-29)."""

    def __init__(self, inner: Any, finished: Any) -> None:
        self._inner, self._finished = inner, finished
        self._since_s: float | None = None

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self._begin(revoked)
        await self._pass_on("on_partitions_revoked", revoked)

    async def on_partitions_lost(self, lost: Any) -> None:
        self._begin(lost)
        await self._pass_on("on_partitions_lost", lost)

    async def on_partitions_assigned(self, assigned: Any) -> None:
        await self._pass_on("on_partitions_assigned", assigned)
        since_s, self._since_s = self._since_s, None
        self._finished(None if since_s is None else time.monotonic() - since_s)

    def _begin(self, partitions: Any) -> None:
        if partitions:  # who owned nothing did not pause
            self._since_s = time.monotonic()

    async def _pass_on(self, method: str, partitions: Any) -> None:
        if self._inner is not None:
            result = getattr(self._inner, method)(partitions)
            if inspect.isawaitable(result):
                await result


class PlannedConsumer(KafkaConsumer):  # type: ignore[misc]  # kafka-python has no types
    """A member of a group that Headgate plans.

    `controller` is the address that `headgate group run` prints; all else is KafkaConsumer's. Strategies given in
    `partition_assignment_strategy` are offered after ours, which lets a running group change over member by member.
    """

    def __init__(
        self,
        *topics: str,
        controller: str,
        listener: Any = None,
        beat_s: float = 0.5,
        timeout_s: float = 1.0,
        **configs: Any,
    ) -> None:
        if not configs.get("group_id"):
            raise ConfigError("PlannedConsumer needs group_id: without a group there is nothing to plan")
        if not beat_s > 0:
            raise ConfigError(f"beat_s must be above 0, not {beat_s:g}")
        self._handle = own_handle()
        self._assignor = PlannedAssignor(controller, configs["group_id"], self._handle, timeout_s)
        self._line, self._beat_s = Line(controller, timeout_s), beat_s
        self._news, self._ended = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._pauses_s: list[float] = []
        self._records, self._busy_s = 0, 0.0
        self._batch, self._batch_s = 0, 0.0
        others = configs.pop("partition_assignment_strategy", ())
        super().__init__(partition_assignment_strategy=[self._assignor, *others], **configs)
        if topics:
            self.subscribe(topics, listener=listener)
        self._beating = threading.Thread(target=self._beats, name="headgate-beats", daemon=True)
        self._beating.start()

    @property
    def fallbacks(self) -> int:
        """Assignments this member made, as leader, without the controller."""
        return self._assignor.fallbacks

    def subscribe(self, topics: Iterable[str] = (), pattern: str | None = None, listener: Any = None) -> Any:
        if not isinstance(listener, ConsumerRebalanceListener | AsyncConsumerRebalanceListener | None):
            raise TypeError("listener must be a ConsumerRebalanceListener or AsyncConsumerRebalanceListener")
        wanted = list(topics)
        subscribed = super().subscribe(topics=wanted, pattern=pattern, listener=_Pauses(listener, self._rebalanced))
        for topic in wanted:  # a leader that does not know a topic yet assigns nothing of it, and all join once more
            self.partitions_for_topic(topic)
        return subscribed

    def poll(self, *args: Any, **kwargs: Any) -> Any:
        self._worked()
        found = super().poll(*args, **kwargs)
        self._batch, self._batch_s = sum(map(len, found.values())), time.monotonic()
        return found

    def close(self, *args: Any, **kwargs: Any) -> None:
        self._ended.set()
        self._news.set()
        super().close(*args, **kwargs)

    def _worked(self) -> None:
        """E-3: whoever asks for more has worked off what it got."""
        with self._lock:
            if self._batch > self._records:
                self._records, self._busy_s = self._batch, time.monotonic() - self._batch_s
        self._batch = 0

    def _rebalanced(self, pause_s: float | None) -> None:
        with self._lock:
            if pause_s is not None:
                self._pauses_s = [*self._pauses_s[-99:], pause_s]
        self._news.set()

    def _beats(self) -> None:
        unheard = False
        while not self._ended.is_set():
            self._news.wait(self._beat_s)
            self._news.clear()
            try:
                self._beat()
                unheard = False
            except ControllerUnreachable as error:
                if not unheard:
                    log.warning("group %s: %s; reading goes on", self.config["group_id"], error)
                unheard = True
                self._ended.wait(self._beat_s)

    def _beat(self) -> None:
        now = self.group_metadata()
        if not now.member_id or self._ended.is_set():
            return
        with self._lock:
            pauses_s, self._pauses_s = self._pauses_s, []
            records, self._records = self._records, 0
            busy_s, self._busy_s = self._busy_s, 0.0
        beat = Beat(
            now.group_id,
            now.member_id,
            now.generation_id,
            self._handle,
            self.config["heartbeat_interval_ms"] / 1000,
            pauses_s,
            records,
            busy_s,
            self._assignor.fallbacks,
        )
        try:
            answer = self._line.ask("/v1/beat", beat, BeatAnswer)
        except ControllerUnreachable:
            with self._lock:  # told another time
                self._pauses_s = [*pauses_s, *self._pauses_s][-100:]
            raise
        if answer.rejoin and self.group_metadata().generation_id == beat.generation:
            log.debug("group %s: joining again for a new plan", beat.group)
            self._coordinator.request_rejoin()  # kafka-python has no enforce_rebalance; its own heartbeats do this
