"""What `headgate doctor` finds out about a pipeline by asking its brokers, its own topics, its catalog and its disk."""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable

from headgate.config.clients import librdkafka_settings
from headgate.config.pipeline import Pipeline
from headgate.controller.health_values import (
    DiskFacts,
    Facts,
    KafkaFacts,
    LakeFacts,
    LedgerFacts,
    PartitionFacts,
    SmallFiles,
    TableFacts,
    TopicFacts,
    Voice,
)
from headgate.controller.ports import DRY_RUN
from headgate.errors import HeadgateError, KafkaUnavailable, LakeError, Outdated
from headgate.kafka.channel import BEGINNING, Last, Received, Tail
from headgate.kafka.internal_topics import Topics
from headgate.kafka.monitor import OF_A_DRY_RUN
from headgate.kafka.offsets import beginning_offsets, end_offsets, group_offsets, partitions_where, written_at_ms
from headgate.kafka.topic_settings import topic_settings
from headgate.lake.catalogs import is_unmade, open_catalog
from headgate.lake.compaction import Compaction, plan_compaction
from headgate.lake.ledger import read_ledger
from headgate.lake.tables import load_table
from headgate.lake.upkeep import upkeep_tables
from headgate.lake.words import check_that_nobody_older_works
from headgate.model import TopicPartition
from headgate.model.messages import (
    CommitRecord,
    ConsumerLeft,
    ConsumerState,
    ControllerState,
    DecisionRecord,
    LedgerState,
    Measurement,
    PartitionRate,
)
from headgate.policies.believing import CYCLES

Positions = Mapping[TopicPartition, int]

_DEADLINE_S = 10.0
_HOUR_MS = 3_600_000
_MOST_AGES = 20
"""Partitions whose oldest unread record is looked up: those that lag most."""
_MIRROR_WAIT_S = 3.0
_DECISIONS = 50
"""Of the newest, alerts are looked for."""


def facts_of(pipeline: Pipeline) -> Facts:
    """Asks everybody; whoever does not answer is described by why."""
    catalog, lake = _lake(pipeline)
    ledgers = lake.ledgers if isinstance(lake, LakeFacts) else LedgerFacts({}, (lake,))
    kafka = _kafka(pipeline, ledgers, lambda: _ledgers(pipeline, catalog))
    return Facts(int(time.time() * 1000), kafka, lake, _disks(pipeline))


def _lake(pipeline: Pipeline) -> tuple[Catalog | None, LakeFacts | str]:
    lake = pipeline.lake
    found: dict[str, IcebergTable | None] = {}
    unread = dict[str, Exception]()
    try:
        catalog = None if is_unmade(lake) else open_catalog(lake)
    except Exception as error:  # noqa: BLE001 — catalogs fail in ways of their own; all are shown
        return None, _first_line(pipeline, error)
    for table in pipeline.tables:
        try:
            found[table.name] = None if catalog is None else load_table(catalog, table.name)
        except Exception as error:  # noqa: BLE001 — as above; the other tables are looked at all the same
            unread[table.name] = error
    if not found and not any(isinstance(error, LakeError) for error in unread.values()):  # nobody answered
        return None, _first_line(pipeline, next(iter(unread.values())))
    small = _small_files(pipeline, catalog, found, unread)
    facts = LakeFacts(
        catalog=lake.catalog_name,
        tables=tuple(_table(name, table) for name, table in found.items() if table is not None),
        missing_tables=tuple(name for name, table in found.items() if table is None),
        unread_tables=tuple(unread),
        ledgers=_ledgers(pipeline, catalog),
        keep_snapshots=lake.keep_snapshots,
        keep_hourly=lake.keep_hourly,
        small_files=small,
    )
    return catalog, facts


