"""`headgate load`: writes records to Kafka in a chosen shape, and says exactly how many."""

import json
import logging
import math
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from headgate.cli.client_setting import client_setting
from headgate.cli.logs import log_to
from headgate.config.units import BYTES, BYTES_PER_S, SECONDS, Unit
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_pace import NoWaiting, RealTime
from headgate.kafka.load_records import FIELDS_DDL, FixedSize, RecordSize, UniformSize
from headgate.kafka.load_report import LoadProgress, LoadReport
from headgate.kafka.load_topics import BROKER_DEFAULT, prepare_topics
from headgate.simulation.workload_named import Shape, ShapeParameters, workload_of_shape

log = logging.getLogger(__name__)

_WHERE, _HOW_MUCH, _SHAPE, _RECORDS, _OUTPUT = "Where to", "How much", "Shape of the load", "Records", "Report"
_CONNECT_DEADLINE_S = 10.0
_INTERRUPTED = 130
_PARTITIONS_SHOWN = 64


class Format(StrEnum):
    json = "json"
    raw = "raw"
    avro = "avro"


def load(
    brokers: Annotated[
        str, typer.Option("--brokers", "-b", metavar="HOST:PORT,…", help="Bootstrap servers.", rich_help_panel=_WHERE)
    ],
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic",
            "-t",
            metavar="NAME[:PARTITIONS]",
            help="Topic to write to; repeat it for several. With a partition count it is created if missing, and "
            "only that many partitions are written; without, all partitions of an existing topic.",
            rich_help_panel=_WHERE,
        ),
    ],
    replication: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Replicas of topics that are created.",
            show_default="the brokers' own default",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Client setting in librdkafka's name, for example security.protocol=SASL_SSL; repeat it for several. "
            "${NAME} in a value is taken from the environment: keep passwords there.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES/S",
            help="Keys and values of all partitions together: steady, skew and ramp reach it, cosine and walk have it "
            "as their mean, spike as its base.",
            show_default="1 MB/s; as fast as possible with --count",
            rich_help_panel=_HOW_MUCH,
        ),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Stop after this time.", show_default="until Ctrl-C", rich_help_panel=_HOW_MUCH
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="Write exactly this many records in total.", rich_help_panel=_HOW_MUCH)
    ] = None,
    no_wait: Annotated[
        bool,
        typer.Option(
            "--no-wait",
            help="Write the records of --duration or --count at once, as fast as the brokers take them.",
            rich_help_panel=_HOW_MUCH,
        ),
    ] = False,
    shape: Annotated[
        Shape, typer.Option(help="How the rate changes over time.", rich_help_panel=_SHAPE)
    ] = Shape.steady,
    step: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TIME=BYTES/S",
            help="step: a level of the total and when it begins; repeat it.",
            rich_help_panel=_SHAPE,
        ),
    ] = None,
    ramp: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="ramp: time from nothing to --rate.", show_default="60 s", rich_help_panel=_SHAPE
        ),
    ] = None,
    period: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="cosine: one swing, from trough to trough.",
            show_default="60 s",
            rich_help_panel=_SHAPE,
        ),
    ] = None,
    amplitude: Annotated[
        float | None,
        typer.Option(
            min=0, max=100, metavar="PERCENT", help="cosine: of the mean.", show_default="80", rich_help_panel=_SHAPE
        ),
    ] = None,
    stagger: Annotated[
        bool,
        typer.Option(
            "--stagger",
            help="cosine: partitions peak one after the other, so that load wanders while the total stays.",
            rich_help_panel=_SHAPE,
        ),
    ] = False,
    peak: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES/S",
            help="spike: total at the peak.",
            show_default="five times --rate",
            rich_help_panel=_SHAPE,
        ),
    ] = None,
    spike_at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="spike: when the first one begins.", show_default="10 s", rich_help_panel=_SHAPE
        ),
    ] = None,
    spike_width: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="spike: how long it lasts.", show_default="10 s", rich_help_panel=_SHAPE),
    ] = None,
    spike_every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="spike: from one to the next.", show_default="only one", rich_help_panel=_SHAPE
        ),
    ] = None,
    walk_delta: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="PERCENT",
            help="walk: largest change of a partition in one step, in percent of the most it can reach.",
            show_default="10",
            rich_help_panel=_SHAPE,
        ),
    ] = None,
    walk_start: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=100,
            metavar="PERCENT",
            help="walk: where every partition starts.",
            show_default="each somewhere between 0 and 100",
            rich_help_panel=_SHAPE,
        ),
    ] = None,
    walk_step: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="walk: time between two steps.", show_default="1 s", rich_help_panel=_SHAPE),
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option(
            metavar="MIN:MAX",
            help="waits: each partition gets one record after every wait, drawn uniformly.",
            show_default="10 ms:2 s",
            rich_help_panel=_SHAPE,
        ),
    ] = None,
    zipf: Annotated[
        float | None,
        typer.Option(
            "--skew",
            min=0,
            metavar="EXPONENT",
            help="any shape: the k-th partition gets a share proportional to 1/k^EXPONENT of the total.",
            show_default="1 for --shape skew",
            rich_help_panel=_SHAPE,
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="W1,W2,…", help="any shape: one weight per partition instead of --skew.", rich_help_panel=_SHAPE
        ),
    ] = None,
    record_bytes: Annotated[
        str,
        typer.Option(
            metavar="SIZE[:MAX]",
            help="Key and value of a record together, exactly; SIZE:MAX draws each size uniformly.",
            rich_help_panel=_RECORDS,
        ),
    ] = "500",
    record_format: Annotated[
        Format,
        typer.Option(
            "--format", help=f"json and avro records hold {FIELDS_DDL}; raw ones hold noise.", rich_help_panel=_RECORDS
        ),
    ] = Format.json,
    bad_share: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Share of records that cannot be decoded, counted apart.", rich_help_panel=_RECORDS
        ),
    ] = 0.0,
    seed: Annotated[
        int,
        typer.Option(
            min=0, help="Equal seeds write equal sizes, amounts, walks and bad records.", rich_help_panel=_RECORDS
        ),
    ] = 0,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='Write {topic: {partition: {"records", "bytes", "bad", …}}} as JSON.',
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
) -> None:
    """Write records to Kafka in a chosen shape, and say exactly how many.

    Records are written idempotently and counted when all in-sync replicas have acknowledged them.

    Ctrl-C stops, waits for what is in flight and reports; pressed again it waits no longer.

    [bold]Examples[/bold]

    A steady 2 MB/s over two topics, created if missing, for a minute:

      headgate load -b localhost:9092 -t orders:8 -t clicks:4 --rate "2 MB/s" --duration 60s

    A million records of 1 kB, as fast as possible:

      headgate load -b localhost:9092 -t orders:8 --count 1000000 --record-bytes 1kB

    Load that wanders through the partitions while its total stays:

      headgate load -b localhost:9092 -t orders:8 --shape cosine --stagger --period 2min

    A jump to four times the load after half a minute, most of it on few partitions:

      headgate load -b localhost:9092 -t orders:8 --shape step --step 0s=1MB/s --step 30s=4MB/s --skew 1.2

    The random walk of the published experiments, and one bad record in a hundred:

      headgate load -b localhost:9092 -t orders:8 --shape walk --walk-delta 15 --seed 7 --bad-share 0.01
    """
    log_to(None)
    if duration is not None and count is not None:
        raise typer.BadParameter("give --duration or --count, not both")
    if no_wait and duration is None and count is None:
        raise typer.BadParameter("--no-wait needs an end: give --duration or --count")
    own: dict[Shape, dict[str, Any]] = {
        Shape.step: {"--step": step},
        Shape.ramp: {"--ramp": ramp},
        Shape.cosine: {"--period": period, "--amplitude": amplitude, "--stagger": stagger or None},
        Shape.spike: {
            "--peak": peak,
            "--spike-at": spike_at,
            "--spike-width": spike_width,
            "--spike-every": spike_every,
        },
        Shape.walk: {"--walk-delta": walk_delta, "--walk-start": walk_start, "--walk-step": walk_step},
        Shape.waits: {"--wait": wait},
    }
    _refuse_options_of_other_shapes(shape, own)
    if shape is Shape.step and not step:
        raise typer.BadParameter("--shape step needs levels, for example --step 0s=1MB/s --step 30s=4MB/s")
    if rate is not None and shape in (Shape.step, Shape.waits):
        raise typer.BadParameter(f"--shape {shape} sets the rate itself: leave out --rate")

    if shape is Shape.waits and ":" in record_bytes:
        raise typer.BadParameter("--shape waits sends one record after each wait: give --record-bytes a single size")

    duration_s = _optional(SECONDS, "--duration", duration)
    size = _record_size(record_bytes)
    given: dict[str, Any] = {
        "total_bytes_per_s": _optional(BYTES_PER_S, "--rate", rate),
        "levels": tuple(_level(text) for text in step or ()) or None,
        "ramp_over_s": _optional(SECONDS, "--ramp", ramp),
        "period_s": _optional(SECONDS, "--period", period),
        "amplitude_percent": amplitude,
        "stagger": stagger,
        "peak_bytes_per_s": _optional(BYTES_PER_S, "--peak", peak),
        "spike_at_s": _optional(SECONDS, "--spike-at", spike_at),
        "spike_width_s": _optional(SECONDS, "--spike-width", spike_width),
        "spike_every_s": _optional(SECONDS, "--spike-every", spike_every),
        "walk_delta_percent": walk_delta,
        "walk_start_percent": walk_start,
        "walk_step_s": _optional(SECONDS, "--walk-step", walk_step),
        "zipf_exponent": zipf,
        "weights": _weights(weights),
        "record_bytes": size.largest,
        "seed": seed,
    }
    if wait_s := _wait(wait):
        given["wait_shortest_s"], given["wait_longest_s"] = wait_s
    parameters = replace(ShapeParameters(), **{name: value for name, value in given.items() if value is not None})

    topics = dict(_topic(text) for text in topic)
    settings = dict(client_setting(text) for text in client or ())
    replicas = BROKER_DEFAULT if replication is None else replication
    unpaced = no_wait or (count is not None and rate is None and shape in (Shape.steady, Shape.skew))
    # The client is not kept: an idle one would only complain when a broker goes away.
    partitions = prepare_topics(
        AdminClient({**settings, "bootstrap.servers": brokers}, logger=log),
        topics,
        replicas,
        size.largest,
        deadline_s=_CONNECT_DEADLINE_S,
    )
    try:
        generator = LoadGenerator(
            brokers,
            settings,
            topics,
            workload_of_shape(shape, partitions, parameters),
            size,
            record_format=record_format.value,
            bad_share=bad_share,
            replication=replicas,
            seed=seed,
            pace=NoWaiting() if unpaced else RealTime(),
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    done = _run_with_progress(generator, duration_s, count)
    if report is not None:
        report.write_text(json.dumps(done.as_json(), indent=2) + "\n", encoding="utf-8")
    _show(done)
    if done.failed:
        raise typer.Exit(1)
    if done.interrupted and (duration is not None or count is not None):
        raise typer.Exit(_INTERRUPTED)


# --------------------------------------------------------------------------------------------- reading the options


def _refuse_options_of_other_shapes(chosen: Shape, own: dict[Shape, dict[str, Any]]) -> None:
    for shape, options in own.items():
        for option, value in options.items():
            if shape is not chosen and value is not None:
                raise typer.BadParameter(f"{option} belongs to --shape {shape}, not to {chosen}")


def _quantity(unit: Unit, option: str, text: str) -> float:
    try:
        return unit.parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option} {text!r} {error}") from error


