"""Where a cycle's time goes: `python -m benchmarks.profiling [--keep FOLDER]`.

Cycles of one table, small ones and some of 5 MB, with Spark's event log and Java's flight recorder on, and py-spy on
Spark's Python workers if it is installed (`pip install py-spy`). Says where the time went and which code used it.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from headgate.config.loader import load_pipeline
from headgate.consumer.files import Warehouse
from headgate.consumer.job import TableJob
from headgate.consumer.spark import start_session
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_pace import NoWaiting
from headgate.kafka.load_records import FIELDS_DDL, FixedSize
from headgate.model import Range, TopicPartition
from headgate.simulation.workload_shapes import Steady

PARTITIONS, RECORD_BYTES = 8, 300
SIZES = {"110 records": 14, "5 MB": 2084}
"""Of a cycle, in records of each partition."""
TURNS, WARM_UP = 60, 40
MOST_SHOWN = 12
_IN_PYTHON = "time to run Python workers"


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    began_ms: float
    ended_ms: float
    cycles_ms: tuple[float, ...]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiling", description=__doc__)
    parser.add_argument("--keep", type=Path, help="keep the event log, the recording and py-spy's stacks here")
    kept: Path | None = parser.parse_args().keep
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder) / "kafka", 1) as kafka:
        home = Path(folder)
        out = kept or home / "profile"
        (out / "events").mkdir(parents=True)
        conf = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.dir": (out / "events").absolute().as_uri(),
            "spark.driver.extraJavaOptions": "-XX:StartFlightRecording=settings=profile",
        }
        spark = start_session("local[2]", home / "spark", conf=conf)
        try:
            phases = [_phase(name, each, home, kafka.bootstrap, spark, out) for name, each in SIZES.items()]
            recording = _dump_recording(spark, out)
        finally:
            spark.stop()
        (log,) = (out / "events").iterdir()
        console = Console()
        console.print(_where(phases, [json.loads(line) for line in log.read_text().splitlines()]))
        for title, used in (("JVM, all of the run", _java(recording)), *_python(out)):
            _show(console, title, used)


def _phase(name: str, each: int, home: Path, bootstrap: str, spark: SparkSession, out: Path) -> Phase:
    topic = f"profile-{each}"
    partitions = [TopicPartition(topic, n) for n in range(PARTITIONS)]
    load = LoadGenerator(
        bootstrap, {}, {topic: PARTITIONS}, Steady.spread(partitions, 1e6), FixedSize(RECORD_BYTES), pace=NoWaiting()
    )
    load.run(count=PARTITIONS * each * (TURNS + WARM_UP))
    file = home / f"{topic}.yaml"
    file.write_text(
        f"name: {topic}\nhome: {home}\nkafka: {{brokers: '{bootstrap}'}}\ntopics: [{topic}]\n"
        f"tables:\n  - {{name: lake.t{each}, format: json, schema: '{FIELDS_DDL}'}}\n"
    )
    pipeline = load_pipeline(file)
    job = TableJob(spark, pipeline, pipeline.tables[0], Warehouse(pipeline.lake))
    took_ms, spy = [], None
    for turn in range(WARM_UP + TURNS):
        if turn == WARM_UP:
            spy, began_ms = _spy(out / f"{topic}.stacks"), 1000 * time.time()
        at = time.perf_counter()
        result = job.run([Range(p, turn * each, (turn + 1) * each) for p in partitions], f"turn-{turn}")
        took_ms.append(1000 * (time.perf_counter() - at))
        assert result.stats.rows == PARTITIONS * each
    ended_ms = 1000 * time.time()
    if spy is not None:
        spy.terminate()
        spy.wait(60)
    return Phase(name, began_ms, ended_ms, tuple(took_ms[WARM_UP:]))


def _spy(stacks: Path) -> "subprocess.Popen[bytes] | None":
    """On the daemon of Spark's Python workers and all of them."""
    beside = Path(sys.executable).with_name("py-spy")
    spy = str(beside) if beside.exists() else shutil.which("py-spy")
    children = psutil.process_iter(["pid", "cmdline"])  # of processes that have just ended, None
    daemons = [p.pid for p in children if "headgate.consumer.python_daemon" in (p.info["cmdline"] or ())]
    if spy is None or not daemons:
        return None
    command = [spy, "record", "--subprocesses", "--rate", "200", "--format", "raw", "--output", str(stacks)]
    quiet = subprocess.DEVNULL
    return subprocess.Popen([*command, "--pid", str(min(daemons))], stdout=quiet, stderr=quiet)


