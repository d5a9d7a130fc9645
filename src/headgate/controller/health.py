"""The checks of `headgate doctor`: each a small function from what was found out to one line of a report.

Nothing is asked of anybody here (that is `health_facts`), so every threshold can be tried without a broker or a lake.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from headgate.config.units import BYTES, BYTES_PER_S
from headgate.controller.health_values import (
    Facts,
    Finding,
    KafkaFacts,
    LakeFacts,
    PartitionFacts,
    TableFacts,
    TopicFacts,
    Verdict,
)
from headgate.model import TopicPartition

_HOUR_MS = 3_600_000
SILENT_MS = 30_000
_FORGOTTEN_MS = 600_000
"""A consumer silent for this long was replaced by another one, or the pipeline was killed as a whole."""
_RATES_OLD_MS = 60_000
_LATE_MS, _MANY_GOALS = 60_000, 10
"""An oldest unread record is late after so many times the SLO's latency, and not before a minute."""
_SKEW_WARN_MS, _SKEW_FAIL_MS = 2_000, 30_000
_REJECTED_WARN, _REJECTED_FAIL = 0.001, 0.05
_FEW_FILES = 100
_DISK_WARN, _DISK_FAIL = 0.10, 0.02
_MOST_NAMED = 3


def broker(facts: Facts) -> Finding:
    if isinstance(facts.kafka, str):
        return Finding("broker", Verdict.fail, facts.kafka, "check kafka.brokers and kafka.client, and the brokers")
    return Finding("broker", Verdict.ok, f"{facts.kafka.brokers} answered")


def topics(kafka: KafkaFacts, now_ms: int) -> Finding:
    if kafka.missing_topics:
        return Finding(
            "topics", Verdict.fail, f"not there: {_some(kafka.missing_topics)}", "create them, or fix `topics`"
        )
    if isinstance(kafka.topics, str):
        return _not_allowed("topics", kafka.topics)
    if not kafka.topics:
        return Finding("topics", Verdict.warn, "topics_pattern matches no topic", "create one, or fix `topics_pattern`")
    compacted = [t.name for t in kafka.topics if "compact" in t.cleanup_policy]
    if compacted:
        return Finding(
            "topics",
            Verdict.warn,
            f"compacted: {_some(compacted)}",
            "older values of a key may vanish before they are read and are then counted as skipped; keep lag short",
        )
    return Finding("topics", Verdict.ok, f"{len(kafka.topics)} there, {len(kafka.partitions)} partitions")


def retention(kafka: KafkaFacts, now_ms: int) -> Finding:
    """Will Kafka still hold what the lake misses by the time it is read?"""
    lost = [p for p in kafka.partitions if p.ledger_next is not None and p.begin > p.ledger_next]
    if lost:
        gone = sum(p.begin - (p.ledger_next or 0) for p in lost)
        return Finding(
            "retention",
            Verdict.fail,
            f"{gone:,} offsets were deleted before they were read: {_some([str(p.partition) for p in lost])}",
            "raise retention.ms or retention.bytes, then more consumers (fleet.max_consumers) to catch up",
        )
    if isinstance(kafka.topics, str):
        return _not_allowed("retention", kafka.topics)
    deleting = {t.name: t for t in kafka.topics if "delete" in t.cleanup_policy}
    limits = [
        limit
        for p in kafka.partitions
        if (topic := deleting.get(p.partition.topic))
        for limit in (_limit_by_age(topic, p, now_ms), _limit_by_size(topic, p))
        if limit is not None
    ]
    unread = [limit for limit in limits if limit.left_ms is not None]
    if unread:
        worst = min(unread, key=lambda limit: limit.left_share)
        if worst.left_share < 1 / 4:
            return Finding(
                "retention",
                Verdict.fail if worst.left_share < 1 / 20 else Verdict.warn,
                f"{worst.partition}: oldest unread record is deleted {_in(worst.left_ms or 0)}, kept for "
                f"{_span(worst.kept_ms)} ({worst.setting})",
                f"raise {worst.setting}, or let the pipeline catch up faster",
            )
    kept_ms = {t.name: float(t.retention_ms) for t in deleting.values() if t.retention_ms >= 0}
    for limit in limits:
        topic_name = limit.partition.topic
        kept_ms[topic_name] = min(limit.kept_ms, kept_ms.get(topic_name, limit.kept_ms))
    short = [name for name, kept in kept_ms.items() if kept < _HOUR_MS]
    if short:
        return Finding(
            "retention",
            Verdict.warn,
            f"kept for less than an hour: {_some(short)}",
            "a stop of the pipeline of that length loses records: raise retention.ms or retention.bytes",
        )
    timed = {limit.partition.topic for limit in limits if limit.setting == "retention.bytes"}
    sized = [
        f"{topic.name} {BYTES.format(topic.retention_bytes)}"
        for topic in deleting.values()
        if topic.retention_bytes >= 0 and topic.name not in timed
    ]
    known = [f"at least {_span(min(kept_ms.values()))}"] if kept_ms else []
    known += [f"at write rates not known yet, so much of each partition: {_some(sized)}"] if sized else []
    return Finding("retention", Verdict.ok, "; ".join(known) or "kept for ever")