def _small_files(
    pipeline: Pipeline, catalog: Catalog | None, loaded: Mapping[str, IcebergTable | None], unread: dict[str, Exception]
) -> tuple[SmallFiles, ...]:
    """Of all tables that upkeep looks after; those that cannot be read are added to `unread`."""
    found = []
    for name in upkeep_tables(pipeline):
        if catalog is None or name in unread:
            continue
        try:
            table = loaded[name] if name in loaded else load_table(catalog, name)
            groups = [] if table is None else plan_compaction(table, pipeline.lake.target_file_bytes)
        except Exception as error:  # noqa: BLE001 — as above
            unread[name] = error
            continue
        small = Compaction().plus(groups)
        found += [SmallFiles(name, small.files, small.bytes)] if small.files else []
    return tuple(found)


def _first_line(pipeline: Pipeline, error: Exception) -> str:
    return pipeline.redact(str(error).splitlines()[0] if str(error) else repr(error))


def _ledgers(pipeline: Pipeline, catalog: Catalog | None) -> LedgerFacts:
    """The slowest table's position of each partition, from the lake itself."""
    slowest: dict[TopicPartition, int] = {}
    unread = []
    for config in pipeline.tables:
        try:
            table = None if catalog is None else load_table(catalog, config.name)
            following = {} if table is None else read_ledger(table).next
        except Exception as error:  # noqa: BLE001 — as above; the other tables' are told all the same
            unread.append(f"{config.name}: {_first_line(pipeline, error).removeprefix(f'{config.name}: ')}")
            continue
        for partition, at in following.items():
            slowest[partition] = min(at, slowest.get(partition, at))
    return LedgerFacts(slowest, tuple(unread))


def _table(name: str, table: IcebergTable) -> TableFacts:
    newest = table.current_snapshot()
    totals = newest.summary.additional_properties if newest is not None and newest.summary is not None else {}
    return TableFacts(
        name,
        int(totals.get("total-data-files", 0)),
        len(table.metadata.snapshots),
        newest.timestamp_ms if newest is not None else 0,
    )


def _disks(pipeline: Pipeline) -> tuple[DiskFacts, ...]:
    places = {"home": pipeline.home, "the warehouse": pipeline.lake.local_folder}
    return tuple(_disk(what, folder) for what, folder in places.items() if folder is not None)


def _disk(what: str, folder: Path) -> DiskFacts:
    """Of the folder, or of the nearest above it that is there and that we may see: `Path.exists` would raise."""
    existing = next(place for place in (folder, *folder.parents) if os.path.exists(place))
    usage = shutil.disk_usage(existing)
    return DiskFacts(what, usage.free, usage.total)


def _kafka(pipeline: Pipeline, ledgers: LedgerFacts, ledgers_now: Callable[[], LedgerFacts]) -> KafkaFacts | str:
    settings = librdkafka_settings(pipeline)
    try:
        return _ask_brokers(pipeline, settings, AdminClient(dict(settings)), ledgers, ledgers_now)
    except KafkaException as error:
        return pipeline.redact(error.args[0].str())
    except Outdated:
        raise  # whoever asks is the one to upgrade
    except HeadgateError as error:
        return pipeline.redact(str(error))


