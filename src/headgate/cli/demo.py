"""`headgate demo`: the whole thing on this machine, in about four minutes, ending with proof."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate import jars
from headgate.cli.logs import log_to
from headgate.cli.pipeline_file import PIPELINE_IN_HOME
from headgate.cli.view import render, seconds
from headgate.errors import HeadgateError, SetupError
from headgate.file_lock import locked
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_records import FIELDS_DDL, FixedSize
from headgate.kafka.load_report import LoadReport
from headgate.kafka.load_topics import prepare_topics
from headgate.lake.latency import merge_quantiles
from headgate.model import TopicPartition
from headgate.simulation.workload import Workload
from headgate.simulation.workload_combined import rise_shift_fall

if TYPE_CHECKING:
    from headgate.config.pipeline import Pipeline
    from headgate.controller.history import Sample
    from headgate.controller.status import StatusReader
    from headgate.lake.verify import TableVerdict

TOPICS = {"orders": 4, "payments": 3, "clicks": 3}
RECORD_BYTES = 500
LOW_BYTES_PER_S, HIGH_BYTES_PER_S = 150_000.0, 1_150_000.0
START_DEADLINE_S = 120.0
DRAIN_DEADLINE_S = 90.0

# On one small machine a consumer is never the bottleneck, so each is capped: that is what makes scaling visible.
_PIPELINE = """\
# Written by `headgate demo`. `headgate status --home` and `headgate verify --home` work with this folder.
name: demo
home: .
kafka:
  brokers: {bootstrap}
topics: [orders, payments, clicks]
tables:
  - name: lake.orders
    topics: [orders]
    format: json
    schema: "{ddl}"
    partition_by: ["day(_timestamp)"]
  - name: lake.payments
    topics: [payments]
    format: json
    schema: "{ddl}"
    sql: SELECT *, round(amount * 1.2, 2) AS amount_with_tax FROM input
  - name: lake.clicks
    topics: [clicks]
    format: raw
consumer:
  rate_cap_bytes_per_s: 400 kB/s
  wait_s: 1 s
policy:
  name: sentinel
  packer: repair
  consumer_capacity_bytes_per_s: 300 kB/s
  packing_capacity_bytes_per_s: 240 kB/s
  max_sentinel_s: 10 s
monitor:
  window_s: 8 s
  min_span_s: 2 s
fleet:
  kind: threads
  max_consumers: 8
slo:
  latency_s: 15 s
  quantile: 0.99