@dataclass(frozen=True, slots=True)
class _Limit:
    """How long one setting keeps records of a partition, and the oldest one that the lake misses."""

    partition: TopicPartition
    setting: str
    kept_ms: float
    left_ms: float | None

    @property
    def left_share(self) -> float:
        return (self.left_ms or 0.0) / max(1.0, self.kept_ms)


def _limit_by_age(topic: TopicFacts, p: PartitionFacts, now_ms: int) -> _Limit | None:
    if topic.retention_ms < 0:
        return None
    left_ms = None if p.oldest_unread_ms is None else topic.retention_ms - (now_ms - p.oldest_unread_ms)
    return _Limit(p.partition, "retention.ms", topic.retention_ms, left_ms)


def _limit_by_size(topic: TopicFacts, p: PartitionFacts) -> _Limit | None:
    """At the rate it is written at now; Kafka compresses what rates count, so it may well be longer."""
    if topic.retention_bytes < 0 or p.write_bytes_per_s <= 0:
        return None
    unread = p.end - p.ledger_next if p.ledger_next is not None else 0
    unread_bytes = unread * p.write_bytes_per_s / p.write_records_per_s if p.write_records_per_s > 0 else 0.0
    left_ms = 1000 * (topic.retention_bytes - unread_bytes) / p.write_bytes_per_s if unread > 0 else None
    return _Limit(p.partition, "retention.bytes", 1000 * topic.retention_bytes / p.write_bytes_per_s, left_ms)


def group(kafka: KafkaFacts, now_ms: int) -> Finding:
    if kafka.astray is None:
        return Finding("group", Verdict.unknown, "the ledger could not be read")
    if kafka.astray:
        return Finding(
            "group",
            Verdict.warn,
            f"offsets are not the ledger's: {_some(kafka.astray)}",
            "nothing is lost, the ledger counts; but lag tools mislead. Is the committer running, or does another "
            "program commit to this group?",
        )
    return Finding("group", Verdict.ok, "committed offsets are the ledger's")


def rejected(kafka: KafkaFacts, now_ms: int) -> Finding:
    records = kafka.recent_rows + kafka.recent_rejected
    share = kafka.recent_rejected / records if records else 0.0
    evidence = f"{kafka.recent_rejected:,} of {records:,} records in the last hour ({share:.2%})"
    if share < _REJECTED_WARN:
        return Finding("rejected", Verdict.ok, evidence)
    verdict = Verdict.fail if share >= _REJECTED_FAIL else Verdict.warn
    return Finding("rejected", verdict, evidence, "see column `reason` of <table>__rejected; fix schema or transform")


def hot(kafka: KafkaFacts, now_ms: int) -> Finding:
    """A partition is read by one consumer: more of them do not help."""
    if kafka.measured_ms is None or not kafka.rates:
        return Finding("hot", Verdict.unknown, "no write rates are known")
    age_ms = now_ms - kafka.measured_ms
    if age_ms > _RATES_OLD_MS:
        return Finding("hot", Verdict.unknown, f"write rates were last measured {_ago(age_ms)}")
    above = [(p, rate) for p, rate in kafka.rates if rate > kafka.capacity_bytes_per_s]
    if not above:
        fastest = max(rate for _, rate in kafka.rates)
        return Finding("hot", Verdict.ok, f"fastest partition {_rate(fastest)}, one consumer {_capacity(kafka)}")
    named = [f"{p} at {_rate(rate)}" for p, rate in sorted(above, key=lambda a: -a[1])]
    return Finding(
        "hot",
        Verdict.fail,
        f"faster than one consumer, {_capacity(kafka)}: {_some(named)}",
        "no number of consumers can fix this: more partitions, another key, or a larger consumer (headgate calibrate)",
    )


def _capacity(kafka: KafkaFacts) -> str:
    """As configured, and as measured where consumers did full cycles."""
    measured = kafka.measured_capacities_bytes_per_s
    shown = list(dict.fromkeys(_rate(one) for one in (min(measured), max(measured)))) if measured else []
    beside = f" (measured {' to '.join(shown)})" if shown else ""
    return f"{_rate(kafka.capacity_bytes_per_s)}{beside}"


