"""What a commit was: the record for the journal and the numbers for Prometheus."""

import logging

from prometheus_client import Counter, Gauge, Histogram

from headgate.config.settings import Slo
from headgate.lake.commit import CommitResult
from headgate.lake.latency import commit_latency_ms
from headgate.model.messages import CommitRecord

log = logging.getLogger(__name__)

_COMMITS = Counter("headgate_commits_total", "Snapshots committed", ["table"])
_CONFLICTS = Counter("headgate_commit_conflicts_total", "Commits refused by the catalog and tried again", ["table"])
_REFUSED = Counter("headgate_announcements_refused_total", "Announcements that did not follow the ledger", ["table"])
_ROWS = Counter("headgate_rows_total", "Rows made visible in the lake", ["table"])
_BYTES = Counter("headgate_committed_bytes_total", "Payload bytes (key and value) of the records committed", ["table"])
_REJECTED = Counter("headgate_rejected_records_total", "Records sent to the rejected table", ["table"])
_SKIPPED = Counter("headgate_skipped_offsets_total", "Offsets Kafka itself did not hold", ["table"])
_COMMIT_DURATION = Histogram("headgate_commit_duration_seconds", "Duration of a commit, retries included", ["table"])
_LATENCY = Gauge(
    "headgate_latency_seconds",
    "Commit time minus Kafka timestamp, records of the last commit",
    ["table", "quantile"],
)
_SLO_RATIO = Gauge("headgate_slo_ratio", "Share of the last commit's records within slo.latency_s, 0 to 1", ["table"])
_SLO_GOAL = Gauge("headgate_slo_goal_ratio", "The share that the pipeline file asks for: slo.quantile")
_LAST_COMMIT = Gauge("headgate_last_commit_timestamp_seconds", "When the last snapshot was committed", ["table"])
_PROBLEMS = Gauge("headgate_table_problems", "What keeps topics out of this table; status says more", ["table"])


def show_problems(table: str, count: int) -> None:
    _PROBLEMS.labels(table).set(count)


def report(committer: str, table: str, result: CommitResult, now_ms: int, slo: Slo) -> CommitRecord:
    """Counts the commit and describes it."""
    cycles = [a.stats for a in result.committed]
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
        latency_ms=commit_latency_ms(cycles, now_ms),
        reached=result.ledger.reached(),
    )
    log.info(
        "%s: snapshot %d with %d rows of %d announcements in %.2f s, %d refused",
        *(table, record.snapshot_id, record.rows, record.announcements, record.duration_s, record.refused),
    )
    _count(record, slo)
    return record


def _count(record: CommitRecord, slo: Slo) -> None:
    table = record.table
    _COMMITS.labels(table).inc(bool(record.announcements))
    _CONFLICTS.labels(table).inc(record.conflicts)
    _REFUSED.labels(table).inc(record.refused)
    _ROWS.labels(table).inc(record.rows)
    _BYTES.labels(table).inc(record.payload_bytes)
    _REJECTED.labels(table).inc(record.rejected)
    _SKIPPED.labels(table).inc(record.skipped)
    _COMMIT_DURATION.labels(table).observe(record.duration_s)
    if record.announcements:
        _LAST_COMMIT.labels(table).set(record.at_ms / 1000)
    _SLO_GOAL.set(slo.quantile)
    if record.latency_ms:
        for name, point in (("0.5", 10), ("0.95", 19), ("1", 20)):
            _LATENCY.labels(table, name).set(record.latency_ms[point] / 1000)
        within = sum(1 for latency in record.latency_ms if latency <= 1000 * slo.latency_s)
        _SLO_RATIO.labels(table).set(within / len(record.latency_ms))
