"""Ctrl-C and SIGTERM for commands that take their time to stop: the first asks, the second ends the program at once."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

ENDED_AT_ONCE = 130


class Interrupts:
    """Within its block. `leave` is done before the program ends at once; nothing else is waited for."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self.stop = threading.Event()
        """Set by the first one."""
        self._leave = leave
        self._raises = False

    def __enter__(self) -> "Interrupts":
        self._before = {number: signal.signal(number, self._heard) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def raised(self) -> Iterator[None]:
        """For what does not look at `stop` and cleans up after a KeyboardInterrupt: the first one is raised in it."""
        self._raises = True
        try:
            if self.stop.is_set():
                raise KeyboardInterrupt
            yield
        finally:
            self._raises = False

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.stop.is_set():
            try:
                self._leave()
            finally:
                os._exit(ENDED_AT_ONCE)
        self.stop.set()
        if self._raises:
            raise KeyboardInterrupt
