"""`headgate calibrate`: measures what one consumer can do here."""

import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.status import Status

from headgate.cli.calibrate_view import as_json, print_result, suggested_texts
from headgate.cli.interrupts import Interrupts
from headgate.cli.logs import log_to
from headgate.cli.output import Output
from headgate.config.editing import edited
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.controller.measured import NOTHING_MEASURED
from headgate.errors import ConfigError, HeadgateError
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_pace import NoWaiting
from headgate.kafka.load_records import FIELDS_DDL, FixedSize
from headgate.model import TopicPartition
from headgate.simulation.workload_shapes import Steady

if TYPE_CHECKING:
    from headgate.controller.measured import Calibration
    from headgate.controller.service import SharedSession


def calibrate(
    file: Annotated[
        Path | None, typer.Argument(help="A pipeline whose topics have a backlog to read.", metavar="[FILE]")
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="Read for at most this long in each layout, and twice as long to warm up.", min=5)
    ] = 60.0,
    write: Annotated[
        bool, typer.Option("--write", help="Write both capacities into FILE, and show what changed in it.")
    ] = False,
    megabytes: Annotated[
        int | None, typer.Option(help="Without FILE: how much is generated.", min=40, show_default="400")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(help="Without FILE: over how many partitions.", min=1, show_default="144")
    ] = None,
    tables: Annotated[
        int | None, typer.Option(help="Without FILE: to how many topics and tables.", min=1, max=20, show_default="5")
    ] = None,
    output: Annotated[Output, typer.Option(help="text for people, json for programs.")] = Output.text,
) -> None:
    """Measures one consumer's capacity at full load and suggests the policy's two capacities.

    With FILE, a consumer reads that pipeline's topics from the beginning with its formats and transforms, into scratch
    tables in a temporary folder that is removed again. The pipeline's own tables, ledger, group and offsets are never
    touched, and it may run meanwhile (on the same machine it takes from what is measured). Needs room for the files.

    It reads until Spark is warm, which takes some forty cycles, and then measures in up to three layouts, as published:
    one table, all tables with little in each partition, all tables; those that are the same for this pipeline only
    once. Without FILE it reads generated JSON records from an embedded Kafka, by default over 144 partitions to five
    tables. Ctrl-C shows what was measured by then, if anything was; a second one ends it at once.

    [bold]headgate calibrate pipeline.yaml[/]           measure, and print what to set
    [bold]headgate calibrate pipeline.yaml --write[/]   and set it
    """
    if write and file is None:
        raise ConfigError("--write needs the FILE to write to")
    generating = {"--megabytes": megabytes, "--partitions": partitions, "--tables": tables}
    if file is not None and (idle := [option for option, value in generating.items() if value is not None]):
        raise ConfigError(f"{', '.join(idle)}: for generated records only; leave it out, or FILE")
    load = _Generated(megabytes or 400, partitions or 144, tables or 5)
    console = Console(stderr=output is Output.json)
    pipeline = None if file is None else load_pipeline(file)
    if file is not None and write:
        edited(file, "policy", suggested_texts(2e6, 1.5e6))  # better refused now than after minutes of measuring
    log_to(None)
    with (
        # What was measured is worth more than a file that Spark still wrote while they were removed.
        tempfile.TemporaryDirectory(prefix="headgate-calibrate-", ignore_cleanup_errors=True) as name,
        console.status("preparing") as shown,
        Interrupts(lambda: _end_at_once(shown, Path(name), pipeline)) as interrupts,
    ):
        folder, stop = Path(name), interrupts.stop
        if pipeline is not None:
            result = _measured(pipeline, folder, seconds, shown.update, stop)
        else:
            with _kafka(folder / "kafka", interrupts, shown.update) as kafka:
                generated = load.write(folder, kafka.bootstrap, shown.update, stop)
                result = _measured(generated, folder, seconds, shown.update, stop)
    if output is Output.json:
        typer.echo(json.dumps(as_json(result), indent=2))
    else:
        print_result(console, result)
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


def _end_at_once(shown: Status, folder: Path, pipeline: Pipeline | None) -> None:
    """Brokers of ours and files go; to delete topics of somebody else's Kafka would mean to wait for it."""
    shown.stop()
    with suppress(HeadgateError):  # there may be none
        EmbeddedKafka(folder / "kafka").kill(1)
    shutil.rmtree(folder, ignore_errors=True)
    topics = f"; topics that begin with __headgate.{pipeline.name}.calibration- may be left" if pipeline else ""
    shown.console.print(f"ended at once{topics}", style="yellow", highlight=False)


def _measured(
    pipeline: Pipeline, folder: Path, seconds: float, tell: Callable[[str], None], stop: threading.Event
) -> "Calibration":
    from headgate.controller.calibration import calibrate as measure

    session = session_of_a_consumer(pipeline, folder)
    try:
        return measure(pipeline, folder, seconds, session, tell, stop)
    finally:
        session.stop()


def session_of_a_consumer(pipeline: Pipeline, home: Path) -> "SharedSession":
    """With as many cores as the fleet would give it: a process has its own session, by spark.master as written. In a
    home of its own: the pipeline's has the logs and files of a session that may be running."""
    from headgate.controller.service import SharedSession

    alone = pipeline.fleet.kind == "processes"
    elsewhere = pipeline.model_copy(update={"home": home})
    return SharedSession(elsewhere, master=pipeline.consumer.spark.master if alone else None)


@contextmanager
def _kafka(home: Path, interrupts: Interrupts, tell: Callable[[str], None]) -> Iterator[EmbeddedKafka]:
    kafka = EmbeddedKafka(home, 1)
    try:
        with interrupts.raised():  # half-started brokers are ended then
            kafka.start(tell)
    except KeyboardInterrupt:
        raise HeadgateError(NOTHING_MEASURED) from None
    try:
        yield kafka
    finally:
        kafka.stop()


@dataclass(frozen=True, slots=True)
class _Generated:
    """The records that are read without FILE."""

    megabytes: int
    partitions: int
    tables: int

    def __post_init__(self) -> None:
        if self.partitions < self.tables:
            raise ConfigError(f"{self.tables} --tables need as many --partitions at least, not {self.partitions}")

    def write(self, home: Path, bootstrap: str, tell: Callable[[str], None], stop: threading.Event) -> Pipeline:
        """Gives the pipeline that reads them."""
        tell(f"writing {self.megabytes} MB")
        topics = {f"calibration{n}": len(range(n, self.partitions, self.tables)) for n in range(self.tables)}
        spread = Steady.spread([TopicPartition(topic, n) for topic, count in topics.items() for n in range(count)], 1e7)
        generator = LoadGenerator(bootstrap, {}, topics, spread, FixedSize(1000), pace=NoWaiting())
        if generator.run(count=self.megabytes * 1000, stop=stop).interrupted:
            raise HeadgateError(NOTHING_MEASURED)
        listed = "".join(
            f"  - {{name: lake.{topic}, topics: [{topic}], format: json, schema: '{FIELDS_DDL}'}}\n" for topic in topics
        )
        file = home / "pipeline.yaml"
        file.write_text(
            f"name: calibration\nhome: {home}\nkafka: {{brokers: '{bootstrap}'}}\n"
            f"topics: [{', '.join(topics)}]\ntables:\n{listed}"
        )
        return load_pipeline(file)
