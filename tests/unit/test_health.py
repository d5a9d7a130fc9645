"""The checks of `headgate doctor`, one fact changed at a time from a pipeline that is well."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.config import Pipeline, load_pipeline
from headgate.controller import health_facts
from headgate.controller.health import diagnose
from headgate.controller.health_facts import voices
from headgate.controller.health_values import (
    DiskFacts,
    Facts,
    Finding,
    KafkaFacts,
    LakeFacts,
    LedgerFacts,
    PartitionFacts,
    SmallFiles,
    TableFacts,
    TopicFacts,
    Verdict,
    Voice,
)
from headgate.kafka.channel import Received
from headgate.kafka.codec import Origin
from headgate.lake.catalogs import open_catalog
from headgate.model import TopicPartition
from headgate.model.messages import ConsumerCapacity, ConsumerLeft, ConsumerState, ControllerState

NOW_MS = 1_772_366_400_000
HOUR_MS = 3_600_000
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def voice(who: str, ago_ms: int = 1000, off_ms: int = 0, release: str = "1.0") -> Voice:
    return Voice(who, NOW_MS - ago_ms + off_ms, NOW_MS - ago_ms, release)


EVERYBODY = tuple(voice(who) for who in ("consumer 1", "the committer", "the controller", "the monitor"))
FAILING = replace(voice("consumer 3"), error="no space left")
KAFKA = KafkaFacts(
    brokers=1,
    missing_topics=(),
    has_run=True,
    topics=(TopicFacts("a", "delete", 24 * HOUR_MS),),
    partitions=(PartitionFacts(A0, 0, 100, 100), PartitionFacts(A1, 5, 50, 40, NOW_MS - 60_000)),
    astray=(),
    rates=((A0, 1e6), (A1, 1.9e6)),
    measured_ms=NOW_MS - 1000,
    capacity_bytes_per_s=2e6,
    measured_capacities_bytes_per_s=(),
    voices=EVERYBODY,
    refused=(),
    recent_rows=10_000,
    recent_rejected=1,
    problems=(),
)
LAKE = LakeFacts(
    catalog="headgate",
    tables=(TableFacts("lake.t", 50, 30, NOW_MS - 1000),),
    missing_tables=(),
    ledgers=LedgerFacts({A0: 100, A1: 40}),
    keep_snapshots=30,
    keep_hourly=24,
)
DISKS = (DiskFacts("home", 50, 100), DiskFacts("the warehouse", 60, 100))


def verdict(check: str, kafka: KafkaFacts | str = KAFKA, lake: LakeFacts | str = LAKE) -> Finding:
    (found,) = (f for f in diagnose(Facts(NOW_MS, kafka, lake, DISKS)) if f.check == check)
    return found


def test_a_pipeline_that_is_well_passes_every_check_and_needs_no_advice() -> None:
    findings = diagnose(Facts(NOW_MS, KAFKA, LAKE, DISKS))
    assert {f.verdict for f in findings} == {Verdict.ok}
    assert {f.advice for f in findings} == {""}


@pytest.mark.parametrize(
    ("check", "change", "expected", "evidence"),
    [
        ("topics", {"missing_topics": ("b",)}, "fail", "not there: b"),
        ("topics", {"topics": (TopicFacts("a", "compact", -1),)}, "warn", "compacted: a"),
        ("topics", {"topics": ()}, "warn", "matches no topic"),
        ("topics", {"unled": (A1,)}, "fail", "no broker answers for a-1"),
        # 10 offsets of [30, 40) were deleted before they were read.
        ("retention", {"partitions": (PartitionFacts(A0, 40, 50, 30),)}, "fail", "10 offsets were deleted"),
        # Kept for 24 h: of the oldest unread record 5 h are left (less than 6), then 1 h (less than 1.2).
        ("retention", {"partitions": (PartitionFacts(A0, 0, 9, 1, NOW_MS - 19 * HOUR_MS),)}, "warn", "5.0 hours"),
        ("retention", {"partitions": (PartitionFacts(A0, 0, 9, 1, NOW_MS - 23 * HOUR_MS),)}, "fail", "1.0 hours"),
        ("retention", {"topics": (TopicFacts("a", "delete", HOUR_MS // 2),), "partitions": ()}, "warn", "an hour"),
        ("retention", {"topics": (TopicFacts("a", "delete", -1),)}, "ok", "kept for ever"),
        ("group", {"astray": ("a-0 7 instead of 9",)}, "warn", "a-0 7 instead of 9"),
        ("rejected", {"recent_rows": 990, "recent_rejected": 10}, "warn", "1.00%"),
        ("rejected", {"recent_rows": 90, "recent_rejected": 10}, "fail", "10.00%"),
        ("rejected", {"recent_rows": 0, "recent_rejected": 0}, "ok", "0 of 0"),
        ("hot", {"rates": ((A0, 1e6), (A1, 2.1e6))}, "fail", "a-1 at 2.1 MB/s"),
        ("hot", {"measured_capacities_bytes_per_s": (1.2e6, 2.4e6)}, "ok", "2 MB/s (measured 1.2 MB/s to 2.4 MB/s)"),
        ("hot", {"measured_capacities_bytes_per_s": (1.2e6, 1.5e6)}, "fail", "(measured 1.2 MB/s to 1.5 MB/s): a-1"),
        ("hot", {"measured_capacities_bytes_per_s": (3e6,)}, "ok", "1.9 MB/s, one consumer 2 MB/s (measured 3 MB/s)"),
        ("parts", {"has_run": False, "voices": ()}, "warn", "never run"),
        ("parts", {"voices": EVERYBODY[:2]}, "fail", "never heard: the monitor, the controller"),
        ("parts", {"voices": (*EVERYBODY[1:], voice("consumer 1", 40_000))}, "fail", "consumer 1 40 s ago"),
        ("parts", {"voices": (*EVERYBODY, voice("consumer 2", 3_600_000))}, "ok", "consumer 1"),
        ("parts", {"voices": (*EVERYBODY, FAILING)}, "warn", "consumer 3: no space left"),
        ("parts", {"voices": (*EVERYBODY, replace(FAILING, written_ms=NOW_MS - HOUR_MS))}, "ok", "consumer 1"),
        ("lag", {"voices": EVERYBODY[1:]}, "fail", "10 records wait, the oldest for 1 min, and no consumer is at"),
        # With a goal of 10 s the oldest is late after 100 s, with one of 2 s after a minute.
        ("lag", {"partitions": (PartitionFacts(A0, 0, 9, 1, NOW_MS - 101_000),)}, "warn", "8 records wait"),
        ("lag", {"partitions": (PartitionFacts(A0, 0, 9, 1, NOW_MS - 99_000),)}, "ok", "8 records wait"),
        (
            "lag",
            {"partitions": (PartitionFacts(A0, 0, 9, 1, NOW_MS - 61_000),), "slo_latency_s": 2.0},
            "warn",
            "8 records wait, the oldest for 1 min",
        ),
        ("lag", {"partitions": (PartitionFacts(A0, 5, 9, None), PartitionFacts(A1, 0, 3, 3))}, "ok", "is in the lake"),
        (
            "controller",
            {"alerts": ("consumer 1 was given up", "a-1 is hot")},
            "warn",
            "hour: consumer 1 was given up, a",
        ),
        ("versions", {"refused": ("consumer 3 is refused",)}, "fail", "consumer 3 is refused"),
        ("versions", {"voices": (*EVERYBODY, voice("consumer 2", release="1.1"))}, "warn", "1.1: consumer 2"),
        ("committer", {"problems": ("lake.t: topic a was made anew",)}, "fail", "made anew"),
        ("clocks", {"voices": (*EVERYBODY, voice("consumer 2", off_ms=-5000))}, "warn", "consumer 2 differs most"),
        ("clocks", {"voices": (*EVERYBODY, voice("consumer 2", off_ms=60_000))}, "fail", "+60.0 s"),
        ("clocks", {"voices": (voice("the monitor", ago_ms=-40_000),)}, "fail", "this machine"),
    ],
)
def test_what_is_wrong_in_kafka_is_told_with_evidence_and_advice(
    check: str, change: dict[str, Any], expected: str, evidence: str
) -> None:
    found = verdict(check, replace(KAFKA, **change))
    assert (found.verdict, bool(found.advice)) == (expected, expected != "ok")
    assert evidence in found.evidence


def test_what_the_committer_reports_is_on_the_page_that_is_pointed_to() -> None:
    advice = verdict("committer", replace(KAFKA, problems=("lake.t: topic a was deleted and made anew",))).advice
    page = Path(__file__).parents[2] / advice.split()[0]
    assert "was deleted and made anew" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "evidence"),
    [
        ({"measured_ms": None, "rates": ()}, "no write rates are known"),
        ({"rates": ()}, "no write rates are known"),
        ({"measured_ms": NOW_MS - 61_000}, "write rates were last measured 61 s ago"),
    ],
)
def test_nobody_knows_whether_a_partition_is_hot_that_was_not_measured_lately(
    change: dict[str, Any], evidence: str
) -> None:
    found = verdict("hot", replace(KAFKA, **change))
    assert (found.verdict, found.evidence) == (Verdict.unknown, evidence)


@pytest.mark.parametrize(
    ("silent", "advice"),
    [
        ({"the committer"}, "headgate run FILE --roles committer"),
        ({"the committer", "the monitor"}, "headgate run FILE --roles monitor,committer"),
        ({"the controller", "the monitor"}, "start the pipeline: headgate run FILE"),
        ({"consumer 1"}, "the controller replaces consumers; its log says why it did not"),
    ],
)
def test_beside_a_controller_that_works_only_what_is_missing_is_to_be_started(silent: set[str], advice: str) -> None:
    voices = tuple(voice(v.who, 40_000) if v.who in silent else v for v in EVERYBODY)
    assert verdict("parts", replace(KAFKA, voices=voices)).advice.endswith(advice)


@pytest.mark.parametrize(
    ("check", "change", "expected", "evidence"),
    [
        ("catalog", {"missing_tables": ("lake.u",)}, "warn", "not there yet: lake.u"),
        ("catalog", {"unread_tables": ("lake.u",)}, "fail", "headgate answers; cannot be read: lake.u"),
        ("ledger", {"ledgers": LedgerFacts({}, ("lake.t: no snapshot carries it",))}, "fail", "lake.t: no snapshot"),
        ("files", {"small_files": (SmallFiles("lake.t__rejected", 200, 10**8),)}, "warn", "d: 200 small files, 0.5 MB"),
        ("files", {"small_files": (SmallFiles("lake.t", 100, 10**8),)}, "ok", "50 data files"),
        ("snapshots", {"tables": (TableFacts("lake.t", 1, 115, 0),)}, "warn", "lake.t has 115"),
        ("clocks", {"tables": (TableFacts("lake.t", 1, 1, NOW_MS + 60_000),)}, "fail", "lake.t's newest snapshot"),
    ],
)
def test_what_is_wrong_in_the_lake_is_told_with_evidence_and_advice(
    check: str, change: dict[str, Any], expected: str, evidence: str
) -> None:
    found = verdict(check, lake=replace(LAKE, **change))
    assert (found.verdict, bool(found.advice)) == (expected, expected != "ok")
    assert evidence in found.evidence


@pytest.mark.parametrize(
    ("home_free", "warehouse_free", "expected", "evidence"),
    [
        (50, 9, "warn", "the warehouse: 9.0 of 100.0 GB free"),
        (2, 9, "fail", "home: 2.0 of 100.0 GB free"),
        (11, 11, "ok", "home and the warehouse: 11.0 of 100.0 GB free"),
        (2, None, "fail", "home: 2.0 of 100.0 GB free"),  # an object store, and a home without room
    ],
)
def test_the_fuller_disk_of_home_and_warehouse_counts(
    home_free: int, warehouse_free: int | None, expected: str, evidence: str
) -> None:
    disks = [DiskFacts("home", home_free * 10**9, 100 * 10**9)]
    if warehouse_free is not None:
        disks.append(DiskFacts("the warehouse", warehouse_free * 10**9, 100 * 10**9))
    *_, found = diagnose(Facts(NOW_MS, KAFKA, LAKE, tuple(disks)))
    assert (found.check, found.verdict, found.evidence) == ("disk", expected, evidence)


def test_a_file_system_that_does_not_tell_its_size_is_not_judged() -> None:
    unknown, full = DiskFacts("home", 0, 0), DiskFacts("the warehouse", 1, 10**9)
    assert [diagnose(Facts(NOW_MS, KAFKA, LAKE, disks))[-1].verdict for disks in ((unknown,), (unknown, full))] == [
        Verdict.ok,
        Verdict.fail,
    ]


def test_disks_are_looked_at_where_home_is_and_where_a_local_warehouse_is_however_it_is_written(tmp_path: Path) -> None:
    def places(warehouse: str) -> list[str]:
        return [d.what for d in health_facts._disks(pipeline(tmp_path, warehouse))]

    assert places(f"{tmp_path}/not/there/yet") == ["home", "the warehouse"]
    assert places(f"file://{tmp_path}/lake") == ["home", "the warehouse"]
    assert places("s3://bucket/lake") == ["home"]


def test_the_disk_of_a_folder_that_cannot_be_looked_at_is_that_of_the_nearest_above_it(tmp_path: Path) -> None:
    too_long = tmp_path / ("x" * 300)  # like a folder of somebody else's, which root could look at
    assert health_facts._disk("home", too_long).all_bytes == shutil.disk_usage(tmp_path).total


def pipeline(folder: Path, warehouse: str) -> Pipeline:
    file = folder / "pipeline.yaml"
    lake = f"lake: {{warehouse: '{warehouse}'}}"
    file.write_text(f"name: p\nkafka: {{brokers: 'b:1'}}\ntopics: [a]\ntables: [{{name: lake.t}}]\n{lake}\n")
    return load_pipeline(file, {})


def test_one_table_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    tables = "tables: [{name: lake.good}, {name: lake.bad}]"
    lake = f"lake: {{warehouse: '{tmp_path}/warehouse'}}\nhome: {tmp_path}/home"
    file.write_text(f"name: p\nkafka: {{brokers: 'b:1'}}\ntopics: [a]\n{tables}\n{lake}\n")
    asked = load_pipeline(file, {})
    asked.home.mkdir()
    catalog = open_catalog(asked.lake)
    catalog.create_namespace("lake")
    for name in ("good", "bad"):
        catalog.create_table(f"lake.{name}", pa.schema([("value", pa.string())]), location=f"{tmp_path}/{name}")
    for metadata in (tmp_path / "bad" / "metadata").iterdir():
        metadata.unlink()
    _, facts = health_facts._lake(asked)
    assert isinstance(facts, LakeFacts)
    assert [table.name for table in facts.tables] == ["lake.good"]
    (why,) = facts.ledgers.unread
    assert why.startswith("lake.bad: the metadata that the catalog names is not there: ")
    said = {f.check: (f.verdict, f.evidence) for f in diagnose(Facts(NOW_MS, KAFKA, facts, DISKS))}
    assert said["catalog"] == (Verdict.fail, "headgate answers; cannot be read: lake.bad")
    assert said["files"] == (Verdict.ok, "0 data files in 1 tables")


def test_whatever_is_not_well_comes_with_what_to_do() -> None:
    nobody = replace(KAFKA, astray=None, measured_ms=None, rates=(), voices=())
    for kafka in (KAFKA, nobody, "no broker answered"):
        for lake in (LAKE, replace(LAKE, tables=()), "no catalog answered"):
            findings = diagnose(Facts(NOW_MS, kafka, lake, DISKS))
            assert [f.check for f in findings if f.verdict is not Verdict.ok and not f.advice] == []


def by_size(retention_bytes: int, *partitions: PartitionFacts) -> Finding:
    topic = TopicFacts("a", "delete", -1, retention_bytes)
    return verdict("retention", replace(KAFKA, topics=(topic,), partitions=partitions))


def test_what_is_kept_by_size_is_told_as_the_time_it_lasts_at_the_rate_it_is_written_at() -> None:
    # 18 GB at 1 MB/s, that is 1000 records of 1 kB: 18,000 s or 5 h.
    read = PartitionFacts(A0, 0, 100, 100, None, 1e6, 1000.0)
    assert by_size(18 * 10**9, read) == Finding("retention", Verdict.ok, "at least 5.0 hours")
    # 14.4 million records of 1 kB are unread: 3.6 of 18 GB are left, 1 h; a fifth of 5 h warns, a fortieth fails.
    behind = PartitionFacts(A1, 0, 14_400_000, 0, None, 1e6, 1000.0)
    found = by_size(18 * 10**9, read, behind)
    assert found.verdict is Verdict.warn
    assert found.evidence == "a-1: oldest unread record is deleted in 1.0 hours, kept for 5.0 hours (retention.bytes)"
    assert "raise retention.bytes" in found.advice
    last = replace(behind, end=17_550_000)
    assert by_size(18 * 10**9, last).verdict is Verdict.fail
    over = replace(behind, end=19_000_000)
    assert "is deleted at any moment" in by_size(18 * 10**9, over).evidence
    # 100 MB at 1 MB/s: 100 s.
    assert by_size(10**8, read).verdict is Verdict.warn
    # Nobody measured yet: a bound all the same, and no "for ever".
    unknown = by_size(5 * 10**9, PartitionFacts(A0, 0, 100, 100))
    assert (unknown.verdict, "a 5 GB" in unknown.evidence) == (Verdict.ok, True)


def test_settings_that_may_not_be_read_leave_topics_and_retention_unknown_and_nothing_else() -> None:
    kafka = replace(KAFKA, topics="Topic authorization failed.")
    findings = {f.check: f for f in diagnose(Facts(NOW_MS, kafka, LAKE, DISKS))}
    assert {c for c, f in findings.items() if f.verdict is not Verdict.ok} == {"topics", "retention"}
    assert {findings[c].verdict for c in ("topics", "retention")} == {Verdict.unknown}
    assert "DescribeConfigs" in findings["retention"].advice
    # What can be seen without them still is.
    gone = replace(kafka, missing_topics=("b",), partitions=(PartitionFacts(A0, 40, 50, 30),))
    assert {verdict(check, gone).verdict for check in ("topics", "retention")} == {Verdict.fail}


def test_a_ledger_that_cannot_be_read_leaves_the_groups_offsets_unknown_and_all_else_of_kafka_known() -> None:
    findings = {f.check: f.verdict for f in diagnose(Facts(NOW_MS, replace(KAFKA, astray=None), LAKE, DISKS))}
    assert {check for check, found in findings.items() if found is not Verdict.ok} == {"group"}
    assert findings["group"] is Verdict.unknown


def test_without_an_answer_one_check_fails_and_those_that_depend_on_it_are_unknown() -> None:
    findings = {f.check: f.verdict for f in diagnose(Facts(NOW_MS, "no answer", "no catalog", DISKS))}
    assert {check for check, found in findings.items() if found is Verdict.fail} == {"broker", "catalog"}
    assert {check for check, found in findings.items() if found is Verdict.ok} == {"disk"}
    assert {found for check, found in findings.items() if check not in ("broker", "catalog", "disk")} == {
        Verdict.unknown
    }


def test_the_last_word_of_everybody_counts_and_who_said_good_bye_is_gone() -> None:
    def word(message: object, written_ms: int) -> Received:
        return Received("control", 0, 0, message, written_ms, Origin(1, "1.0", ""))

    def state(consumer_id: int, at_ms: int, error: str = "") -> ConsumerState:
        return ConsumerState("", consumer_id, "life", (), at_ms, 0, 0, 0, 0, 0.0, 0.0, 0.0, error)

    heard = [
        word(state(1, 10), 11),
        word(state(2, 10), 11),
        word(state(1, 20, "no room"), 21),
        word(ConsumerLeft(2, "life", 20, "stopped"), 21),
        word(ControllerState(1, 15, 0, "Sentinel", 1), 16),
    ]
    assert voices(heard) == (Voice("consumer 1", 20, 21, "1.0", "no room"), Voice("the controller", 15, 16, "1.0"))


def test_capacities_are_those_that_the_controller_told_last_of_consumers_that_measured_theirs() -> None:
    def beat(*measured: float) -> Received:
        capacities = tuple(ConsumerCapacity(n, one, 2e6) for n, one in enumerate(measured, 1))
        return Received("control", 0, 0, ControllerState(1, 0, 0, "Sentinel", 1, capacities=capacities))

    def state(consumer_id: int, full_cycles: int) -> Received:
        said = ConsumerState("", consumer_id, "life", (), 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, "", full_cycles)
        return Received("control", 0, 0, said)

    heard = [beat(9e6), beat(0.0, 1e6, 3e6)]
    assert health_facts._measured_capacities(heard) == (1e6, 3e6)
    assert health_facts._measured_capacities([state(2, 9), state(3, 9), state(2, 2), *heard]) == (3e6,), "began anew"
    assert health_facts._measured_capacities([]) == ()
