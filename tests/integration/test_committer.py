"""The committer with real Kafka and real tables; announcements are made by hand, so that each can be right or wrong."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient
from prometheus_client import REGISTRY
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.errors import LakeError
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.internal_topics import ensure_topics
from headgate.kafka.java_programs import run_kafka_tool
from headgate.kafka.offsets import TopicIds, group_offsets, topic_ids
from headgate.lake.catalogs import open_catalog
from headgate.lake.commit import TableCommitter
from headgate.lake.committer import Committer
from headgate.lake.ledger import LEDGER, decode_ledger, read_ledger, summary
from headgate.lake.maintenance import expire_snapshots
from headgate.lake.sweep import sweep_orphans
from headgate.lake.tables import table_location
from headgate.model import Announcement, Range, TopicPartition
from headgate.model.messages import CommitRecord, LedgerState, Verdict
from tests.announcements import announce, spark_schema, write_file
from tests.eventually import eventually
from tests.integration.pipeline_harness import PipelineRun

TABLES: list[dict[str, Any]] = [{"name": "lake.t"}]


def made(
    run: PipelineRun,
    partition: int,
    start: int,
    end: int,
    consumer: int = 1,
    table: str = "lake.t",
    topic: str = "t",
    **fields: Any,
) -> Announcement:
    """An announcement of one range by one consumer, with the file it speaks of."""
    short = announce((run.topic(topic), partition, start, end), table=table)
    folder = Path(table_location(run.pipeline.lake, table)) / "data"
    path = write_file(folder / f"{short.id}.parquet", short.ranges)
    return replace(short, files=(path,), consumer_id=consumer, incarnation=f"life {consumer}", **fields)


def send(run: PipelineRun, *announcements: Announcement) -> None:
    for announcement in announcements:
        run.outbox.send(run.names.announcements, announcement)
    run.outbox.flush()


def verdicts(run: PipelineRun) -> dict[str, Verdict]:
    return {v.announcement_id: v for s in told(run) for v in s.verdicts}


def told(run: PipelineRun) -> list[LedgerState]:
    return run.messages(run.names.ledger, LedgerState)


def settle(run: PipelineRun, committer: Committer, *announcements: Announcement) -> dict[str, Verdict]:
    """Turns until all of them have a verdict."""
    wanted = {a.id for a in announcements}

    def look() -> bool:
        committer.turn()
        return wanted <= verdicts(run).keys()

    eventually(look, "verdicts")
    return verdicts(run)


def ledger(run: PipelineRun, table: str = "lake.t") -> dict[int, int]:
    return {p.partition: at for p, at in read_ledger(run.iceberg(table)).next.items()}


def values(run: PipelineRun, table: str = "lake.t") -> list[str]:
    """Which records are in the table, as PyIceberg reads it."""
    return sorted(run.iceberg(table).scan().to_arrow().column("value").to_pylist())


def produced(run: PipelineRun, *ranges: tuple[int, int]) -> list[str]:
    """What `values` gives when each partition holds this range."""
    name = run.topic("t")
    return sorted(f"{name}-{number}-{o}" for number, (start, end) in enumerate(ranges) for o in range(start, end))


def test_one_snapshot_carries_the_whole_fleet_and_kafka_s_own_tool_shows_the_ledger(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 3}) as run:
        for partition in range(3):
            run.produce("t", [b"x"] * 5, partition)
        fleet = [made(run, 0, 0, 5, 1), made(run, 1, 0, 3, 2), made(run, 2, 0, 4, 3)]
        ahead, behind = made(run, 1, 4, 5, 2), made(run, 0, 0, 2, 1)
        send(run, *fleet, ahead, behind)
        found = settle(run, Committer(run.pipeline, run.settings), *fleet, ahead, behind)
        assert [found[a.id].accepted for a in (*fleet, ahead, behind)] == [True] * 3 + [False] * 2
        assert "still misses 3 to 3" in found[ahead.id].reason
        assert "holds everything before 5" in found[behind.id].reason
        assert len(run.iceberg("lake.t").snapshots()) == 1
        assert values(run) == produced(run, (0, 5), (0, 3), (0, 4))
        (record,) = run.messages(run.names.commits, CommitRecord)
        assert (record.announcements, record.refused, record.files, record.rows) == (3, 2, 3, 12)

        said = run_kafka_tool(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            *("--bootstrap-server", run.bootstrap, "--describe", "--group", run.pipeline.group),
        )
        rows = [line.split() for line in said.splitlines() if run.topic("t") in line]
        shown = {int(row[2]): (int(row[3]), int(row[5])) for row in rows}  # partition: committed offset, lag
        assert shown == {0: (5, 0), 1: (3, 2), 2: (4, 1)}
        assert {partition: at for partition, (at, _) in shown.items()} == ledger(run)


def test_a_committer_that_died_between_commit_and_publication_is_continued(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}) as run:
        first, second = made(run, 0, 0, 5), made(run, 0, 5, 8)
        send(run, first, second)
        origins = {TopicPartition(run.topic("t"), 0): 0}
        catalog = open_catalog(run.pipeline.lake)
        TableCommitter(catalog, run.pipeline.lake, run.pipeline.tables[0]).commit([first], origins)
        assert verdicts(run) == {}
        found = settle(run, Committer(run.pipeline, run.settings), first, second)
        assert [found[a.id].accepted for a in (first, second)] == [True, True]
        assert values(run) == produced(run, (0, 8))
        # The next one starts where that one had settled everything, and still knows the ledger.
        third = made(run, 0, 8, 9)
        send(run, third)
        settle(run, Committer(run.pipeline, run.settings), third)
        assert values(run) == produced(run, (0, 9))


def test_two_committers_at_once_commit_everything_once(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 4}) as run:
        for partition in range(4):
            run.produce("t", [b"x"] * 30, partition)
        for _ in range(2):
            run.committer()
        for step in range(10):
            send(run, *(made(run, partition, 3 * step, 3 * step + 3) for partition in range(4)))
        run.wait_until_landed()
        run.stop()
        assert ledger(run) == dict.fromkeys(range(4), 30)
        assert values(run) == produced(run, *[(0, 30)] * 4)
        assert run.assert_exactly_once("lake.t").rows == 120


def test_expiry_keeps_the_ledger_whatever_others_write_and_a_sweep_takes_only_what_was_refused(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}, lake={"keep_snapshots": 2}) as run:
        committer = Committer(run.pipeline, run.settings)
        catalog, lake = open_catalog(run.pipeline.lake), run.pipeline.lake
        for step in range(4):
            announcement = made(run, 0, step, step + 1)
            send(run, announcement)
            settle(run, committer, announcement)
        refused = made(run, 0, 0, 1)
        send(run, refused)
        assert not settle(run, committer, refused)[refused.id].accepted
        for _ in range(3):  # another program writes to the table and knows nothing of a ledger
            table = run.iceberg("lake.t")
            table.append(pa.table({"value": ["theirs"]}).cast(table.schema().select("value").as_arrow()))
        assert len(run.iceberg("lake.t").snapshots()) == 3 + 2  # theirs, and what the committer had left
        assert expire_snapshots(catalog, "lake.t", lake) == 2
        assert len(run.iceberg("lake.t").snapshots()) <= 3
        assert ledger(run) == {0: 4}
        following = made(run, 0, 4, 5)
        send(run, following)
        assert settle(run, Committer(run.pipeline, run.settings), following)[following.id].accepted
        assert values(run) == sorted([*produced(run, (0, 5)), *["theirs"] * 3])

        at_once = lake.model_copy(update={"orphan_age_s": 1e-6})
        sweep = sweep_orphans(catalog, "lake.t", at_once, remove=True)
        assert [path for path in sweep.orphans if path.endswith(".parquet")] == list(refused.files)
        assert not Path(refused.files[0]).exists()
        assert values(run) == sorted([*produced(run, (0, 5)), *["theirs"] * 3])
        assert ledger(run) == {0: 5}
        assert sweep_orphans(catalog, "lake.t", lake, remove=False).orphans == ()  # a day old, or left alone


@pytest.mark.parametrize("more", [(), (b"more",)], ids=["nothing follows", "a record follows"])
def test_a_table_that_was_rolled_back_is_filled_again_from_the_ledger_it_was_rolled_back_to(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, more: tuple[bytes, ...]
) -> None:
    soon = {"commit_deadline_s": "3 s"}
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}, consumer=soon) as run:
        for count in (10, 20, 30):
            run.produce("t", [b"%d" % n for n in range(count)])
            if count == 10:
                worker = run.run()
            run.wait_until_landed()
        table = run.iceberg("lake.t")
        first = next(s for s in table.snapshots() if read_ledger_of(s) == 10)
        table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
        assert ledger(run) == {0: 10}
        run.produce("t", more)  # what is announced now does not follow the ledger any more
        eventually(lambda: ledger(run) == {0: 60 + len(more)}, "what came after it is there again")
        assert worker.alive
        run.stop()
        assert run.assert_exactly_once("lake.t").rows == 60 + len(more)


def test_a_table_rolled_back_past_its_oldest_ledger_is_an_error_and_stays_one_when_others_write_to_it(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}) as run:
        committer, origins = (
            TableCommitter(open_catalog(run.pipeline.lake), run.pipeline.lake, run.pipeline.tables[0]),
            {TopicPartition(run.topic("t"), 0): 0},
        )

        def others_write() -> int:
            table = run.iceberg("lake.t")
            table.append(pa.table({"value": ["theirs"]}).cast(table.schema().select("value").as_arrow()))
            current = run.iceberg("lake.t").current_snapshot()
            assert current is not None
            return current.snapshot_id

        committer.commit([made(run, 0, 0, 5)], origins)
        first = run.iceberg("lake.t").current_snapshot()
        theirs = others_write()
        committer.commit([made(run, 0, 5, 9)], origins)
        assert first is not None
        run.iceberg("lake.t").maintenance.expire_snapshots().by_ids([first.snapshot_id]).commit()
        run.iceberg("lake.t").manage_snapshots().rollback_to_snapshot(theirs).commit()
        for _ in range(2):
            with pytest.raises(LakeError, match="no snapshot carries the ledger any more"):
                committer.commit([made(run, 0, 9, 12)], origins)
            others_write()  # which makes the snapshot that was rolled back older than the table


def test_announcements_whose_files_may_be_swept_are_refused_before_that(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}, lake={"orphan_age_s": "10 min"}) as run:
        committer = TableCommitter(open_catalog(run.pipeline.lake), run.pipeline.lake, run.pipeline.tables[0])
        origins = {TopicPartition(run.topic("t"), 0): 0}
        late = made(run, 0, 0, 5)
        late = replace(late, began_at_ms=late.began_at_ms - 301_000)  # frozen in between: it is announced just now
        result = committer.commit([late], origins)
        assert [r.reason for r in result.refused] == [
            "its cycle began 0.1 hours ago; its files may be swept at any time"
        ]
        in_time = replace(late, id="in time", began_at_ms=late.began_at_ms + 10_000)
        assert committer.commit([in_time], origins).committed == (in_time,)


def test_rejected_records_whose_file_is_lost_are_waited_for_in_words_until_a_person_forgets_them(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}) as run:
        lake, config = run.pipeline.lake, run.pipeline.tables[0]
        rejects = [write_file(tmp_path / f"rejects-{n}.parquet", ()) for n in range(2)]
        first = made(run, 0, 0, 5, rejected_files=tuple(rejects))
        Path(lake.catalog["uri"].removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        catalog = InterruptedCatalog("headgate", **lake.catalog_properties)
        catalog.before_commit = lambda: Path(rejects[0]).unlink(missing_ok=True)
        dying = TableCommitter(catalog, lake, config)
        origins = {TopicPartition(run.topic("t"), 0): 0}
        second = made(run, 0, 5, 6)
        for announcement in (first, second):
            with pytest.raises(LakeError, match=r"file is lost: .*rejects-0.parquet\. Bring it back, or"):
                dying.commit([announcement], origins)
        assert ledger(run) == {0: 5}
        forget = ["maintain", str(tmp_path / "pipeline.yaml"), "--forget-lost-rejects"]
        assert CliRunner().invoke(app, forget).output == f"lake.t: goes on without {rejects[0]}\n"
        assert CliRunner().invoke(app, forget).output == "lake.t: nothing is lost\n"
        assert dying.commit([second], origins).committed == (second,)
        assert values(run) == produced(run, (0, 6))


def test_the_table_whose_rejects_are_lost_waits_with_those_that_are_left_and_the_others_go_on(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    tables = [{"name": "lake.t"}, {"name": "lake.well"}]
    with PipelineRun(tmp_path, broker, spark, tables, {"t": 1}) as run:
        lake = run.pipeline.lake
        kept_in = Path(table_location(lake, "lake.t__rejected")) / "data"
        rejects = [write_file(kept_in / f"rejects-{n}.parquet", ()) for n in range(2)]
        committer = Committer(run.pipeline, run.settings)
        before = made(run, 0, 0, 2, rejected_files=(write_file(kept_in / "before.parquet", ()),))
        send(run, before)
        settle(run, committer, before)
        catalog = InterruptedCatalog("headgate", **lake.catalog_properties)
        catalog.before_commit = lambda: Path(rejects[0]).unlink(missing_ok=True)
        dying = TableCommitter(catalog, lake, run.pipeline.tables[0])
        with pytest.raises(LakeError, match="file is lost"):
            dying.commit([made(run, 0, 2, 5, rejected_files=tuple(rejects))], {TopicPartition(run.topic("t"), 0): 0})

        stuck = made(run, 0, 5, 6)
        for start in range(3):  # each in a turn of its own, though the first table fails in all of them
            well = made(run, 0, start, start + 1, table="lake.well")
            send(run, stuck, well)
            assert settle(run, committer, well)[well.id].accepted
        assert ledger(run, "lake.well") == {0: 3}
        assert ledger(run) == {0: 5}
        assert stuck.id not in verdicts(run)

        sweep_orphans(open_catalog(lake), "lake.t__rejected", lake.model_copy(update={"orphan_age_s": 1e-6}), True)
        assert Path(rejects[1]).exists(), "promised, and waits for the other"


class HeldCatalog(SqlCatalog):
    """A real catalog in which commits to one table wait until they may."""

    def __init__(self, name: str, held: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._held = held
        self.may_go = threading.Event()

    def commit_table(self, table: Table, *args: Any, **kwargs: Any) -> Any:
        if ".".join(table.name()) == self._held:
            assert self.may_go.wait(60)
        return super().commit_table(table, *args, **kwargs)


def test_a_table_whose_commit_takes_long_holds_up_no_other(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("committer", "table_state"):
        monkeypatch.setattr(f"headgate.lake.{module}.SLOW_S", 0.1)
    tables = [{"name": "lake.t"}, {"name": "lake.well"}]
    with PipelineRun(tmp_path, broker, spark, tables, {"t": 1}) as run:
        open_catalog(run.pipeline.lake)
        catalog = HeldCatalog("headgate", "lake.t", **run.pipeline.lake.catalog_properties)
        committer = Committer(run.pipeline, run.settings, catalog)
        slow = made(run, 0, 0, 2)
        send(run, slow)
        try:
            for at in range(3):
                well = made(run, 0, at, at + 1, table="lake.well")
                send(run, well)
                eventually(lambda: has_verdict(run, committer, well), "the other table's verdict")  # noqa: B023
            late = made(run, 0, 2, 3)
            send(run, late)
            assert "a commit has been under way for" in problem_told_by(committer, run, "lake.t", patience_s=0.2)
            assert not {slow.id, late.id} & verdicts(run).keys()
        finally:
            catalog.may_go.set()
        found = settle(run, committer, slow, late)
        assert all(verdict.accepted for verdict in found.values())
        assert (ledger(run), ledger(run, "lake.well")) == ({0: 3}, {0: 3})


class HangingCatalog(SqlCatalog):
    """A real catalog that does not answer for one table."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self.may_go = threading.Event()

    def load_table(self, identifier: Any) -> Table:
        if self.identifier_to_tuple(identifier)[-1] == "t":
            assert self.may_go.wait(120)
        return super().load_table(identifier)


