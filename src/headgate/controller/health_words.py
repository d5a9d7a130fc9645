"""How the findings of `headgate doctor` name things, times and rates."""

from collections.abc import Sequence

from headgate.config.units import BYTES_PER_S

HOUR_MS = 3_600_000
_MOST_NAMED = 3


def some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def speed(bytes_per_s: float) -> str:
    return BYTES_PER_S.format(round(bytes_per_s, -2))


def ago(ms: int) -> str:
    return f"{max(0, ms) / 1000:.0f} s ago" if ms < 600_000 else f"{span(ms)} ago"


def due(ms: float) -> str:
    return f"in {span(ms)}" if ms > 0 else "at any moment"


def span(ms: float) -> str:
    hours = ms / HOUR_MS
    if abs(hours) < 1:
        return f"{ms / 60_000:.0f} min"
    return f"{hours / 24:.1f} days" if abs(hours) >= 48 else f"{hours:.1f} hours"
