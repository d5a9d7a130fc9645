"""A gauge of one part, served only by the process in which that part runs."""

from collections.abc import Iterable

from prometheus_client import Gauge
from prometheus_client.core import GaugeMetricFamily, Metric


class PartGauge(Gauge):
    """Has no value until it was set. A plain gauge is 0 from the import on, so a consumer or a committer in a process
    of its own would say that its controller last took a step in 1970."""

    _known = False

    def set(self, value: float) -> None:
        super().set(value)
        self._known = True

    def collect(self) -> Iterable[Metric]:
        if self._known:
            return super().collect()
        (described,) = self.describe()
        return [GaugeMetricFamily(described.name, described.documentation)]
