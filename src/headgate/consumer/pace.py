"""How fast a consumer is, and how long it leaves a table alone that gives it trouble."""

import math
import time
from dataclasses import dataclass


@dataclass
class Pace:
    """Throughput, busy share and capacity, smoothed over the last cycles."""

    cap_bytes_per_s: float = math.inf
    """What the consumer is allowed; it can do no more than that, however short its cycles are."""
    throughput_bytes_per_s: float = 0.0
    busy_share: float = 0.0
    capacity_bytes_per_s: float = 0.0
    """0 until it is known."""
    _is_warm: bool = False

    def add(self, payload_bytes: int, busy_s: float, total_s: float, peak: bool) -> None:
        weight = 1 - math.exp(-total_s / 10)
        self.throughput_bytes_per_s += weight * (payload_bytes / max(total_s, 1e-6) - self.throughput_bytes_per_s)
        self.busy_share += weight * (busy_s / max(total_s, 1e-6) - self.busy_share)
        if not peak or busy_s <= 0:  # only a full batch shows what the consumer can do (L-26)
            return
        if not self._is_warm:  # and not the first one: Spark loads and compiles its code in it
            self._is_warm = True
            return
        measured = min(payload_bytes / busy_s, self.cap_bytes_per_s)
        known = self.capacity_bytes_per_s
        self.capacity_bytes_per_s = measured if known == 0 else known + 0.3 * (measured - known)


class Patience:
    """Tables that fail or are refused are left alone for a while, longer each time; the others go on meanwhile."""

    def __init__(self) -> None:
        self._troubles: dict[str, tuple[str, int, float]] = {}

    def failed(self, table: str, error: str, most_s: float) -> None:
        times = self._troubles.get(table, ("", 0, 0.0))[1] + 1
        self._troubles[table] = (error, times, time.monotonic() + min(most_s, 0.2 * 2 ** min(times, 20)))

    def fine(self, table: str) -> None:
        self._troubles.pop(table, None)

    def in_flight(self, table: str, most: int) -> int:
        """How many announcements may be without a verdict now: in trouble one at a time, and none while it waits."""
        if table not in self._troubles:
            return most
        return 1 if time.monotonic() >= self._troubles[table][2] else 0

    @property
    def errors(self) -> list[str]:
        return [f"{table}: {error}" for table, (error, _, _) in sorted(self._troubles.items())]