def test_a_table_that_cannot_be_looked_at_holds_up_no_other_and_is_told(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("committer", "table_state"):
        monkeypatch.setattr(f"headgate.lake.{module}.SLOW_S", 0.1)
    tables = [{"name": "lake.t"}, {"name": "lake.well"}]
    with PipelineRun(tmp_path, broker, spark, tables, {"t": 1}) as run:
        first = made(run, 0, 0, 2), made(run, 0, 0, 2, table="lake.well")
        send(run, *first)
        settle(run, Committer(run.pipeline, run.settings), *first)
        catalog = HangingCatalog("headgate", **run.pipeline.lake.catalog_properties)
        committer = Committer(run.pipeline, run.settings, catalog)
        late = made(run, 0, 2, 3)
        send(run, late)
        try:
            for at in range(2, 5):
                well = made(run, 0, at, at + 1, table="lake.well")
                send(run, well)
                eventually(lambda: has_verdict(run, committer, well), "the other table's verdict")  # noqa: B023
            assert "does not answer" in problem_told_by(committer, run, "lake.t", patience_s=0.2)
            assert late.id not in verdicts(run)
        finally:
            catalog.may_go.set()
        assert settle(run, committer, late)[late.id].accepted
        assert (ledger(run), ledger(run, "lake.well")) == ({0: 3}, {0: 5})


def test_where_a_new_table_begins_is_not_forgotten_by_a_committer_that_cannot_look_at_it(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}, start_from="latest") as run:
        run.produce("t", [b"x"] * 3)
        place = TopicPartition(run.topic("t"), 0)
        Committer(run.pipeline, run.settings).turn()
        assert told(run)[-1].following == {place: 3}
        run.produce("t", [b"x"] * 4)
        catalog = InterruptedCatalog("headgate", **run.pipeline.lake.catalog_properties)
        catalog.broken = True
        second = Committer(run.pipeline, run.settings, catalog)
        assert "told to fail" in problem_told_by(second, run, "lake.t")
        assert all(words.following == {place: 3} for words in told(run))
        landed = made(run, 0, 3, 7)
        send(run, landed)
        assert settle(run, Committer(run.pipeline, run.settings), landed)[landed.id].accepted