def _optional(unit: Unit, option: str, text: str | None) -> float | None:
    return None if text is None else _quantity(unit, option, text)


def _wait(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    shortest, _, longest = text.partition(":")
    return _quantity(SECONDS, "--wait", shortest), _quantity(SECONDS, "--wait", longest or shortest)


def _record_size(text: str) -> RecordSize:
    low, colon, high = text.partition(":")
    smallest = int(_quantity(BYTES, "--record-bytes", low))
    if smallest < 1:
        raise typer.BadParameter(f"--record-bytes {text!r} must be at least one byte")
    if not colon:
        return FixedSize(smallest)
    try:
        return UniformSize(smallest, int(_quantity(BYTES, "--record-bytes", high)))
    except ValueError as error:
        raise typer.BadParameter(f"--record-bytes: {error}") from error


def _level(text: str) -> tuple[float, float]:
    at, equals, rate = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--step {text!r} must be a time and a rate, for example 30s=4MB/s")
    return _quantity(SECONDS, "--step", at), _quantity(BYTES_PER_S, "--step", rate)


def _weights(text: str | None) -> tuple[float, ...] | None:
    try:
        return None if text is None else tuple(float(weight) for weight in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(
            f"--weights {text!r} must be numbers separated by commas, one per partition"
        ) from error


def _topic(text: str) -> tuple[str, int | None]:
    name, colon, partitions = text.partition(":")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) or (colon and not re.fullmatch(r"[1-9]\d*", partitions)):
        raise typer.BadParameter(f"--topic {text!r} must be a topic name, or name:partitions such as orders:8")
    return name, int(partitions) if colon else None


# ------------------------------------------------------------------------------------------- running and showing


def _run_with_progress(generator: LoadGenerator, duration_s: float | None, count: int | None) -> LoadReport:
    """Runs the generator in a thread of its own, so that Ctrl-C here never interrupts a record half-way."""
    stop = threading.Event()
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[now]}"), TimeElapsedColumn(),
        console=console, transient=True,
    )  # fmt: skip
    with _sigterm_as_ctrl_c(), bar, ThreadPoolExecutor(1, "load") as pool:
        running = pool.submit(
            generator.run, duration_s=duration_s, count=count, stop=stop, on_progress=_progress_line(bar)
        )
        while True:
            try:
                return running.result()
            except KeyboardInterrupt:
                if stop.is_set():
                    generator.give_up()
                    continue
                stop.set()
                console.print("Stopping: waiting for the brokers to acknowledge what is in flight …")


