"""Writes the metrics page from the code: `python -m headgate.cli.metrics_reference > docs/metrics.md`."""

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.metrics import MetricWrapperBase

from headgate.bulk_histogram import BulkHistogram

SOURCES = (
    ("headgate.kafka.monitor", "monitor"),
    ("headgate.controller.metrics", "controller"),
    ("headgate.kafka.build_info", "every part"),
    ("headgate.consumer.accounts", "consumer"),
    ("headgate.lake.commit_report", "committer"),
    ("headgate.lake.upkeep", "committer"),
    ("headgate.groups.controller", "group run"),
    ("headgate.collectors.metrics", "collect"),
)
"""Modules that have metrics, and the part of a pipeline that serves them."""

_HEAD = """\
# Metrics

<!-- Written by headgate.cli.metrics_reference from the code; change the texts there. -->

`metrics_port: 9464` in the pipeline file serves Prometheus metrics from the `run` process, on loopback unless
`metrics_address` says otherwise. Consumers of a fleet of processes serve theirs on free ports; all write where to
`<home>/metrics/*.json`, which Prometheus reads ([how](operate.md#metrics-dashboard-alerts-logs)). `headgate consumer
--metrics-port` is for consumers that you start by hand. Times are in seconds and sizes in bytes; names ending in
`_total` only grow, and begin again at 0 when the process does; ratios lie between 0 and 1. A part's metrics are
served by the process it runs in. `headgate group run` serves its own under `/metrics` at the address that it prints,
`headgate collect --metrics-port` on loopback. Members of ordinary groups count
[fallbacks](consumer-groups.md#what-fails-over-how) in their own processes; `headgate topology watch` has [metrics of
its own](topology.md).

"""
_TAIL = """
`deploy/grafana/headgate.json` is a dashboard and `deploy/alerts/headgate.yml` has alert rules; both use only metrics
of this page. Lag is also where every Kafka tool looks for it: the group's committed offsets follow the lake.
"""


@dataclass(frozen=True, slots=True)
class Described:
    part: str
    name: str
    """As Prometheus shows it; histograms add _bucket, _sum and _count."""
    kind: str
    labels: tuple[str, ...]
    help: str

    @property
    def series(self) -> frozenset[str]:
        """Every name a query may use."""
        if self.kind == "histogram":
            return frozenset(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return frozenset({self.name})


def metrics() -> Iterator[Described]:
    for module, part in SOURCES:
        for collector in vars(importlib.import_module(module)).values():
            if isinstance(collector, MetricWrapperBase | BulkHistogram):
                (family,) = collector.collect()
                suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
                labels = collector.label_names if isinstance(collector, BulkHistogram) else collector._labelnames
                yield Described(part, family.name + suffix, family.type, labels, family.documentation)


def metrics_page() -> str:
    rows = ["| metric | type | labels | part | meaning |", "| --- | --- | --- | --- | --- |"]
    for one in metrics():
        labels = ", ".join(f"`{label}`" for label in one.labels) or "–"
        rows.append(f"| `{one.name}` | {one.kind} | {labels} | {one.part} | {one.help} |")
    return _HEAD + "\n".join(rows) + "\n" + _TAIL


if __name__ == "__main__":
    sys.stdout.write(metrics_page())
