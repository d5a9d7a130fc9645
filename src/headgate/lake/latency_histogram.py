"""Latencies for Prometheus: a histogram per table, made from the quantiles of each cycle's records."""

import threading
from collections.abc import Iterator, Sequence

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from headgate.lake.latency import mean, share_within

BUCKETS_S = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0, 86400.0)


class LatencyHistogram(Collector):
    """Takes many records at once, known by their quantiles; prometheus_client's own takes one value. So its counts
    need not be whole."""

    labels = ("table",)

    def __init__(self, name: str, what: str) -> None:
        self._name = name
        self._what = what
        self._lock = threading.Lock()
        self._within: dict[str, list[float]] = {}
        """Per table, records within each bound, and all of them."""
        self._sum_s: dict[str, float] = {}

    def observe(self, table: str, points_s: Sequence[float], records: int) -> None:
        """Clocks of different machines may make a latency negative: that counts as none."""
        points = [max(0.0, point) for point in points_s]
        with self._lock:
            within = self._within.setdefault(table, [0.0] * (len(BUCKETS_S) + 1))
            for i, bound in enumerate((*BUCKETS_S, float("inf"))):
                within[i] += records * share_within(points, bound)
            self._sum_s[table] = self._sum_s.get(table, 0.0) + records * mean(points)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._what, labels=self.labels)
        bounds = (*map(str, BUCKETS_S), "+Inf")
        with self._lock:
            for table, within in self._within.items():
                family.add_metric([table], list(zip(bounds, within, strict=True)), self._sum_s[table])
        yield family