def parts(kafka: KafkaFacts, now_ms: int) -> Finding:
    """Monitor, controller, committer and consumers: when was each last heard of?"""
    if not kafka.has_run:
        return Finding("parts", Verdict.warn, "the pipeline has never run on these brokers", "headgate run FILE")
    needed = ("the monitor", "the controller", "the committer")
    heard = {voice.who: now_ms - voice.written_ms for voice in kafka.voices}
    heard = {who: ago_ms for who, ago_ms in heard.items() if who in needed or ago_ms < _FORGOTTEN_MS}
    silent = [who for who in needed if heard.get(who, SILENT_MS + 1) > SILENT_MS]
    silent += [who for who, ago_ms in heard.items() if who not in needed and ago_ms > SILENT_MS]
    evidence = ", ".join(f"{who.removeprefix('the ')} {_ago(ago_ms)}" for who, ago_ms in sorted(heard.items()))
    never = [who for who in needed if who not in heard]
    evidence = "; ".join(filter(None, [evidence, f"never heard: {_some(never)}" if never else ""]))
    if silent:
        return Finding("parts", Verdict.fail, evidence, f"silent: {_some(silent)}; {_start(silent, needed)}")
    return Finding("parts", Verdict.ok, evidence)


def _start(silent: Collection[str], needed: Collection[str]) -> str:
    """A whole `run` beside a controller that works would take the pipeline from it."""
    roles = [who.removeprefix("the ") for who in needed if who in silent]
    if not roles:
        return "the controller replaces consumers; its log says why it did not"
    if "controller" in roles:
        return "start the pipeline: headgate run FILE"
    return f"start what is missing: headgate run FILE --roles {','.join(roles)}"


def lag(kafka: KafkaFacts, now_ms: int) -> Finding:
    """Is somebody reading what the lake misses, and fast enough?"""
    waiting = {p: p.end - max(p.begin, p.ledger_next) for p in kafka.partitions if p.ledger_next is not None}
    unread = [p for p, records in waiting.items() if records > 0]
    if not unread:
        return Finding("lag", Verdict.ok, "everything is in the lake")
    ages_ms = [now_ms - p.oldest_unread_ms for p in unread if p.oldest_unread_ms is not None]
    since = f", the oldest for {_span(max(ages_ms))}" if ages_ms else ""
    evidence = f"{sum(waiting[p] for p in unread):,} records wait{since}"
    at_work = {voice.who for voice in kafka.voices if now_ms - voice.written_ms <= SILENT_MS}
    if "the controller" in at_work and not any(who.startswith("consumer ") for who in at_work):
        return Finding(
            "lag",
            Verdict.fail,
            f"{evidence}, and no consumer is at work",
            "the controller's alerts and <home>/headgate.log say why none came up; docs/recover.md, A bad deployment",
        )
    if max(ages_ms, default=0) > max(_LATE_MS, _MANY_GOALS * 1000 * kafka.slo_latency_s):
        return Finding(
            "lag",
            Verdict.warn,
            evidence,
            "it catches up, or headgate status FILE --once shows consumers that fail, headgate explain FILE what was "
            "decided; raise fleet.max_consumers if all of them work",
        )
    return Finding("lag", Verdict.ok, evidence)


def versions(kafka: KafkaFacts, now_ms: int) -> Finding:
    if kafka.refused:
        return Finding(
            "versions", Verdict.fail, _some(kafka.refused), "stop the pipeline, upgrade everywhere, start it"
        )
    at_work = [v for v in kafka.voices if now_ms - v.written_ms <= SILENT_MS]
    releases = sorted({v.release for v in at_work})
    if len(releases) > 1:
        named = [f"{release}: {_some([v.who for v in at_work if v.release == release])}" for release in releases]
        advice = "they understand each other; upgrade all to one release"
        return Finding("versions", Verdict.warn, "; ".join(named), advice)
    return Finding("versions", Verdict.ok, f"Headgate {releases[0]} everywhere" if releases else "nobody is at work")


def controller(kafka: KafkaFacts, now_ms: int) -> Finding:
    if kafka.alerts:
        advice = "headgate explain FILE says when and why; what is over by now needs nothing"
        return Finding("controller", Verdict.warn, f"raised within the last hour: {_some(kafka.alerts)}", advice)
    return Finding("controller", Verdict.ok, "raised no alert within the last hour")


def committer(kafka: KafkaFacts, now_ms: int) -> Finding:
    if kafka.problems:
        return Finding("committer", Verdict.fail, _some(kafka.problems), "docs/recover.md lists what each means")
    return Finding("committer", Verdict.ok, "reports no problem")


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
        return Finding("clocks", Verdict.unknown, "nothing was written yet that clocks could be compared by")
    worst = max(off, key=lambda who: abs(off[who]))
    evidence = f"{worst} differs most from the brokers: {off[worst] / 1000:+.1f} s"
    if abs(off[worst]) < _SKEW_WARN_MS:
        return Finding("clocks", Verdict.ok, evidence)
    verdict = Verdict.fail if abs(off[worst]) >= _SKEW_FAIL_MS else Verdict.warn
    return Finding("clocks", verdict, evidence, "run NTP there: latencies, heartbeats and snapshot expiry go by clocks")


