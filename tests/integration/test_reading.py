"""Reading in Spark's Python workers: what Spark's connector reads, with a plan that is kept only where it may be."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from headgate.config.clients import reader_settings
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.consumer import reading
from headgate.consumer.files import Warehouse
from headgate.consumer.job import JobResult, TableJob
from headgate.consumer.query import TableQuery
from headgate.consumer.standing import is_forgetful
from headgate.errors import ConsumerError
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.leaders import Leaders
from headgate.model import Range, TopicPartition

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")


@pytest.fixture(scope="module")
def topic(broker: EmbeddedKafka) -> str:
    """Two partitions of every kind of record: keyed or not, with headers or not, empty, a tombstone."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("reading", 2)])["reading"].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in (0, 1):
        for n in range(100):
            producer.produce("reading", json.dumps({"n": n}), f"key {n}" if n % 3 else None, partition)
        headers: list[tuple[str, str | bytes | None]] = [("one", b"1"), ("nothing", None), ("one", b"again")]
        producer.produce("reading", b'{"n": 100}', b"", partition, headers=headers, timestamp=1_700_000_000_123)
        producer.produce("reading", None, b"tombstone", partition)
        producer.produce("reading", b"", b"empty", partition)
        producer.produce("reading", b"not JSON", None, partition)
    assert producer.flush(30) == 0
    return "reading"


def pipeline(folder: Path, broker: EmbeddedKafka, **table: Any) -> Pipeline:
    whole = {
        "name": "reading",
        "home": str(folder),
        "kafka": {"brokers": broker.bootstrap},
        "topics": ["reading"],
        "tables": [{"name": "lake.t", **table}],
    }
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(whole))
    return load_pipeline(file)


def job(spark: SparkSession, made: Pipeline) -> TableJob:
    return TableJob(spark, made, made.tables[0], Warehouse(made.lake))


JSON = {"format": "json", "schema": "n INT"}


