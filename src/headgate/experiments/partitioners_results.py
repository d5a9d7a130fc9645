"""Runs of the partitioner experiment as lines of a CSV file that grows with every run, so that it can be resumed."""

import csv
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from headgate.errors import ConfigError
from headgate.experiments.intervals import Interval
from headgate.experiments.partitioners_cases import Cell, Loads, Part

MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a cell came to (B-59). Latency is from `produce` to the acknowledgement, over all records."""

    part: str
    scenario: str
    acks: str
    partitioner: str
    phase: str
    """Of a run in which something happens to a node; else empty."""
    number: int
    records: int
    record_bytes: int
    failed: int
    seconds: float
    """From the first record to the last acknowledgement."""
    mib_per_s: float
    avg_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    internal_ms: float
    """Mean time in the client's queue until a request was made of the record, by librdkafka's statistics."""
    outbuf_ms: float
    """Mean time from there until the request was written to the socket."""
    rtt_ms: float
    """Mean time from there until the answer."""
    client_cpu_s: float
    broker_cpu_s: float
    """Of all brokers together."""
    led: str
    """Records by the node that led the partition, like `1:33 2:67`."""
    held: str
    """The same with copies."""

    @property
    def cell(self) -> Cell:
        return Cell(Part(self.part), self.scenario, self.acks, self.partitioner)

    @property
    def led_shares(self) -> Loads:
        return self._shares(self.led)

    @property
    def held_shares(self) -> Loads:
        """With two copies of everything they add up to 2."""
        return self._shares(self.held)

    def _shares(self, by_node: str) -> Loads:
        records = sum(_counts(self.led).values())
        return {node: count / records for node, count in _counts(by_node).items()} if records else {}


@dataclass(frozen=True, slots=True)
class Client:
    """Where the client and the brokers spent their time; unknown where several producers ran at once."""

    internal_ms: float = math.nan
    outbuf_ms: float = math.nan
    rtt_ms: float = math.nan
    client_cpu_s: float = math.nan
    broker_cpu_s: float = math.nan


def run_of(
    cell: Cell,
    number: int,
    record_bytes: int,
    latencies_s: Sequence[float],
    failed: int,
    seconds: float,
    led: Loads,
    held: Loads,
    phase: str = "",
    client: Client = Client(),  # noqa: B008, a frozen value
) -> Run:
    found_ms = 1000 * np.asarray(latencies_s) if len(latencies_s) else np.array([math.nan])
    p50, p95, p99, p999 = (round(float(at), 3) for at in np.percentile(found_ms, (50, 95, 99, 99.9)))
    records = len(latencies_s)
    return Run(
        part=cell.part.value,
        scenario=cell.scenario,
        acks=cell.acks,
        partitioner=cell.partitioner,
        phase=phase,
        number=number,
        records=records + failed,
        record_bytes=record_bytes,
        failed=failed,
        seconds=round(seconds, 4),
        mib_per_s=round(records * record_bytes / MIB / seconds, 4),
        avg_ms=round(float(found_ms.mean()), 4),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        p999_ms=p999,
        max_ms=round(float(found_ms.max()), 3),
        internal_ms=round(client.internal_ms, 3),
        outbuf_ms=round(client.outbuf_ms, 3),
        rtt_ms=round(client.rtt_ms, 3),
        client_cpu_s=round(client.client_cpu_s, 3),
        broker_cpu_s=round(client.broker_cpu_s, 3),
        led=_by_node(led),
        held=_by_node(held),
    )


def _by_node(records: Mapping[int, float]) -> str:
    return " ".join(f"{node}:{count:.0f}" for node, count in sorted(records.items()))


def _counts(by_node: str) -> Loads:
    return {int(node): float(count) for node, count in (word.split(":") for word in by_node.split())}


class Results:
    """All runs there are."""

    def __init__(self, file: Path, resume: bool = False, anew: Collection[Part] = tuple(Part)) -> None:
        """Of a file that is there all runs are kept to `resume`, and else those of parts that do not begin `anew`."""
        self._file, self.runs = file, list[Run]()
        self._done: set[tuple[Cell, int]] = set()
        dropped = set() if resume else set(anew)
        if file.exists() and dropped != set(Part):
            self.runs = [run for run in stored(file) if run.part not in dropped]
        self._done.update((run.cell, run.number) for run in self.runs)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_suffix(".part")  # stopped in between, the runs so far are not lost
            with part.open("w", newline="") as out:
                rows = csv.writer(out)
                rows.writerow([field.name for field in fields(Run)])
                rows.writerows(map(astuple, self.runs))
            part.replace(file)
        except OSError as error:
            raise ConfigError(f"cannot write {file}: {error.strerror}") from error

    def add(self, runs: Iterable[Run]) -> None:
        new = list(runs)
        self.runs += new
        self._done.update((run.cell, run.number) for run in new)
        with self._file.open("a", newline="") as out:
            csv.writer(out).writerows(map(astuple, new))

    def has(self, cell: Cell, number: int) -> bool:
        return (cell, number) in self._done

    def of(self, cell: Cell, phase: str = "") -> list[Run]:
        return [run for run in self.runs if run.cell == cell and run.phase == phase]

    def interval(self, cell: Cell, value: Callable[[Run], float], phase: str = "") -> Interval | None:
        """None without runs, or where the value was not measured."""
        values = [found for run in self.of(cell, phase) if not math.isnan(found := value(run))]
        return Interval.of(values) if values else None


def stored(file: Path) -> list[Run]:
    with file.open(newline="") as lines:
        rows = csv.DictReader(lines)
        try:
            if rows.fieldnames != [field.name for field in fields(Run)]:
                raise ValueError("other columns")
            return [_read(row) for row in rows]
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"{file} is not of this experiment ({error}): leave out --resume and --part, or choose another --out"
            ) from error


def _read(line: Mapping[str, str]) -> Run:
    kinds: dict[str, type] = {"str": str, "int": int, "float": float}
    values: dict[str, Any] = {
        f.name: kinds[getattr(f.type, "__name__", str(f.type))](line[f.name]) for f in fields(Run)
    }
    return Run(**values)
