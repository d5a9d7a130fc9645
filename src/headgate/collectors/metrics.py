"""What a forwarder shows Prometheus."""

from collections.abc import Sequence

import numpy as np
from prometheus_client import REGISTRY, Counter

from headgate.bulk_histogram import BulkHistogram
from headgate.part_gauge import PartGauge

RECORDS = Counter("headgate_collect_records_total", "Records that the main cluster acknowledged", ["topic"])
SKIPPED = Counter(
    "headgate_collect_skipped_offsets_total",
    "Offsets at the collector without a record: deleted by retention, compacted, or marks of transactions",
    ["topic"],
)
IN_FLIGHT = PartGauge("headgate_collect_in_flight_records", "Records sent to the main cluster and not acknowledged")
WAITING = PartGauge("headgate_collect_waiting_records", "Records at the collector that were not sent on, as last seen")
PARTITIONS = PartGauge("headgate_collect_partitions", "Source partitions that this forwarder holds")
DELAY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class DelayHistogram(BulkHistogram):
    def __init__(self) -> None:
        what = "From a record's timestamp to its acknowledgement by the main cluster"
        super().__init__("headgate_collect_delay_seconds", what, DELAY_BUCKETS_S)

    def observe_all(self, delays_s: Sequence[float]) -> None:
        """Clocks of different machines may make one negative: that counts as none."""
        delays = np.maximum(delays_s, 0.0)
        fallen = np.bincount(np.searchsorted(self.bounds, delays), minlength=len(self.bounds) + 1)
        self.add(fallen.cumsum().astype(np.float64), float(delays.sum()))


DELAY = DelayHistogram()
REGISTRY.register(DELAY)
