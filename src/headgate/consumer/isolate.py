"""Finding the records a transform fails on, with few Spark jobs and in bounded time."""

import time
from collections.abc import Callable, Sequence

from headgate.consumer.query import BadRecord
from headgate.model import Range

_JOBS = 64
"""Most Spark jobs spent per cycle; the rest of the range waits."""
_MOST_S = 30.0
"""And most time, so that commands do not wait for it longer than their deadline."""


def isolate(
    ranges: Sequence[Range], fails: Callable[[Range], str | None], fails_again: Callable[[Range, str], str]
) -> tuple[tuple[Range, ...], tuple[BadRecord, ...]]:
    """The bad records, and the ranges they are known for, cut where the bound on jobs or time was reached.

    Halves a part that fails and doubles after one that does not: a few jobs for a single bad record, and no more than
    one for each when all are bad. `fails` gives the reason or None; `fails_again` confirms it for a single record.
    """
    budget, until = _JOBS, time.monotonic() + _MOST_S
    bad: list[BadRecord] = []
    kept: list[Range] = []
    for whole in ranges:
        low, high, size = whole.start, whole.start, whole.offsets  # a bad record is known to be in [low, high)
        while low < whole.end and budget > 0 and time.monotonic() < until:
            part = Range(whole.partition, low, min(low + size, whole.end))
            budget -= 1
            reason = fails(part)
            if reason is None:
                low = part.end
                size = max(1, (high - low) // 2) if low < high else 2 * size
            elif part.offsets == 1:
                bad.append(BadRecord(whole.partition, low, fails_again(part, reason)))
                low = high = part.end
                size = 1
            else:
                high = part.end
                size = part.offsets // 2
        if low > whole.start:
            kept.append(Range(whole.partition, whole.start, low))
    return tuple(kept), tuple(bad)
