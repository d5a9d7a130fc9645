"""What a pipeline is doing, read from its own topics: from any terminal, without asking the processes that run it."""

import time
from collections import deque
from dataclasses import dataclass, field

from headgate.config.clients import librdkafka_settings
from headgate.config.pipeline import Pipeline
from headgate.kafka.channel import BEGINNING, Last, Received, Tail
from headgate.kafka.internal_topics import Topics
from headgate.lake.latency import merge_quantiles
from headgate.model import TopicPartition
from headgate.model.messages import (
    CommitRecord,
    ConsumerLeft,
    ConsumerState,
    ControllerState,
    CycleRecord,
    DecisionRecord,
    LedgerState,
    Measurement,
)

_RECENT_S = 60.0
ALIVE_S = 15.0


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    consumer_id: int
    partitions: tuple[TopicPartition, ...]
    seen_s_ago: float
    throughput_bytes_per_s: float
    busy_share: float
    uncommitted_cycles: int
    last_error: str
    measured_bytes_per_s: float | None = None
    """What its full cycles show that it can do; None until it had some."""
    counted_bytes_per_s: float | None = None
    """What it counts for in decisions; None if no controller has said so."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    partition: TopicPartition
    owner: int | None
    bytes_per_s: float
    end_offset: int
    lag_records: int | None
    """None until a ledger says where the partition begins."""


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    at_s: float
    measured_s_ago: float | None
    consumers: tuple[ConsumerStatus, ...]
    partitions: tuple[PartitionStatus, ...]
    latency_p50_s: float | None
    latency_p99_s: float | None
    slo_met: bool | None
    """Whether the pipeline's goal was met over the last minute; None without commits."""
    commits_per_minute: int
    rows: int
    """Rows in commits seen within the last minute."""
    refused: int
    rejected: int
    skipped: int
    last_decision: DecisionRecord | None
    committed_s_ago: float | None
    problems: tuple[str, ...] = ()
    """What a person has to look at, each with the table it is about."""
    configured_bytes_per_s: float | None = None
    """A consumer's capacity by the pipeline file, as the controller has it."""
    crowding: float = 1.0
    """Above 1, consumers share something, and more of them would not bring more."""
    pause_s: float | None = None
    """t_r: how long moves lately kept a partition from being read; None before the first."""
    unread_decisions: int = 0
    """Of another release, whose messages this one does not read."""

    @property
    def bytes_per_s(self) -> float:
        return sum(p.bytes_per_s for p in self.partitions)

    @property
    def lag_records(self) -> int:
        return sum(p.lag_records or 0 for p in self.partitions)