def files(count: int) -> dict[str, Any]:
    """So many for the first 10 records of both partitions, once their size is known: 8 bytes of value each, and 6 of
    the 10 have 5 bytes of key."""
    return {"target_file_bytes": 2 * (10 * 8 + 6 * 5) // count}


def parts(start: int, end: int, partitions: tuple[int, ...] = (0, 1)) -> list[Range]:
    return [Range(TopicPartition("reading", n), start, end) for n in partitions]


def numbers(spark: SparkSession, result: JobResult) -> list[Any]:
    return sorted(tuple(row) for row in spark.read.parquet(*result.files).select("_kafka_partition", "n").collect())


def test_both_readers_give_the_same_records(
    spark: SparkSession, broker: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    made = pipeline(tmp_path, broker)
    query = TableQuery(spark, made, made.tables[0])
    ranges = parts(90, 104)
    by_connector = query.read(ranges).select(*COLUMNS).orderBy("partition", "offset").collect()
    counts = spark.sparkContext.accumulator(reading.Counts(), reading.Counting())
    read = reading.reader({**reader_settings(made), **reading.SETTINGS}, counts)
    share = [(topic, r.partition.partition, r.start, r.end) for r in ranges]
    spark.sparkContext.setLocalProperty(reading.READ, json.dumps({"cycle": "only", "shares": [share], "made_up": 0}))
    by_workers = spark.range(0, 1, 1, 1).mapInArrow(read, reading.SCHEMA).orderBy("partition", "offset").collect()
    assert len(by_connector) == 28
    assert by_workers == by_connector
    of_each = sum(len(row.key or b"") + len(row.value or b"") for row in by_connector) // 2
    assert counts.value == {"only": {0: {(topic, 0): (14, of_each), (topic, 1): (14, of_each)}}}


def test_a_kept_plan_reads_what_each_cycle_asks_for(
    spark: SparkSession, broker: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    table = job(spark, pipeline(tmp_path, broker, **JSON))
    first = table.run(parts(0, 10), "first")
    second = table.run(parts(95, 104, (1,)), "second")
    assert numbers(spark, first) == [(p, n) for p in (0, 1) for n in range(10)]
    assert numbers(spark, second) == [(1, n) for n in range(95, 101)]
    assert (first.stats.records, first.stats.rejected) == (20, 0)
    assert (second.stats.records, second.stats.rows, second.stats.rejected) == (9, 6, 3)
    assert set(second.sizes) == {TopicPartition("reading", 1)}
    third = table.run(parts(100, 102), "third")
    assert (third.stats.records, third.stats.rows, third.stats.rejected) == (4, 2, 2)


@pytest.mark.parametrize(
    ("sql", "kept"),
    [
        ("SELECT * FROM input WHERE n % 2 = 0", True),
        ("SELECT *, upper(string(n)) AS text FROM input", True),
        ("SELECT *, current_timestamp() AS now FROM input", False),
        ("SELECT *, rand() AS chance FROM input", False),
        ("SELECT * FROM input WHERE DATE 'today' > DATE '2000-01-01'", False),
        ("SELECT DISTINCT * FROM input", False),
        ("SELECT *, (SELECT max(id) FROM range(3)) AS most FROM input", False),
        ("SELECT i.* FROM input i JOIN range(1000) r ON i.n = r.id", False),
    ],
)
def test_a_plan_is_kept_only_if_it_remembers_nothing(
    spark: SparkSession, broker: EmbeddedKafka, topic: str, tmp_path: Path, sql: str, kept: bool
) -> None:
    made = pipeline(tmp_path, broker, **JSON, sql=sql, rows_per_record="any")
    query = TableQuery(spark, made, made.tables[0])
    assert (query.may_be_planned_once and is_forgetful(query.good(query.made_up(10)))) is kept


def test_a_plan_with_a_shuffle_is_made_anew_for_every_cycle(
    spark: SparkSession, broker: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    """Run again, it would give the rows of the cycle before."""
    table = job(spark, pipeline(tmp_path, broker, **JSON, sql="SELECT DISTINCT * FROM input", rows_per_record="any"))
    for start in (0, 10, 20):
        result = table.run(parts(start, start + 10), f"from-{start}")
        assert numbers(spark, result) == [(p, n) for p in (0, 1) for n in range(start, start + 10)]


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize(
    ("sql", "times"),
    [
        ("SELECT /*+ COALESCE(1) */ * FROM input", 1),
        ("SELECT /*+ REPARTITION(3) */ * FROM input", 1),
        ("SELECT * FROM input UNION ALL SELECT * FROM input", 2),
    ],
)
def test_a_query_may_change_the_number_of_tasks_and_read_twice(
    spark: SparkSession,
    broker: EmbeddedKafka,
    topic: str,
    tmp_path: Path,
    tasks: int,
    sql: str,
    times: int,
) -> None:
    made = pipeline(tmp_path, broker, **JSON, **files(tasks), sql=sql, rows_per_record="any")
    table = job(spark, made)
    table.run(parts(0, 10), "measures the size of records")
    result = table.run(parts(0, 10), "all")
    assert numbers(spark, result) == sorted([(p, n) for p in (0, 1) for n in range(10)] * times)
    assert result.stats.records == 20
    assert len(result.files) <= tasks


def test_a_query_that_stops_reading_early_is_an_error_and_loses_nothing(
    spark: SparkSession, broker: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    table = job(spark, pipeline(tmp_path, broker, **JSON, sql="SELECT * FROM input LIMIT 3", rows_per_record="any"))
    with pytest.raises(ConsumerError, match="the log changed"):
        table.run(parts(0, 10), "few")


def test_a_batch_of_which_nothing_can_be_left_is_counted_all_the_same(
    spark: SparkSession, broker: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    table = job(spark, pipeline(tmp_path, broker, **JSON, where="false"))
    for stem in ("once", "twice"):
        stats = table.run(parts(0, 10), stem).stats
        assert (stats.records, stats.rows, stats.filtered) == (20, 0, 20)


def test_large_batches_are_read_by_several_tasks(
    spark: SparkSession, broker: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    table = job(spark, pipeline(tmp_path, broker, **JSON, **files(20)))
    table.run(parts(0, 10), "measures the size of records")
    result = table.run(parts(0, 10), "all")
    assert len(result.files) == 20  # one record each, some of them in the middle of a range
    assert numbers(spark, result) == [(p, n) for p in (0, 1) for n in range(10)]


@pytest.fixture
def shortened(broker: EmbeddedKafka) -> Range:
    """A range whose first records are gone."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("shortened", 1)])["shortened"].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(10):
        producer.produce("shortened", b"{}")
    assert producer.flush(30) == 0
    gone = KafkaTopicPartition("shortened", 0, 5)
    next(iter(admin.delete_records([gone]).values())).result(30)
    return Range(TopicPartition("shortened", 0), 2, 10)


def test_records_that_are_gone_are_an_error_and_the_next_batch_is_read(
    spark: SparkSession, broker: EmbeddedKafka, topic: str, tmp_path: Path, shortened: Range
) -> None:
    table = job(spark, pipeline(tmp_path, broker))
    with pytest.raises(ConsumerError, match="cannot read from Kafka"):
        table.run([shortened], "gone")
    assert table.run(parts(0, 10), "there").stats.records == 20


def test_a_client_that_read_very_many_partitions_is_not_kept() -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "nobody", "log_level": "0"}
    kept = reading._client(settings)
    reading._put_away(settings, reading._MOST_KEPT_PARTITIONS)
    assert reading._client(settings) is kept
    reading._put_away(settings, reading._MOST_KEPT_PARTITIONS + 1)
    assert kept not in reading._clients.values()
    assert reading._client(settings) is not kept
    reading._forget(settings)


class Overheard:
    """A consumer, and which topics it was asked about."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._consumer, self.asked = Consumer({"group.id": "nobody", **settings}), list[str | None]()

    def list_topics(self, topic: str | None, timeout: float) -> Any:
        self.asked.append(topic)
        return self._consumer.list_topics(topic, timeout=timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)


def test_a_client_asks_once_who_leads_a_topic_and_reads_it(broker: EmbeddedKafka, topic: str) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "nobody", **reading.SETTINGS}
    client, overheard = reading.Client(settings), Overheard(settings)
    client.consumer, client.leaders = overheard, Leaders(overheard)  # type: ignore[assignment]
    for start in (0, 10):
        seen: reading.Seen = {}
        list(reading._read(client, [(topic, 0, start, start + 10), (topic, 1, start, start + 10)], seen))
        assert {partition: records for partition, (records, _) in seen.items()} == {(topic, 0): 10, (topic, 1): 10}
        client.consumer.unassign()
    assert overheard.asked == [topic]
    assert client.leaders.meet([topic, *(f"another-{n}" for n in range(11))]) is None
    assert client.leaders.meet([topic, "another-5"]) is None
    assert overheard.asked == [topic, None], "of many new ones everything is asked for, once"
    overheard.close()


def test_leaders_that_nobody_tells_are_asked_for_again() -> None:
    overheard = Overheard({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    leaders = Leaders(overheard)
    for _ in range(2):
        assert leaders.meet(["a", "b"]) is not None
    assert overheard.asked == ["a", "a"]
    overheard.close()
