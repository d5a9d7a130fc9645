"""What the parts of a pipeline say to each other over Kafka. One writer each; encoding is `kafka.codec`'s business."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.model.columns import Column, Rows, partitions_of
from headgate.model.partition import TopicPartition


class Position(NamedTuple):
    """The next offset of one partition for one table."""

    table: str
    topic: str
    partition: int
    next: int


class Landed(NamedTuple):
    """The next offset of one partition in a table's ledger. A tuple, because a ledger has one for every partition."""

    topic: str
    partition: int
    next: int


@dataclass(frozen=True, slots=True)
class StartConsuming:
    """Controller → consumer: these partitions are yours from now on (L-31)."""

    command_id: str
    epoch: int
    """Which life of the controller said so; an older one is never obeyed after a newer one."""
    consumer_id: int
    incarnation: str
    """The life of the consumer this is for; another life that reads it knows it was replaced. Empty: any."""
    partitions: tuple[TopicPartition, ...]
    reached: tuple[Position, ...] = ()
    """How far the announcements of those who let them go reach, where that is known: the new owner goes on there. Of
    what is not listed, it goes on where the ledger is."""


@dataclass(frozen=True, slots=True)
class StopConsuming:
    """Controller → consumer: finish the cycle, announce it, let these partitions go."""

    command_id: str
    epoch: int
    consumer_id: int
    incarnation: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class StateQuery:
    """Controller → consumer: what do you own? (L-32)"""

    command_id: str
    epoch: int
    consumer_id: int


