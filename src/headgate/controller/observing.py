"""From what arrives over the channel to the observation a policy decides on."""

import logging
from collections.abc import Callable, Mapping

from headgate.controller.ports import Channel, Clock
from headgate.model import Assignment, ConsumerLoad, Observation, PartitionLoad, TopicPartition
from headgate.model.messages import Measurement

log = logging.getLogger(__name__)

_CLOCK_SKEW_S = 5.0


class Measurements:
    """The newest measurement worth believing: not older than the last one, not from the future."""

    def __init__(self, channel: Channel, clock: Clock) -> None:
        self._channel = channel
        self._clock = clock
        self.newest: Measurement | None = None

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        rates = self.newest.rates if self.newest else ()
        return frozenset(TopicPartition(rate.topic, rate.partition) for rate in rates)

    def refresh(self) -> bool:
        """Whether there is a newer one now."""
        found = self._channel.latest_measurement()
        if found is None or (self.newest is not None and found.at_ms <= self.newest.at_ms):
            return False
        if found.at_ms / 1000 > self._clock.now_s() + _CLOCK_SKEW_S:
            log.warning("a measurement of %d ms is from the future; ignored, check the clocks", found.at_ms)
            return False
        self.newest = found
        return True


def observe(
    measurement: Measurement,
    ledger: Mapping[tuple[str, TopicPartition], int],
    assignment: Assignment,
    consumers: Mapping[int, ConsumerLoad],
    now_s: float,
    watching_since_s: float,
    tables_of: Callable[[str], int],
) -> Observation:
    """Rates are what consumers pay: a topic that feeds two tables is read twice."""
    landed: dict[TopicPartition, int] = {}
    for (_table, partition), following in ledger.items():
        landed[partition] = min(following, landed.get(partition, following))
    partitions = {}
    for rate in measurement.rates:
        partition = TopicPartition(rate.topic, rate.partition)
        # A partition no ledger knows yet has an unknown, not an infinite lag.
        lag = max(0, rate.end_offset - landed.get(partition, rate.end_offset))
        cost = rate.bytes_per_s * tables_of(rate.topic)
        partitions[partition] = PartitionLoad(cost, rate.records_per_s, lag, rate.end_offset)
    return Observation(now_s, measurement.at_ms / 1000, partitions, assignment, dict(consumers), watching_since_s)
