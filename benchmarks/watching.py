"""What monitor and controller use of their interval of a second, with many partitions on a real broker.

Consumers are played by another process that reads commands, acknowledges and sends heartbeats as real ones do, but
reads no records: what they would cost is not the question here.
"""

import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.ratio import Ratio, of_limit
from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.controller.assembly import channel_of, controller_of
from headgate.kafka.channel import END, Outbox, Tail, Topics, ensure_topics
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.monitor import build_monitor
from headgate.model import TopicPartition
from headgate.model.messages import ConsumerState, ConsumingStarted, ConsumingStopped, StartConsuming, StopConsuming

SIZES = (100, 1_000, 10_000)
TARGET_SIZE = 10_000
PER_TOPIC = 100
PARTITIONS_PER_CONSUMER = 100
INTERVAL_S, POLL_S = 1.0, 0.2
SETTLE_S, TURNS = 60.0, 20
RECORDS_PER_S, RECORD_BYTES = 2_000, 200
HEARTBEAT_S = 2.0
LIFE = "0000000000001-played"


def run() -> list[Ratio]:
    results = []
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder) / "kafka", 1) as kafka:
            used_s = _used_s(Path(folder), kafka.bootstrap, size)
            what = f"monitor and controller, {size:,} partitions on {max(1, size // PARTITIONS_PER_CONSUMER)} consumers"
            results.append(of_limit(what, "its 1 s interval", INTERVAL_S, used_s, target=0.2))
    return results


def _used_s(home: Path, bootstrap: str, size: int) -> list[float]:
    topics = [f"many-{n}" for n in range(max(1, size // PER_TOPIC))]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for topic in topics:
        admin.create_topics([NewTopic(topic, min(size, PER_TOPIC), 1)])[topic].result(60)
    consumers = max(1, size // PARTITIONS_PER_CONSUMER)
    pipeline = _pipeline(home, bootstrap, consumers)
    ensure_topics(admin, Topics(pipeline.name), 1, consumers + 10)
    with _load(bootstrap, topics), _consumers(pipeline) as fleet:
        monitor = build_monitor(pipeline, librdkafka_settings(pipeline))
        controller = controller_of(pipeline, fleet, channel_of(pipeline), threading.Event())
        used: list[float] = []
        began = time.monotonic()
        while len(used) < TURNS:
            turn = time.monotonic()
            worked_s = _timed(monitor.step)
            for _ in range(round(INTERVAL_S / POLL_S)):
                worked_s += _timed(controller.step)
                time.sleep(POLL_S / 2)
            if len(controller.assignment.partitions) == size and time.monotonic() - began > SETTLE_S:
                used.append(worked_s)
            time.sleep(max(0.0, turn + INTERVAL_S - time.monotonic()))
        monitor.close()
    return used


def _timed(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def _pipeline(home: Path, bootstrap: str, consumers: int) -> Pipeline:
    """Capacities that make the packer want about so many consumers."""
    each = RECORDS_PER_S * RECORD_BYTES / consumers
    file = home / "many.yaml"
    file.write_text(
        f"name: many\nkafka: {{brokers: '{bootstrap}'}}\ntopics_pattern: many-.*\ntables: [{{name: lake.many}}]\n"
        f"fleet: {{max_consumers: {consumers + 5}}}\n"
        f"policy: {{consumer_capacity_bytes_per_s: {1.6 * each}, packing_capacity_bytes_per_s: {1.2 * each}}}\n"
    )
    return load_pipeline(file)


@contextmanager
def _load(bootstrap: str, topics: Sequence[str]) -> Iterator[None]:
    """Records for all partitions in turn, from a process of its own."""
    process = multiprocessing.get_context("spawn").Process(target=_produce, args=(bootstrap, topics), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _produce(bootstrap: str, topics: Sequence[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    sent, began = 0, time.monotonic()
    while True:
        while sent < (time.monotonic() - began) * RECORDS_PER_S:
            topic, partition = topics[sent // PER_TOPIC % len(topics)], sent % PER_TOPIC
            producer.produce(topic, b"x" * RECORD_BYTES, partition=partition)
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
    topics, outbox = Topics(name), Outbox(settings)
    tail = Tail(settings, {(topics.control, n): END for n in range(1, most + 1)})
    owned: dict[int, set[TopicPartition]] = {}
    beat_s = 0.0
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
        outbox.flush()


def _state(consumer_id: int, partitions: set[TopicPartition]) -> ConsumerState:
    now = _now_ms()
    return ConsumerState("", consumer_id, LIFE, tuple(sorted(partitions)), now, now, now, now, 0, 0.0, 0.0, 0.0, "")


def _now_ms() -> int:
    return int(time.time() * 1000)