def _ask_brokers(
    pipeline: Pipeline,
    settings: Mapping[str, Any],
    admin: AdminClient,
    ledgers: LedgerFacts,
    ledgers_now: Callable[[], LedgerFacts],
) -> KafkaFacts:
    try:
        listed = admin.list_topics(timeout=_DEADLINE_S)
    except KafkaException as error:
        raise KafkaUnavailable(f"no answer within {_DEADLINE_S:g} s: {error.args[0].str()}") from error
    names = Topics(pipeline.name)
    has_run = names.control in listed.topics
    partitions = partitions_where(admin, lambda topic: bool(pipeline.tables_of(topic)), _DEADLINE_S)
    heard = _listen(settings, names) if has_run else _Heard([], (), [])
    commits = [r.message for r in heard.commits if isinstance(r.message, CommitRecord)]
    measured = next((r for r in reversed(heard.words) if isinstance(r.message, Measurement)), None)
    rates = {TopicPartition(r.topic, r.partition): r for r in (measured.message.rates if measured else ())}
    positions = {**_origins(pipeline, heard.words), **ledgers.positions}
    described = _partitions(settings, admin, pipeline, partitions, positions, rates)
    return KafkaFacts(
        brokers=len(listed.brokers),
        missing_topics=tuple(topic for topic in pipeline.topics if topic not in listed.topics),
        has_run=has_run,
        topics=_topics(admin, {p.topic for p in partitions}),
        partitions=described,
        astray=_astray(pipeline, settings, ledgers, ledgers_now),
        rates=tuple(
            (partition, rate.bytes_per_s * len(pipeline.tables_of(partition.topic)))
            for partition, rate in rates.items()
        ),
        measured_ms=measured.written_ms if measured else None,
        capacity_bytes_per_s=pipeline.policy.consumer_capacity_bytes_per_s,
        measured_capacities_bytes_per_s=_measured_capacities(heard.words),
        voices=voices(heard.words),
        refused=heard.refused,
        recent_rows=sum(c.rows for c in commits),
        recent_rejected=sum(c.rejected for c in commits),
        problems=_problems(pipeline, heard.words),
        alerts=_alerts(heard.words, time.time() * 1000),
        slo_latency_s=pipeline.slo.latency_s,
        unled=tuple(sorted(partitions - {facts.partition for facts in described})),
    )


def _origins(pipeline: Pipeline, words: Iterable[Received]) -> dict[TopicPartition, int]:
    """Where the committer says that partitions begin: until its first commit a table has no ledger of its own."""
    said = [w.message for w in words if isinstance(w.message, LedgerState)]
    return {partition: at for word in said for partition, at in pipeline.landed(word).items()}


def _topics(admin: AdminClient, names: Iterable[str]) -> tuple[TopicFacts, ...] | str:
    """Reading settings is a permission of its own, and not one that ingestion needs."""
    try:
        configured = topic_settings(admin, sorted(names), _DEADLINE_S)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return str(error.args[0].str())
        raise
    return tuple(
        TopicFacts(
            name,
            its.get("cleanup.policy", "delete"),
            int(its.get("retention.ms", -1)),
            int(its.get("retention.bytes", -1)),
        )
        for name, its in configured.items()
    )


def _partitions(
    settings: Mapping[str, Any],
    admin: AdminClient,
    pipeline: Pipeline,
    partitions: frozenset[TopicPartition],
    ledger: Positions,
    rates: Mapping[TopicPartition, PartitionRate],
) -> tuple[PartitionFacts, ...]:
    if not partitions:
        return ()
    ends = end_offsets(admin, partitions, pipeline.kafka.isolation == "read_committed", _DEADLINE_S)
    begins = beginning_offsets(admin, partitions, _DEADLINE_S)
    unread = {p: max(at, begins[p]) for p, at in ledger.items() if p in ends and p in begins and at < ends[p]}
    furthest = sorted(unread, key=lambda p: unread[p] - ends[p])[:_MOST_AGES]
    ages = written_at_ms(settings, {p: unread[p] for p in furthest}) if furthest else {}
    return tuple(
        PartitionFacts(p, begins[p], ends[p], ledger.get(p), ages.get(p), *_written_per_s(rates.get(p)))
        for p in sorted(partitions)
        if p in ends and p in begins
    )


def _written_per_s(rate: PartitionRate | None) -> tuple[float, float]:
    """Bytes and records."""
    return (0.0, 0.0) if rate is None else (rate.bytes_per_s, rate.records_per_s)


def _astray(
    pipeline: Pipeline, settings: Mapping[str, Any], before: LedgerFacts, ledgers_now: Callable[[], LedgerFacts]
) -> tuple[str, ...] | None:
    """Group offsets are written a moment after each commit: right is whatever the ledger was while we asked."""
    if before.unread:
        return None
    for look in range(2 if before.positions else 0):
        mirrored = group_offsets(settings, pipeline.group, before.positions, _DEADLINE_S)
        after = ledgers_now()
        if after.unread:
            return None
        astray = tuple(
            f"{p} {mirrored.get(p, 'none')} instead of {at}"
            for p, at in sorted(before.positions.items())
            if not at <= mirrored.get(p, -1) <= after.positions.get(p, at)
        )
        if not astray or look:
            return astray
        time.sleep(_MIRROR_WAIT_S)
    return ()


