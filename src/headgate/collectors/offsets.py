"""Offsets of the source partitions that a forwarder holds: what is on its way, and what may be committed."""

import logging
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headgate.collectors.watermark import Watermark

log = logging.getLogger(__name__)

ANSWER_S = 5.0


class Offsets:
    """Never commits an offset before the main cluster has acknowledged everything below it."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, int], Watermark] = {}
        """By topic and partition. One that comes back gets a new watermark: late acknowledgements are the old one's."""
        self._asked: dict[tuple[str, int], int] = {}
        """What the source cluster was last asked to keep."""

    def hold(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            committed = consumer.committed(partitions, timeout=ANSWER_S)
        except KafkaException as error:
            log.info("where reading begins is not known: %s", error.args[0].str())
            committed = partitions
        for at in committed:
            self.held[at.topic, at.partition] = Watermark(at.offset if at.offset >= 0 else None)

    def watermark(self, topic: str, partition: int, offset: int) -> Watermark | None:
        """Of the partition that a record with this offset was read from; None if it is not held any more."""
        watermark = self.held.get((topic, partition))
        if watermark is not None and watermark.is_past(offset):
            log.warning("%s[%d] begins anew at offset %d: it was truncated, or made anew", topic, partition, offset)
            watermark = self.held[topic, partition] = Watermark(offset)
        return watermark

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for at in partitions:
            self.held.pop((at.topic, at.partition), None)
            self._asked.pop((at.topic, at.partition), None)

    def begin_again(self) -> dict[tuple[str, int], int]:
        """What is not acknowledged of the partitions held counts as not sent: where each of those must be read from."""
        positions = {at: watermark.position for at, watermark in self.held.items() if watermark.waiting}
        again = {at: position for at, position in positions.items() if position is not None}
        self.held |= {at: Watermark(position) for at, position in again.items()}
        return again

    def waiting(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether anything of these is not acknowledged."""
        held = (self.held.get((at.topic, at.partition)) for at in partitions)
        return any(watermark is not None and watermark.waiting for watermark in held)

    def commit(self, consumer: Consumer) -> None:
        """Without waiting; what fails is asked for again the next time."""
        moved = [at for at in self._positions() if at.offset != self._asked.get((at.topic, at.partition))]
        if not moved:
            return
        try:
            consumer.commit(offsets=moved, asynchronous=True)
        except KafkaException as error:
            log.warning("offsets not committed this time: %s", error.args[0].str())
            return
        self._asked |= {(at.topic, at.partition): at.offset for at in moved}

    def answered(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """The consumer's `on_commit`."""
        failed = [at for at in partitions if error is not None or at.error is not None]
        for at in failed:
            self._asked.pop((at.topic, at.partition), None)
        if failed:
            log.warning("offsets not committed this time: %s", error or failed[0].error)

    def commit_now(self, consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        """Waits for the answer, before these are given up."""
        leaving = {(at.topic, at.partition) for at in partitions}
        positions = [at for at in self._positions() if (at.topic, at.partition) in leaving]
        try:
            if positions:
                consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            log.warning("offsets not committed, so their next owner repeats some records: %s", error.args[0].str())

    def _positions(self) -> list[TopicPartition]:
        positions = ((at, watermark.position) for at, watermark in self.held.items())
        return [TopicPartition(*at, position) for at, position in positions if position is not None]
