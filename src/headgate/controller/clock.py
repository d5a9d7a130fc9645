"""The live clock: wall time that never goes back, and waits that a stop request ends."""

import threading
import time


class SystemClock:
    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._latest_s = 0.0

    def now_s(self) -> float:
        # Not the monotonic clock: that stands still while a machine sleeps, and everything others say would then
        # come from the future.
        self._latest_s = max(self._latest_s, time.time())
        return self._latest_s

    def wait(self, seconds: float) -> None:
        self._stop.wait(seconds)
