"""A consumer's life: commands, back-pressure, death and return, and what it says about its cycles."""

import json
import sys
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headgate.consumer.state import StateFile
from headgate.kafka.embedded import EmbeddedKafka
from headgate.model import Announcement
from headgate.model.messages import (
    CommitRecord,
    ConsumerLeft,
    ConsumerState,
    ConsumingStarted,
    ConsumingStopped,
    CycleRecord,
    LedgerState,
    Position,
    StartConsuming,
    StateQuery,
    StopConsuming,
)
from tests.eventually import eventually
from tests.integration.pipeline_harness import PipelineRun, RunningWorker

TABLES = [{"name": "lake.t"}]
KILOBYTE = b"x" * 1_000
ONE_BY_ONE = {"batch_bytes": "1 kB", "wait_s": "100 ms"}
"""A cycle takes one record of a kilobyte."""


def announced(run: PipelineRun) -> list[Announcement]:
    return run.messages(run.names.announcements, Announcement)


def place_ledger(run: PipelineRun) -> None:
    """A committer lives long enough to say where everything begins."""
    committer = run.committer()
    eventually(lambda: run.messages(run.names.ledger, LedgerState), "the ledger is published")
    committer.stop()


def litter(run: PipelineRun) -> None:
    """Garbage of several kinds, and messages that belong elsewhere, on every topic that somebody listens to."""
    producer = Producer({"bootstrap.servers": run.bootstrap, "log_level": 2})
    for topic, partitions in (
        (run.names.control, (0, 1, 2)),
        (run.names.ledger, (0,)),
        (run.names.announcements, (0,)),
    ):
        for partition in partitions:
            producer.produce(topic, b"\x00\xffgarbage", partition=partition, key="k")
            producer.produce(topic, None, partition=partition, key="k")
            producer.produce(
                topic, b"", partition=partition, headers={"event_type": "StopConsuming", "schema": "0"}, key="k"
            )
    producer.flush(30)
    stray = ConsumerLeft(9, "nobody", 0, "stray")
    for topic in (run.names.ledger, run.names.announcements):
        run.outbox.send(topic, stray, key="stray")
    run.outbox.send(run.names.control, stray, partition=1)
    run.outbox.flush()


def state_of(run: PipelineRun, worker: RunningWorker) -> ConsumerState:
    query = StateQuery(run.command_id(), run.epoch, worker.id)
    run.send(query)
    return run.wait_for(ConsumerState, worker, lambda s: s.command_id == query.command_id)


def test_a_consumer_runs_ahead_of_the_committer_only_so_far_and_reports_every_cycle(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    settings = {**ONE_BY_ONE, "max_uncommitted_cycles": 2}
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 2}, consumer=settings) as run:
        for partition in (0, 1):
            run.produce("t", [(b"%04d" % n, KILOBYTE) for n in range(6)], partition)
        place_ledger(run)
        worker = run.worker(own=run.partitions())
        full = run.wait_for(ConsumerState, worker, lambda s: s.uncommitted_cycles == 2)
        run.wait_for(ConsumerState, worker, lambda s: s.cycle >= full.cycle + 10)
        assert len(announced(run)) == 2  # one of them only made the table known
        run.committer()
        run.wait_until_landed()
        worker.stop()

        cycles = [c for c in run.messages(run.names.cycles, CycleRecord) if c.incarnation == worker.life]
        assert sum(c.records for c in cycles) == sum(c.rows for c in cycles) == 12
        assert sum(c.payload_bytes for c in cycles) == 12 * 1_004
        assert all(c.partitions == 2 and c.tables == 1 and c.error == "" for c in cycles)
        assert all(c.process_s > 0 and c.gather_s >= 0 and c.throughput_bytes_per_s > 0 for c in cycles)
        assert [c.cycle for c in cycles] == sorted({c.cycle for c in cycles})
        assert cycles[0].peak
        assert cycles[0].lag_records == 12 - cycles[0].records
        assert cycles[-1].lag_records == 0
        sizes = {size.bytes_per_record for c in cycles for size in c.sizes}
        assert sizes == {1_004.0}
        (left,) = run.events(ConsumerLeft)
        assert (left.incarnation, left.reason) == (worker.life, "stopped")
        run.stop()
        assert run.assert_exactly_once("lake.t").rows == 12


