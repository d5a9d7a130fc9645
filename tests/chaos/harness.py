"""A whole pipeline to be hurt: a broker of its own, each role in its own process, consumers as processes, loads that
know exactly what was acknowledged. At the end everything is counted, by Spark and by DuckDB, which wrote none of it."""

import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headgate import failpoints
from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.controller.drain import is_drained
from headgate.errors import KafkaUnavailable
from headgate.fleet.processes import ProcessFleet
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.internal_topics import Topics, ensure_topics
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_records import FixedSize, RecordFormat
from headgate.kafka.load_report import LoadReport
from headgate.kafka.load_topics import prepare_topics
from headgate.kafka.offsets import end_offsets
from headgate.model import TopicPartition
from headgate.simulation.workload import Workload
from headgate.simulation.workload_shapes import Steady
from tests.chaos.parts import Command, Load, Overdue, consumer_pid, wait_until
from tests.chaos.reckoning import Outcome, count, verify
from tests.chaos.scene import BURSTS, CHAOS, STEADY, Scene
from tests.chaos.watch import Watch

RECORD_BYTES = 250
BAD_SHARE = 0.01
BYTES_PER_S_OF_A_PARTITION = 35_000.0
"""Two partitions fill a consumer: the steady topic alone needs two consumers, with a surge on bursts it is three."""
RECOVERY_DEADLINE_S = 180.0
SET_UP_DEADLINE_S = 400.0
DELIVERY_TIMEOUT_S = 900.0
"""A record given up by its producer may have landed or not: nobody could count any more."""
ROLES = ("monitor", "committer", "controller")


