"""`headgate calibrate`: measures what one consumer can do here."""

import json
import signal
import tempfile
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from headgate.cli.logs import log_to
from headgate.cli.output import Output
from headgate.config.editing import edited
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.config.units import BYTES_PER_S
from headgate.errors import ConfigError
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_pace import NoWaiting
from headgate.kafka.load_records import FIELDS_DDL, FixedSize
from headgate.model import TopicPartition
from headgate.simulation.workload_shapes import Steady

if TYPE_CHECKING:
    from headgate.controller.calibration import Calibration, Measure, Measured
    from headgate.controller.service import SharedSession


def calibrate(
    file: Annotated[
        Path | None, typer.Argument(help="A pipeline whose topics have a backlog to read.", metavar="[FILE]")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Read for at most this long in each layout.", min=5)] = 60.0,
    write: Annotated[
        bool, typer.Option("--write", help="Write both capacities into FILE, and show what changed in it.")
    ] = False,
    megabytes: Annotated[int, typer.Option(help="Without FILE: how much is generated.", min=10)] = 200,
    partitions: Annotated[int, typer.Option(help="Without FILE: over how many partitions.", min=1)] = 144,
    tables: Annotated[int, typer.Option(help="Without FILE: to how many topics and tables.", min=1, max=20)] = 5,
    output: Annotated[Output, typer.Option(help="text for people, json for programs.")] = Output.text,
) -> None:
    """Measures one consumer's capacity at full load and suggests the policy's two capacities.

    With FILE, a consumer reads that pipeline's topics from the beginning with its formats and transforms, into scratch
    tables in a temporary folder that is removed again. The pipeline's own tables, ledger, group and offsets are never
    touched, and it may run meanwhile (on the same machine it takes from what is measured). Needs room for the files.

    It measures in up to three layouts, as published: one table, all tables with little in each partition, all tables;
    those that are the same for this pipeline only once. Without FILE it reads generated JSON records from an embedded
    Kafka, by default over 144 partitions to five tables.

    [bold]headgate calibrate pipeline.yaml[/]           measure, and print what to set
    [bold]headgate calibrate pipeline.yaml --write[/]   and set it
    """
    if write and file is None:
        raise ConfigError("--write needs the FILE to write to")
    console, stop = Console(stderr=output is Output.json), threading.Event()

    def asked_to_stop(number: int, frame: FrameType | None) -> None:
        stop.set()

    pipeline = None if file is None else load_pipeline(file)
    if file is not None and write:
        edited(file, "policy", suggested_texts(2e6, 1.5e6))  # better refused now than after minutes of measuring
    signal.signal(signal.SIGINT, asked_to_stop)
    signal.signal(signal.SIGTERM, asked_to_stop)
    log_to(None)
    with tempfile.TemporaryDirectory(prefix="headgate-calibrate-") as folder, console.status("preparing") as shown:
        if pipeline is not None:
            result = _measured(pipeline, seconds, shown.update, stop)
        else:
            home = Path(folder)
            with EmbeddedKafka(home / "kafka", 1) as kafka:
                pipeline = _generated(home, kafka.bootstrap, megabytes, partitions, tables, shown.update)
                result = _measured(pipeline, seconds, shown.update, stop)
    if output is Output.json:
        typer.echo(json.dumps(as_json(result), indent=2))
    else:
        _print(console, result)
    if file is not None and write:
        write_capacities(console, result, file, stopped=stop.is_set())


def write_capacities(console: Console, result: "Calibration", file: Path, stopped: bool) -> None:
    """Whoever stops a measurement has not seen what it would write."""
    if stopped:
        console.print(f"stopped: {file} is left as it is", style="yellow", highlight=False)
        raise typer.Exit(1)
    texts = suggested_texts(result.consumer_capacity_bytes_per_s, result.packing_capacity_bytes_per_s)
    edit = edited(file, "policy", texts)
    edit.write()
    console.print(edit.diff or f"{file} has these capacities already", highlight=False, markup=False)


def _measured(pipeline: Pipeline, seconds: float, tell: Callable[[str], None], stop: threading.Event) -> "Calibration":
    from headgate.controller.calibration import calibrate as measure

    session = session_of_a_consumer(pipeline)
    try:
        return measure(pipeline, seconds, session, tell, stop)
    finally:
        session.stop()


def session_of_a_consumer(pipeline: Pipeline) -> "SharedSession":
    """With as many cores as the fleet would give it: a process has its own session, by spark.master as written."""
    from headgate.controller.service import SharedSession

    alone = pipeline.fleet.kind == "processes"
    return SharedSession(pipeline, master=pipeline.consumer.spark.master if alone else None)


def suggested_texts(consumer_bytes_per_s: float, packing_bytes_per_s: float) -> dict[str, str]:
    """As they stand in a pipeline file, with two digits: no machine repeats the third."""
    return {
        "consumer_capacity_bytes_per_s": _rate(consumer_bytes_per_s, digits=2),
        "packing_capacity_bytes_per_s": _rate(packing_bytes_per_s, digits=2),
    }


def as_json(result: "Calibration") -> dict[str, Any]:
    return asdict(result) | {
        "consumer_capacity_bytes_per_s": result.consumer_capacity_bytes_per_s,
        "packing_capacity_bytes_per_s": result.packing_capacity_bytes_per_s,
        "capacity_records_per_s": result.capacity_records_per_s,
    }


def _generated(
    home: Path, bootstrap: str, megabytes: int, partitions: int, tables: int, tell: Callable[[str], None]
) -> Pipeline:
    tell(f"writing {megabytes} MB")
    topics = {f"calibration{n}": len(range(n, partitions, tables)) for n in range(tables)}
    everywhere = [TopicPartition(topic, n) for topic, count in topics.items() for n in range(count)]
    generator = LoadGenerator(bootstrap, {}, topics, Steady.spread(everywhere, 1e7), FixedSize(1000), pace=NoWaiting())
    generator.run(count=megabytes * 1000)
    listed = "".join(
        f"  - {{name: lake.{topic}, topics: [{topic}], format: json, schema: '{FIELDS_DDL}'}}\n" for topic in topics
    )
    file = home / "pipeline.yaml"
    file.write_text(
        f"name: calibration\nhome: {home}\nkafka: {{brokers: '{bootstrap}'}}\n"
        f"topics: [{', '.join(topics)}]\ntables:\n{listed}"
    )
    return load_pipeline(file)


def _print(console: Console, result: "Calibration") -> None:
    table = Table(title="One consumer at full load", title_justify="left")
    table.add_column("")
    for one in result.measured:
        table.add_column(one.layout, justify="right")
    for name, say in _ROWS.items():
        table.add_row(name, *map(say, result.measured))
    console.print(table)
    console.print("Times of a cycle as mean ± standard deviation; Spark reads, transforms and writes.", style="dim")
    for text in result.left_out:
        console.print(f"not measured, too little backlog or too few --seconds: {text}", style="yellow")
    console.print("Suggested for this machine, these formats and transforms:", style="bold")
    texts = suggested_texts(result.consumer_capacity_bytes_per_s, result.packing_capacity_bytes_per_s)
    console.print("policy:\n" + "\n".join(f"  {key}: {value}" for key, value in texts.items()), highlight=False)
    console.print(
        "That is 85 % of the slowest layout's mean, and 75 % of that to pack by. "
        f"The first is {result.capacity_records_per_s:,.0f} of these records a second.",
        style="dim",
    )


def _time(measure: "Measure") -> str:
    return f"{measure.mean:.2f} ± {measure.deviation:.2f} s"


_ROWS: dict[str, Callable[["Measured"], str]] = {
    "partitions, tables": lambda one: f"{one.partitions}, {one.tables}",
    "full cycles": lambda one: f"{one.cycles} ({one.total_bytes / 1e6:.0f} MB)",
    "gather": lambda one: _time(one.gather_s),
    "Spark": lambda one: _time(one.process_s),
    "announce": lambda one: _time(one.announce_s),
    "cycle": lambda one: _time(one.cycle_s),
    "bytes per second": lambda one: _rate(one.bytes_per_s.mean),
    "  with 95 %": lambda one: f"{_rate(one.bytes_per_s.low)} … {_rate(one.bytes_per_s.high)}",
    "records per second": lambda one: f"{one.records_per_s.mean:,.0f}",
    "  with 95 % ": lambda one: f"{one.records_per_s.low:,.0f} … {one.records_per_s.high:,.0f}",
}


def _rate(bytes_per_s: float, digits: int = 3) -> str:
    return BYTES_PER_S.format(float(f"{bytes_per_s:.{digits}g}"))
