"""Where the monitor's numbers come from: counters of payload bytes, from one of two sources.

`OffsetSource` counts records by their offsets and multiplies by measured payload bytes per record (L-10); it survives
retention. `LogDirSource` in `log_dirs.py`, the published one, reads the size of the leaders' logs on disk (L-5, L-6).
"""

import time
from collections.abc import Callable
from typing import Protocol

from headgate.kafka.log_ends import LogEnds
from headgate.kafka.offset_counts import ManyOffsetCounts
from headgate.kafka.rates import Sample
from headgate.kafka.record_sizes import RecordSizes
from headgate.model import TopicPartition

ANSWER_S = 5.0
"""How long one question to the brokers may take: a monitor that waits longer has nothing new to say."""


class Source(Protocol):
    """Counters of what was written to each partition."""

    name: str

    def watch(self, partitions: frozenset[TopicPartition]) -> None:
        """From now on sample these. ConfigError if this source cannot measure them."""

    def sample(self) -> Sample:
        """KafkaUnavailable if the brokers do not answer; single partitions without a leader are left out."""

    def close(self) -> None: ...


class OffsetSource:
    """End offsets, including records of open transactions: what is written, whether or not it may be read yet."""

    name = "offsets"

    def __init__(self, ends: LogEnds, sizes: RecordSizes, clock: Callable[[], float] = time.monotonic) -> None:
        self._ends, self._sizes, self._clock = ends, sizes, clock
        self._counts = ManyOffsetCounts()

    def watch(self, partitions: frozenset[TopicPartition]) -> None:
        self._ends.watch(partitions)

    def sample(self) -> Sample:
        asked_s = self._clock()
        ends = self._ends.ask(ANSWER_S)
        at_s = (asked_s + self._clock()) / 2
        self._sizes.refresh(ends)
        return Sample(at_s, self._counts.count(ends, self._sizes.of(ends)))

    def close(self) -> None:
        self._ends.close()
        self._sizes.close()
