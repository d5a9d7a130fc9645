"""When a JVM is warm: it compiles what it runs often, and for some forty batches each is faster than those before."""

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.model.messages import CycleRecord

SPAN = 10
"""Full cycles in a row that are looked at as one: two at once take turns in being short and long."""
FASTER = 1.1
"""What counts as faster: less is within the noise of ten cycles."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What was read before anything counted."""

    cycles: int
    """Full ones."""
    seconds: float
    is_complete: bool
    """False if cycles were still becoming faster when the time was over: what was measured then is too slow."""


def is_warm(full: Sequence[CycleRecord]) -> bool:
    """Whether, in the newest two spans, there was none faster than the fastest before. The fastest, because a slow one
    says nothing: the machine may have been busy, or have paused."""
    before, newest = full[: -2 * SPAN], full[-2 * SPAN :]
    return len(before) >= SPAN and _fastest(newest) <= FASTER * _fastest(before)


def _fastest(cycles: Sequence[CycleRecord]) -> float:
    return max(_rate(cycles[first : first + SPAN]) for first in range(len(cycles) - SPAN + 1))


def _rate(cycles: Sequence[CycleRecord]) -> float:
    return sum(c.payload_bytes for c in cycles) / sum(c.busy_s for c in cycles)