class ChaosRun:
    """Use as a context: the pipeline runs inside it and nothing of it is left afterwards."""

    drain_deadline_s = RECOVERY_DEADLINE_S

    def __init__(
        self, home: Path, seed: int, brokers: int = 1, say: Callable[[str], None] = print, scene: Scene = CHAOS
    ) -> None:
        self.home = home
        self.scene = scene
        self.chance = random.Random(seed)
        self._say = say
        self._began = time.monotonic()
        self.kafka = EmbeddedKafka(home / "kafka", brokers)
        self.brokers = brokers
        self.failpoints = home / "failpoints"
        self._roles: dict[str, list[Command]] = {}
        self._by_hand: list[Command] = []
        self._launched = 0
        self._loads: list[Load] = []
        self._reports: list[LoadReport] = []
        self._surge: Load | None = None

    def say(self, what: str) -> None:
        self._say(f"[{time.monotonic() - self._began:6.1f} s] {what}")

    # Beginning and end

    def __enter__(self) -> Self:
        try:
            self._set_up()
        except BaseException:
            self._clear_away()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear_away()

    def _set_up(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.kafka.start()
        self.file = self.home / "pipeline.yaml"
        self.file.write_text(self.scene.yaml(self.kafka.bootstrap))
        self.pipeline = load_pipeline(self.file)
        self.settings = librdkafka_settings(self.pipeline)
        self.topics = Topics(self.pipeline.name)
        self._admin = AdminClient(dict(self.settings))
        self.partitions = prepare_topics(self._admin, dict.fromkeys(self.scene.tables, self.scene.partitions))
        ensure_topics(self._admin, self.topics, self.brokers, self.pipeline.fleet.max_consumers)
        self.watch = Watch(self.settings, self.topics)
        self._begin_load()
        for role in ROLES:
            self.start(role)
        wait_until(lambda: len(self.watch.owners()) >= 2, "two consumers that own partitions", SET_UP_DEADLINE_S)
        self.consumes_again(SET_UP_DEADLINE_S)
        self.say("the pipeline runs")

    def _clear_away(self) -> None:
        with ExitStack() as steps:  # the last first, and each of them whatever becomes of the others
            steps.callback(self.kafka.stop)
            if hasattr(self, "watch"):
                steps.callback(self.watch.close)
            for load in self._loads:
                steps.callback(load.stop)
            steps.callback(lambda: ProcessFleet(lambda _: [], self.home).close(force=True))
            for command in [*self._by_hand, *(c for commands in self._roles.values() for c in commands)]:
                if command.runs:
                    steps.callback(command.kill)

    # Roles and consumers

    def start(self, role: str) -> Command:
        self._launched += 1
        output = self.home / f"{role}-{self._launched}.txt"
        command = Command(["run", str(self.file), "--roles", role], output, self.failpoints)
        self._roles.setdefault(role, []).append(command)
        return command

    def role(self, role: str) -> list[Command]:
        """The processes of this role that run now, oldest first."""
        return [command for command in self._roles.get(role, []) if command.runs]

    def frozen(self, role: str) -> Command:
        """The process of this role that a signal has stopped."""
        for command in self.role(role):
            if psutil.Process(command.pid).status() == psutil.STATUS_STOPPED:
                return command
        raise AssertionError(f"no {role} is frozen")

    def revive(self) -> None:
        """What a supervisor does: a role nobody plays any more is started again."""
        for role in ROLES:
            if not self.role(role):
                self.say(f"{role} is started again")
                self.start(role)

    def by_hand(self, consumer_id: int, folder: Path, points: Path | None) -> Command:
        """A consumer the fleet knows nothing of."""
        self._launched += 1
        arguments = ["consumer", str(self.file), "--id", str(consumer_id), "--folder", str(folder)]
        command = Command(arguments, self.home / f"by-hand-{self._launched}.txt", points)
        self._by_hand.append(command)
        return command

    def copy_of_state(self, consumer_id: int) -> Path:
        self._launched += 1
        folder = self.home / f"elsewhere-{self._launched}"
        folder.mkdir()
        shutil.copy(self.state_folder(consumer_id) / "state.json", folder / "state.json")
        return folder

    def state_folder(self, consumer_id: int) -> Path:
        return self.home / "consumers" / str(consumer_id)

    def pid(self, consumer_id: int) -> int | None:
        """Of the fleet's consumer with this id, while it lives."""
        return consumer_pid(self.state_folder(consumer_id))

    def an_owner(self) -> int:
        """Some consumer that owns partitions now and runs."""
        wait_until(lambda: any(self.pid(n) for n in self.watch.owners()), "a consumer that owns partitions", 120)
        return self.chance.choice(sorted(n for n in self.watch.owners() if self.pid(n)))

    def replaced(self, consumer_id: int, life: str, deadline_s: float = RECOVERY_DEADLINE_S) -> None:
        """Returns when that life was succeeded by another, or its partitions have other owners."""

        def is_over() -> bool:
            now = self.watch.state(consumer_id)
            if now is not None and now.incarnation > life:
                return True
            others = {p for n, ps in self.watch.owners().items() if n != consumer_id for p in ps}
            return others >= set(self.partitions)

        wait_until(is_over, f"a successor of consumer {consumer_id} ({life})", deadline_s)

    # Load

    def _begin_load(self) -> None:
        self._loads.append(self._load(STEADY, "raw", 0.0))

    def _load(self, topic: str, record_format: str, bad_share: float) -> Load:
        rates = {p: BYTES_PER_S_OF_A_PARTITION for p in self.partitions if p.topic == topic}
        return Load(self.generator(topic, Steady(rates), record_format, bad_share))

    def generator(
        self, topic: str, workload: Workload, record_format: str | RecordFormat, bad_share: float
    ) -> LoadGenerator:
        return LoadGenerator(
            self.kafka.bootstrap,
            {"log_level": "2", "linger.ms": "100"},  # fewer, larger requests: two cores are few
            {topic: None},
            workload,
            FixedSize(RECORD_BYTES),
            record_format=record_format,
            bad_share=bad_share,
            seed=self.chance.randrange(1 << 30),
            delivery_timeout_s=DELIVERY_TIMEOUT_S,
        )

    def surge(self) -> None:
        """More load, on the other topic: needs a third consumer."""
        if self._surge is None:
            self.say("the load rises")
            self._surge = self._load(BURSTS, "json", BAD_SHARE)
            self._loads.append(self._surge)

    def ebb(self) -> None:
        if self._surge is not None:
            self.say("the load falls")
            self._reports.append(self._surge.stop())
            self._loads.remove(self._surge)
            self._surge = None

    @property
    def surging(self) -> bool:
        return self._surge is not None

    # Progress

    def ends(self) -> dict[TopicPartition, int]:
        """End offsets of all partitions; waits for a broker that is coming back."""
        found: dict[TopicPartition, int] = {}

        def answered() -> bool:
            try:
                found.update(end_offsets(self._admin, self.partitions))
            except (KafkaUnavailable, KafkaException):
                return False
            return found.keys() == set(self.partitions)

        wait_until(answered, "the brokers' end offsets", 60)
        return found

    def consumes_again(self, deadline_s: float = RECOVERY_DEADLINE_S) -> None:
        """Returns when the lake holds everything that Kafka held at the time of the call."""
        ends = self.ends()
        until = time.monotonic() + deadline_s
        while not self.watch.holds(self.scene.tables.values(), ends, self.scene.tables):
            self.revive()
            if time.monotonic() > until:
                raise Overdue(f"the pipeline did not recover within {deadline_s:g} s: {self._behind(ends)}")
            time.sleep(0.1)
        if self.watch.backwards():
            raise AssertionError("; ".join(self.watch.backwards()))

    def _behind(self, ends: Mapping[TopicPartition, int]) -> str:
        missing = []
        for partition, end in sorted(ends.items()):
            at = self.watch.positions(self.scene.tables[partition.topic]).get(partition)
            owners = [n for n, owned in self.watch.owners().items() if partition in owned]
            if at is None or at < end:
                missing.append(f"{partition} is at {at} of {end}, owned by {owners}")
        return "; ".join(missing)

    @contextmanager
    def armed(self, step: str, action: str = "kill") -> Iterator[None]:
        """Nothing stays armed that was not reached."""
        failpoints.arm(self.failpoints, step, action)
        try:
            yield
        finally:
            failpoints.disarm(self.failpoints, step)

    def fired(self, step: str) -> int:
        return len(failpoints.fired(self.failpoints, step))

    # The reckoning

    def finish(self) -> Outcome:
        """Load off, drained, stopped, counted."""
        self.ebb()
        self._reports += [load.stop() for load in self._loads]
        self._loads.clear()
        self.say("no more load; draining")
        self.revive()
        violations = [f"the lag never became 0: {e}" for e in _failure(self._drain)]
        for role in ("controller", "committer", "monitor"):
            for command in self.role(role):
                try:
                    code = command.end(90)
                    if code:
                        violations.append(f"{role} ended with exit code {code}: {command.said()[-500:]}")
                except Overdue as error:
                    violations.append(str(error))
        if left := [n for n in (int(f.parent.name) for f in self.home.glob("consumers/*/pid.json")) if self.pid(n)]:
            violations.append(f"consumers {left} still run after the controller stopped")
        self.say("everything stopped; counting")
        violations += self.watch.backwards()
        violations += verify(self.file)
        return count(self.scene, self.pipeline, self.partitions, self._reports, violations)

    def _drain(self) -> None:
        self.consumes_again(self.drain_deadline_s)
        wait_until(lambda: is_drained(self.pipeline, self.settings), "lag 0", 30)


def _failure(task: Callable[[], None]) -> list[AssertionError]:
    try:
        task()
        return []
    except AssertionError as error:
        return [error]
