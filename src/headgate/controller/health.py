"""The checks of `headgate doctor`: each a small function from what was found out to one line of a report.

Nothing is asked of anybody here (that is `health_facts`), so every threshold can be tried without a broker or a lake.
"""

from collections.abc import Callable

from headgate.controller import health_lake, health_parts, health_topics
from headgate.controller.health_values import Facts, Finding, KafkaFacts, LakeFacts, Verdict
from headgate.controller.health_words import some

_SKEW_WARN_MS, _SKEW_FAIL_MS = 2_000, 30_000
_DISK_WARN, _DISK_FAIL = 0.10, 0.02

_OF_KAFKA: tuple[Callable[[KafkaFacts, int], Finding], ...] = (
    health_topics.topics,
    health_topics.retention,
    health_parts.parts,
    health_parts.lag,
    health_parts.versions,
    health_parts.controller,
    health_parts.committer,
    health_topics.group,
    health_topics.rejected,
    health_topics.hot,
)
_OF_LAKE: tuple[Callable[[LakeFacts, int], Finding], ...] = (
    health_lake.ledger,
    health_lake.files,
    health_lake.snapshots,
)


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """Every check, in the order an operator would ask."""
    kafka, lake = facts.kafka, facts.lake
    findings = [broker(facts)]
    for of_kafka in _OF_KAFKA:
        name = of_kafka.__name__
        findings.append(_not_asked(name, "the brokers") if isinstance(kafka, str) else of_kafka(kafka, facts.now_ms))
    findings += [clocks(facts), catalog(facts)]
    for of_lake in _OF_LAKE:
        name = of_lake.__name__
        findings.append(_not_asked(name, "the catalog") if isinstance(lake, str) else of_lake(lake, facts.now_ms))
    return (*findings, disk(facts))


def broker(facts: Facts) -> Finding:
    if isinstance(facts.kafka, str):
        return Finding("broker", Verdict.fail, facts.kafka, "check kafka.brokers and kafka.client, and the brokers")
    return Finding("broker", Verdict.ok, f"{facts.kafka.brokers} answered")


def clocks(facts: Facts) -> Finding:
    """Every part's clock against the brokers', and the lake's newest snapshots against this machine's."""
    off: dict[str, int] = {}
    if isinstance(facts.kafka, KafkaFacts):
        off |= {voice.who: voice.said_ms - voice.written_ms for voice in facts.kafka.voices}
        newest_ms = max((v.written_ms for v in facts.kafka.voices), default=0)
        if newest_ms > facts.now_ms:  # nothing can have been written later than now
            off["this machine"] = facts.now_ms - newest_ms
    if isinstance(facts.lake, LakeFacts):
        off |= {
            f"{table.name}'s newest snapshot": table.newest_snapshot_ms - facts.now_ms
            for table in facts.lake.tables
            if table.newest_snapshot_ms > facts.now_ms
        }
    if not off:
        return Finding(
            "clocks",
            Verdict.unknown,
            "nothing was written yet that clocks could be compared by",
            "ask again while the pipeline runs",
        )
    worst = max(off, key=lambda who: abs(off[who]))
    evidence = f"{worst} differs most from the brokers: {off[worst] / 1000:+.1f} s"
    if abs(off[worst]) < _SKEW_WARN_MS:
        return Finding("clocks", Verdict.ok, evidence)
    verdict = Verdict.fail if abs(off[worst]) >= _SKEW_FAIL_MS else Verdict.warn
    return Finding("clocks", verdict, evidence, "run NTP there: latencies, heartbeats and snapshot expiry go by clocks")


def catalog(facts: Facts) -> Finding:
    if isinstance(facts.lake, str):
        return Finding("catalog", Verdict.fail, facts.lake, "check lake.catalog, and the catalog's server")
    if facts.lake.unread_tables:
        return Finding(
            "catalog",
            Verdict.fail,
            f"{facts.lake.catalog} answers; cannot be read: {some(facts.lake.unread_tables)}",
            "see `ledger` for why; docs/recover.md, A catalog that is lost, or new, says how to get them back",
        )
    if facts.lake.missing_tables:
        return Finding(
            "catalog",
            Verdict.warn,
            f"{facts.lake.catalog} answers; not there yet: {some(facts.lake.missing_tables)}",
            "tables are made with their first record; if there are records, see the consumers' errors in status",
        )
    return Finding("catalog", Verdict.ok, f"{facts.lake.catalog} answers, {len(facts.lake.tables)} tables")


def disk(facts: Facts) -> Finding:
    """Of home and, if it is on this machine, of the warehouse: the fuller one."""
    disks = [disk for disk in facts.disks if disk.all_bytes]  # some file systems do not tell
    if not disks:
        return Finding("disk", Verdict.ok, "nothing tells its size")
    worst = min(disks, key=lambda disk: disk.free_bytes / disk.all_bytes)
    same = [d.what for d in disks if (d.free_bytes, d.all_bytes) == (worst.free_bytes, worst.all_bytes)]
    evidence = f"{' and '.join(same)}: {worst.free_bytes / 1e9:,.1f} of {worst.all_bytes / 1e9:,.1f} GB free"
    if worst.free_bytes > _DISK_WARN * worst.all_bytes:
        return Finding("disk", Verdict.ok, evidence)
    verdict = Verdict.fail if worst.free_bytes <= _DISK_FAIL * worst.all_bytes else Verdict.warn
    return Finding(
        "disk",
        verdict,
        evidence,
        "make room by other means first, since upkeep writes; then headgate maintain FILE --apply",
    )


def _not_asked(check: str, whom: str) -> Finding:
    return Finding(check, Verdict.unknown, f"{whom} did not answer", "mend that first, it is told above")
