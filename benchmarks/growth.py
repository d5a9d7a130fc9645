"""How cost grows: a cycle with partitions and with tables, a commit with partitions in its ledger, and what more
consumers in one process bring. Each against the smallest of its kind, with the same bytes in all."""

import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql import SparkSession

from benchmarks.ratio import Ratio, compare, in_turns, of_rounds
from benchmarks.watching import BROKER
from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Lake, Pipeline, Table
from headgate.consumer.files import Warehouse
from headgate.consumer.job import TableJob
from headgate.consumer.spark import start_session
from headgate.kafka.channel import Outbox
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.internal_topics import Topics, ensure_topics
from headgate.lake.catalogs import open_catalog
from headgate.lake.commit import TableCommitter
from headgate.lake.committer import Committer
from headgate.lake.ledger import read_ledger
from headgate.lake.tables import create_table
from headgate.model import Range, TopicPartition
from tests.announcements import announce, spark_schema, write_file
from tests.integration.pipeline_harness import PipelineRun

PARTITIONS = (10, 100, 1_000, 10_000)
TABLES = (1, 10, 50)
CONSUMERS = (1, 2, 4, 8)
LEDGERS = (10, 100, 1_000, 10_000)
RECORDS, RECORD = 10_000, b"x" * 200
"""Of one cycle, whatever it is spread over."""
TURNS, WARM_UP = 6, 4
AT_ONCE = 1_000
"""Partitions that a broker makes in one request; it refuses many more."""
COMMITS, COMMITS_WARM_UP = 13, 3
BACKLOG, BACKLOG_PARTITIONS, BACKLOG_RECORDS = "landing", 8, 400_000
ROUNDS = 3
"""Of landing it with each number of consumers, after one that warms up."""


def run() -> list[Ratio]:
    results = commits()
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedKafka(Path(folder) / "kafka", 1, settings=BROKER, heap_mb=1024) as kafka,
    ):
        home = Path(folder)
        spark = start_session("local[2]", home / "spark")
        try:
            results += _partitions(home, kafka.bootstrap, spark)
            results += _tables(home, kafka.bootstrap, spark)
            results += _turns(home, kafka.bootstrap)
            results += _consumers(home, kafka, spark)
        finally:
            spark.stop()
    return results


def _partitions(home: Path, bootstrap: str, spark: SparkSession) -> list[Ratio]:
    cycles = {}
    for count in PARTITIONS:
        topic = f"parts-{count}"
        each = RECORDS // count
        _fill(bootstrap, topic, count, each * (TURNS + WARM_UP))
        pipeline = _pipeline(home, topic, bootstrap, [topic])
        cycles[count] = _cycle(_job(spark, pipeline, 0), topic, count, each)
    smallest = f"{PARTITIONS[0]} partitions"
    return [
        compare(f"cycle of 2 MB from {n:,} partitions", cycles[n], smallest, cycles[PARTITIONS[0]], TURNS, WARM_UP)
        for n in PARTITIONS[1:]
    ]


def _tables(home: Path, bootstrap: str, spark: SparkSession) -> list[Ratio]:
    """The tables of a cycle run side by side, on threads that stay, as a consumer runs them."""
    runs: dict[int, Callable[[int], object]] = {}
    with ExitStack() as threads:
        for count in TABLES:
            topics = [f"table-{count}-{n}" for n in range(count)]
            each = RECORDS // count
            for topic in topics:
                _fill(bootstrap, topic, 1, each * (TURNS + WARM_UP))
            pipeline = _pipeline(home, f"tables{count}", bootstrap, topics)
            cycles = [_cycle(_job(spark, pipeline, n), topic, 1, each) for n, topic in enumerate(topics)]
            runs[count] = _side_by_side(threads.enter_context(ThreadPoolExecutor(count)), cycles)
        return [
            compare(f"cycle of 2 MB into {n} tables", runs[n], "1 table", runs[1], TURNS, WARM_UP) for n in TABLES[1:]
        ]


