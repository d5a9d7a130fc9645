"""Consumers as threads of this process: they share one Spark session, so starting one takes no time."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from headgate.errors import FleetError, HeadgateError

log = logging.getLogger(__name__)


class RunnableConsumer(Protocol):
    def run(self, stop: threading.Event, kill: threading.Event) -> None:
        """Works until `stop`, then finishes its cycle and returns; on `kill` it abandons what it does where it can."""
        ...


@dataclass(slots=True, eq=False)
class _Life:
    thread: threading.Thread
    stop: threading.Event = field(default_factory=threading.Event)
    kill: threading.Event = field(default_factory=threading.Event)
    force_after: float = float("inf")
    """On the monotonic clock: when a stop that was asked for becomes a kill."""

    def end(self) -> None:
        self.kill.set()
        self.stop.set()


class ThreadFleet:
    """A thread cannot be killed, only told so: one that does not listen is abandoned and counts as a zombie, whose
    announcements no longer start at the ledger."""

    def __init__(
        self, make: Callable[[int], RunnableConsumer], stop_deadline_s: float = 30.0, kill_wait_s: float = 5.0
    ) -> None:
        self._make = make
        self._stop_deadline_s = stop_deadline_s
        self._kill_wait_s = kill_wait_s
        self._lives: dict[int, _Life] = {}
        self._last_words: dict[int, str] = {}
        self._abandoned: list[_Life] = []
        self._lock = threading.RLock()

    def start(self, consumer_id: int) -> None:
        with self._lock:
            if consumer_id in self.running():
                return
            self._end(consumer_id)
            self._last_words.pop(consumer_id, None)
            life = _Life(threading.Thread())
            life.thread = threading.Thread(
                target=self._live, args=(consumer_id, life), name=f"consumer-{consumer_id}", daemon=True
            )
            self._lives[consumer_id] = life
            try:
                life.thread.start()
            except RuntimeError as error:
                del self._lives[consumer_id]
                raise FleetError(f"cannot start a thread for consumer {consumer_id}: {error}") from error

    def _live(self, consumer_id: int, life: _Life) -> None:
        try:
            self._make(consumer_id).run(life.stop, life.kill)
        except HeadgateError as error:
            log.error("consumer %d ended: %s", consumer_id, error)
            self._last_words[consumer_id] = str(error)
        except Exception as error:  # user transforms run in here; the controller replaces the consumer
            log.exception("consumer %d ended by an unexpected error", consumer_id)
            self._last_words[consumer_id] = repr(error)

    def stop(self, consumer_id: int, force: bool = False) -> None:
        with self._lock:
            life = self._lives.get(consumer_id)
            if life is None:
                return
            if force:
                self._end(consumer_id)
            elif not life.stop.is_set():
                life.force_after = time.monotonic() + self._stop_deadline_s
                life.stop.set()

    def _end(self, consumer_id: int) -> None:
        life = self._lives.pop(consumer_id, None)
        if life is None:
            return
        life.end()
        life.thread.join(self._kill_wait_s)
        if life.thread.is_alive():
            log.warning("consumer %d does not end %g s after it was told; left behind", consumer_id, self._kill_wait_s)
            self._abandoned.append(life)

    def running(self) -> frozenset[int]:
        with self._lock:
            now = time.monotonic()
            for consumer_id, life in list(self._lives.items()):
                if not life.thread.is_alive():
                    del self._lives[consumer_id]
                elif now > life.force_after:
                    log.warning("consumer %d missed its stop deadline", consumer_id)
                    self._end(consumer_id)
            self._abandoned = [life for life in self._abandoned if life.thread.is_alive()]
            return frozenset(n for n, life in self._lives.items() if not life.stop.is_set())

    def last_words(self, consumer_id: int) -> str:
        return self._last_words.get(consumer_id, "")

    def hand_over(self) -> None:
        """Threads end with their process, so they had better end in order."""
        self.close()

    def close(self, force: bool = False) -> None:
        with self._lock:
            lives = list(self._lives.values())
            for life in lives:
                life.stop.set()
            if force:
                for life in lives:
                    life.kill.set()
            until = time.monotonic() + (self._kill_wait_s if force else self._stop_deadline_s)
            for life in lives:
                life.thread.join(max(0.0, until - time.monotonic()))
            for consumer_id in list(self._lives):
                self._end(consumer_id)
