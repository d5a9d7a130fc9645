"""`headgate verify`: counts every offset in the lake."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from headgate.cli.logs import log_to
from headgate.cli.output import Output, as_document
from headgate.cli.pipeline_file import PipelineArgument, find_pipeline
from headgate.errors import HeadgateError, LakeError
from headgate.model import Ledger

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from headgate.config.pipeline import Pipeline
    from headgate.config.table import Table as TableConfig
    from headgate.lake.verify import TableVerdict


def verify(
    file: PipelineArgument = None,
    home: Annotated[Path | None, typer.Option(help="Instead of FILE: a folder that `demo --home` kept.")] = None,
    output: Annotated[Output, typer.Option(help="text for people, json for programs.")] = Output.text,
) -> None:
    """Checks with Spark that every offset is in its table exactly once.

    For each table: the rows, the offsets the ledger has passed, those rejected, filtered or skipped by Kafka itself,
    and any that are missing or there twice, as ranges. Exit code 0 when nothing is missing or doubled, 1 otherwise.
    Safe to run while the pipeline runs: each table is read at one snapshot.
    """
    from headgate import jars
    from headgate.config.loader import load_pipeline
    from headgate.consumer.spark import start_session
    from headgate.lake.catalogs import open_catalog

    pipeline = load_pipeline(find_pipeline(file, home))
    log_to(None)
    catalog = open_catalog(pipeline.lake)
    console = Console(stderr=output is Output.json)
    with console.status("starting Spark"):
        logs = pipeline.home / "verify"
        conf = {"spark.sql.shuffle.partitions": "8", **pipeline.consumer.spark.conf}
        spark = start_session("local[2]", logs, "headgate-verify", conf=conf, jar_sets=(jars.ICEBERG,))
    try:
        verdicts = []
        for table in pipeline.tables:
            with console.status(f"counting {table.name}"):
                verdicts.append(_counted(spark, catalog, table, pipeline))
    finally:
        spark.stop()
    if output is Output.json:
        typer.echo(json.dumps([_as_json(v) for v in verdicts], indent=2))
    else:
        print_verdicts(console, verdicts)
    raise typer.Exit(0 if all(v.ok and v.exists for v in verdicts) else 1)


def _counted(spark: "SparkSession", catalog: "Catalog", table: "TableConfig", pipeline: "Pipeline") -> "TableVerdict":
    """What cannot be counted is told in a line: a data file that is gone, a store that Spark does not reach."""
    from headgate.consumer.spark import reason
    from headgate.lake.verify import verify_table

    try:
        return verify_table(spark, catalog, table)
    except HeadgateError:
        raise
    except Exception as error:  # Spark's, Java's, the catalog's, the file system's
        raise LakeError(
            f"{table.name} cannot be counted: {pipeline.redact(reason(error))}. If a data file is gone, "
            f"docs/recover.md, The lake, says what to do; for an object store Spark needs its jars "
            f"(docs/run-a-pipeline.md). Spark's log: {pipeline.home / 'verify'}"
        ) from error


def print_verdicts(console: Console, verdicts: list[Any]) -> None:
    shown = Table(title="Every offset exactly once?", title_justify="left", box=None, padding=(0, 1, 0, 0))
    for name in ("table", "rows", "offsets", "rejected", "filtered", "skipped", "missing", "doubled", ""):
        shown.add_column(name, justify="left" if name in ("table", "") else "right")
    for v in verdicts:
        mark = "[green]ok[/]" if v.ok else "[red]NOT OK[/]"
        if not v.exists:
            mark = "[yellow]no such table yet[/]"
        numbers = (v.rows, v.offsets, v.rejected, v.filtered, v.skipped, v.missing, v.duplicates)
        shown.add_row(v.table, *(f"{n:,}" for n in numbers), mark)
    console.print(shown)
    for v in verdicts:
        for problem in v.problems:
            console.print(f"[red]{v.table}: {problem}[/]")
        for title, ranges in (("missing", v.missing_ranges), ("duplicate", v.duplicate_ranges)):
            for one in ranges:
                console.print(f"  {title} {one}")
        for skip in v.skips[:20]:
            console.print(
                f"  {v.table}: Kafka skipped {skip.offsets:,} offsets of {skip.partition} in "
                f"\\[{skip.start}, {skip.end}) ({skip.reason})"
            )


def _as_json(verdict: Any) -> dict[str, Any]:
    # The ledger's keys are partitions, which JSON has no keys for: left out before the rest is made plain.
    fields: dict[str, Any] = as_document(replace(verdict, ledger=Ledger()))
    ledger = {str(p): at for p, at in sorted(verdict.ledger.next.items())}
    return fields | {"ok": verdict.ok, "ledger": ledger}
