"""What a workload is: how many bytes per second each partition receives at any moment, and how many over a time.

A workload is a value. It answers for any time in any order, always the same, so that a simulation and a load
generator that writes to a real broker follow the very same load. `workload_shapes` and `workload_random` describe
partitions directly, `workload_combined` makes new workloads out of others, `workload_named` finds them by name.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Protocol

import numpy as np

from headgate.model import TopicPartition

Partitions = tuple[TopicPartition, ...]


class Workload(Protocol):
    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        """Bytes per second of each partition, `t_s` seconds after the start."""
        ...

    def edges(self, start_s: float, end_s: float) -> Iterable[float]:
        """Every time in (start_s, end_s) at which a rate jumps or bends; between two of them all rates are smooth."""
        ...


_NODES, _WEIGHTS = (tuple(map(float, values)) for values in np.polynomial.legendre.leggauss(5))


def volumes(workload: Workload, start_s: float, end_s: float) -> dict[TopicPartition, float]:
    """Bytes each partition receives in [start_s, end_s]: the integral of its rate.

    Gauss-Legendre between the edges: exact where rates are constant or linear, and to ten digits for a cosine.
    """
    received: dict[TopicPartition, float] = {}
    if end_s <= start_s:
        return received
    inner = sorted({edge for edge in workload.edges(start_s, end_s) if start_s < edge < end_s})
    for left, right in pairwise((start_s, *inner, end_s)):
        half, middle = (right - left) / 2, (right + left) / 2
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            for partition, rate in workload.rates(middle + half * node).items():
                received[partition] = received.get(partition, 0.0) + rate * weight * half
    return received


def time_until(workload: Workload, total_bytes: float, limit_s: float = 7 * 86_400) -> float:
    """The moment at which all partitions together have received `total_bytes`."""
    if total_bytes <= 0:
        return 0.0
    left, window, before = 0.0, 1.0, 0.0
    while (within := sum(volumes(workload, left, left + window).values())) + before < total_bytes:
        before, left, window = before + within, left + window, window * 2
        if left >= limit_s:
            raise ValueError(
                f"this workload brings {before:.0f} bytes in {limit_s:g} s and never {total_bytes:.0f}: "
                "ask for fewer records or a higher rate"
            )
    while window > 1e-9 * max(left, 1.0):
        window /= 2
        within = sum(volumes(workload, left, left + window).values())
        if before + within < total_bytes:
            before, left = before + within, left + window
    return left + window
