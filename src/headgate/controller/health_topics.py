"""The checks of `headgate doctor` that concern what is read: topics, how long Kafka keeps them, offsets, rates."""

from dataclasses import dataclass

from headgate.config.units import BYTES
from headgate.controller.health_values import Finding, KafkaFacts, PartitionFacts, TopicFacts, Verdict
from headgate.controller.health_words import HOUR_MS, ago, due, some, span, speed
from headgate.model import TopicPartition

_RATES_OLD_MS = 60_000
_REJECTED_WARN, _REJECTED_FAIL = 0.001, 0.05


def topics(kafka: KafkaFacts, now_ms: int) -> Finding:
    if kafka.missing_topics:
        return Finding(
            "topics", Verdict.fail, f"not there: {some(kafka.missing_topics)}", "create them, or fix `topics`"
        )
    if isinstance(kafka.topics, str):
        return _not_allowed("topics", kafka.topics)
    if not kafka.topics:
        return Finding("topics", Verdict.warn, "topics_pattern matches no topic", "create one, or fix `topics_pattern`")
    if kafka.unled:
        return Finding(
            "topics",
            Verdict.fail,
            f"no broker answers for {some([str(p) for p in kafka.unled])}",
            "they are not read while none leads them: are all brokers up?",
        )
    compacted = [t.name for t in kafka.topics if "compact" in t.cleanup_policy]
    if compacted:
        return Finding(
            "topics",
            Verdict.warn,
            f"compacted: {some(compacted)}",
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
            f"{gone:,} offsets were deleted before they were read: {some([str(p.partition) for p in lost])}",
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
                f"{worst.partition}: oldest unread record is deleted {due(worst.left_ms or 0)}, kept for "
                f"{span(worst.kept_ms)} ({worst.setting})",
                f"raise {worst.setting}, or let the pipeline catch up faster",
            )
    kept_ms = {t.name: float(t.retention_ms) for t in deleting.values() if t.retention_ms >= 0}
    for limit in limits:
        topic_name = limit.partition.topic
        kept_ms[topic_name] = min(limit.kept_ms, kept_ms.get(topic_name, limit.kept_ms))
    short = [name for name, kept in kept_ms.items() if kept < HOUR_MS]
    if short:
        return Finding(
            "retention",
            Verdict.warn,
            f"kept for less than an hour: {some(short)}",
            "a stop of the pipeline of that length loses records: raise retention.ms or retention.bytes",
        )
    timed = {limit.partition.topic for limit in limits if limit.setting == "retention.bytes"}
    sized = [
        f"{topic.name} {BYTES.format(topic.retention_bytes)}"
        for topic in deleting.values()
        if topic.retention_bytes >= 0 and topic.name not in timed
    ]
    known = [f"at least {span(min(kept_ms.values()))}"] if kept_ms else []
    known += [f"at write rates not known yet, so much of each partition: {some(sized)}"] if sized else []
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


def _not_allowed(check: str, why: str) -> Finding:
    return Finding(check, Verdict.unknown, f"settings cannot be read: {why}", "allow DescribeConfigs on the topics")


def group(kafka: KafkaFacts, now_ms: int) -> Finding:
    if kafka.astray is None:
        return Finding("group", Verdict.unknown, "the ledger could not be read", "see `ledger`, and mend that first")
    if kafka.astray:
        return Finding(
            "group",
            Verdict.warn,
            f"offsets are not the ledger's: {some(kafka.astray)}",
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
        return Finding(
            "hot", Verdict.unknown, "no write rates are known", "start the pipeline: its monitor measures them"
        )
    age_ms = now_ms - kafka.measured_ms
    if age_ms > _RATES_OLD_MS:
        return Finding(
            "hot",
            Verdict.unknown,
            f"write rates were last measured {ago(age_ms)}",
            "is the monitor at work? see `parts`",
        )
    measured = kafka.measured_capacities_bytes_per_s
    fastest_consumer = min(kafka.capacity_bytes_per_s, max(measured, default=kafka.capacity_bytes_per_s))
    above = [(p, rate) for p, rate in kafka.rates if rate > fastest_consumer]
    if not above:
        fastest = max(rate for _, rate in kafka.rates)
        return Finding("hot", Verdict.ok, f"fastest partition {speed(fastest)}, one consumer {_capacity(kafka)}")
    named = [f"{p} at {speed(rate)}" for p, rate in sorted(above, key=lambda a: -a[1])]
    return Finding(
        "hot",
        Verdict.fail,
        f"faster than one consumer, {_capacity(kafka)}: {some(named)}",
        "no number of consumers can fix this: more partitions, another key, or a larger consumer (headgate calibrate)",
    )


def _capacity(kafka: KafkaFacts) -> str:
    """As configured, and as measured where consumers did full cycles."""
    measured = kafka.measured_capacities_bytes_per_s
    shown = list(dict.fromkeys(speed(one) for one in (min(measured), max(measured)))) if measured else []
    beside = f" (measured {' to '.join(shown)})" if shown else ""
    return f"{speed(kafka.capacity_bytes_per_s)}{beside}"
