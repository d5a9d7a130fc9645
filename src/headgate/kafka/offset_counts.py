"""Payload bytes from end offsets: one partition after the other, or all at once with the same result. Pure."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.kafka.rates import Counter
from headgate.model import TopicPartition
from headgate.model.columns import ByPartition, Rows

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counted:
    """How far one partition was counted."""

    position: int
    """Offset or log size up to which bytes were counted."""
    payload_bytes: float = 0.0
    life: int = 0


class OffsetCounts:
    """Payload bytes from the end offsets of one partition after the other (L-10). Pure.

    Bytes are added up step by step with the record size known at each step; multiplying the offset itself would turn
    every small correction of that size into a huge jump. Records whose size is not known yet are counted once it is.
    Transaction markers take offsets as well and count as records: an overestimate of one record per transaction.
    """

    def __init__(self) -> None:
        self._counted: dict[TopicPartition, Counted] = {}

    def count(self, partition: TopicPartition, end_offset: int, bytes_per_record: float | None) -> Counter:
        counted = self._counted.setdefault(partition, Counted(end_offset))
        if end_offset < counted.position:
            log.warning(
                "%s ended at offset %d and now ends at %d (created again, or truncated): counting starts again",
                *(partition, counted.position, end_offset),
            )
            counted.position, counted.life = end_offset, counted.life + 1
        elif bytes_per_record is not None:
            counted.payload_bytes += (end_offset - counted.position) * bytes_per_record
            counted.position = end_offset
        return Counter(counted.payload_bytes, end_offset, counted.life)


class ManyOffsetCounts:
    """What `OffsetCounts` counts, for all partitions at once."""

    def __init__(self) -> None:
        self._places: dict[TopicPartition, int] = {}
        """Where each partition ever counted stands in these:"""
        self._position, self._payload_bytes, self._life = np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64)
        self._last: tuple[TopicPartition, ...] = ()
        """Partitions counted last, and their places:"""
        self._here = np.empty(0, np.int64)

    def count(
        self, ends: Mapping[TopicPartition, int], bytes_per_record: Sequence[float | None]
    ) -> ByPartition[Counter]:
        """With the size of a record for each of these, None where it is unknown."""
        partitions, end = tuple(ends), np.array(list(ends.values()), np.int64)
        if partitions != self._last:
            self._arrange(partitions, end)
        size = np.array(bytes_per_record, np.float64)  # None becomes NaN
        here = self._here
        position = self._position[here]
        falls, is_known = end < position, ~np.isnan(size)
        for n in np.flatnonzero(falls).tolist():
            log.warning(
                "%s ended at offset %d and now ends at %d (created again, or truncated): counting starts again",
                *(partitions[n], position[n], end[n]),
            )
        self._life[here] += falls
        self._payload_bytes[here] += np.where(is_known & ~falls, (end - position) * size, 0.0)
        self._position[here] = np.where(is_known | falls, end, position)
        columns = (self._payload_bytes[here].tolist(), end.tolist(), self._life[here].tolist())
        return ByPartition(partitions, Rows(Counter, columns))

    def _arrange(self, partitions: tuple[TopicPartition, ...], end: NDArray[np.int64]) -> None:
        """New partitions are counted from these ends on; those that are missing just now stay where they are."""
        is_new = np.array([p not in self._places for p in partitions], np.bool_)
        for partition in partitions:
            self._places.setdefault(partition, len(self._places))
        self._position = np.append(self._position, end[is_new])
        self._payload_bytes = np.append(self._payload_bytes, np.zeros(is_new.sum()))
        self._life = np.append(self._life, np.zeros(is_new.sum(), np.int64))
        self._last, self._here = partitions, np.array([self._places[p] for p in partitions], np.int64)
