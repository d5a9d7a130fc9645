"""The pipelines that are hurt: which topics go to which tables, and how fast everything beats."""

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.kafka.load_records import FIELDS_DDL

STEADY, BURSTS, ODD, CALM = "steady", "bursts", "odd", "calm"
RAW_ID = "CAST(split_part(decode(value), ' ', 1) AS INT)"
"""Where the id of a raw record is, for DuckDB."""


@dataclass(frozen=True, slots=True)
class Scene:
    tables: Mapping[str, str]
    """Topic → table. The steady topic is raw, all others are JSON."""
    partitions: int
    """Of each topic, at first."""
    name: str = "chaos"
    most_consumers: int = 4
    batch: str = "200 kB"
    rate_cap: str = "200 kB/s"
    """What a consumer reads in one cycle, and a second, at most: how fast it catches up."""
    start_deadline: str = "120 s"
    """How long a consumer may take to be ready; on a machine busy with something else a JVM takes minutes."""
    slo: str = "{}"
    upkeep: str = ""
    """Settings of the lake beyond the commit interval, as YAML."""

    def yaml(self, bootstrap: str) -> str:
        return _PIPELINE.format(
            name=self.name,
            most_consumers=self.most_consumers,
            bootstrap=bootstrap,
            topics=", ".join(self.tables),
            tables="".join(_table(topic, table) for topic, table in self.tables.items()),
            batch=self.batch,
            rate_cap=self.rate_cap,
            start_deadline=self.start_deadline,
            slo=self.slo,
            upkeep=self.upkeep.replace("\n", "\n  "),
        )

    def id_of(self, topic: str) -> str:
        """Where a row of this topic carries the number of its record, as DuckDB says it."""
        return RAW_ID if topic == STEADY else "id"


def _table(topic: str, table: str) -> str:
    shape = "format: raw" if topic == STEADY else f'format: json\n    schema: "{FIELDS_DDL}"'
    return f"\n  - name: {table}\n    topics: [{topic}]\n    {shape}"


_PIPELINE = """\
name: {name}
home: .
kafka:
  brokers: {bootstrap}
topics: [{topics}]
tables:{tables}
slo: {slo}
lake:
  commit_interval_s: 0.5 s
  {upkeep}
consumer:
  batch_bytes: {batch}
  wait_s: 1 s
  rate_cap_bytes_per_s: {rate_cap}
  heartbeat_s: 0.5 s
  commit_deadline_s: 20 s
policy:
  consumer_capacity_bytes_per_s: 100 kB/s
  packing_capacity_bytes_per_s: 80 kB/s
  max_sentinel_s: 5 s
monitor:
  poll_s: 0.5 s
  window_s: 6 s
  min_span_s: 2 s
controller:
  heartbeat_deadline_s: 4 s
  ack_deadline_s: 15 s
  ready_deadline_s: {start_deadline}
  stale_after_s: 20 s
  discover_s: 2 s
fleet:
  kind: processes
  max_consumers: {most_consumers}
  start_deadline_s: {start_deadline}
  stop_deadline_s: 20 s
"""

CHAOS = Scene({STEADY: "lake.steady", BURSTS: "lake.bursts"}, partitions=3)

SLO_S, SLO_SHARE = 10.0, 0.99

SOAK = Scene(
    {STEADY: "lake.steady", BURSTS: "lake.bursts", ODD: "lake.odd"},
    partitions=3,
    batch="1 MB",
    rate_cap="400 kB/s",
    start_deadline="300 s",
    slo=f"{{latency_s: {SLO_S:g} s, quantile: {SLO_SHARE:g}}}",
    upkeep="maintain_every_s: 45 s\ntarget_file_bytes: 8 MB\norphan_age_s: 2 min",
)
"""Upkeep far more often than anybody needs it, and orphans swept as young as the consumers' deadlines allow."""

NEIGHBOUR = Scene(
    {CALM: "lake.calm"},
    partitions=3,
    name="neighbour",
    most_consumers=1,
    batch=SOAK.batch,
    rate_cap=SOAK.rate_cap,
    start_deadline=SOAK.start_deadline,
    slo=SOAK.slo,
    upkeep=SOAK.upkeep,
)