def catalog(facts: Facts) -> Finding:
    if isinstance(facts.lake, str):
        return Finding("catalog", Verdict.fail, facts.lake, "check lake.catalog, and the catalog's server")
    if facts.lake.missing_tables:
        return Finding(
            "catalog",
            Verdict.warn,
            f"{facts.lake.catalog} answers; not there yet: {_some(facts.lake.missing_tables)}",
            "tables are made with their first record; if there are records, see the consumers' errors in status",
        )
    return Finding("catalog", Verdict.ok, f"{facts.lake.catalog} answers, {len(facts.lake.tables)} tables")


def ledger(lake: LakeFacts, now_ms: int) -> Finding:
    """Does every table say where to go on?"""
    if lake.ledgers.unread:
        return Finding(
            "ledger",
            Verdict.fail,
            _some(lake.ledgers.unread),
            "nothing is committed there until it can be read; docs/recover.md, The lake, says how to get it back",
        )
    return Finding("ledger", Verdict.ok, f"{len(lake.ledgers.positions):,} partitions")


def files(lake: LakeFacts, now_ms: int) -> Finding:
    worst = max(lake.tables, key=lambda t: t.files if _are_small(t, lake) else 0, default=None)
    if worst is None or not _are_small(worst, lake):
        count = sum(t.files for t in lake.tables)
        return Finding("files", Verdict.ok, f"{count:,} data files in {len(lake.tables)} tables")
    return Finding(
        "files",
        Verdict.warn,
        f"{worst.name}: {worst.files:,} files of {worst.bytes / worst.files / 1e6:.2g} MB on average",
        "readers open every one: headgate maintain FILE --apply, or lake.maintain_every_s",
    )


def _are_small(table: TableFacts, lake: LakeFacts) -> bool:
    return table.files > _FEW_FILES and table.bytes / table.files < lake.target_file_bytes / 4


def snapshots(lake: LakeFacts, now_ms: int) -> Finding:
    most = max(lake.tables, key=lambda t: t.snapshots, default=None)
    if most is None:
        return Finding("snapshots", Verdict.ok, "no table yet")
    evidence = f"{most.name} has {most.snapshots}, lake.keep_snapshots is {lake.keep_snapshots}"
    if most.snapshots <= 3 * lake.keep_snapshots:  # the committer expires every 25 commits
        return Finding("snapshots", Verdict.ok, evidence)
    return Finding(
        "snapshots", Verdict.warn, evidence, "every commit rewrites the list: headgate maintain FILE --apply"
    )


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
    return Finding("disk", verdict, evidence, "free some: headgate maintain FILE --apply sweeps files nobody refers to")


OF_KAFKA: tuple[Callable[[KafkaFacts, int], Finding], ...] = (
    topics,
    retention,
    parts,
    lag,
    versions,
    controller,
    committer,
    group,
    rejected,
    hot,
)
OF_LAKE: tuple[Callable[[LakeFacts, int], Finding], ...] = (ledger, files, snapshots)


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """Every check, in the order an operator would ask."""
    kafka, lake = facts.kafka, facts.lake
    findings = [broker(facts)]
    for of_kafka in OF_KAFKA:
        name = of_kafka.__name__
        findings.append(_not_asked(name, "the brokers") if isinstance(kafka, str) else of_kafka(kafka, facts.now_ms))
    findings += [clocks(facts), catalog(facts)]
    for of_lake in OF_LAKE:
        name = of_lake.__name__
        findings.append(_not_asked(name, "the catalog") if isinstance(lake, str) else of_lake(lake, facts.now_ms))
    return (*findings, disk(facts))


def _not_asked(check: str, whom: str) -> Finding:
    return Finding(check, Verdict.unknown, f"{whom} did not answer")


def _not_allowed(check: str, why: str) -> Finding:
    return Finding(check, Verdict.unknown, f"settings cannot be read: {why}", "allow DescribeConfigs on the topics")


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _rate(bytes_per_s: float) -> str:
    return BYTES_PER_S.format(round(bytes_per_s, -2))


def _ago(ms: int) -> str:
    return f"{max(0, ms) / 1000:.0f} s ago" if ms < 600_000 else f"{_span(ms)} ago"


def _in(ms: float) -> str:
    return f"in {_span(ms)}" if ms > 0 else "at any moment"


def _span(ms: float) -> str:
    hours = ms / _HOUR_MS
    if abs(hours) < 1:
        return f"{ms / 60_000:.0f} min"
    return f"{hours / 24:.1f} days" if abs(hours) >= 48 else f"{hours:.1f} hours"
