"""What a forwarder shows Prometheus."""

from prometheus_client import Counter, Gauge, Histogram

RECORDS = Counter("headgate_collect_records_total", "Records that the main cluster acknowledged", ["topic"])
SKIPPED = Counter(
    "headgate_collect_skipped_offsets_total",
    "Offsets at the collector without a record: deleted by retention, compacted, or marks of transactions",
    ["topic"],
)
IN_FLIGHT = Gauge("headgate_collect_in_flight_records", "Records sent to the main cluster and not acknowledged")
WAITING = Gauge("headgate_collect_waiting_records", "Records at the collector that were not sent on, as last seen")
PARTITIONS = Gauge("headgate_collect_partitions", "Source partitions that this forwarder holds")
DELAY = Histogram(
    "headgate_collect_delay_seconds",
    "From a record's timestamp to its acknowledgement by the main cluster",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)
