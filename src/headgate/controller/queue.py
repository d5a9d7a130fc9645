"""What the controller must know of a queue, whichever it is (E-23, E-49), and a queue in memory that knows it.

The controller never touches a queue: it reads write rates and what is done off its channel. So another queue than Kafka
needs two numbers per partition, here called `Queue`; commands and acknowledgements may travel over any channel.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headgate.controller.virtual_behaviour import Behaviour
from headgate.controller.virtual_channel import MemoryChannel
from headgate.controller.virtual_clock import VirtualClock
from headgate.controller.virtual_consumer import SimulatedConsumer
from headgate.controller.virtual_fleet import MemoryFleet
from headgate.kafka.rates import Counter, Sample, WriteRates, published
from headgate.model import TopicPartition
from headgate.model.messages import Measurement


class Queue(Protocol):
    """Partitions that only grow at their end. What has no partitions of its own (a plain work queue) is one."""

    def written(self) -> Mapping[TopicPartition, Counter]:
        """Records and payload bytes ever written, of every partition there is."""
        ...

    def committed(self) -> Mapping[TopicPartition, int]:
        """Per partition, the next record that nobody has processed for good."""
        ...


class QueueMonitor:
    """Turns a queue's counters into the measurements the controller watches."""

    def __init__(self, queue: Queue, rates: WriteRates, window_s: float, name: str) -> None:
        self._queue = queue
        self._rates = rates
        self._window_s = window_s
        self._name = name

    def measure(self, at_s: float) -> Measurement:
        counters = self._queue.written()
        rates = self._rates.update(Sample(at_s, counters), counters)
        return Measurement(round(1000 * at_s), self._window_s, self._name, published(rates))


class MemoryQueue:
    """A broker in memory: lists of records, and how far each has been processed."""

    def __init__(self, partitions: frozenset[TopicPartition]) -> None:
        self._records: dict[TopicPartition, list[bytes]] = {p: [] for p in partitions}
        self._bytes: dict[TopicPartition, int] = defaultdict(int)
        self._committed: dict[TopicPartition, int] = dict.fromkeys(partitions, 0)

    def append(self, partition: TopicPartition, record: bytes) -> None:
        self._records[partition].append(record)
        self._bytes[partition] += len(record)

    def read(self, partition: TopicPartition, start: int, most: int) -> list[bytes]:
        return self._records[partition][start : start + most]

    def commit(self, partition: TopicPartition, following: int) -> None:
        """As the ledger does it: a commit only moves forward."""
        self._committed[partition] = max(following, self._committed[partition])

    def written(self) -> Mapping[TopicPartition, Counter]:
        return {p: Counter(self._bytes[p], len(records)) for p, records in self._records.items()}

    def committed(self) -> Mapping[TopicPartition, int]:
        return self._committed


@dataclass(slots=True, eq=False)
class QueueConsumer(SimulatedConsumer):
    """Reads a queue in cycles, an equal share of each partition, and obeys commands between them."""

    queue: MemoryQueue = field(kw_only=True)
    records_per_cycle: int = field(kw_only=True)
    done: list[tuple[TopicPartition, int, bytes]] = field(kw_only=True)
    """Everything any consumer has processed, in order: (partition, position, record)."""

    def _announce(self) -> None:
        for partition in self.positions:
            start = self.positions[partition]
            records = self.queue.read(partition, start, max(1, self.records_per_cycle // len(self.positions)))
            self.done.extend((partition, start + n, record) for n, record in enumerate(records))
            self.positions[partition] = start + len(records)
            self.queue.commit(partition, self.positions[partition])
            self.channel.land(partition, self.queue.committed()[partition])


class QueueFleet(MemoryFleet):
    """Starts consumers of a queue in memory."""

    def __init__(
        self,
        clock: VirtualClock,
        channel: MemoryChannel,
        behaviour: Behaviour,
        queue: MemoryQueue,
        records_per_cycle: int,
    ) -> None:
        super().__init__(clock, channel, behaviour)
        self._queue = queue
        self._records_per_cycle = records_per_cycle
        self.done: list[tuple[TopicPartition, int, bytes]] = []

    def _new_life(self, consumer_id: int) -> QueueConsumer:
        return QueueConsumer(
            *self._given(consumer_id),
            queue=self._queue,
            records_per_cycle=self._records_per_cycle,
            done=self.done,
        )