# Spark's event log


def _where(phases: Iterable[Phase], events: list[dict[str, Any]]) -> Table:
    table = Table(title="A cycle, median in milliseconds")
    table.add_column("")
    columns = []
    for phase in phases:
        table.add_column(phase.name, justify="right")
        columns.append(_parts(phase, events))
    for part in columns[0]:
        table.add_row(part, *(f"{column[part]:.1f}" for column in columns))
    return table


def _parts(phase: Phase, events: list[dict[str, Any]]) -> dict[str, float]:
    """What follows from the times of jobs and of the longest task of each."""
    jobs: dict[int, list[float]] = {}
    stages: dict[int, int] = {}
    tasks: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        match event["Event"]:
            case "SparkListenerJobStart" if phase.began_ms <= event["Submission Time"] <= phase.ended_ms:
                jobs[event["Job ID"]] = [event["Submission Time"]]
                stages |= dict.fromkeys(event["Stage IDs"], event["Job ID"])
            case "SparkListenerJobEnd" if event["Job ID"] in jobs:
                jobs[event["Job ID"]].append(event["Completion Time"])
            case "SparkListenerTaskEnd" if event["Stage ID"] in stages:
                tasks[stages[event["Stage ID"]]].append(event)
    whole = [end - start for start, end in jobs.values()]
    longest = [max(tasks[job], key=_length) for job in jobs if tasks[job]]
    run = [task["Task Metrics"]["Executor Run Time"] for task in longest]
    per_cycle = len(jobs) / len(phase.cycles_ms)
    cycle, job, task = map(statistics.median, (phase.cycles_ms, whole, map(_length, longest)))
    return {
        "the whole cycle": cycle,
        "Spark jobs in it": per_cycle,
        "around the job: driver in Python, files listed, numbers taken in": cycle - per_cycle * job,
        "the job: scheduling, results": job - task,
        "its task: shipped and unpacked": task - statistics.median(run),
        "its task: at work": statistics.median(run),
        "  of which Python workers (reading Kafka, Parquet)": statistics.median(map(_in_python, longest)),
        "  of which garbage collection": statistics.mean(t["Task Metrics"]["JVM GC Time"] for t in longest),
    }


def _length(task: dict[str, Any]) -> float:
    return float(task["Task Info"]["Finish Time"] - task["Task Info"]["Launch Time"])


def _in_python(task: dict[str, Any]) -> float:
    """Two functions of one task run at once, the writer on top of the reader: the longer one counts."""
    return max((float(a["Update"]) for a in task["Task Info"]["Accumulables"] if a["Name"] == _IN_PYTHON), default=0.0)


# Samples


def _dump_recording(spark: SparkSession, out: Path) -> Path:
    recording, jcmd = out / "jvm.jfr", shutil.which("jcmd")
    gateway: Any = spark.sparkContext._gateway
    if jcmd is not None:
        command = [jcmd, str(gateway.proc.pid), "JFR.dump", f"filename={recording.absolute()}"]
        subprocess.run(command, check=True, capture_output=True)
    return recording


def _java(recording: Path) -> Counter[str]:
    """Samples of running threads by the method on top."""
    if shutil.which("jfr") is None or not recording.exists():
        return Counter()
    command = ["jfr", "print", "--events", "jdk.ExecutionSample", "--stack-depth", "1", str(recording)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    lines = (line.strip() for line in printed)
    return Counter(line.partition("(")[0] for line in lines if "line:" in line)


def _python(out: Path) -> Iterator[tuple[str, Counter[str]]]:
    for name, each in SIZES.items():
        stacks = out / f"profile-{each}.stacks"
        used: Counter[str] = Counter()
        for line in stacks.read_text().splitlines() if stacks.exists() else ():
            stack, _, count = line.rpartition(" ")
            used[stack.rpartition(";")[2].rpartition(":")[0]] += int(count)
        yield f"Python workers, cycles of {name}", used


def _show(console: Console, title: str, used: Counter[str]) -> None:
    if not used:
        console.print(f"{title}: no samples (jcmd and jfr are of the JDK; py-spy is of its own package)")
        return
    table = Table(title=f"{title}: {used.total():,} samples")
    table.add_column("on top", overflow="fold")
    table.add_column("share", justify="right")
    for method, count in used.most_common(MOST_SHOWN):
        table.add_row(method, f"{count / used.total():.1%}")
    console.print(table)


if __name__ == "__main__":
    main()
