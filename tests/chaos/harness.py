"""A whole pipeline to be hurt: a broker of its own, each role in its own process, consumers as processes, loads that
know exactly what was acknowledged. At the end everything is counted, by Spark and by DuckDB, which wrote none of it."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import duckdb
import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import Catalog

from headgate import failpoints
from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.config.table import REJECTED_SUFFIX
from headgate.controller.drain import lag_records
from headgate.errors import KafkaUnavailable
from headgate.fleet.processes import Identity, ProcessFleet
from headgate.kafka.channel import Topics, ensure_topics
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.load import LoadGenerator, LoadReport
from headgate.kafka.load_records import FIELDS_DDL, FixedSize
from headgate.kafka.load_topics import prepare_topics
from headgate.kafka.offsets import end_offsets
from headgate.lake.tables import load_table, open_catalog
from headgate.model import TopicPartition
from headgate.simulation.workload import Steady
from tests.chaos.parts import QUICK_JVM, Command, Load, Overdue, wait_until
from tests.chaos.watch import Watch

STEADY, BURSTS = "steady", "bursts"
TABLES = {STEADY: "lake.steady", BURSTS: "lake.bursts"}
PARTITIONS = 3
RECORD_BYTES = 250
BAD_SHARE = 0.01
BYTES_PER_S_OF_A_PARTITION = 35_000.0
"""Two partitions fill a consumer: the steady topic alone needs two consumers, with a surge on bursts it is three."""

_PIPELINE = """\
name: chaos
home: .
kafka:
  brokers: {bootstrap}
topics: [steady, bursts]
tables:
  - name: lake.steady
    topics: [steady]
    format: raw
  - name: lake.bursts
    topics: [bursts]
    format: json
    schema: "{ddl}"
lake:
  commit_interval_s: 0.5 s
consumer:
  batch_bytes: 200 kB
  wait_s: 1 s
  rate_cap_bytes_per_s: 200 kB/s
  heartbeat_s: 0.5 s
  commit_deadline_s: 20 s
policy:
  consumer_capacity_bytes_per_s: 100 kB/s
  packing_capacity_bytes_per_s: 80 kB/s
  max_sentinel_s: 5 s
monitor:
  poll_s: 0.5 s
  window_s: 6 s
  min_span_s: 2 s
controller:
  heartbeat_deadline_s: 4 s
  ack_deadline_s: 15 s
  ready_deadline_s: 120 s
  stale_after_s: 20 s
  discover_s: 2 s
fleet:
  kind: processes
  max_consumers: 4
  start_deadline_s: 120 s
  stop_deadline_s: 20 s