@dataclass(frozen=True, slots=True)
class ConsumingStarted:
    """Consumer → controller: the start is durable (L-19)."""

    command_id: str
    consumer_id: int
    incarnation: str
    partitions: tuple[TopicPartition, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class ConsumingStopped:
    """Consumer → controller: the stop is durable and nothing of these partitions is unannounced."""

    command_id: str
    consumer_id: int
    incarnation: str
    partitions: tuple[TopicPartition, ...]
    at_ms: int
    announced: tuple[Position, ...]
    """How far the announcements of these partitions reach; their new owners go on there."""


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """Consumer → controller: the heartbeat, and the answer to a StateQuery (then with its command_id)."""

    command_id: str
    consumer_id: int
    incarnation: str
    partitions: tuple[TopicPartition, ...]
    at_ms: int
    started_at_ms: int
    cycle: int
    cycle_finished_at_ms: int
    """When the last cycle ended; a consumer whose heart beats but whose cycles stand still is stuck."""
    uncommitted_cycles: int
    throughput_bytes_per_s: float
    busy_share: float
    capacity_bytes_per_s: float
    """Bytes per second of working time; 0 until a cycle was busy."""
    last_error: str
    full_cycles: int = 0
    """How many cycles of this life had a full batch and so measured the capacity."""


@dataclass(frozen=True, slots=True)
class ConsumerLeft:
    """Consumer → controller: a clean end; it owns nothing any more."""

    consumer_id: int
    incarnation: str
    at_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class ConsumerCapacity:
    """What a consumer can do: as it measured, and as it counts for decisions (L-26)."""

    consumer_id: int
    measured_bytes_per_s: float
    """0 until it had a full cycle."""
    counted_bytes_per_s: float
    """The configured capacity or less."""


@dataclass(frozen=True, slots=True)
class ControllerState:
    """Controller → everyone: its heartbeat."""

    epoch: int
    at_ms: int
    started_at_ms: int
    state: str
    """Which of its four states it is in."""
    consumers: int
    """Those that own partitions as far as it knows."""
    configured_bytes_per_s: float = 0.0
    """The consumer capacity of the pipeline file."""
    capacities: tuple[ConsumerCapacity, ...] = ()
    """Of those consumers."""
    crowding: float = 1.0
    """Above 1, consumers share something, and more of them would not bring more."""
    pause_s: float = 0.0
    """t_r: how long moves lately kept a partition from being read (E-29); 0 before the first."""


class PartitionRate(NamedTuple):
    """A tuple, because a measurement has one for every partition, every second."""

    topic: str
    partition: int
    bytes_per_s: float
    records_per_s: float
    end_offset: int
    span_s: float
    """How much history the rate rests on."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Monitor → everyone: write rates of all partitions at one instant (L-8)."""

    at_ms: int
    window_s: float
    source: str
    rates: Sequence[PartitionRate]
    """In columns where they come from a topic."""

    @property
    def columns(self) -> Rows[PartitionRate]:
        return Rows.of(PartitionRate, self.rates)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """In the order of its rates."""
        return partitions_of(*(self.columns.column(name) for name in ("topic", "partition")))


OUT_OF_ORDER_MS = 10_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """The committer's answer to one announcement."""

    announcement_id: str
    consumer_id: int
    incarnation: str
    accepted: bool
    reason: str


@dataclass(frozen=True, slots=True)
class LedgerState:
    """Committer → everyone: a table's ledger after a commit; the newest per table says where a consumer starts."""

    table: str
    at_ms: int
    committer: str
    sequence: int
    snapshot_id: int
    exists: bool
    """False until the table is created; a consumer then announces its schema first."""
    positions: Sequence[Landed]
    """In columns where they come from a topic."""
    verdicts: tuple[Verdict, ...]
    announcements_next: int
    """Announcements before this offset are settled for this table; a new committer starts here."""
    problems: tuple[str, ...] = ()
    """What keeps partitions out of `positions` until a person does something, in words."""

    @property
    def following(self) -> Column[int]:
        """The next offset of each partition."""
        topics, partitions, offsets = Rows.of(Landed, self.positions).columns
        return Column(partitions_of(topics, partitions), offsets)

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(Rows.of(Landed, self.positions).column("topic"))

    def follows(self, known: "LedgerState | None") -> bool:
        """Whether this, which arrived later, is to be believed instead of what is known.

        Two committers at work may publish out of order, so for a moment the higher sequence counts. Otherwise the
        later word does: a table that was rolled back or made anew has a lower sequence, and is right.
        """
        if known is None or self.sequence >= known.sequence or self.committer == known.committer:
            return True
        return self.at_ms > known.at_ms + OUT_OF_ORDER_MS


@dataclass(frozen=True, slots=True)
class BytesPerRecord:
    """Measured payload bytes per record of one partition; turns offsets into bytes (L-4, L-10)."""

    topic: str
    partition: int
    bytes_per_record: float


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """Committer → journal: one snapshot of one table."""

    table: str
    at_ms: int
    committer: str
    sequence: int
    snapshot_id: int
    announcements: int
    refused: int
    files: int
    rows: int
    payload_bytes: int
    rejected: int
    filtered: int
    skipped: int
    duration_s: float
    conflicts: int
    latency_ms: tuple[int, ...]
    """Evenly spaced quantiles (0 … 1) of commit time minus Kafka timestamp over the records of this snapshot."""
    reached: dict[str, int] = field(default_factory=dict)
    """Per topic, the ledger's next offsets added up over its partitions: with end offsets, the lag at that time."""


@dataclass(frozen=True, slots=True)
class CycleRecord:
    """Consumer → journal: one cycle over all its tables (L-24)."""

    consumer_id: int
    incarnation: str
    cycle: int
    at_ms: int
    partitions: int
    tables: int
    records: int
    rows: int
    payload_bytes: int
    gather_s: float
    process_s: float
    announce_s: float
    wait_s: float
    """Back-pressure, pacing and waiting for records."""
    lag_records: int
    """Records of the owned partitions that this cycle left unread."""
    peak: bool
    """L-24: more than batch_bytes were pending when the cycle began."""
    sizes: tuple[BytesPerRecord, ...]
    error: str

    @property
    def busy_s(self) -> float:
        return self.gather_s + self.process_s + self.announce_s

    @property
    def throughput_bytes_per_s(self) -> float:
        total_s = self.busy_s + self.wait_s
        return self.payload_bytes / total_s if total_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class ConsumerPartitions:
    consumer_id: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionMove:
    topic: str
    partition: int
    old: int
    """The consumer that owned it; 0 for nobody."""
    new: int


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """Controller → journal: what was decided, why, and how long each step took (L-41, L-53)."""

    at_ms: int
    epoch: int
    number: int
    trigger: str
    reason: str
    outcome: str
    """ "applied", "kept" when something fired and nothing changes, "dry-run", "out of sync: …", "alert" when nothing
    could be done by packing, or "started" of a controller that took over."""
    consumers_before: int
    consumers_after: int
    moved: int
    rscore_packing: float
    """Rscore over the packing capacity, as the published plots divide (A-2)."""
    rscore_consumer: float
    """Rscore over the consumer capacity, as the text defines it."""
    assignment: tuple[ConsumerPartitions, ...]
    created: tuple[int, ...]
    deleted: tuple[int, ...]
    alerts: tuple[str, ...]
    rejected: tuple[str, ...]
    inputs: dict[str, float] = field(default_factory=dict)
    measure_s: float = 0.0
    """t1: age of the rate change when the measurement showed it, bounded by the window."""
    decide_s: float = 0.0
    """t2: trigger to all create requests sent."""
    ready_s: float = 0.0
    """t3: until all new consumers were ready."""
    handover_s: float = 0.0
    """t4: first command to last acknowledgement."""
    moves: tuple[PartitionMove, ...] = ()
    """Every partition whose owner changes, also those that had none."""
    pause_s: float = 0.0
    """Of t4, the longest that one partition had no owner; 0 if none changed hands."""
    expected_pause_s: float = 0.0
    """t_r as it was known when this was decided (E-29); 0 before the first move."""
    capacities: tuple[ConsumerCapacity, ...] = ()
    """Of the consumers there were."""
