"""`headgate calibrate`: measures what one consumer can do here."""

import signal
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from headgate.cli.logs import log_to
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.config.units import BYTES_PER_S
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.load import LoadGenerator, NoWaiting
from headgate.kafka.load_records import FIELDS_DDL, FixedSize
from headgate.model import TopicPartition
from headgate.simulation.workload import Steady

if TYPE_CHECKING:
    from headgate.controller.calibration import Calibration


def calibrate(
    file: Annotated[
        Path | None, typer.Argument(help="A pipeline whose topics have a backlog to read.", metavar="[FILE]")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Read for at most this long.", min=5)] = 60.0,
    megabytes: Annotated[int, typer.Option(help="Without FILE: how much is generated.", min=10)] = 200,
    partitions: Annotated[int, typer.Option(help="Without FILE: over how many partitions.", min=1)] = 32,
    tables: Annotated[int, typer.Option(help="Without FILE: to how many topics and tables.", min=1, max=20)] = 1,
) -> None:
    """Measures one consumer's capacity at full load and suggests the policy's two capacities.

    With FILE, a consumer reads that pipeline's topics from the beginning with its formats and transforms; tables, group
    and offsets of the pipeline are not touched. Without, it reads generated JSON records from an embedded Kafka: the
    published tests are --partitions 32 --tables 1, --partitions 116 --tables 5 and --partitions 144 --tables 5.
    """
    from headgate.controller.calibration import calibrate as measure
    from headgate.controller.service import SharedSession

    console, stop = Console(), threading.Event()

    def asked_to_stop(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGINT, asked_to_stop)
    signal.signal(signal.SIGTERM, asked_to_stop)
    log_to(None)
    with tempfile.TemporaryDirectory(prefix="headgate-calibrate-") as folder, console.status("preparing") as shown:
        if file is not None:
            pipeline = load_pipeline(file)
            result = measure(pipeline, seconds, SharedSession(pipeline), shown.update, stop)
        else:
            home = Path(folder)
            with EmbeddedKafka(home / "kafka", 1) as kafka:
                pipeline = _generated(home, kafka.bootstrap, megabytes, partitions, tables, shown.update)
                session = SharedSession(pipeline)
                try:
                    result = measure(pipeline, seconds, session, shown.update, stop)
                finally:
                    session.stop()
    _print(console, result)


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
    table = Table(
        title=f"{result.cycles} full cycles, {result.total_bytes / 1e6:.0f} MB, {result.partitions} partitions, "
        f"{result.tables} tables",
        title_justify="left",
    )
    for name in ("", "mean", "standard deviation"):
        table.add_column(name, justify="left" if not name else "right")
    for name, measured in (
        ("gather", result.gather_s),
        ("Spark: read, transform, write", result.process_s),
        ("announce", result.announce_s),
        ("cycle", result.cycle_s),
    ):
        table.add_row(name, f"{measured.mean:.3f} s", f"{measured.deviation:.3f} s")
    table.add_row("throughput", _rate(result.bytes_per_s.mean), _rate(result.bytes_per_s.deviation))
    console.print(table)
    console.print("Suggested for this machine, these formats and transforms:", style="bold")
    console.print(f"policy:\n  consumer_capacity_bytes_per_s: {_rate(result.consumer_capacity_bytes_per_s)}")
    console.print(f"  packing_capacity_bytes_per_s: {_rate(result.packing_capacity_bytes_per_s)}")


def _rate(bytes_per_s: float) -> str:
    return BYTES_PER_S.format(round(bytes_per_s, -4))
