"""How many records a second one replica works off: as configured, or as it is measured (E-3)."""

from headgate.model import Observation
from headgate.policies.seen import capacity, check_above_zero

PUBLISHED_PER_S = 200.0
"""E-2."""
NOISE = 0.1
"""A belief changes only if what is measured is off by more than this share of it."""
UNKNOWN = "no consumer has measured its capacity yet; or set capacity_records_per_s"


class ReplicaCapacity:
    """For policies that size by it: groups must not grow and shrink with the noise of a measurement.

    Configured in records it is that; without (None), what consumers measure, and until one has what is configured in
    bytes, of records as they come now. What was measured holds on when those who measured it are gone.
    """

    def __init__(self, records_per_s: float | None, bytes_per_s: float | None = None) -> None:
        if records_per_s is not None:
            check_above_zero(capacity_records_per_s=records_per_s)
        self._configured = records_per_s
        self._bytes_per_s = bytes_per_s
        self._was_measured = False
        self.per_s = records_per_s or 0.0
        """0 until it is known."""

    def look(self, seen: Observation) -> bool:
        """Whether it is known, with this observation or from earlier ones."""
        measured = capacity(seen, self._configured)
        self._was_measured |= measured is not None
        now = measured if self._was_measured else capacity(seen, None, self._bytes_per_s)
        if now is not None and abs(now - self.per_s) > NOISE * self.per_s:
            self.per_s = now
        return self.per_s > 0
