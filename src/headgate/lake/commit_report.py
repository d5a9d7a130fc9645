"""What a commit was: the record for the journal and the numbers for Prometheus."""

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prometheus_client import REGISTRY, Counter, Gauge, Histogram

from headgate.config.settings import Slo
from headgate.lake.commit import CommitResult
from headgate.lake.latency import latencies_ms, merge_points, share_within
from headgate.lake.latency_histogram import LatencyHistogram
from headgate.model.announcement import GAP, RETENTION
from headgate.model.messages import CommitRecord
from headgate.part_gauge import PartGauge

log = logging.getLogger(__name__)

_SAY_EVERY_S = 60.0

_COMMITS = Counter("headgate_commits_total", "Snapshots committed", ["table"])
_CONFLICTS = Counter("headgate_commit_conflicts_total", "Commits refused by the catalog and tried again", ["table"])
_REFUSED = Counter("headgate_announcements_refused_total", "Announcements that did not follow the ledger", ["table"])
_ROWS = Counter("headgate_rows_total", "Rows made visible in the lake", ["table"])
_BYTES = Counter("headgate_committed_bytes_total", "Payload bytes (key and value) of the records committed", ["table"])
_REJECTED = Counter("headgate_rejected_records_total", "Records sent to the rejected table", ["table"])
_SKIPPED = Counter(
    "headgate_skipped_offsets_total",
    "Offsets Kafka itself did not hold: deleted unread (retention), or never records to read (gap: compaction, "
    "transaction markers, aborted records)",
    ["table", "reason"],
)
_COMMIT_DURATION = Histogram("headgate_commit_duration_seconds", "Duration of a commit, retries included", ["table"])
_LATENCY = LatencyHistogram("headgate_latency_seconds", "Commit time minus Kafka timestamp of the records committed")
REGISTRY.register(_LATENCY)
_LATE = Counter("headgate_late_records_total", "Records committed later than slo.latency_s after their time", ["table"])
_SLO_GOAL = PartGauge("headgate_slo_goal_ratio", "The share that the pipeline file asks for: slo.quantile")
_LAST_COMMIT = Gauge("headgate_last_commit_timestamp_seconds", "When the last snapshot was committed", ["table"])
_WAITING = Gauge(
    "headgate_commit_waiting_timestamp_seconds",
    "Since when something waits to be committed, or the committer could not look yet; 0 if nothing does",
    ["table"],
)
_waiting_since_s: dict[str, float] = {}
_PROBLEMS = Gauge("headgate_table_problems", "What keeps topics out of this table; status says more", ["table"])


def show_problems(table: str, count: int) -> None:
    _PROBLEMS.labels(table).set(count)


def show_start(table: str) -> None:
    """A committer begins: until it has seen the table, something may wait. Counters are there before they count: of one
    that begins above 0, Prometheus sees no increase."""
    for counter in (_COMMITS, _CONFLICTS, _REFUSED, _ROWS, _BYTES, _REJECTED, _LATE):
        counter.labels(table)
    for reason in (RETENTION, GAP):
        _SKIPPED.labels(table, reason)
    _LATENCY.observe(table, (0.0,), 0)
    show_waiting(table)


def show_waiting(table: str) -> None:
    """Since now, unless something waits already; a committer that was started again does not begin anew."""
    _WAITING.labels(table).set(_waiting_since_s.setdefault(table, time.time()))


def show_settled(table: str) -> None:
    _waiting_since_s.pop(table, None)
    _WAITING.labels(table).set(0)


def report(committer: str, table: str, result: CommitResult, now_ms: int, slo: Slo) -> CommitRecord:
    """Counts the commit and describes it."""
    cycles = [a.stats for a in result.committed]
    latencies = [(latencies_ms(stats, now_ms), stats.records) for stats in cycles]
    record = CommitRecord(
        table=table,
        at_ms=now_ms,
        committer=committer,
        sequence=result.ledger.sequence,
        snapshot_id=result.snapshot_id,
        announcements=len(result.committed),
        refused=len(result.refused),
        files=sum(len(a.files) for a in result.committed),
        rows=sum(c.rows for c in cycles),
        payload_bytes=sum(c.payload_bytes for c in cycles),
        rejected=sum(c.rejected for c in cycles),
        filtered=sum(c.filtered for c in cycles),
        skipped=sum(a.skipped for a in result.committed),
        duration_s=result.duration_s,
        conflicts=result.conflicts,
        latency_ms=tuple(map(round, merge_points(latencies))),
        reached=result.ledger.reached(),
    )
    log.debug(
        "%s: snapshot %d with %d rows of %d announcements in %.2f s, %d refused",
        *(table, record.snapshot_id, record.rows, record.announcements, record.duration_s, record.refused),
    )
    _say_sometimes(record)
    _count(record, slo)
    for skip in (skip for announcement in result.committed for skip in announcement.skips):
        _SKIPPED.labels(table, skip.reason).inc(skip.offsets)
    _count_latencies(table, latencies, slo.latency_s)
    return record


@dataclass
class _Unsaid:
    """What a table got since the last line about it."""

    said_at_s: float = -_SAY_EVERY_S
    commits: int = 0
    rows: int = 0


_unsaid: defaultdict[str, _Unsaid] = defaultdict(_Unsaid)


def _say_sometimes(record: CommitRecord) -> None:
    """A line for every commit would be gigabytes a year."""
    unsaid, now_s = _unsaid[record.table], time.monotonic()
    unsaid.commits += bool(record.announcements)
    unsaid.rows += record.rows
    if unsaid.commits and now_s - unsaid.said_at_s >= _SAY_EVERY_S:
        counted = "1 commit" if unsaid.commits == 1 else f"{unsaid.commits} commits"
        log.info("%s: %s with %d rows, up to snapshot %d", record.table, counted, unsaid.rows, record.snapshot_id)
        _unsaid[record.table] = _Unsaid(now_s)


def _count(record: CommitRecord, slo: Slo) -> None:
    table = record.table
    _COMMITS.labels(table).inc(bool(record.announcements))
    _CONFLICTS.labels(table).inc(record.conflicts)
    _REFUSED.labels(table).inc(record.refused)
    _ROWS.labels(table).inc(record.rows)
    _BYTES.labels(table).inc(record.payload_bytes)
    _REJECTED.labels(table).inc(record.rejected)
    _COMMIT_DURATION.labels(table).observe(record.duration_s)
    if record.announcements:
        _LAST_COMMIT.labels(table).set(record.at_ms / 1000)
    _SLO_GOAL.set(slo.quantile)


def _count_latencies(table: str, latencies: Iterable[tuple[Sequence[float], int]], goal_s: float) -> None:
    """Of each cycle the quantiles in milliseconds and its records."""
    late = _LATE.labels(table)
    for points_ms, records in latencies:
        if points_ms:
            points_s = [point_ms / 1000 for point_ms in points_ms]
            _LATENCY.observe(table, points_s, records)
            late.inc(records * (1 - share_within(points_s, goal_s)))
