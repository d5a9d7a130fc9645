"""How fast consumers are as a fleet, and whether more of them bring more.

Consumers that share cores or a disk each measure less the more there are. Believed as it is measured, that would call
for ever more consumers, each making the rest slower. So growing is a trial: what all of them do together is compared
with what they did before, and where it hardly grew, the fall counts as made by the fleet itself, and is not believed.
"""

from dataclasses import dataclass

from headgate.model import Alert

SETTLE_S = 60.0
"""After the fleet changed its size nothing is concluded for so long: new consumers warm up and measure first."""
HELPS = 0.25
"""Of what independent consumers would have added, the share from which growing is held to help."""
NOISE = 0.1


@dataclass(frozen=True, slots=True)
class _Trial:
    """The fleet before it grew."""

    size: int
    bytes_per_s: float
    """What one of them did."""


class FleetLevel:
    def __init__(self, configured_bytes_per_s: float) -> None:
        self._configured = configured_bytes_per_s
        self.believed_bytes_per_s: float | None = None
        """Of a usual consumer; None while nothing is measured."""
        self.crowding = 1.0
        """What is believed over what is measured."""
        self.alert: Alert | None = None
        """What is said while the fleet is crowded."""
        self._size = 0
        self._measured = 0.0
        self._settled_s = 0.0
        self._is_settling = False
        self._trial: _Trial | None = None

    def resize(self, now_s: float, size: int) -> None:
        """So many consumers work now."""
        if size == self._size:
            return
        if self._trial is None and size > self._size and self.believed_bytes_per_s is not None:
            self._trial = _Trial(self._size, self._measured)
        elif self._trial is not None and size <= self._trial.size:
            self._trial = None
        self._size, self._settled_s, self._is_settling = size, now_s + SETTLE_S, True

    def is_settled(self, now_s: float) -> bool:
        return now_s >= self._settled_s

    def look(self, now_s: float, measured_bytes_per_s: float | None) -> float | None:
        """What is believed of a usual consumer now."""
        if measured_bytes_per_s is None:
            self.believed_bytes_per_s, self.crowding, self.alert = None, 1.0, None
            self._trial = None
            return None
        if not self.is_settled(now_s):
            return self.believed_bytes_per_s
        if self._is_settling:
            self._conclude(measured_bytes_per_s)
        return self._believe(measured_bytes_per_s)

    def _conclude(self, measured: float) -> None:
        """The fleet has its new size for a while; what it measures now is an effect of it."""
        self._is_settling = False
        before, self._trial = self._trial, None
        believed = self.believed_bytes_per_s or measured
        if before is not None:
            grown = self._size / before.size
            if measured * grown / before.bytes_per_s - 1 >= HELPS * (grown - 1):
                return
            believed *= grown  # so that as few as before count for as much as all of them do
            self.alert = Alert(
                "crowded",
                f"{self._size} consumers do {rate_text(measured)} each where {before.size} did "
                f"{rate_text(before.bytes_per_s)}: they share cores, a disk or the lake, and more of them bring no "
                "more; run them on more machines, or lower fleet.max_consumers",
            )
        elif self.crowding == 1.0:
            return
        self.crowding = believed / measured

    def _believe(self, measured: float) -> float:
        self._measured = measured
        self.crowding = max(1.0, min(self.crowding, self._configured / measured))
        if self.crowding == 1.0:
            self.alert = None
        new, held = self.crowding * measured, self.believed_bytes_per_s
        if held is None or abs(new - held) > NOISE * held:
            self.believed_bytes_per_s = held = new
        return held


def rate_text(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.3g} MB/s"
