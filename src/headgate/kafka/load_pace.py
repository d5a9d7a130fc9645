"""When a load generator writes: in real time, or as fast as the brokers take it. What it writes is the same."""

import threading
import time
from math import floor, inf
from typing import Protocol

from headgate.simulation.workload import Workload, volumes


class Pace(Protocol):
    """When records are written. What is written does not depend on it."""

    def slice_s(self, workload: Workload, end_s: float) -> float:
        """The workload is cut into slices of this length, each written at its end."""
        ...

    def begin(self) -> None: ...

    def wait_until(self, t_s: float, stop: threading.Event) -> float:
        """Returns when the slice ending at `t_s` is due or `stop` is set: how many seconds too late that is."""
        ...


class RealTime:
    """Workload seconds are real seconds; a generator that falls behind catches up as fast as it can."""

    _SLICE_S = 0.02

    def __init__(self) -> None:
        self._begun_s = time.monotonic()

    def slice_s(self, workload: Workload, end_s: float) -> float:
        return self._SLICE_S

    def begin(self) -> None:
        self._begun_s = time.monotonic()

    def wait_until(self, t_s: float, stop: threading.Event) -> float:
        ahead_s = self._begun_s + t_s - time.monotonic()
        if ahead_s > 0:
            stop.wait(ahead_s)
        return max(0.0, -ahead_s)


class NoWaiting:
    """The same records as in real time, as fast as the brokers take them."""

    _SLICE_BYTES = 1 << 18

    def slice_s(self, workload: Workload, end_s: float) -> float:
        if end_s == inf:
            raise ValueError("without waiting a load needs an end: give a duration or a count")
        total_bytes = sum(volumes(workload, 0.0, end_s).values())
        return end_s / max(1, floor(total_bytes / self._SLICE_BYTES))

    def begin(self) -> None:
        """Nothing to remember."""

    def wait_until(self, t_s: float, stop: threading.Event) -> float:
        return 0.0