def test_a_topic_that_nobody_describes_keeps_only_what_names_it_waiting(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.lake.table_state.SLOW_S", 0.1)
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1, "silent": 1}) as run:
        first = made(run, 0, 0, 2)
        committer = Committer(run.pipeline, run.settings)
        send(run, first)
        settle(run, committer, first)

        def deny(admin: AdminClient, topics: Iterable[str], deadline_s: float = 15) -> TopicIds:
            ids = topic_ids(admin, topics, deadline_s)
            denied = {name: "not authorized" for name in ids.known if name == run.topic("silent")}
            return TopicIds({name: known for name, known in ids.known.items() if name not in denied}, denied)

        held, well = made(run, 0, 0, 1, topic="silent"), made(run, 0, 2, 4)
        with monkeypatch.context() as denying:
            denying.setattr("headgate.lake.committer.topic_ids", deny)
            send(run, held, well)
            assert settle(run, committer, well)[well.id].accepted
            assert "do not describe it: not authorized" in problem_told_by(committer, run, "lake.t")
            assert held.id not in verdicts(run)
        assert settle(run, committer, held)[held.id].accepted


def has_verdict(run: PipelineRun, committer: Committer, announcement: Announcement) -> bool:
    committer.turn(patience_s=0.2)
    return announcement.id in verdicts(run)


