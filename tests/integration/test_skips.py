"""Offsets that Kafka itself does not show are counted, recorded and passed, and never a dead end."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.controller.status import StatusReader
from headgate.kafka.embedded import EmbeddedKafka
from headgate.lake.catalogs import open_catalog
from headgate.lake.maintenance import expire_snapshots
from headgate.lake.skips import keep_skips
from headgate.model import Skip, TopicPartition
from headgate.model.messages import ConsumerState
from tests.eventually import eventually
from tests.integration.pipeline_harness import PipelineRun

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}


def visible(run: PipelineRun, short: str) -> list[int]:
    """The offsets that a reader sees now."""
    consumer = Consumer(
        {"bootstrap.servers": run.bootstrap, "group.id": "looks", "isolation.level": "read_committed"}
        | {"enable.partition.eof": "true", "enable.auto.commit": "false"}
    )
    consumer.assign([KafkaTopicPartition(run.topic(short), 0, 0)])
    seen: list[int] = []
    try:
        while True:
            record = consumer.poll(10)
            assert record is not None, "nothing and no end within ten seconds"
            offset = record.offset()
            if record.error() is not None or offset is None:
                return seen
            seen.append(offset)
    finally:
        consumer.close()


def delete_before(run: PipelineRun, short: str, offset: int) -> None:
    up_to = KafkaTopicPartition(run.topic(short), 0, offset)
    next(iter(run.admin.delete_records([up_to]).values())).result(30)


def produce_transactions(run: PipelineRun, short: str, *transactions: tuple[int, bool]) -> None:
    """Each is (records, committed); every one ends with a marker that takes an offset too."""
    producer = Producer({"bootstrap.servers": run.bootstrap, "transactional.id": run.topic(short)})
    producer.init_transactions(30)
    for records, committed in transactions:
        producer.begin_transaction()
        for number in range(records):
            producer.produce(run.topic(short), f"{number}".encode(), partition=0)
        producer.flush(30)  # or an abort would find them unsent
        if committed:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


@pytest.fixture(scope="module")
def landed(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PipelineRun]:
    """Topics with holes of every kind, after everything arrived."""
    shorts = ("shortened", "emptied", "transactions", "aborted", "compacted")
    tables = [{"name": f"lake.{short}", "topics": [short]} for short in shorts]
    folder = tmp_path_factory.mktemp("skips")
    name_first = dict.fromkeys(shorts[:-1], 1)
    with PipelineRun(folder, broker, spark, tables[:-1], name_first) as run:
        run.create("compacted", 1, **COMPACTED)
        run.pipeline = run.load(tables, topics=[run.topic(short) for short in shorts])
        # Even offsets have a key each, odd ones share one: compaction leaves the even ones and the last.
        run.produce("compacted", [(b"%d" % n if n % 2 == 0 else b"same", b"v") for n in range(100)])
        rolls = time.monotonic() + 0.2
        run.produce("shortened", [b"x"] * 10)
        delete_before(run, "shortened", 4)
        run.produce("emptied", [b"x"] * 10)
        delete_before(run, "emptied", 10)
        produce_transactions(run, "transactions", (5, True), (3, False), (2, True), (1, False))
        produce_transactions(run, "aborted", (3, False))
        eventually(lambda: time.monotonic() > rolls, "the segment is old enough")
        run.produce("compacted", [(b"last", b"v")])  # begins a new segment, so that the one before can be cleaned
        kept = [*range(0, 100, 2), 99, 100]
        eventually(lambda: visible(run, "compacted") == kept, "Kafka has compacted the topic", 120)
        run.run()
        run.wait_until_landed()
        run.stop()
        yield run


def offsets(run: PipelineRun, table: str) -> list[int]:
    return [row["_offset"] for row in run.rows(table)]


def test_a_log_that_was_shortened_before_it_was_first_seen_begins_where_it_begins(landed: PipelineRun) -> None:
    assert offsets(landed, "lake.shortened") == [4, 5, 6, 7, 8, 9]
    verdict = landed.assert_exactly_once("lake.shortened")
    # The ledger begins where Kafka's log did when the partition was first seen.
    assert (verdict.offsets, verdict.skipped) == (6, 0)


def test_a_log_of_which_nothing_is_left_is_passed(landed: PipelineRun) -> None:
    verdict = landed.assert_exactly_once("lake.emptied")
    assert (verdict.rows, verdict.missing) == (0, 0)
    assert verdict.ledger.next == {TopicPartition(landed.topic("emptied"), 0): 10}


def test_only_committed_records_land_and_markers_and_aborted_ones_are_counted(landed: PipelineRun) -> None:
    # 0-4 and their marker 5, aborted 6-8 and 9, committed 10-11 and 12, aborted 13 and 14.
    assert offsets(landed, "lake.transactions") == [0, 1, 2, 3, 4, 10, 11]
    verdict = landed.assert_exactly_once("lake.transactions")
    partition = TopicPartition(landed.topic("transactions"), 0)
    assert verdict.skipped == 8
    assert verdict.skips == (Skip(partition, 5, 10, 5, "gap"), Skip(partition, 12, 15, 3, "gap"))
    assert verdict.ledger.next == {partition: 15}


def test_a_partition_with_nothing_but_an_aborted_transaction_is_no_dead_end(landed: PipelineRun) -> None:
    verdict = landed.assert_exactly_once("lake.aborted")
    assert (verdict.rows, verdict.skipped) == (0, 4)
    assert verdict.skips == (Skip(TopicPartition(landed.topic("aborted"), 0), 0, 4, 4, "gap"),)


def test_the_holes_of_a_compacted_topic_are_counted(landed: PipelineRun) -> None:
    assert offsets(landed, "lake.compacted") == [*range(0, 100, 2), 99, 100]
    verdict = landed.assert_exactly_once("lake.compacted")
    assert (verdict.rows, verdict.skipped, verdict.offsets) == (52, 49, 101)


def test_records_deleted_or_a_topic_made_anew_behind_the_consumer_s_back_are_reported_and_others_go_on(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    topics = dict.fromkeys(("deleted", "remade"), 1)
    with PipelineRun(tmp_path, broker, spark, [{"name": "lake.t"}], topics) as run:
        for short in topics:
            run.produce(short, [b"x"] * 10)
        worker = run.run()
        run.wait_until_landed()

        # Unread records vanish while nobody reads.
        deleted, remade = run.partitions("deleted"), run.partitions("remade")
        run.stop_consuming(worker, deleted)
        run.produce("deleted", [b"x"] * 10)
        delete_before(run, "deleted", 15)
        run.start_consuming(worker, deleted)
        run.wait_until_landed()
        verdict = run.assert_exactly_once("lake.t")
        assert verdict.skips == (Skip(deleted[0], 10, 15, 5, "retention"),)
        assert (verdict.rows, verdict.skipped) == (25, 5)

        name = run.topic("remade")
        run.admin.delete_topics([name])[name].result(30)
        eventually(lambda: name not in run.admin.list_topics(timeout=10).topics, "the topic is gone")
        run.create("remade")
        run.produce("remade", [b"y"] * 3)
        eventually(lambda: [p for p in problems(run) if f"topic {name} was deleted and made anew" in p], "it is told")
        run.produce("remade", [b"y"] * 20)  # past where the ledger stands
        run.produce("deleted", [b"x"] * 5)
        eventually(lambda: len(run.rows("lake.t")) == 30, "the others go on")
        verdict = run.assert_exactly_once("lake.t")
        assert verdict.ledger.next[remade[0]] == 10
        assert {bytes(row["value"]) for row in run.rows("lake.t")} == {b"x"}
        assert worker.alive


def test_a_topic_made_anew_while_nothing_ran_is_not_mistaken_for_the_old_one_unless_a_person_says_so(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, [{"name": "lake.t"}], {"moved": 1}) as run:
        run.produce("moved", [b"x"] * 10)
        run.run()
        run.wait_until_landed()
        run.stop()
        name = run.topic("moved")
        run.admin.delete_topics([name])[name].result(30)
        eventually(lambda: name not in run.admin.list_topics(timeout=10).topics, "the topic is gone")
        run.create("moved", 2)
        run.produce("moved", [b"x"] * 15)  # further than the ledger: offsets alone look as if five were new
        run.produce("moved", [b"x"] * 5, partition=1)
        worker = run.run()
        eventually(lambda: problems(run), "it is told")
        beats = len(run.events(ConsumerState))
        eventually(lambda: len(run.events(ConsumerState)) > beats + 3, "time enough to read something")
        assert len(run.rows("lake.t")) == 10

        # It was moved with its offsets: what is new is read, also of the partition that the old one did not have.
        said = CliRunner().invoke(app, ["maintain", str(tmp_path / "pipeline.yaml"), "--same-topic", name])
        assert (said.exit_code, said.output) == (0, f"lake.t: {name} is accepted with its new id\n")
        run.wait_until_landed()
        assert worker.alive
        run.stop()
        assert run.assert_exactly_once("lake.t").rows == 20
        assert problems(run) == ()
        again = CliRunner().invoke(app, ["maintain", str(tmp_path / "pipeline.yaml"), "--same-topic", name])
        assert again.output == f"lake.t: {name} was known already\n"
        wrong = CliRunner().invoke(app, ["maintain", str(tmp_path / "pipeline.yaml"), "--same-topic", f"{name}-not"])
        assert str(wrong.exception) == f"Kafka has no topic {name}-not; nothing was changed"


def test_what_was_skipped_stays_on_record_when_its_snapshots_are_expired(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, [{"name": "lake.t"}], {"t": 1}) as run:
        run.run()
        for records in (1, 2, 3):
            produce_transactions(run, "t", (records, True))
            run.wait_until_landed()
        run.stop()
        partition = TopicPartition(run.topic("t"), 0)
        markers = tuple(Skip(partition, at, at + 1, 1, "gap") for at in (1, 4, 8))
        assert run.verify("lake.t").skips == markers
        catalog = open_catalog(run.pipeline.lake)
        lake = run.pipeline.lake.model_copy(update={"keep_snapshots": 1})
        table = run.iceberg("lake.t")
        for _ in range(2):  # as two committers would
            keep_skips(catalog, lake, table, [s.snapshot_id for s in table.snapshots()[:2]])
        assert expire_snapshots(catalog, "lake.t", lake) >= 2
        assert len(run.iceberg("lake.t").snapshots()) == 1
        verdict = run.assert_exactly_once("lake.t")
        assert (verdict.skips, verdict.skipped, verdict.rows) == (markers, 3, 6)
        listed = run.iceberg("lake.t__skipped").scan().to_arrow().sort_by("start_offset").to_pylist()
        assert [row["start_offset"] for row in listed] == [1, 4]  # 8 is in the snapshot that is left


def problems(run: PipelineRun) -> tuple[str, ...]:
    """What `headgate status` shows as problems."""
    reader = StatusReader(run.pipeline)
    try:
        return reader.refresh().problems
    finally:
        reader.close()
