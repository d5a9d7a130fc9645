"""The pipeline of a long run: loads on dials, topics that grow, upkeep from outside, and a folder that can go away."""

import ctypes
import os
import random
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from math import cos, pi
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewPartitions

from headgate.errors import ConfigError, KafkaUnavailable
from headgate.kafka.load_records import JsonRecords, RecordFormat
from headgate.kafka.load_topics import prepare_topics
from headgate.lake.catalogs import open_catalog
from headgate.model import TopicPartition
from headgate.simulation.workload_shapes import Steady
from tests.chaos import parts
from tests.chaos.harness import BAD_SHARE, RECORD_BYTES, ChaosRun
from tests.chaos.leftovers import unused_files
from tests.chaos.neighbour import Neighbour
from tests.chaos.parts import Load
from tests.chaos.reckoning import Outcome
from tests.chaos.scene import BURSTS, ODD, SOAK, STEADY
from tests.chaos.upkeep import Upkeep

TOTAL_BYTES_PER_S = {STEADY: 84_000.0, BURSTS: 36_000.0}
"""Two consumers, at every height of the wave; three times as much is more than four are packed with, and what they can
do."""
_WAVE_S, _WAVE_SHARE = 300.0, 0.3
_FAVOURED_SHARE = 0.6
_BROKERS_DEADLINE_S = 300.0
_UPKEEP_DEADLINE_S = 120.0
_MOST_NAMED = 20
_MOST_OF_A_PARTITION = 80_000.0
"""More than a consumer is allowed to pack could not be helped by anybody."""

_T = TypeVar("_T")
Pauses = Generator[float, None, None]
"""What a fault is while it goes on: each value is how many seconds to leave it alone."""


class NotNow(Exception):
    """The fault cannot happen: nobody is there to suffer it, or the step was not reached."""


class Dial:
    """A load that swings slowly and can be turned while it runs. A topic's total does not depend on its partitions."""

    def __init__(self, partitions: Iterable[TopicPartition], total_bytes_per_s: float) -> None:
        self.partitions = tuple(partitions)
        self._total_bytes_per_s = total_bytes_per_s
        self.level = 1.0
        self.pushed = False
        """Three times the load, whatever the level."""
        self.favoured: TopicPartition | None = None

    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        level = 3.0 if self.pushed else self.level
        total = self._total_bytes_per_s * level * (1 + _WAVE_SHARE * cos(2 * pi * t_s / _WAVE_S))
        if self.favoured is None:
            return dict.fromkeys(self.partitions, min(_MOST_OF_A_PARTITION, total / len(self.partitions)))
        others = (1 - _FAVOURED_SHARE) * total / (len(self.partitions) - 1)
        return {
            p: min(_MOST_OF_A_PARTITION, _FAVOURED_SHARE * total if p == self.favoured else others)
            for p in self.partitions
        }

    def edges(self, start_s: float, end_s: float) -> Iterable[float]:
        return ()


class WrongTypes(JsonRecords):
    """JSON as it should be, but a producer has changed the type of a field."""

    def spoil(self, value: bytes) -> bytes:
        return value.replace(b'"amount":', b'"amount":"much","cost":', 1)


