"""How fast a consumer is, and how long it leaves a table alone that gives it trouble."""

import math
import time

from headgate.model.capacity import CapacityMeter, Estimate


class Pace:
    """Throughput and busy share, smoothed over the last cycles, and capacity as the chosen estimate has it."""

    def __init__(self, estimate: Estimate = "mean", cap_bytes_per_s: float = math.inf) -> None:
        """With a cap the consumer can do no more than that, however short its cycles are."""
        self.throughput_bytes_per_s = 0.0
        self.busy_share = 0.0
        self._cap_bytes_per_s = cap_bytes_per_s
        self._capacity = CapacityMeter(estimate)
        self._is_warm = False
        self._estimate = estimate
        self.full_cycles = 0
        """How many have told of a mean; others are not compared, one outlier would make a consumer slow for long."""

    @property
    def capacity_bytes_per_s(self) -> float:
        """0 while it is not known."""
        return min(self._capacity.per_s or 0.0, self._cap_bytes_per_s)

    def add(self, payload_bytes: int, busy_s: float, total_s: float, peak: bool) -> None:
        weight = 1 - math.exp(-total_s / 10)
        self.throughput_bytes_per_s += weight * (payload_bytes / max(total_s, 1e-6) - self.throughput_bytes_per_s)
        self.busy_share += weight * (busy_s / max(total_s, 1e-6) - self.busy_share)
        if not peak:  # only a full batch shows what the consumer can do (L-26)
            return
        if self._is_warm:  # and not the first one: Spark loads and compiles its code in it
            self._capacity.add(payload_bytes, busy_s)
            self.full_cycles += self._estimate == "mean"
        self._is_warm = True


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