def test_commands_are_durable_before_they_are_acknowledged_and_may_come_twice_late_or_broken(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 2}, consumer=ONE_BY_ONE) as run:
        first, second = run.partitions()
        for partition in (0, 1):
            run.produce("t", [KILOBYTE] * 8, partition)
        litter(run)
        run.committer()
        worker = run.worker()
        litter(run)
        file = StateFile(run.pipeline.home / "consumers" / "1")
        start = StartConsuming(run.command_id(), run.epoch, 1, worker.life, (first, second))
        for _ in range(2):
            run.send(start)
        run.wait_for(ConsumingStarted, worker, lambda e: e.command_id == start.command_id)
        saved = file.load()
        assert saved is not None
        assert saved.partitions == {first, second}

        # Stopped in the middle: everything of the partition that will ever be announced is announced.
        run.wait_for(ConsumerState, worker, lambda s: s.cycle >= 2)
        stopped = run.stop_consuming(worker, [first])
        so_far = [r.end for a in announced(run) for r in a.ranges if r.partition == first]
        saved = file.load()
        assert saved is not None
        assert saved.partitions == {second}
        assert stopped.announced == (Position("lake.t", first.topic, first.partition, max(so_far, default=0)),)
        run.produce("t", [KILOBYTE] * 4, 1)
        eventually(lambda: sum(r.end == 12 for a in announced(run) for r in a.ranges) == 1, "the other one goes on")
        assert [r.end for a in announced(run) for r in a.ranges if r.partition == first] == so_far

        # Old commands of this controller again, and one of a controller that is no longer in charge.
        run.send(start)
        run.send(StopConsuming(stopped.command_id, run.epoch, 1, worker.life, (first,)))
        assert state_of(run, worker).partitions == (second,)
        assert [e for e in run.events(ConsumingStopped) if e.command_id == stopped.command_id] == [stopped, stopped]
        run.epoch = 2
        assert state_of(run, worker).partitions == (second,)
        run.send(StopConsuming("stale", 1, 1, worker.life, (second,)))
        run.send(StartConsuming("for an earlier life", 2, 1, "0000000000000-000000", (first,)))
        assert state_of(run, worker).partitions == (second,)
        assert "stale" not in {e.command_id for e in run.events(ConsumingStopped)}
        assert "for an earlier life" not in {e.command_id for e in run.events(ConsumingStarted)}

        run.worker(2, own=[first])
        run.wait_until_landed()
        run.stop()
        assert run.assert_exactly_once("lake.t").rows == 20


def test_a_consumer_returns_from_death_with_its_partitions_and_ends_its_former_self(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 2}, consumer=ONE_BY_ONE) as run:
        owned = run.partitions()

        def produce_some() -> None:
            for partition in (0, 1):
                run.produce("t", [KILOBYTE] * 4, partition)

        produce_some()
        worker = run.run()
        worker.kill()
        produce_some()
        second = run.worker()  # nobody commands it
        run.wait_for(ConsumerState, second, lambda s: s.partitions == owned)
        run.wait_until_landed()
        produce_some()
        third = run.worker()
        second.ended()  # by itself, without a word
        assert second.failure is None
        run.wait_until_landed()
        run.stop()
        assert [left.incarnation for left in run.events(ConsumerLeft)] == [third.life]
        assert run.assert_exactly_once("lake.t").rows == 24


def test_a_consumer_reads_no_faster_than_its_cap(broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path) -> None:
    cap_bytes_per_s = 40_000
    settings = {"rate_cap_bytes_per_s": cap_bytes_per_s, "wait_s": "100 ms"}
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}, consumer=settings) as run:
        run.produce("t", [KILOBYTE] * 400)
        run.run()
        run.wait_until_landed()
        run.stop()
        cycles = run.messages(run.names.cycles, CycleRecord)
        later_bytes = sum(c.payload_bytes for c in cycles[1:])
        seconds = (cycles[-1].at_ms - cycles[0].at_ms) / 1000
        assert sum(c.payload_bytes for c in cycles) == 400_000
        assert later_bytes >= 250_000  # before the first cycle the size of records is a guess, and may be a wrong one
        assert later_bytes <= 1.1 * cap_bytes_per_s * seconds + 2 * cap_bytes_per_s
        run.assert_exactly_once("lake.t")


def test_announcements_that_nobody_answers_are_repeated_and_land_once(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    settings = {**ONE_BY_ONE, "commit_deadline_s": "1 s", "max_uncommitted_cycles": 2}
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}, consumer=settings) as run:
        run.produce("t", [KILOBYTE] * 5)
        place_ledger(run)
        worker = run.worker(own=run.partitions())
        eventually(lambda: sum(r.start == 0 for a in announced(run) for r in a.ranges) >= 2, "it announces again")
        assert "is the committer running?" in run.error_of(worker, "lake.t: no verdict")
        run.committer()
        run.wait_until_landed()
        run.wait_for(ConsumerState, worker, lambda s: s.last_error == "" and s.uncommitted_cycles == 0)
        run.stop()
        assert run.assert_exactly_once("lake.t").rows == 5
        saved = json.loads((run.pipeline.home / "consumers" / "1" / "state.json").read_text())
        assert saved["partitions"] == []  # a clean end leaves nothing behind