def _consumers(home: Path, kafka: EmbeddedKafka, spark: SparkSession) -> list[Ratio]:
    """Time to land the same backlog with more consumers on the same cores. The backlog stays; each run is a pipeline
    of its own that reads it from the beginning."""
    _fill(kafka.bootstrap, BACKLOG, BACKLOG_PARTITIONS, BACKLOG_RECORDS // BACKLOG_PARTITIONS)

    def landing(consumers: int) -> Callable[[int], float]:
        return lambda number: _landing_s(home / f"consumers{consumers}x{number}", kafka, spark, consumers)

    took = in_turns({count: landing(count) for count in CONSUMERS}, ROUNDS, 1)
    return [
        of_rounds(
            f"landing 80 MB with {n} consumers on 2 cores", "1 consumer", list(zip(took[n], took[1], strict=True))
        )
        for n in CONSUMERS[1:]
    ]


def _landing_s(folder: Path, kafka: EmbeddedKafka, spark: SparkSession, consumers: int) -> float:
    folder.mkdir()
    with PipelineRun(
        folder, kafka, spark, [{"name": "lake.t"}], consumers=consumers, topics_pattern=BACKLOG
    ) as running:
        running.committer()
        parts = running.partitions()
        workers = [running.worker(n + 1) for n in range(consumers)]
        began = time.perf_counter()
        for n, worker in enumerate(workers):
            running.start_consuming(worker, parts[n::consumers])
        running.wait_until_landed()
        took_s = time.perf_counter() - began
        running.stop()
    return took_s


def commits(ledgers: Sequence[int] = LEDGERS, each: int = COMMITS) -> list[Ratio]:
    """One file a commit; the ledger in the snapshot's summary has so many partitions. A commit costs more the more came
    before it: both tables of a comparison are new."""
    smallest, results = ledgers[0], []
    for partitions in ledgers[1:]:
        with tempfile.TemporaryDirectory() as folder:
            larger, base = (_committing(Path(folder) / str(n), n, each) for n in (partitions, smallest))
            what = f"commit with {partitions:,} partitions in the ledger"
            results.append(
                compare(what, larger, f"{smallest} partitions", base, each - COMMITS_WARM_UP, COMMITS_WARM_UP)
            )
    return results


def _committing(home: Path, partitions: int, commits: int) -> Callable[[int], object]:
    home.mkdir()
    lake = Lake(catalog={"type": "sql", "uri": f"sqlite:///{home}/catalog.db"}, warehouse=str(home))
    committer = TableCommitter(open_catalog(lake), lake, Table.model_validate({"name": "lake.t"}))
    origins = {TopicPartition("t", p): 0 for p in range(partitions)}
    told = []
    for at in range(commits):
        ranges = [("t", p, at, at + 1) for p in range(partitions)]
        path = write_file(home / f"{at}.parquet", announce(*ranges).ranges)
        told.append(announce(*ranges, files=(path,)))

    def commit(turn: int) -> None:
        assert len(committer.commit([told[turn]], origins).committed) == 1

    return commit


def _turns(home: Path, bootstrap: str) -> list[Ratio]:
    """One turn of the committer in which every table has an announcement waiting; here, too, a comparison begins with
    new tables."""
    return [
        compare(
            f"commits to {n} tables in one turn",
            _turn(home, bootstrap, f"turns{n}", n),
            "to 1 table",
            _turn(home, bootstrap, f"turns1of{n}", 1),
            TURNS,
            WARM_UP,
        )
        for n in TABLES[1:]
    ]


def _turn(home: Path, bootstrap: str, name: str, tables: int) -> Callable[[int], object]:
    topics = [f"{name}-{n}" for n in range(tables)]
    for topic in topics:
        _fill(bootstrap, topic, 1, 1)
    pipeline = _pipeline(home, name, bootstrap, topics)
    internal, settings = Topics(pipeline.name), librdkafka_settings(pipeline)
    ensure_topics(AdminClient(dict(settings)), internal, 1, 1)
    outbox, committer, catalog = Outbox(settings), Committer(pipeline, settings), open_catalog(pipeline.lake)
    waiting = []
    for at in range(TURNS + WARM_UP):
        path = write_file(home / pipeline.name / f"{at}.parquet", announce((topics[0], 0, at, at + 1)).ranges)
        of_turn = zip(pipeline.tables, topics, strict=True)
        waiting.append([announce((topic, 0, at, at + 1), files=(path,), table=table.name) for table, topic in of_turn])
    last = TopicPartition(topics[-1], 0)
    committer.turn()
    create_table(catalog, pipeline.lake, pipeline.tables[-1].name, spark_schema())

    def one(turn: int) -> None:
        for announcement in waiting[turn]:
            outbox.send(internal.announcements, announcement)
        outbox.flush()
        while read_ledger(catalog.load_table(pipeline.tables[-1].name)).next.get(last) != turn + 1:
            committer.turn()

    return one


def _side_by_side(pool: ThreadPoolExecutor, cycles: Sequence[Callable[[int], object]]) -> Callable[[int], object]:
    return lambda turn: list(pool.map(lambda cycle: cycle(turn), cycles))


def _cycle(job: TableJob, topic: str, partitions: int, each: int) -> Callable[[int], object]:
    def one(turn: int) -> None:
        ranges = [Range(TopicPartition(topic, p), turn * each, (turn + 1) * each) for p in range(partitions)]
        assert job.run(ranges, f"turn-{turn}-{time.monotonic_ns()}").stats.records == partitions * each

    return one


def _job(spark: SparkSession, pipeline: Pipeline, table: int) -> TableJob:
    return TableJob(spark, pipeline, pipeline.tables[table], Warehouse(pipeline.lake))


def _pipeline(home: Path, name: str, bootstrap: str, topics: Sequence[str]) -> Pipeline:
    file = home / f"{name}.yaml"
    tables = "".join(f"  - {{name: lake.t{n}, topics: [{topic}]}}\n" for n, topic in enumerate(topics))
    file.write_text(
        f"name: {name}\nhome: {home / name}\nkafka: {{brokers: '{bootstrap}'}}\ntopics: [{', '.join(topics)}]\n"
        f"tables:\n{tables}"
    )
    return load_pipeline(file)


def _fill(bootstrap: str, topic: str, partitions: int, each: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, min(partitions, AT_ONCE), 1)])[topic].result(60)
    for more in range(2 * AT_ONCE, partitions + 1, AT_ONCE):
        admin.create_partitions([NewPartitions(topic, more)])[topic].result(60)
    while _led(admin, topic) < partitions:
        time.sleep(0.5)
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
    for _ in range(each):
        for partition in range(partitions):
            producer.produce(topic, RECORD, partition=partition)
        producer.poll(0)
    producer.flush()


def _led(admin: AdminClient, topic: str) -> int:
    return sum(found.leader >= 0 for found in admin.list_topics(topic, 30).topics[topic].partitions.values())
