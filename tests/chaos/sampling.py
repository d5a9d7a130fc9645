"""Looking at a long run from outside: lag every second, memory and descriptors of processes, the lake."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import Catalog

from headgate.errors import KafkaUnavailable
from headgate.kafka.offsets import end_offsets
from headgate.lake.catalogs import open_catalog
from headgate.lake.tables import load_table
from tests.chaos.harness import ROLES
from tests.chaos.judgement import UNHURT, LagSample, LakeSample, ProcessSample
from tests.chaos.parts import consumer_pid
from tests.chaos.soak_run import SoakRun

_LAG_EVERY_S = 1.0
_PROCESSES_EVERY = 5
_LAKE_EVERY = 20
"""In looks at the lag."""


class Sampler:
    """In a thread of its own; what cannot be seen at a moment (the brokers are away) is left out."""

    def __init__(self, run: SoakRun) -> None:
        self._run = run
        self._admin = AdminClient(dict(run.settings))
        self._catalog: Catalog | None = None
        self._stop = threading.Event()
        self.lags: list[LagSample] = []
        self.processes: list[ProcessSample] = []
        self.lake: list[LakeSample] = []
        self.most_disk_bytes = 0
        self._thread = threading.Thread(target=self._look, name="sampler", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def _look(self) -> None:
        turn = 0
        while not self._stop.wait(_LAG_EVERY_S):
            turn += 1
            self._look_at_lag()
            if turn % _PROCESSES_EVERY == 0:
                self.processes += self._look_at_processes()
            if turn % _LAKE_EVERY == 0:
                self._look_at_the_lake()

    def _look_at_lag(self) -> None:
        partitions = self._run.partitions
        try:
            ends = end_offsets(self._admin, partitions, deadline_s=3)
        except (KafkaUnavailable, KafkaException):
            return
        if ends.keys() != set(partitions):
            return
        at = {topic: self._run.watch.positions(table) for topic, table in self._run.scene.tables.items()}
        lag = sum(max(0, end - at[p.topic].get(p, 0)) for p, end in ends.items())
        owners = len(self._run.watch.owners())
        self.lags.append(LagSample(self._run.now_s(), lag, sum(ends.values()), owners))

    def _look_at_processes(self) -> Iterator[ProcessSample]:
        for role in ROLES:
            for command in self._run.role(role):
                yield from self._sample(role, command.pid, command.pid)
        neighbour = self._run.neighbour
        if neighbour is not None and (pid := neighbour.pid) is not None:
            yield from self._sample(f"{UNHURT}run", pid, pid)
            yield from self._look_at_consumers(neighbour.home, UNHURT)
        yield from self._look_at_consumers(self._run.home)

    def _look_at_consumers(self, home: Path, whose: str = "") -> Iterator[ProcessSample]:
        for file in home.glob("consumers/*/pid.json"):
            pid = consumer_pid(file.parent)
            if pid is None:
                continue
            yield from self._sample(f"{whose}consumer, Python", pid, pid)
            with contextlib.suppress(psutil.Error):
                for child in psutil.Process(pid).children(recursive=True):
                    role = "consumer, JVM" if child.name() == "java" else "consumer, Spark's Python workers"
                    yield from self._sample(whose + role, child.pid, pid)

    def _sample(self, role: str, pid: int, of: int) -> Iterator[ProcessSample]:
        """`of` is the process whose life this one shares."""
        try:
            process, now_s = psutil.Process(pid), self._run.now_s()
            with process.oneshot():
                age_s = now_s + self._run.began_at_s - process.create_time()
                life = f"{of}/{pid}"
                files, connections = _descriptors(pid)
                yield ProcessSample(now_s, role, life, age_s, process.memory_info().rss, files, connections)
        except (psutil.Error, OSError):
            return  # it ended while we looked

    def _look_at_the_lake(self) -> None:
        disk = _disk_bytes(self._run.home)
        self.most_disk_bytes = max(self.most_disk_bytes, disk)
        try:
            self._catalog = self._catalog or open_catalog(self._run.pipeline.lake)
            for name in self._run.scene.tables.values():
                self._look_at_table(self._catalog, name)
        except Exception:  # noqa: BLE001
            return  # catalog or warehouse is away on purpose, and says so in ways of its own

    def _look_at_table(self, catalog: Catalog, name: str) -> None:
        table = load_table(catalog, name)
        if table is None or (current := table.current_snapshot()) is None:
            return
        folder = Path(table.location().removeprefix("file://"))
        totals = current.summary.additional_properties if current.summary is not None else {}
        self.lake.append(
            LakeSample(
                self._run.now_s(),
                name,
                len(table.metadata.snapshots),
                Path(table.metadata_location.removeprefix("file://")).stat().st_size,
                sum(1 for _ in (folder / "metadata").iterdir()),
                int(totals.get("total-data-files", "0")),
                _disk_bytes(folder),
            )
        )


def _descriptors(pid: int) -> tuple[int, int]:
    """(open files, everything else) of a process, as Linux tells."""
    files = others = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed while we looked
            if str(descriptor.readlink()).startswith("/"):
                files += 1
            else:
                others += 1
    return files, others


def _disk_bytes(folder: Path) -> int:
    total = 0
    for below, _, files in os.walk(folder):  # passes over folders that went while it looked
        for file in files:
            with contextlib.suppress(OSError):
                total += Path(below, file).lstat().st_blocks * 512
    return total