def test_an_interval_between_commits_longer_than_the_deadline_is_waited_for(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    settings = {**ONE_BY_ONE, "commit_deadline_s": "3 s", "max_uncommitted_cycles": 2}
    lake = {"commit_interval_s": "4 s"}
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}, consumer=settings, lake=lake) as run:
        run.produce("t", [KILOBYTE] * 6)
        run.run()
        run.wait_until_landed()
        run.stop()
        read = [r.start for a in announced(run) for r in a.ranges]
        assert read == sorted(set(read)), "nothing was given up and read again"
        assert len({commit.at_ms for commit in run.messages(run.names.commits, CommitRecord)}) >= 3
        assert run.assert_exactly_once("lake.t").rows == 6


def test_while_batches_wait_the_next_cycle_begins_before_the_last_one_is_announced(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """The transform is called when a cycle is planned, and says when that was."""
    (tmp_path / "planned.py").write_text(
        "import time\n\nCALLS = []\n\n\ndef rows(df):\n    CALLS.append(time.time() * 1000)\n    return df\n"
    )
    tables = [{"name": "lake.t", "transform": "planned:rows"}]
    with PipelineRun(tmp_path, broker, spark, tables, {"t": 1}, consumer=ONE_BY_ONE) as run:
        run.produce("t", [KILOBYTE] * 12)
        worker = run.run()
        run.wait_until_landed()
        stopped = run.stop_consuming(worker, run.partitions())
        run.stop()
        calls: list[float] = sys.modules["planned"].CALLS
        told = [a for a in announced(run) if a.ranges]
        planned = calls[-len(told) :]
        assert any(planned[n + 1] < told[n].announced_at_ms for n in range(len(told) - 1))
        written = [(a.began_at_ms / 1000, Path(file).stat().st_mtime) for a in told for file in a.files]
        assert written
        assert all(began_s <= at_s for began_s, at_s in written), "a cycle is as old as its oldest file, or older"
        assert [r.start for a in told for r in a.ranges] == sorted({r.start for a in told for r in a.ranges})
        assert stopped.announced[0].next == 12
        assert run.assert_exactly_once("lake.t").rows == 12


def test_a_failed_cycle_is_read_again_and_so_is_the_one_begun_behind_it(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """The third plan fails while another cycle is under way; its offsets land once, and in order."""
    (tmp_path / "stumbling.py").write_text(
        "CALLS = []\n\n\ndef rows(df):\n    CALLS.append(1)\n    if len(CALLS) in (5, 8):\n"
        "        raise RuntimeError('not today')\n    return df\n"
    )
    tables = [{"name": "lake.t", "transform": "stumbling:rows"}]
    with PipelineRun(tmp_path, broker, spark, tables, {"t": 2}, consumer=ONE_BY_ONE) as run:
        for partition in (0, 1):
            run.produce("t", [KILOBYTE] * 8, partition)
        run.run()
        run.wait_until_landed()
        run.stop()
        assert len(sys.modules["stumbling"].CALLS) > 8
        for owned in run.partitions():
            starts = [r.start for a in announced(run) for r in a.ranges if r.partition == owned]
            assert starts == sorted(set(starts))  # what came behind a failure was never announced
        assert run.assert_exactly_once("lake.t").rows == 16


def test_a_new_owner_goes_on_at_once_behind_what_the_old_one_announced(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with PipelineRun(tmp_path, broker, spark, TABLES, {"t": 1}) as run:
        (partition,) = run.partitions()
        run.produce("t", [(b"%04d" % n, b"before") for n in range(5)])
        place_ledger(run)
        giver, taker = run.worker(1, own=[partition]), run.worker(2)
        eventually(lambda: sum(a.stats.records for a in announced(run)) == 5, "the giver has announced")
        stopped = run.stop_consuming(giver, [partition])
        run.start_consuming(taker, [partition], stopped.announced)
        run.produce("t", [(b"%04d" % n, b"after") for n in range(5)])
        eventually(lambda: sum(a.stats.records for a in announced(run)) == 10, "the taker goes on without a commit")
        run.committer()
        run.wait_until_landed()
        assert not [v for s in run.messages(run.names.ledger, LedgerState) for v in s.verdicts if not v.accepted]
        run.stop()
        assert run.assert_exactly_once("lake.t").rows == 10