def _progress_line(bar: Progress) -> Callable[[LoadProgress], None]:
    task = bar.add_task("connecting", total=None, now="")
    seen_bytes, seen_s = 0, time.monotonic()

    def show(progress: LoadProgress) -> None:
        nonlocal seen_bytes, seen_s
        now_s = time.monotonic()
        sent = (progress.payload_bytes - seen_bytes) / max(now_s - seen_s, 1e-3)
        seen_bytes, seen_s = progress.payload_bytes, now_s
        texts = [f"{sent / 1e6:.2f} MB/s of {progress.target_bytes_per_s / 1e6:.2f}", f"{progress.records:,} records"]
        if progress.failed:
            texts.append(f"[red]{progress.failed:,} failed[/red]")
        if progress.behind_s > 1:
            texts.append(f"[yellow]{progress.behind_s:.0f} s behind[/yellow]")
        total = None if math.isinf(progress.end_s) else progress.end_s
        bar.update(task, description="writing", completed=progress.t_s, total=total, now="  ".join(texts))

    return show


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(report: LoadReport) -> None:
    console = Console()
    rate = report.payload_bytes / max(report.elapsed_s, 1e-9) / 1e6
    table = Table(title=f"Acknowledged in {report.elapsed_s:.1f} s: {rate:.2f} MB/s", title_justify="left")
    table.add_column("partition")
    for column in ("records", "bad", "bytes", "offsets", "failed"):
        table.add_column(column, justify="right")
    for partition, part in sorted(report.partitions.items())[:_PARTITIONS_SHOWN]:
        offsets = "" if part.first_offset is None else f"{part.first_offset} … {part.last_offset}"
        numbers = (f"{part.records:,}", f"{part.bad:,}", f"{part.payload_bytes:,}", offsets, f"{part.failed:,}")
        table.add_row(str(partition), *numbers)
    if len(report.partitions) > _PARTITIONS_SHOWN:
        table.add_row(f"… {len(report.partitions) - _PARTITIONS_SHOWN} more")
    table.add_section()
    totals = (f"{report.records:,}", f"{report.bad:,}", f"{report.payload_bytes:,}", "", f"{report.failed:,}")
    table.add_row("all", *totals, style="bold")
    console.print(table)
    for error, times in report.errors.items():
        console.print(f"[red]{times:,} × {error}[/red]")
