"""A histogram for Prometheus that is told of many values at once; prometheus_client's own takes one, with a lock for
each."""

import threading
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector


class BulkHistogram(Collector):
    def __init__(self, name: str, what: str, bounds: Sequence[float], labels: Sequence[str] = ()) -> None:
        self._name, self._what = name, what
        self.bounds, self.label_names = tuple(map(float, bounds)), tuple(labels)
        self._lock = threading.Lock()
        self._within: dict[tuple[str, ...], NDArray[np.float64]] = {}
        """Per labels, how many values are at most each bound, and how many there are; the last is their sum."""
        if not labels:
            self.add(np.zeros(len(self.bounds) + 1), 0.0)

    def add(self, within: Sequence[float] | NDArray[np.float64], total: float, *labels: str) -> None:
        """`within`: how many of the values are at most each bound, and how many they are; `total`: their sum. Who knows
        them by quantiles only may count parts of them."""
        told = np.append(np.asarray(within, np.float64), total)
        with self._lock:
            self._within[labels] = self._within.get(labels, 0.0) + told

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._what, labels=self.label_names)
        bounds = (*map(str, self.bounds), "+Inf")
        with self._lock:
            for labels, told in self._within.items():
                *within, total = told.tolist()
                family.add_metric(labels, list(zip(bounds, within, strict=True)), total)
        yield family