"""

RECOVERY_DEADLINE_S = 180.0
ROLES = ("monitor", "committer", "controller")


@dataclass(frozen=True, slots=True)
class Outcome:
    acknowledged: int
    rows: int
    rejected: int
    violations: tuple[str, ...]

    def sentence(self) -> str:
        if not self.violations:
            return f"{self.acknowledged:,} records acknowledged, {self.rows:,} rows and {self.rejected:,} rejects: all"
        return "\n".join((f"{len(self.violations)} violations:", *self.violations))


class ChaosRun:
    """Use as a context: the pipeline runs inside it and nothing of it is left afterwards."""

    def __init__(self, home: Path, seed: int, brokers: int = 1, say: Callable[[str], None] = print) -> None:
        self.home = home
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

    def __enter__(self) -> "ChaosRun":
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
        self.file.write_text(_PIPELINE.format(bootstrap=self.kafka.bootstrap, ddl=FIELDS_DDL))
        self.pipeline = load_pipeline(self.file)
        self.settings = librdkafka_settings(self.pipeline)
        self.topics = Topics(self.pipeline.name)
        self._admin = AdminClient(dict(self.settings))
        self.partitions = prepare_topics(self._admin, dict.fromkeys(TABLES, PARTITIONS))
        ensure_topics(self._admin, self.topics, self.brokers, self.pipeline.fleet.max_consumers)
        self.watch = Watch(self.settings, self.topics)
        self._loads.append(self._load(STEADY, "raw", 0.0))
        for role in ROLES:
            self.start(role)
        wait_until(lambda: len(self.watch.owners()) >= 2, "two consumers that own partitions", RECOVERY_DEADLINE_S)
        self.consumes_again()
        self.say("the pipeline runs")

    def _clear_away(self) -> None:
        for command in [*self._by_hand, *(c for commands in self._roles.values() for c in commands)]:
            if command.runs:
                command.kill()
        ProcessFleet(lambda _: [], self.home).close(force=True)
        for load in self._loads:
            load.stop()
        if hasattr(self, "watch"):
            self.watch.close()
        self.kafka.stop()

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
        try:
            identity = Identity(**json.loads((self.state_folder(consumer_id) / "pid.json").read_text()))
        except (FileNotFoundError, ValueError):
            return None
        process = identity.process()
        return process.pid if process else None

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

    def _load(self, topic: str, record_format: str, bad_share: float) -> Load:
        rates = {p: BYTES_PER_S_OF_A_PARTITION for p in self.partitions if p.topic == topic}
        return Load(
            LoadGenerator(
                self.kafka.bootstrap,
                {"log_level": "2"},
                {topic: None},
                Steady(rates),
                FixedSize(RECORD_BYTES),
                record_format=record_format,
                bad_share=bad_share,
                seed=self.chance.randrange(1 << 30),
            )
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
        while not self.watch.holds(TABLES.values(), ends, TABLES):
            self.revive()
            if time.monotonic() > until:
                raise Overdue(f"the pipeline did not recover within {deadline_s:g} s: {self._behind(ends)}")
            time.sleep(0.1)
        if self.watch.backwards():
            raise AssertionError("; ".join(self.watch.backwards()))

    def _behind(self, ends: Mapping[TopicPartition, int]) -> str:
        missing = []
        for partition, end in sorted(ends.items()):
            at = self.watch.positions(TABLES[partition.topic]).get(partition)
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
        return self._count(violations)

    def _drain(self) -> None:
        self.consumes_again()
        wait_until(lambda: lag_records(self.pipeline, self.settings) == 0, "lag 0", 30)

    def _count(self, violations: list[str]) -> Outcome:
        acknowledged: Counter[TopicPartition] = Counter()
        bad = 0
        for report in self._reports:
            for partition, counts in report.partitions.items():
                acknowledged[partition] += counts.records
            bad += report.bad
            if report.failed:
                violations.append(f"the producer was not answered for {report.failed} records: {dict(report.errors)}")
        violations += self._verify()
        rows = rejected = 0
        catalog = open_catalog(self.pipeline.lake)
        for topic, table in TABLES.items():
            landed, rejects = _files(catalog, table), _files(catalog, table + REJECTED_SUFFIX)
            found = _counts(
                landed, rejects, "id" if topic == BURSTS else "CAST(split_part(decode(value), ' ', 1) AS INT)"
            )
            for partition in (p for p in self.partitions if p.topic == topic):
                count, offsets, first, last, odd, spoiled = found.get(partition.partition, (0, 0, 0, -1, 0, 0))
                written = acknowledged[partition]
                rows, rejected = rows + count - spoiled, rejected + spoiled
                for wrong, text in (
                    (count != written, f"{count} rows and rejects, {written} records were acknowledged"),
                    (offsets != count, f"{count - offsets} rows are doubled"),
                    ((first, last) != (0, written - 1), f"offsets {first} to {last} instead of 0 to {written - 1}"),
                    (odd, f"{odd} rows hold another record than their offset says"),
                ):
                    if wrong:
                        violations.append(f"{partition}: {text}")
        if rejected != bad:
            violations.append(f"{rejected} rejected rows, {bad} records were spoiled on purpose")
        return Outcome(acknowledged.total(), rows, rejected, tuple(violations))

    def _verify(self) -> list[str]:
        """As a user would: `headgate verify`, which counts with Spark."""
        ran = subprocess.run(
            [sys.executable, "-m", "headgate", "verify", str(self.file), "--output", "json"],
            env={**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JVM},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        try:
            verdicts = json.loads(ran.stdout)
        except ValueError:
            return [f"headgate verify ended with exit code {ran.returncode}: {ran.stderr[-1000:]}"]
        found = [
            f"verify, {v['table']}: {problem}; missing {v['missing_ranges']}; doubled {v['duplicate_ranges']}"
            for v in verdicts
            for problem in v["problems"]
        ]
        found += [
            f"verify, {v['table']}: Kafka skipped {v['skipped']}, but it did not" for v in verdicts if v["skipped"]
        ]
        if ran.returncode and not found:
            found.append(f"headgate verify ended with exit code {ran.returncode} and named no problem")
        return found


def _failure(task: Callable[[], None]) -> list[AssertionError]:
    try:
        task()
        return []
    except AssertionError as error:
        return [error]


def _files(catalog: Catalog, name: str) -> list[str]:
    table = load_table(catalog, name)
    if table is None or table.current_snapshot() is None:
        return []
    return [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]


def _counts(landed: list[str], rejects: list[str], id_of: str) -> dict[int, tuple[int, int, int, int, int, int]]:
    """Per partition: rows, distinct offsets, first, last, rows whose id is not their offset, rejected rows.

    The generator numbers a partition's records as the broker does, so that a row tells which record it is.
    """
    parts = []
    for files, content, is_reject in ((landed, id_of, 0), (rejects, "_offset", 1)):
        if files:
            listed = ", ".join(f"'{path}'" for path in files)
            parts.append(
                f"SELECT _kafka_partition AS p, _offset AS o, {content} AS id, {is_reject} AS reject "
                f"FROM read_parquet([{listed}])"
            )
    if not parts:
        return {}
    answer = duckdb.execute(
        "SELECT p, count(*), count(DISTINCT o), min(o), max(o), count(*) FILTER (id IS DISTINCT FROM o), sum(reject) "
        f"FROM ({' UNION ALL '.join(parts)}) GROUP BY p"
    ).fetchall()
    return {row[0]: (row[1], row[2], row[3], row[4], row[5], int(row[6])) for row in answer}