def test_a_new_committer_does_not_judge_again_what_tables_that_went_on_had_settled(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    tables = [{"name": "lake.t"}, {"name": "lake.well"}]
    with PipelineRun(tmp_path, broker, spark, tables, {"t": 1}, lake={"keep_snapshots": 2}) as run:
        catalog, committer = open_catalog(run.pipeline.lake), Committer(run.pipeline, run.settings)
        first = made(run, 0, 0, 4), made(run, 0, 0, 4, table="lake.well")
        send(run, *first)
        settle(run, committer, *first)
        catalog.drop_table("lake.t")
        lost = made(run, 0, 4, 5)
        going_on = [made(run, 0, at, at + 1, table="lake.well") for at in range(4, 10)]
        send(run, lost)
        for announcement in going_on:  # more commits than are remembered
            send(run, announcement)
            settle(run, committer, announcement)
        next_life, said_before = Committer(run.pipeline, run.settings), len(told(run))
        newest = made(run, 0, 10, 11, table="lake.well")
        send(run, newest)
        assert settle(run, next_life, newest)[newest.id].accepted
        assert {v.announcement_id for s in told(run)[said_before:] for v in s.verdicts} == {newest.id}


def test_announcements_on_a_topic_that_was_made_anew_are_judged(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}) as run:
        earlier = [made(run, 0, at, at + 1) for at in range(5)]
        send(run, *earlier)
        settle(run, Committer(run.pipeline, run.settings), *earlier)
        admin, topic = AdminClient({"bootstrap.servers": broker.bootstrap}), run.names.announcements
        admin.delete_topics([topic])[topic].result(30)
        eventually(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic is gone")
        ensure_topics(admin, run.names, 1, 1)
        later = made(run, 0, 5, 6)
        send(run, later)
        assert settle(run, Committer(run.pipeline, run.settings), later)[later.id].accepted


def test_a_topic_that_is_gone_does_not_keep_the_group_s_offsets_from_following(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1, "gone": 1}) as run:
        run.produce("t", [b"x"] * 4)
        admin, gone = AdminClient({"bootstrap.servers": broker.bootstrap}), run.topic("gone")
        of_gone = made(run, 0, 0, 1, topic="gone")
        send(run, of_gone)
        settle(run, Committer(run.pipeline, run.settings), of_gone)
        admin.delete_topics([gone])[gone].result(30)
        eventually(lambda: gone not in admin.list_topics(timeout=10).topics, "the topic is gone")
        later, committer = made(run, 0, 0, 4), Committer(run.pipeline, run.settings)
        send(run, later)
        settle(run, committer, later)
        mine = TopicPartition(run.topic("t"), 0)

        def mirrored() -> bool:
            committer.turn()
            return group_offsets(run.settings, run.pipeline.group, [mine]) == {mine: 4}

        eventually(mirrored, "the group's offset")
        assert "cannot mirror" not in caplog.text


