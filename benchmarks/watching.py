"""What monitor and controller use of their interval of a second, with many partitions on a real broker.

Consumers and committer are played by another process that reads commands, acknowledges them and sends heartbeats, cycle
records and the ledger as real ones do, but reads no records: what they would cost is not the question here. Neither is
what the broker can take: every partition gets a record in ten seconds, so that all rates are above zero and the one
small broker has time left.

`python -m benchmarks.watching 10000` measures one size only.
"""

import multiprocessing
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.ratio import Ratio, of_limit
from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.controller.assembly import channel_of, controller_of
from headgate.controller.garbage import collect_seldom
from headgate.errors import KafkaUnavailable
from headgate.kafka import channel
from headgate.kafka.channel import END, Outbox, Tail
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.internal_topics import Topics, ensure_topics
from headgate.kafka.monitor import build_monitor
from headgate.kafka.offsets import end_offsets, partitions_where
from headgate.model import TopicPartition
from headgate.model.messages import (
    BytesPerRecord,
    ConsumerState,
    ConsumingStarted,
    ConsumingStopped,
    CycleRecord,
    Landed,
    LedgerState,
    StartConsuming,
    StopConsuming,
)

SIZES = (100, 1_000, 10_000)
TARGET_SIZE = 10_000
PER_TOPIC = 100
PARTITIONS_PER_CONSUMER = 100
INTERVAL_S, POLL_S = 1.0, 0.2
SETTLE_S, TURNS = 60.0, 20
RECORD_EVERY_S, RECORD_BYTES = 10.0, 200
CAPACITY = 1.6 * PARTITIONS_PER_CONSUMER / RECORD_EVERY_S * RECORD_BYTES
"""Of a consumer, configured and measured: with this the packer wants about as many of them as the sizes say."""
HEARTBEAT_S, CYCLE_S, COMMIT_S = 2.0, 1.0, 1.0
SIZES_PER_CYCLE, SIZES_AGAIN_AFTER = 8, 10
"""As `headgate.consumer.counting` measures record sizes: some partitions a cycle until all are known, then seldom."""
BROKER = {"log.index.size.max.bytes": 65_536, "broker.session.timeout.ms": 60_000}
"""Every partition has two indexes that are mapped into memory, of 10 MB each unless told; and while it makes thousands
of partitions a broker forgets its heartbeats."""
READY_S = 300.0
LIFE = "0000000000001-played"
TABLE = "lake.many"


def run(sizes: Sequence[int] = SIZES) -> list[Ratio]:
    results = []
    for size in sizes:
        with (
            tempfile.TemporaryDirectory() as folder,
            EmbeddedKafka(Path(folder) / "kafka", 1, settings=BROKER, heap_mb=1024) as kafka,
        ):
            turns = _turns(Path(folder), kafka.bootstrap, size)
        what = f"monitor and controller, {size:,} partitions on {max(1, size // PARTITIONS_PER_CONSUMER)} consumers"
        limit = "its 1 s interval"
        results.append(of_limit(what, limit, INTERVAL_S, [turn.worked_s for turn in turns], target=0.2))
        cpu = f"CPU of that process, Kafka clients included, {size:,} partitions"
        results.append(of_limit(cpu, limit, INTERVAL_S, [turn.cpu_s for turn in turns]))
    return results


@dataclass(frozen=True, slots=True)
class Turn:
    worked_s: float
    """In the steps of monitor and controller, waiting for the broker included."""
    cpu_s: float
    """All threads, also between the steps."""