class SoakRun(ChaosRun):
    drain_deadline_s = 900.0
    """How fast it recovers is judged apart; at the end only whether everything lands."""

    def __init__(self, home: Path, seed: int, say: Callable[[str], None]) -> None:
        super().__init__(home, seed, brokers=3, say=say, scene=SOAK)
        self.began_at_s = time.time()
        self.dials: dict[str, Dial] = {}
        self._dialled: dict[str, Load] = {}
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="soak")
        self.neighbour: Neighbour | None = None
        self.upkeep = Upkeep(self.maintain, self.now_s, self.say)

    def _set_up(self) -> None:
        super()._set_up()
        self.neighbour = Neighbour(
            self.home / "neighbour",
            self.kafka.bootstrap,
            lambda topics: prepare_topics(self._admin, topics),
            lambda topic, workload: self.generator(topic, workload, "json", 0.0),
        )

    def begin(self) -> None:
        """From here on it counts: the pipeline runs."""
        self._began, self.began_at_s = time.monotonic(), time.time()

    def now_s(self) -> float:
        """Since the run began, by the clock that Kafka and the committer stamp with."""
        return time.time() - self.began_at_s

    # Load

    def _begin_load(self) -> None:
        for topic in TOTAL_BYTES_PER_S:
            self._turn_on(topic)

    def _turn_on(self, topic: str) -> None:
        dial = Dial([p for p in self.partitions if p.topic == topic], TOTAL_BYTES_PER_S[topic])
        if topic in self.dials:
            dial.level = self.dials[topic].level
        shape, bad = ("raw", 0.0) if topic == STEADY else ("json", BAD_SHARE)
        self.dials[topic] = dial
        self._dialled[topic] = Load(self.generator(topic, dial, shape, bad))
        self._loads.append(self._dialled[topic])

    def add_a_partition(self, topic: str) -> Pauses:
        """The load pauses for it: who writes must know the new partition first."""
        load = self._dialled[topic]
        stopped = self.beside(load.stop)
        try:
            yield from until_done(stopped)
        finally:  # what it wrote counts, also if this is cut short
            self._reports.append(stopped.result())
            self._loads.remove(load)
        count = 1 + sum(p.topic == topic for p in self.partitions)
        growing = self.beside(lambda: self._grow(topic, count))
        try:
            yield from until_done(growing)
            growing.result()
        finally:
            self._turn_on(topic)

    def _grow(self, topic: str, count: int) -> None:
        for _ in range(10):
            with suppress(KafkaException):  # no broker answered, or it is done already: the next look tells
                self._admin.create_partitions([NewPartitions(topic, count)])[topic].result(30)
            try:
                grown = prepare_topics(self._admin, {topic: count})
            except (KafkaUnavailable, ConfigError):  # away, or not yet known everywhere
                time.sleep(2)
                continue
            self.partitions = tuple(sorted({*self.partitions, *grown}))
            return
        raise AssertionError(f"{topic} did not get its partition {count}")

    def odd_records(self, shape: RecordFormat | str, bad_share: float, count: int) -> Pauses:
        """A burst on the topic that has no other load."""
        workload = Steady.spread([p for p in self.partitions if p.topic == ODD], count * RECORD_BYTES / 4.0)
        generator = self.generator(ODD, workload, shape, bad_share)
        written = self.beside(lambda: generator.run(count=count))
        try:
            yield from until_done(written)
        finally:
            self._reports.append(written.result())

    def start_brokers(self) -> None:
        self.kafka.start(deadline_s=_BROKERS_DEADLINE_S)

    # Victims

    def a_consumer(self, chance: random.Random) -> tuple[int, int]:
        """Id and pid of some consumer that owns partitions and may be ended."""
        running = {n: pid for n in self.watch.owners() if (pid := self.pid(n)) is not None}
        if not running:
            raise NotNow("no consumer to spare")
        number = chance.choice(sorted(running))
        return number, running[number]

    def of_role(self, role: str) -> parts.Command:
        playing = self.role(role)
        if not playing:
            raise NotNow(f"no {role} runs")
        return playing[-1]

    # Beside the conductor

    def beside(self, task: Callable[[], _T]) -> "Future[_T]":
        return self._pool.submit(task)

    def maintain(self, points: Path | None = None) -> parts.Command:
        self._launched += 1
        return parts.Command(
            ["maintain", str(self.file), "--apply"], self.home / f"maintain-{self._launched}.txt", points
        )

    def settle(self) -> None:
        """Dials back to normal, brokers back, upkeep to its end: what follows is drained and counted."""
        self.start_brokers()
        for dial in self.dials.values():
            dial.level, dial.pushed = 1.0, False
        self.upkeep.end(_UPKEEP_DEADLINE_S)

    def finish(self) -> Outcome:
        assert self.neighbour is not None
        mine, other = super().finish(), self.neighbour.finish(self.drain_deadline_s)
        return Outcome(
            mine.acknowledged + other.acknowledged,
            mine.rows + other.rows,
            mine.rejected + other.rejected,
            mine.violations + other.violations,
            mine.repeated + other.repeated,
        )

    def tidy_up(self) -> int:
        """A last round of upkeep, once the youngest file is old enough to be swept; how many no table uses then."""
        self.say("a last round of upkeep, once everything is old enough")
        time.sleep(self.pipeline.lake.orphan_age_s + 1)
        self.upkeep.turn(0)
        self.upkeep.end(_UPKEEP_DEADLINE_S)
        left = unused_files(open_catalog(self.pipeline.lake), [table.name for table in self.pipeline.tables])
        for file in left[:_MOST_NAMED]:
            self.say(f"no table uses {file}")
        return len(left)

    def _clear_away(self) -> None:
        if self.neighbour is not None:
            self.neighbour.clear_away()
        self.upkeep.kill()
        super()._clear_away()
        self._pool.shutdown(wait=False, cancel_futures=True)


def until_done(task: "Future[Any]") -> Pauses:
    while not task.done():
        yield 0.2


_AT_FDCWD, _EXCHANGE = -100, 2


def exchange(one: Path, other: Path) -> None:
    """Two names change places at once; nobody ever finds neither (Linux)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one))
