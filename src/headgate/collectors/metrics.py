"""What a forwarder shows Prometheus."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from prometheus_client import REGISTRY, Counter, Gauge
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

RECORDS = Counter("headgate_collect_records_total", "Records that the main cluster acknowledged", ["topic"])
SKIPPED = Counter(
    "headgate_collect_skipped_offsets_total",
    "Offsets at the collector without a record: deleted by retention, compacted, or marks of transactions",
    ["topic"],
)
IN_FLIGHT = Gauge("headgate_collect_in_flight_records", "Records sent to the main cluster and not acknowledged")
WAITING = Gauge("headgate_collect_waiting_records", "Records at the collector that were not sent on, as last seen")
PARTITIONS = Gauge("headgate_collect_partitions", "Source partitions that this forwarder holds")
DELAY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class DelayHistogram(Collector):
    """A histogram that takes many values at once; prometheus_client's own takes one, with a lock for each."""

    def __init__(self) -> None:
        self._records: NDArray[np.int64] = np.zeros(len(DELAY_BUCKETS_S) + 1, np.int64)
        self._sum_s = 0.0

    def observe_all(self, delays_s: Sequence[float]) -> None:
        """Clocks of different machines may make one negative: that counts as none."""
        delays = np.maximum(delays_s, 0.0)
        fallen = np.bincount(np.searchsorted(DELAY_BUCKETS_S, delays), minlength=len(self._records))
        self._records, self._sum_s = self._records + fallen, self._sum_s + float(delays.sum())

    def collect(self) -> Iterator[HistogramMetricFamily]:
        bounds = [*(f"{float(bound)}" for bound in DELAY_BUCKETS_S), "+Inf"]
        buckets = list(zip(bounds, self._records.cumsum().tolist(), strict=True))
        what = "From a record's timestamp to its acknowledgement by the main cluster"
        yield HistogramMetricFamily("headgate_collect_delay_seconds", what, buckets, self._sum_s)


DELAY = DelayHistogram()
REGISTRY.register(DELAY)