class _Heard:
    def __init__(self, words: list[Received], refused: tuple[str, ...], commits: list[Received]) -> None:
        self.words, self.refused, self.commits = words, refused, commits


def _listen(settings: Mapping[str, Any], names: Topics) -> _Heard:
    tail = Tail(
        settings,
        {
            (names.control, 0): Last(1000),
            (names.measurements, 0): Last(1),
            (names.ledger, 0): BEGINNING,
            (names.decisions, 0): Last(_DECISIONS),
        },
    )
    try:
        words = tail.read_to_end(newest_of=names.ledger)
        now_ms = time.time() * 1000
        commits = tail.read_between(names.commits, now_ms - _HOUR_MS, now_ms + _HOUR_MS)
        return _Heard(words, tuple(tail.outdated.values()), commits)
    finally:
        tail.close()


def consumers_heard_since(pipeline: Pipeline, settings: Mapping[str, Any], since_s: float) -> list[str]:
    """Those that have not said good-bye. LakeError if somebody of an older release is at work."""
    tail = Tail(settings, {(Topics(pipeline.name).control, 0): Last(1000)})
    try:
        heard = voices(tail.read_to_end())
    finally:
        tail.close()
    check_that_nobody_older_works(tail.outdated)
    return [v.who for v in heard if v.who.startswith("consumer ") and v.written_ms > 1000 * since_s]


def voices(words: Iterable[Received]) -> tuple[Voice, ...]:
    """The last word of everybody who has not said good-bye."""
    last: dict[str, Voice] = {}
    for one in sorted(words, key=lambda w: w.written_ms):
        error = ""
        match one.message:
            case ConsumerState() as said:
                who, error = f"consumer {said.consumer_id}", said.last_error
            case ConsumerLeft() as left:
                last.pop(f"consumer {left.consumer_id}", None)
                continue
            case ControllerState() as said:
                who = "the controller"
            case Measurement() as said if one.origin.sender != OF_A_DRY_RUN:
                who = "the monitor"
            case LedgerState() as said:
                who = "the committer"
            case _:
                continue
        last[who] = Voice(who, said.at_ms, one.written_ms, one.origin.release, error)
    return tuple(last[who] for who in sorted(last))


def _measured_capacities(words: Sequence[Received]) -> tuple[float, ...]:
    """As the controller last told them, without those who only began to measure."""
    told = [w.message.capacities for w in words if isinstance(w.message, ControllerState)]
    cycles = {w.message.consumer_id: w.message.full_cycles for w in words if isinstance(w.message, ConsumerState)}
    known = [one for one in (told[-1] if told else ()) if one.measured_bytes_per_s > 0]
    return tuple(one.measured_bytes_per_s for one in known if not 0 < cycles.get(one.consumer_id, 0) < CYCLES)


def _problems(pipeline: Pipeline, words: Iterable[Received]) -> tuple[str, ...]:
    newest = {w.message.table: w.message for w in words if isinstance(w.message, LedgerState)}
    ours = [table.name for table in pipeline.tables if table.name in newest]
    return tuple(f"{table}: {problem}" for table in sorted(ours) for problem in newest[table].problems)


def _alerts(words: Iterable[Received], now_ms: float) -> tuple[str, ...]:
    said = [w.message for w in words if isinstance(w.message, DecisionRecord) and now_ms - w.message.at_ms < _HOUR_MS]
    newest_first = sorted((d for d in said if d.outcome != DRY_RUN), key=lambda d: -d.at_ms)
    return tuple(dict.fromkeys(alert for decision in newest_first for alert in decision.alerts))