def _turns(home: Path, bootstrap: str, size: int) -> list[Turn]:
    topics = [f"many-{n}" for n in range(max(1, size // PER_TOPIC))]
    consumers = max(1, size // PARTITIONS_PER_CONSUMER)
    pipeline = _pipeline(home, bootstrap, consumers)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    ensure_topics(admin, Topics(pipeline.name), 1, consumers + 10)
    for topic in topics:
        admin.create_topics([NewTopic(topic, min(size, PER_TOPIC), 1)])[topic].result(60)
    _wait_for_ends(admin, size)
    with _load(bootstrap, topics, size), _consumers(pipeline) as fleet:
        monitor, channel = build_monitor(pipeline, librdkafka_settings(pipeline)), channel_of(pipeline)
        controller = controller_of(pipeline, fleet, channel, threading.Event())
        collect_seldom()  # as `headgate run` does
        turns: list[Turn] = []
        began = time.monotonic()
        while len(turns) < TURNS:
            turn, cpu_s = time.monotonic(), time.process_time()
            worked_s = _timed(monitor.step)
            for _ in range(round(INTERVAL_S / POLL_S)):
                worked_s += _timed(controller.step)
                time.sleep(POLL_S / 2)
            time.sleep(max(0.0, turn + INTERVAL_S - time.monotonic()))
            if len(controller.assignment.partitions) == size and time.monotonic() - began > SETTLE_S:
                turns.append(Turn(worked_s, time.process_time() - cpu_s))
        monitor.close()
        channel.close()
    return turns


def _wait_for_ends(admin: AdminClient, size: int) -> None:
    """Until the broker has made all partitions: an end offset is only known of one that is there."""
    until = time.monotonic() + READY_S
    while True:
        partitions = partitions_where(admin, lambda topic: topic.startswith("many-"))
        with suppress(KafkaUnavailable):
            if len(end_offsets(admin, partitions)) == size:
                return
        if time.monotonic() > until:
            raise KafkaUnavailable(f"the broker did not make {size:,} partitions within {READY_S:g} s")
        time.sleep(1.0)


def _timed(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def _pipeline(home: Path, bootstrap: str, consumers: int) -> Pipeline:
    file = home / "many.yaml"
    file.write_text(
        f"name: many\nkafka: {{brokers: '{bootstrap}'}}\ntopics_pattern: many-.*\ntables: [{{name: {TABLE}}}]\n"
        f"fleet: {{max_consumers: {consumers + 5}}}\n"
        f"policy: {{consumer_capacity_bytes_per_s: {CAPACITY}, packing_capacity_bytes_per_s: {0.75 * CAPACITY}}}\n"
    )
    return load_pipeline(file)


@contextmanager
def _load(bootstrap: str, topics: Sequence[str], size: int) -> Iterator[None]:
    """Records for all partitions in turn, from a process of its own."""
    process = multiprocessing.get_context("spawn").Process(target=_produce, args=(bootstrap, topics, size), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _produce(bootstrap: str, topics: Sequence[str], size: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    sent, began = 0, time.monotonic()
    while True:
        while sent < (time.monotonic() - began) * size / RECORD_EVERY_S:
            topic, partition = topics[sent // PER_TOPIC % len(topics)], sent % PER_TOPIC
            try:
                producer.produce(topic, b"x" * RECORD_BYTES, partition=partition)
            except BufferError:  # a broker that is just busy with something else
                break
            sent += 1
        producer.poll(0.05)


class Played:
    """A fleet whose consumers all live in one other process."""

    def __init__(self, wishes: "multiprocessing.Queue[tuple[int, bool]]") -> None:
        self._wishes = wishes
        self._running: set[int] = set()

    def start(self, consumer_id: int) -> None:
        self._running.add(consumer_id)
        self._wishes.put((consumer_id, True))

    def stop(self, consumer_id: int, force: bool = False) -> None:
        self._running.discard(consumer_id)
        self._wishes.put((consumer_id, False))

    def running(self) -> frozenset[int]:
        return frozenset(self._running)

    def close(self, force: bool = False) -> None:
        self._running.clear()

    def last_words(self, consumer_id: int) -> str:
        return ""

    def hand_over(self) -> None:
        self.close()


@contextmanager
def _consumers(pipeline: Pipeline) -> Iterator[Played]:
    context = multiprocessing.get_context("spawn")
    wishes: multiprocessing.Queue[tuple[int, bool]] = context.Queue()
    most = pipeline.fleet.max_consumers + 5
    process = context.Process(
        target=_play, args=(librdkafka_settings(pipeline), pipeline.name, most, wishes), daemon=True
    )
    process.start()
    try:
        yield Played(wishes)
    finally:
        process.kill()
        process.join()


def _play(settings: dict[str, str], name: str, most: int, wishes: "multiprocessing.Queue[tuple[int, bool]]") -> None:
    channel.LOOK_EVERY_S = inf  # one reader for all of them, where each has its own, would ask for a hundred partitions
    topics, outbox = Topics(name), Outbox(settings)
    tail = Tail(settings, {(topics.control, n): END for n in range(1, most + 1)})
    owned: dict[int, set[TopicPartition]] = {}
    cycles: Counter[int] = Counter()
    beat_s = cycle_s = commit_s = 0.0
    commits = 0
    while True:
        while not wishes.empty():
            consumer_id, wanted = wishes.get()
            owned.pop(consumer_id, None)
            if wanted:
                owned[consumer_id] = set()
                outbox.send(topics.control, _state(consumer_id, set()))
        for received in tail.poll(0.05):
            command = received.message
            if isinstance(command, StartConsuming) and command.consumer_id in owned:
                owned[command.consumer_id] |= set(command.partitions)
                answer = ConsumingStarted(command.command_id, command.consumer_id, LIFE, command.partitions, _now_ms())
                outbox.send(topics.control, answer)
            elif isinstance(command, StopConsuming) and command.consumer_id in owned:
                owned[command.consumer_id] -= set(command.partitions)
                done = ConsumingStopped(
                    command.command_id, command.consumer_id, LIFE, command.partitions, _now_ms(), ()
                )
                outbox.send(topics.control, done)
        if time.monotonic() - beat_s > HEARTBEAT_S:
            beat_s = time.monotonic()
            for consumer_id, partitions in owned.items():
                outbox.send(topics.control, _state(consumer_id, partitions))
        if time.monotonic() - cycle_s > CYCLE_S:
            cycle_s = time.monotonic()
            cycles.update(owned.keys())
            for consumer_id, partitions in owned.items():
                outbox.send(topics.cycles, _cycle(consumer_id, cycles[consumer_id], sorted(partitions)))
        if time.monotonic() - commit_s > COMMIT_S:
            commit_s, commits = time.monotonic(), commits + 1
            outbox.send(topics.ledger, _ledger(commits, sorted(set().union(*owned.values()))), key=TABLE)
        outbox.flush()


def _ledger(commits: int, partitions: Sequence[TopicPartition]) -> LedgerState:
    landed = round(commits * COMMIT_S / RECORD_EVERY_S)
    positions = [Landed(p.topic, p.partition, landed) for p in partitions]
    return LedgerState(TABLE, _now_ms(), "played", commits, commits, True, positions, (), 0)


def _state(consumer_id: int, partitions: set[TopicPartition]) -> ConsumerState:
    now = _now_ms()
    reads = len(partitions) / RECORD_EVERY_S * RECORD_BYTES
    return ConsumerState(
        "", consumer_id, LIFE, tuple(sorted(partitions)), now, now, now, now, 0, reads, 0.5, CAPACITY, "", 1
    )


def _cycle(consumer_id: int, cycle: int, partitions: Sequence[TopicPartition]) -> CycleRecord:
    """With the record sizes of the partitions whose turn it is."""
    first = cycle * SIZES_PER_CYCLE
    all_known = first > 2 * len(partitions)
    chosen: Sequence[TopicPartition] = ()
    if partitions and not (all_known and cycle % SIZES_AGAIN_AFTER):
        begin = first % len(partitions)
        chosen = partitions[begin : begin + SIZES_PER_CYCLE]
    sizes = tuple(BytesPerRecord(p.topic, p.partition, float(RECORD_BYTES)) for p in chosen)
    n, records = len(partitions), round(len(partitions) * CYCLE_S / RECORD_EVERY_S)
    return CycleRecord(consumer_id, LIFE, cycle, _now_ms(), n, 1, records, records, records * RECORD_BYTES,
                       0.1, 0.1, 0.1, 0.7, 0, False, sizes, "")  # fmt: skip


def _now_ms() -> int:
    return int(time.time() * 1000)


if __name__ == "__main__":
    for ratio in run([int(size) for size in sys.argv[1:]] or SIZES):
        print(f"{ratio.what}: {ratio.ratio:.3f} of {ratio.peer} ({ratio.low:.3f} … {ratio.high:.3f})")
