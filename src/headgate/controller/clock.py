"""The live clock: wall time that never goes back, and waits that a stop request ends."""

import threading
import time


class SystemClock:
    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._offset_s = time.time() - time.monotonic()

    def now_s(self) -> float:
        return self._offset_s + time.monotonic()

    def wait(self, seconds: float) -> None:
        self._stop.wait(seconds)