@dataclass
class StatusReader:
    """Follows the topics; `refresh` takes in what is new and returns the present status."""

    pipeline: Pipeline
    decisions: list[DecisionRecord] = field(default_factory=list)
    commits: deque[CommitRecord] = field(default_factory=lambda: deque(maxlen=5000))
    cycles: deque[CycleRecord] = field(default_factory=lambda: deque(maxlen=5000))

    def __post_init__(self) -> None:
        self._consumers: dict[int, ConsumerState] = {}
        self._controller: ControllerState | None = None
        self._measurement: Measurement | None = None
        self._ledgers: dict[str, LedgerState] = {}
        t = Topics(self.pipeline.name)
        self._journal = t.decisions
        self._tail = Tail(
            librdkafka_settings(self.pipeline),
            {
                (t.control, 0): Last(500),
                (t.measurements, 0): Last(1),
                (t.ledger, 0): BEGINNING,
                (t.commits, 0): Last(300),
                (t.cycles, 0): Last(300),
                (t.decisions, 0): Last(50),
            },
        )
        for received in self._tail.read_to_end(newest_of=t.ledger):
            self._take(received)

    def refresh(self, now_s: float | None = None) -> PipelineStatus:
        while batch := self._tail.poll():
            for received in batch:
                self._take(received)
        return self._status(time.time() if now_s is None else now_s)

    def close(self) -> None:
        self._tail.close()

    def _take(self, received: Received) -> None:
        match received.message:
            case ConsumerState() as state:
                known = self._consumers.get(state.consumer_id)
                if known is None or state.started_at_ms >= known.started_at_ms:
                    self._consumers[state.consumer_id] = state
            case ConsumerLeft() as left:
                known = self._consumers.get(left.consumer_id)
                if known is not None and known.incarnation == left.incarnation:
                    del self._consumers[left.consumer_id]
            case ControllerState() as controller:
                if self._controller is None or controller.epoch >= self._controller.epoch:
                    self._controller = controller
            case Measurement() as measurement:
                self._measurement = measurement
            case LedgerState() as ledger:
                ours = any(table.name == ledger.table for table in self.pipeline.tables)
                if ours and ledger.follows(self._ledgers.get(ledger.table)):
                    self._ledgers[ledger.table] = ledger
            case CommitRecord() as commit:
                self.commits.append(commit)
            case CycleRecord() as cycle:
                self.cycles.append(cycle)
            case DecisionRecord() as decision:
                self.decisions.append(decision)
            case _:
                pass  # commands have their own partitions; anything else was garbage and is logged by the tail

    def _status(self, now_s: float) -> PipelineStatus:
        recent = [c for c in self.commits if now_s - c.at_ms / 1000 < _RECENT_S]
        weighted = [(c.latency_ms, c.rows + c.rejected) for c in recent if c.latency_ms]
        p50, p99 = merge_quantiles(weighted, 0.5), merge_quantiles(weighted, 0.99)
        at_goal = merge_quantiles(weighted, self.pipeline.slo.quantile)
        last_commit_ms = max((ledger.at_ms for ledger in self._ledgers.values()), default=None)
        controller = self._controller
        counted = {one.consumer_id: one.counted_bytes_per_s for one in controller.capacities} if controller else {}
        changes = [d for d in self.decisions if d.consumers_before != d.consumers_after or d.moved or d.alerts]
        return PipelineStatus(
            at_s=now_s,
            measured_s_ago=None if self._measurement is None else now_s - self._measurement.at_ms / 1000,
            consumers=tuple(
                ConsumerStatus(
                    n,
                    state.partitions,
                    now_s - state.at_ms / 1000,
                    state.throughput_bytes_per_s,
                    state.busy_share,
                    state.uncommitted_cycles,
                    state.last_error,
                    state.capacity_bytes_per_s or None,
                    counted.get(n),
                )
                for n, state in sorted(self._consumers.items())
                if now_s - state.at_ms / 1000 < _RECENT_S
            ),
            partitions=self._partitions(now_s),
            latency_p50_s=None if p50 is None else p50 / 1000,
            latency_p99_s=None if p99 is None else p99 / 1000,
            slo_met=None if at_goal is None else at_goal <= 1000 * self.pipeline.slo.latency_s,
            commits_per_minute=sum(1 for c in recent if c.announcements),
            rows=sum(c.rows for c in recent),
            refused=sum(c.refused for c in recent),
            rejected=sum(c.rejected for c in recent),
            skipped=sum(c.skipped for c in recent),
            last_decision=changes[-1] if changes else None,
            committed_s_ago=None if last_commit_ms is None else now_s - last_commit_ms / 1000,
            problems=tuple(f"{t}: {p}" for t, ledger in sorted(self._ledgers.items()) for p in ledger.problems),
            configured_bytes_per_s=(controller.configured_bytes_per_s or None) if controller else None,
            crowding=controller.crowding if controller else 1.0,
            pause_s=(controller.pause_s or None) if controller else None,
            unread_decisions=self._tail.passed_over[self._journal],
        )

    def _partitions(self, now_s: float) -> tuple[PartitionStatus, ...]:
        if self._measurement is None:
            return ()
        owners = {
            p: n
            for n, state in self._consumers.items()
            if now_s - state.at_ms / 1000 < ALIVE_S
            for p in state.partitions
        }
        lowest: dict[TopicPartition, int] = {}
        for ledger in self._ledgers.values():
            for partition, offset in self.pipeline.landed(ledger).items():
                lowest[partition] = min(offset, lowest.get(partition, offset))
        found = []
        for rate in self._measurement.rates:
            partition = TopicPartition(rate.topic, rate.partition)
            lag = max(0, rate.end_offset - lowest[partition]) if partition in lowest else None
            found.append(PartitionStatus(partition, owners.get(partition), rate.bytes_per_s, rate.end_offset, lag))
        return tuple(sorted(found, key=lambda status: status.partition))