"""


def demo(
    minutes: Annotated[float, typer.Option(help="How long the load lasts.", min=0.25)] = 3.0,
    home: Annotated[
        Path, typer.Option(help="Everything is kept here: broker, lake, logs, plot. Made anew each time.")
    ] = Path("headgate-demo"),
    seed: Annotated[int, typer.Option(help="Seed of the records' contents.")] = 1,
) -> None:
    """Shows a real Kafka, consumers that multiply and shrink with the load, and Iceberg tables that hold every record.

    Three topics are written by a load that rises, shifts between partitions and falls. Ends by itself, or on Ctrl-C,
    with a summary: consumers over time, decisions and their reasons, latency, the proof that every record is in the
    lake exactly once, and a plot. Meanwhile, from a second terminal:

    [bold]headgate status --home headgate-demo[/]
    """
    home = home.absolute()
    with _only_demo(home):
        ok = _run(Console(), home, minutes, seed)
    raise typer.Exit(0 if ok else 1)


def _run(console: Console, home: Path, minutes: float, seed: int) -> bool:
    _make_room(home)
    log_to(home / "headgate.log")
    stop = _stop_on_signals()
    kafka = EmbeddedKafka(home / "kafka", 1)
    try:
        with console.status("starting Kafka") as shown:
            jars.resolve(jars.SPARK, shown.update)
            jars.resolve(jars.ICEBERG, shown.update)
            kafka.start(shown.update)
        console.print(f"Kafka runs at {kafka.bootstrap}; everything is in {home}")
        return _show(console, home, kafka.bootstrap, minutes, seed, stop)
    except KeyboardInterrupt:  # the second: nobody waits for consumers that wait for brokers
        kafka.stop()
        console.print(f"Ended at once; what there is, is in {home}")
        os._exit(130)
    finally:
        with console.status("stopping Kafka"):
            kafka.stop()


_MARK = ".headgate-demo"
"""Only a folder with this file in it is ever removed."""


def _make_room(home: Path) -> None:
    """An empty home. What an earlier demo left there is removed, its Kafka stopped first if it was killed."""
    if home.exists() and any(home.iterdir()):
        if not (home / _MARK).is_file():
            raise SetupError(f"{home} is not empty and not a demo's; choose another --home")
        if (home / "kafka").is_dir():
            EmbeddedKafka(home / "kafka").stop()
        shutil.rmtree(home)
    home.mkdir(parents=True, exist_ok=True)
    (home / _MARK).write_text("Made by headgate demo, which removes this folder when it starts again.\n")
    if shutil.disk_usage(home).free < 1_000_000_000:
        raise SetupError(f"less than 1 GB is free at {home}; free some, or choose another --home")


@contextmanager
def _only_demo(home: Path) -> Iterator[None]:
    """Refuses a second demo in the same home."""
    home.parent.mkdir(parents=True, exist_ok=True)
    lock = home.with_name(home.name + ".lock")
    with locked(lock, 0.0, f"a demo is running in {home}; wait for it, or choose another --home"):
        yield
        lock.unlink(missing_ok=True)


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()

    def asked_to_stop(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGINT, asked_to_stop)
    signal.signal(signal.SIGTERM, asked_to_stop)
    return stop


def workload(minutes: float) -> Workload:
    """Orders carry half of the load; in the middle third most of it moves to clicks."""
    shares = {"orders": 0.5, "payments": 0.3, "clicks": 0.2}
    partitions = {t: [TopicPartition(t, n) for n in range(count)] for t, count in TOPICS.items()}
    low = {p: LOW_BYTES_PER_S * shares[t] / len(ps) for t, ps in partitions.items() for p in ps}
    high = {p: HIGH_BYTES_PER_S * shares[t] / len(ps) for t, ps in partitions.items() for p in ps}
    return rise_shift_fall(low, high, partitions["orders"], partitions["clicks"], minutes * 60, share=0.7)


@dataclass
class _Load:
    """The load generator in its thread, and what became of it."""

    generator: LoadGenerator
    stop: threading.Event
    report: LoadReport | None = None
    error: Exception | None = None

    def run(self, duration_s: float) -> None:
        try:
            self.report = self.generator.run(duration_s=duration_s, stop=self.stop)
        except (HeadgateError, KafkaException, ValueError) as error:
            self.error = error


def _show(console: Console, home: Path, bootstrap: str, minutes: float, seed: int, stop: threading.Event) -> bool:
    from headgate.config.clients import librdkafka_settings
    from headgate.config.loader import load_pipeline
    from headgate.controller.service import Service, SharedSession
    from headgate.controller.status import StatusReader

    file = home / PIPELINE_IN_HOME
    file.write_text(_PIPELINE.format(bootstrap=bootstrap, ddl=FIELDS_DDL))
    pipeline = load_pipeline(file)
    load_stop = threading.Event()
    generator = LoadGenerator(bootstrap, {}, TOPICS, workload(minutes), FixedSize(RECORD_BYTES), seed=seed)
    load = _Load(generator, load_stop)
    writer = threading.Thread(target=load.run, args=(minutes * 60,), name="load", daemon=True)
    session = SharedSession(pipeline, (jars.SPARK, jars.ICEBERG))
    service = Service(pipeline, session=session)
    admin = AdminClient(dict(librdkafka_settings(pipeline)))
    prepare_topics(admin, TOPICS, 1, RECORD_BYTES, 60)
    with console.status("starting Spark and the first consumer"):
        session()
        service.start()
        reader = StatusReader(pipeline)
        _wait_for_a_consumer(reader, stop, service.failed)
    writer.start()
    samples: list[Sample] = []
    began = time.monotonic()
    try:
        with Live(console=console, refresh_per_second=2, transient=True) as live:

            def look(phase: str) -> "Sample":
                from headgate.controller.history import Sample

                status = reader.refresh()
                samples.append(Sample.of(status))
                title = f"{phase}   {time.monotonic() - began:.0f} s"
                live.update(Group(render(status, reader.decisions, title), Text("Ctrl-C ends it early", "dim")))
                return samples[-1]

            while writer.is_alive() and not (stop.is_set() or service.failed.is_set()):
                look(f"load for {minutes:g} min")
                stop.wait(1.0)
            load_stop.set()
            writer.join(30)
            _drain(look, pipeline, load, service.failed)
        with console.status("stopping: the last cycles are committed"):
            service.stop()
        reader.refresh()
        with console.status("counting every offset in the lake with Spark"):
            verdicts = _verify(session, pipeline)
    finally:
        reader.close()
        load_stop.set()
    _summary(console, pipeline, reader, samples, load, verdicts, home)
    session.stop()
    return load.error is None and all(v.ok and v.exists for v in verdicts) and _all_landed(load, verdicts)


def _wait_for_a_consumer(reader: "StatusReader", stop: threading.Event, failed: threading.Event) -> None:
    until = time.monotonic() + START_DEADLINE_S
    while not (stop.is_set() or failed.is_set()):
        if any(c.partitions for c in reader.refresh().consumers):
            return
        if time.monotonic() > until:
            raise HeadgateError(
                f"no consumer was ready after {START_DEADLINE_S:g} s; see headgate.log in the demo's home"
            )
        stop.wait(0.2)


def _drain(look: Callable[[str], object], pipeline: "Pipeline", load: _Load, failed: threading.Event) -> None:
    """Until the lake holds everything that was written, as the brokers count it."""
    from headgate.config.clients import librdkafka_settings
    from headgate.controller.drain import is_drained

    until = time.monotonic() + DRAIN_DEADLINE_S
    settings = librdkafka_settings(pipeline)
    while time.monotonic() < until and not failed.is_set():
        look("load ended, draining")
        if is_drained(pipeline, settings):
            return
        time.sleep(1.0)


def _verify(session: Callable[[], object], pipeline: "Pipeline") -> "list[TableVerdict]":
    from pyspark.sql import SparkSession

    from headgate.lake.catalogs import open_catalog
    from headgate.lake.verify import verify_table

    spark = session()
    assert isinstance(spark, SparkSession)
    catalog = open_catalog(pipeline.lake)
    return [verify_table(spark, catalog, table) for table in pipeline.tables]


def _all_landed(load: _Load, verdicts: "list[TableVerdict]") -> bool:
    written = load.report.records if load.report else 0
    return written == sum(v.rows + v.rejected for v in verdicts)


def _summary(
    console: Console,
    pipeline: "Pipeline",
    reader: "StatusReader",
    samples: "list[Sample]",
    load: _Load,
    verdicts: "list[TableVerdict]",
    home: Path,
) -> None:
    from headgate.cli.verify import print_verdicts
    from headgate.controller.history import draw, write_csv

    if load.error is not None:
        raise HeadgateError(f"the load generator failed: {load.error}")
    decisions = [d for d in reader.decisions if d.moved or d.created or d.deleted or d.alerts]
    console.print("\n[bold]Consumers over time[/]")
    console.print(_timeline(samples), highlight=False)
    table = Table(title="Decisions", title_justify="left", show_lines=False)
    for name in ("at", "consumers", "moved", "took", "why"):
        table.add_column(name, justify="right" if name in ("at", "moved", "took") else "left")
    zero = samples[0].at_s if samples else 0.0
    for d in decisions:
        took = d.decide_s + d.ready_s + d.handover_s
        change = f"{d.consumers_before} → {d.consumers_after}"
        table.add_row(f"{d.at_ms / 1000 - zero:.0f} s", change, f"{d.moved}", f"{took:.1f} s", Text(d.reason))
    console.print(table)
    commits = list(reader.commits)
    weighted = [(c.latency_ms, c.rows + c.rejected) for c in commits if c.latency_ms]
    p50, p99 = merge_quantiles(weighted, 0.5), merge_quantiles(weighted, 0.99)
    records = load.report.records if load.report else 0
    console.print(
        f"\nLatency, Kafka timestamp to visible in the lake: p50 {seconds(p50 and p50 / 1000)}, "
        f"p99 {seconds(p99 and p99 / 1000)}; {len(commits)} commits; {records:,} records written"
    )
    print_verdicts(console, verdicts)
    landed = sum(v.rows + v.rejected for v in verdicts)
    same = "the same as" if landed == records else "[red]not[/]"
    console.print(f"In the lake: {landed:,} records, {same} the {records:,} the producer was told are safe.")
    write_csv(home / "history.csv", samples)
    draw(home / "demo.png", samples, commits, decisions, pipeline.slo.latency_s, "headgate demo")
    console.print(f"Plot: {home / 'demo.png'}   samples: {home / 'history.csv'}   log: {home / 'headgate.log'}")
    console.print(f"Start its Kafka again with: headgate kafka start --home {home / 'kafka'}")


def _timeline(samples: "list[Sample]") -> str:
    """A line per tenth of the run: load and consumers as bars."""
    if not samples:
        return "no samples"
    rows = []
    most_rate = max(s.bytes_per_s for s in samples) or 1.0
    step = max(1, len(samples) // 14)
    for sample in samples[::step]:
        load = "▇" * round(24 * sample.bytes_per_s / most_rate)
        people = "●" * sample.consumers
        rows.append(
            f"{sample.at_s - samples[0].at_s:5.0f} s  {sample.bytes_per_s / 1e6:5.2f} MB/s {load:<24}  {people}"
        )
    return "\n".join(rows)