class LateGroup:
    """A mirror whose coordinator does not answer until it is told to."""

    def __init__(self) -> None:
        self.answers = False
        self.asked: list[dict[TopicPartition, int]] = []

    def ask(self, positions: Mapping[TopicPartition, int]) -> None:
        self.asked.append(dict(positions))

    def is_written(self, patience_s: float) -> bool:
        return self.answers

    def close(self) -> None:
        """Nothing is open."""


def test_commits_go_on_while_nobody_answers_for_the_group_and_it_follows_later(
    broker: EmbeddedKafka, tmp_path: Path, spark: SparkSession
) -> None:
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}) as run:
        group = LateGroup()
        committer = Committer(run.pipeline, run.settings, mirror=group)
        mine = TopicPartition(run.topic("t"), 0)
        for start in (0, 1, 2):
            announcement = made(run, 0, start, start + 1)
            send(run, announcement)
            assert settle(run, committer, announcement)[announcement.id].accepted
        assert ledger(run) == {0: 3}
        assert group.asked == [{mine: 1}]
        group.answers = True
        committer.turn()
        assert group.asked == [{mine: 1}, {mine: 3}]


def test_a_table_that_is_gone_from_the_catalog_is_told_and_not_made_again_until_a_person_says_so(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [{"name": "lake.t"}, {"name": "lake.well"}]
    with PipelineRun(tmp_path, broker, spark, tables, {"t": 1}) as run:
        run.produce("t", [b"x"] * 9)
        catalog, committer = open_catalog(run.pipeline.lake), Committer(run.pipeline, run.settings)
        first = made(run, 0, 0, 4), made(run, 0, 0, 4, table="lake.well")
        send(run, *first)
        settle(run, committer, *first)
        begin_anew = ["maintain", str(tmp_path / "pipeline.yaml"), "--begin-anew", "lake.t"]
        assert "is in the catalog" in str(CliRunner().invoke(app, begin_anew).exception)

        catalog.drop_table("lake.t")
        for number, life in enumerate((committer, Committer(run.pipeline, run.settings)), 1):
            late, well = made(run, 0, 4, 6), made(run, 0, 3 + number, 4 + number, table="lake.well")
            send(run, late, well)
            assert settle(run, life, well)[well.id].accepted
            assert "lake.t is not in the catalog any more" in problem_told_by(life, run, "lake.t")
            assert late.id not in verdicts(run)
        assert not catalog.table_exists("lake.t")

        assert "a committer is at work" in str(CliRunner().invoke(app, begin_anew).exception)
        monkeypatch.setattr("headgate.lake.words.SILENT_S", 0.0)
        assert CliRunner().invoke(app, begin_anew).output == "lake.t: begins anew, at the earliest records\n"
        again = made(run, 0, 0, 9)
        send(run, again)
        assert settle(run, Committer(run.pipeline, run.settings), again)[again.id].accepted
        assert ledger(run) == {0: 9}


def problem_told_by(committer: Committer, run: PipelineRun, table: str, patience_s: float = 30.0) -> str:
    """Turns until it tells one."""

    def look() -> str:
        committer.turn(patience_s)
        words = [state for state in told(run) if state.table == table and state.committer == committer.name]
        return "".join(words[-1].problems) if words else ""

    eventually(look, "a problem is told")
    return look()


def read_ledger_of(snapshot: Snapshot) -> int | None:
    text = summary(snapshot).get(LEDGER)
    return next(iter(decode_ledger(text).next.values()), None) if text else None


class InterruptedCatalog(SqlCatalog):
    """A real catalog with something that happens before each commit or look, and that can be out of order."""

    before_commit: Callable[[], object] = staticmethod(lambda: None)
    before_load: Callable[[], object] = staticmethod(lambda: None)
    broken = False
    failures = 0
    attempts = 0

    def load_table(self, *args: Any, **kwargs: Any) -> Any:
        if self.broken:
            self.failures += 1
            raise OperationalError("SELECT", {}, Exception("told to fail"))
        self.before_load()
        return super().load_table(*args, **kwargs)

    def commit_table(self, *args: Any, **kwargs: Any) -> Any:
        self.attempts += 1
        self.before_commit()
        return super().commit_table(*args, **kwargs)


def test_two_rounds_of_upkeep_at_once_do_not_fail_each_other(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}, lake={"keep_snapshots": 5}) as run:
        lake = run.pipeline.lake
        committer = TableCommitter(open_catalog(lake), lake, run.pipeline.tables[0])
        for at in range(9):
            assert committer.commit([made(run, 0, at, at + 1)], {TopicPartition(run.topic("t"), 0): 0}).committed
        catalog = InterruptedCatalog("headgate", **lake.catalog_properties)
        catalog.before_commit = lambda: expire_snapshots(open_catalog(lake), "lake.t", lake)
        assert expire_snapshots(catalog, "lake.t", lake) == 0, "the other round was first"
        assert len(run.iceberg("lake.t").snapshots()) == 5

        orphan = Path(table_location(lake, "lake.t")) / "data" / "orphan.parquet"
        orphan.touch()
        lake = lake.model_copy(update={"orphan_age_s": 1e-6})
        looks = count(1)  # the other round comes between listing what is there and removing it
        catalog.before_load = lambda: next(looks) == 2 and sweep_orphans(open_catalog(lake), "lake.t", lake, True)
        sweep_orphans(catalog, "lake.t", lake, remove=True)
        assert not orphan.exists()
        assert ledger(run) == {0: 9}


