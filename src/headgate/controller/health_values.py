"""The values `headgate doctor` deals in: facts go into its checks, findings come out."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headgate.model import TopicPartition


class Verdict(StrEnum):
    ok = "ok"
    warn = "warn"
    fail = "fail"
    unknown = "unknown"
    """It could not be asked; why is the business of another check."""


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    verdict: Verdict
    evidence: str
    advice: str = ""
    """What to do; empty when all is well."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    name: str
    cleanup_policy: str
    retention_ms: int
    """-1 keeps everything."""
    retention_bytes: int = -1
    """Of each partition; -1 keeps everything."""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    partition: TopicPartition
    begin: int
    end: int
    ledger_next: int | None
    """Of the slowest table; None if no table's ledger knows it, nor the committer where it begins."""
    oldest_unread_ms: int | None = None
    """Timestamp of the first record the lake misses, where that was looked up."""
    write_bytes_per_s: float = 0.0
    """0 if it is not known."""
    write_records_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Voice:
    """The last word of one part of the pipeline."""

    who: str
    said_ms: int
    """By its own clock."""
    written_ms: int
    """By the brokers'."""
    release: str
    error: str = ""
    """Of a consumer: what its cycles failed with, until one goes well."""


@dataclass(frozen=True, slots=True)
class KafkaFacts:
    brokers: int
    missing_topics: tuple[str, ...]
    has_run: bool
    topics: tuple[TopicFacts, ...] | str
    """A text says why their settings may not be read."""
    partitions: tuple[PartitionFacts, ...]
    astray: tuple[str, ...] | None
    """Partitions whose group offset is not where the ledger is, in words; None if the ledger could not be read."""
    rates: tuple[tuple[TopicPartition, float], ...]
    """What one consumer would have to read for each partition, in bytes per second, for all its tables."""
    measured_ms: int | None
    """When, by the brokers' clock; None if nothing was measured that we can read."""
    capacity_bytes_per_s: float
    """By the pipeline file."""
    measured_capacities_bytes_per_s: tuple[float, ...]
    """Of those consumers whose cycles showed theirs."""
    voices: tuple[Voice, ...]
    refused: tuple[str, ...]
    """Parts of an older version of Headgate that are at work."""
    recent_rows: int
    """Over the last hour."""
    recent_rejected: int
    problems: tuple[str, ...]
    """What the committer says needs a person."""
    alerts: tuple[str, ...] = ()
    """What the controller raised over the last hour, newest first."""
    slo_latency_s: float = 10.0
    """By the pipeline file."""
    unled: tuple[TopicPartition, ...] = ()
    """Partitions of which no broker says what they hold."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    name: str
    files: int
    snapshots: int
    newest_snapshot_ms: int


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """What upkeep would join."""

    table: str
    """Those of rejected records and of skipped offsets among them."""
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    positions: Mapping[TopicPartition, int]
    """Of the slowest table that has a partition."""
    unread: tuple[str, ...] = ()
    """Tables whose ledger could not be read, and why."""


@dataclass(frozen=True, slots=True)
class LakeFacts:
    catalog: str
    tables: tuple[TableFacts, ...]
    missing_tables: tuple[str, ...]
    ledgers: LedgerFacts
    keep_snapshots: int
    keep_hourly: int
    small_files: tuple[SmallFiles, ...] = ()
    unread_tables: tuple[str, ...] = ()
    """The catalog knows them, and they cannot be read; `ledgers` says why."""


@dataclass(frozen=True, slots=True)
class DiskFacts:
    what: str
    """Which part of the pipeline is on it."""
    free_bytes: int
    all_bytes: int


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that could be found out; a text instead of facts says why not."""

    now_ms: int
    kafka: KafkaFacts | str
    lake: LakeFacts | str
    disks: tuple[DiskFacts, ...]
    """Of what is on this machine; where the catalog does not answer, a full disk may be why."""
