"""How many records a second one replica works off: as configured, or as it is measured (E-3)."""

from dataclasses import dataclass

from headgate.model import Observation
from headgate.policies.believing import FORGET_S
from headgate.policies.seen import check_above_zero, records_per_byte, slowest_usual

PUBLISHED_PER_S = 200.0
"""E-2."""
NOISE = 0.1
"""A belief changes only if what is measured is off by more than this share of it."""
UNKNOWN = "no consumer has measured its capacity yet; or set capacity_records_per_s"


@dataclass(frozen=True, slots=True)
class _Measured:
    records_per_s: float
    bytes_per_s: float | None
    at_s: float

    def of_mix(self, records_per_byte: float | None) -> float:
        """Bytes are what limits a consumer: of smaller records it does more."""
        if records_per_byte is None or self.bytes_per_s is None:
            return self.records_per_s
        return self.bytes_per_s * records_per_byte


class LastMeasured:
    """What one consumer does, also while those who measured it are being replaced.

    Configured in records it is that. Without (None), what consumers measure; for FORGET_S after the last of them went,
    or had no full cycle for long, what they measured, of records as they come now; before and after that, what is
    configured in bytes. Where no records come that would tell how large they are, what was measured last holds on.
    """

    def __init__(self, records_per_s: float | None, bytes_per_s: float | None) -> None:
        if records_per_s is not None:
            check_above_zero(capacity_records_per_s=records_per_s)
        self._configured = records_per_s
        self._bytes_per_s = bytes_per_s
        self._last: _Measured | None = None

    def look(self, seen: Observation) -> float | None:
        """None where nothing is known."""
        if self._configured is not None:
            return self._configured
        slowest, mix = slowest_usual(seen), records_per_byte(seen)
        crowding = seen.abilities.crowding  # what consumers take from each other is no measure of one either (L-26)
        if slowest is not None and slowest.capacity_records_per_s:
            in_bytes = slowest.capacity_bytes_per_s
            records_per_s = slowest.capacity_records_per_s * crowding
            self._last = _Measured(records_per_s, None if in_bytes is None else in_bytes * crowding, seen.at_s)
            return records_per_s
        if self._last is not None and abs(seen.at_s - self._last.at_s) <= FORGET_S:
            return self._last.of_mix(mix)
        if self._bytes_per_s and mix:
            return self._bytes_per_s * mix
        return self._last.of_mix(mix) if self._last is not None else None


class ReplicaCapacity:
    """For policies that size by it: groups must not grow and shrink with the noise of a measurement."""

    def __init__(self, records_per_s: float | None, bytes_per_s: float | None = None) -> None:
        self._measured = LastMeasured(records_per_s, bytes_per_s)
        self.per_s = records_per_s or 0.0
        """0 until it is known."""

    def look(self, seen: Observation) -> bool:
        """Whether it is known, with this observation or from earlier ones."""
        now = self._measured.look(seen)
        if now is not None and abs(now - self.per_s) > NOISE * self.per_s:
            self.per_s = now
        return self.per_s > 0