def test_a_refused_commit_is_checked_against_the_ledger_before_it_is_tried_again(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Fails if PyIceberg repeats a commit by itself: the same offsets would be there twice."""
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}) as run:
        lake, config = run.pipeline.lake, run.pipeline.tables[0]
        rival = TableCommitter(open_catalog(lake), lake, config)
        catalog = InterruptedCatalog("headgate", **lake.catalog_properties)
        origins = {TopicPartition(run.topic("t"), 0): 0}
        rival.commit([made(run, 0, 0, 2)], origins)
        mine, theirs, later = made(run, 0, 2, 5), made(run, 0, 2, 4), made(run, 0, 4, 6)

        def let_the_rival_in() -> None:
            catalog.before_commit = lambda: None
            assert rival.commit([theirs], origins).committed == (theirs,)

        catalog.before_commit = let_the_rival_in
        result = TableCommitter(catalog, lake, config).commit([mine, later], origins)
        assert [refused.announcement for refused in result.refused] == [mine]
        assert (result.committed, result.conflicts, catalog.attempts) == ((later,), 1, 2)
        assert values(run) == produced(run, (0, 6))


def test_a_catalog_that_fails_for_a_while_is_waited_out(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}) as run:
        run.produce("t", [b"x"] * 4)
        run.pipeline.home.mkdir(parents=True)
        catalog = InterruptedCatalog("headgate", **run.pipeline.lake.catalog_properties)
        committer = run.committer(catalog)
        before = made(run, 0, 0, 2)
        send(run, before)
        eventually(lambda: before.id in verdicts(run), "it works")
        catalog.broken = True
        after = made(run, 0, 2, 4)
        send(run, after)
        attempts = catalog.attempts
        eventually(lambda: catalog.failures >= 2, "it tries again")
        complaint = eventually(lambda: [state for state in told(run) if state.problems], "everybody is told")[0]
        assert "told to fail" in complaint.problems[0]
        assert [(p.partition, p.next) for p in complaint.positions] == [(0, 2)]
        assert committer.alive
        assert after.id not in verdicts(run)
        catalog.broken = False
        run.wait_until_landed()
        run.stop()
        assert told(run)[-1].problems == ()
        settled = [state.announcements_next for state in told(run)]
        assert settled == sorted(settled)
        assert catalog.attempts == attempts + 1
        assert values(run) == produced(run, (0, 4))


def test_prometheus_is_told_of_a_catalog_that_is_down_when_the_committer_starts(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    def shown(what: str) -> float | None:
        return REGISTRY.get_sample_value(f"headgate_{what}", {"table": "lake.restarted"})

    with PipelineRun(tmp_path, broker, spark, [{"name": "lake.restarted"}], {"t": 1}) as run:
        run.pipeline.home.mkdir(parents=True)
        catalog = InterruptedCatalog("headgate", **run.pipeline.lake.catalog_properties)
        catalog.broken = True
        began_s = time.time()
        run.committer(catalog)
        eventually(lambda: shown("table_problems") == 1, "a problem is shown")
        eventually(lambda: catalog.failures >= 3, "it goes on trying")
        waiting = shown("commit_waiting_timestamp_seconds")
        assert waiting is not None
        assert began_s <= waiting <= time.time()
        catalog.broken = False
        eventually(lambda: shown("commit_waiting_timestamp_seconds") == 0, "nothing waits any more")
        assert shown("table_problems") == 0


def with_nanoseconds(announcement: Announcement) -> Announcement:
    """Its file holds a type that PyIceberg has no name for, as Spark's INT96 timestamps become."""
    path = announcement.files[0]
    table = pq.read_table(path)
    column = table.schema.get_field_index("_timestamp")
    wider = table.column("_timestamp").cast(pa.timestamp("ns", tz="UTC"))
    pq.write_table(table.set_column(column, "_timestamp", wider), path)
    return announcement


def test_what_can_never_be_committed_is_refused_with_the_reason_and_stands_in_nobody_s_way(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    tables = [{"name": "lake.odd", "partition_by": ["nowhere"]}, *TABLES]
    with PipelineRun(tmp_path, broker, spark, tables, {"t": 3}) as run:
        bad = {
            "not Spark's JSON": made(run, 0, 0, 2, schema="}{"),
            "Iceberg has no type": made(run, 0, 0, 2, schema=spark_schema(("span", "interval day"))),
            "files cannot be read": replace(made(run, 0, 0, 2), files=(str(tmp_path / "nothing.parquet"),)),
            "rejected files cannot be read": made(run, 0, 0, 2, rejected_files=(str(tmp_path / "nothing.parquet"),)),
            "pipeline.yaml: ": made(run, 0, 0, 2, rejected_files=(str(tmp_path / "pipeline.yaml"),)),
            "its files cannot be read: ": with_nanoseconds(made(run, 0, 0, 2)),
            "column value is string in the table and int in the files": made(
                run, 0, 0, 2, schema=spark_schema().replace('"value", "type": "string"', '"value", "type": "integer"')
            ),
            "is named twice": replace(made(run, 0, 0, 2), ranges=(Range(TopicPartition(run.topic("t"), 0), 0, 2),) * 2),
            "not part of this table's ledger": replace(
                made(run, 0, 0, 2), ranges=(Range(TopicPartition("elsewhere", 0), 0, 2),)
            ),
        }
        good = [made(run, partition, 0, 2) for partition in range(3)]
        hopeless = made(run, 0, 0, 2, table="lake.odd")
        stray = made(run, 0, 0, 2, table="lake.unknown")
        send(run, hopeless, stray, *bad.values(), *good)
        run.committer()
        eventually(lambda: {a.id for a in (*bad.values(), *good)} <= verdicts(run).keys(), "verdicts")
        for reason, announcement in bad.items():
            verdict = verdicts(run)[announcement.id]
            assert not verdict.accepted
            assert reason in verdict.reason
        assert all(verdicts(run)[a.id].accepted for a in good)
        assert values(run) == produced(run, *[(0, 2)] * 3)
        assert not verdicts(run).keys() & {hopeless.id, stray.id}
