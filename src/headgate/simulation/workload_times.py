"""Time in workloads: how far a change has come, and the moments that come again and again."""

from collections.abc import Iterable
from math import ceil, floor


def progress(t_s: float, begin_s: float, over_s: float) -> float:
    """How far something that begins at `begin_s` and takes `over_s` is at `t_s`: 0 … 1."""
    if t_s < begin_s:
        return 0.0
    return 1.0 if t_s >= begin_s + over_s else (t_s - begin_s) / over_s


def multiples(step_s: float, start_s: float, end_s: float, origin_s: float = 0.0) -> Iterable[float]:
    """origin + k·step within [start_s, end_s], k ≥ 0."""
    first = max(0, ceil((start_s - origin_s) / step_s))
    last = floor((end_s - origin_s) / step_s)
    return (origin_s + k * step_s for k in range(first, last + 1))
