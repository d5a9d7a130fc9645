"""Latencies for Prometheus: a histogram per table, made from the quantiles of each cycle's records."""

from collections.abc import Sequence

from headgate.bulk_histogram import BulkHistogram
from headgate.lake.latency import mean, share_within

BUCKETS_S = (0.25, 0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 120, 300, 900, 3600, 86400)


class LatencyHistogram(BulkHistogram):
    def __init__(self, name: str, what: str) -> None:
        super().__init__(name, what, BUCKETS_S, ["table"])

    def observe(self, table: str, points_s: Sequence[float], records: int) -> None:
        """Records known by evenly spaced quantiles. Clocks of different machines may make a latency negative: that
        counts as none."""
        points = [max(0.0, point) for point in points_s]
        shares = (*(share_within(points, bound) for bound in self.bounds), 1.0)
        self.add([records * share for share in shares], records * mean(points), table)
