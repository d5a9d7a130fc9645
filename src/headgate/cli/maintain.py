"""`headgate maintain`: expires snapshots, compacts small files, sweeps files that no table refers to."""

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from headgate.cli.logs import log_to
from headgate.cli.pipeline_file import PipelineArgument, find_pipeline
from headgate.errors import ConfigError, KafkaUnavailable, LakeError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from headgate.config.pipeline import Pipeline
    from headgate.lake.compaction import Compaction
    from headgate.lake.upkeep import Upkeep

log = logging.getLogger(__name__)

_MOST_LISTED = 50
_LINE_EVERY_S = 10.0
_BROKER_DEADLINE_S = 15.0
_NO_TABLES = "None of the pipeline's tables is there yet."


def maintain(
    file: PipelineArgument = None,
    home: Annotated[Path | None, typer.Option(help="Instead of FILE: a folder that `demo --home` kept.")] = None,
    apply: Annotated[
        bool,
        typer.Option("--apply", "--remove", help="Really do the upkeep; otherwise it is only said what would be done."),
    ] = False,
    same_topic: Annotated[
        list[str] | None,
        typer.Option(
            "--same-topic",
            metavar="TOPIC",
            help="This topic was deleted and made anew with the same records at the same offsets, as when a cluster "
            "is moved: go on where the ledger stands. Wrong if its offsets began again. May be repeated.",
        ),
    ] = None,
    begin_anew: Annotated[
        list[str] | None,
        typer.Option(
            "--begin-anew",
            metavar="TABLE",
            help="This table was dropped, or the catalog is another one now, on purpose: begin again where start_from "
            "says. While the pipeline is stopped. May be repeated.",
        ),
    ] = None,
    forget_lost_rejects: Annotated[
        bool,
        typer.Option(
            "--forget-lost-rejects",
            help="Go on without rejected records whose file was lost before it was committed; the committer waits for "
            "it otherwise.",
        ),
    ] = False,
) -> None:
    """Upkeep of a pipeline's tables; safe while it runs, and safe to kill.

    Expires snapshots beyond lake.keep_snapshots, lake.keep_hourly and lake.keep_snapshots_s (never the one with the
    ledger); joins small files to ones of lake.target_file_bytes, in snapshots that change no row; and deletes files
    that no snapshot refers to and that are older than lake.orphan_age_s: what killed consumers, refused announcements
    and compaction leave behind. Upkeep changes nothing without --apply. lake.maintain_every_s does the same on a
    schedule.

    --same-topic, --begin-anew and --forget-lost-rejects are a person's word on what the committer cannot know. Each
    acts at once, stands alone, and does no upkeep.
    """
    from headgate.config.loader import load_pipeline
    from headgate.lake.catalogs import is_unmade, open_catalog
    from headgate.lake.tables import load_table
    from headgate.lake.upkeep import upkeep_tables

    if sum(map(bool, (same_topic, begin_anew, forget_lost_rejects, apply))) > 1:
        raise ConfigError(
            "--same-topic, --begin-anew and --forget-lost-rejects act at once and alone: give one, and without --apply"
        )
    pipeline = load_pipeline(find_pipeline(file, home))
    log_to(None)
    console = Console(highlight=False, soft_wrap=True)
    if not (same_topic or begin_anew or forget_lost_rejects or apply) and is_unmade(pipeline.lake):
        console.print(_NO_TABLES)
        return
    catalog = open_catalog(pipeline.lake)
    if same_topic:
        _accept(pipeline, catalog, same_topic, console)
        return
    if begin_anew:
        _begin(pipeline, catalog, begin_anew, console)
        return
    if forget_lost_rejects:
        _forget(pipeline, catalog, console)
        return

    there = list[str]()

    def keep_up(name: str) -> None:
        if load_table(catalog, name) is not None:
            there.append(name)
            _say(console, (_apply if apply else _rehearse)(console, catalog, name, pipeline), apply)

    _each("upkeep", upkeep_tables(pipeline), keep_up, pipeline, console)
    if not there:
        console.print(_NO_TABLES)
    elif not apply:
        console.print("Nothing was changed; --apply does it.")


def _each(
    what: str, names: Iterable[str], act: Callable[[str], object], pipeline: "Pipeline", console: Console
) -> None:
    """Does it for every table, also when some fail; what failed is said with each and as one error at the end."""
    failed = []
    for name in names:
        try:
            act(name)
        except Exception as error:  # catalogs and file systems fail in ways of their own; the other tables go on
            log.debug("%s of %s", what, name, exc_info=True)
            said = (str(error) or repr(error)).splitlines()[0]
            console.print(f"{name}: failed: {pipeline.redact(said)}", markup=False)
            failed.append(name)
    if failed:
        raise LakeError(f"{what} failed for {', '.join(failed)}, see above; what is done stays done, so try it again")


def _rehearse(console: Console, catalog: "Catalog", name: str, pipeline: "Pipeline") -> "Upkeep":
    from headgate.lake.upkeep import rehearse

    with console.status(f"{name}: looking for snapshots, small files and orphans"):
        return rehearse(catalog, name, pipeline.lake)


def _apply(console: Console, catalog: "Catalog", name: str, pipeline: "Pipeline") -> "Upkeep":
    from headgate.lake.upkeep import maintain as maintain_table

    if not console.is_terminal:
        lines = _Lines(name)
        return maintain_table(catalog, name, pipeline.lake, progress=lines.progress, begins=lines.begins)
    with Progress(console=console, transient=True) as shown:
        bar = shown.add_task(name, total=None)

        def progress(done: "Compaction", planned: "Compaction") -> None:
            shown.update(bar, completed=done.bytes, total=planned.bytes or None)

        def begins(step: str) -> None:
            shown.update(bar, description=f"{name}: {step}", completed=0, total=None)

        return maintain_table(catalog, name, pipeline.lake, progress=progress, begins=begins)


class _Lines:
    """How far upkeep is, for the log of a cron job: each step, and every so often within a long one."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._said_s = 0.0

    def begins(self, step: str) -> None:
        self._said_s = time.monotonic()
        typer.echo(f"{self._table}: {step}", err=True)

    def progress(self, done: "Compaction", planned: "Compaction") -> None:
        if time.monotonic() - self._said_s >= _LINE_EVERY_S:
            self._said_s = time.monotonic()
            typer.echo(f"{self._table}: joined {done.bytes:,} of {planned.bytes:,} bytes", err=True)


def _say(console: Console, done: "Upkeep", applied: bool) -> None:
    joined, orphans = done.compaction, done.sweep
    expire, compact, sweep = ("expired", "compacted", "swept") if applied else ("expire", "compact", "sweep")
    steps = [
        f"{expire} {done.expired} snapshots" if done.expired else "",
        f"{compact} {joined.files} files ({joined.bytes:,} bytes) into {joined.into}" if joined.files else "",
        f"{sweep} {len(orphans.orphans)} orphan files ({orphans.bytes:,} bytes)" if orphans.orphans else "",
    ]
    said = ", ".join(filter(None, steps))
    console.print(f"{done.table}: {'' if applied or not said else 'would '}{said or 'nothing to do'}", markup=False)
    if not applied:
        for path in orphans.orphans[:_MOST_LISTED]:
            console.print(f"  {path}", highlight=False)
        if len(orphans.orphans) > _MOST_LISTED:
            console.print(f"  … and {len(orphans.orphans) - _MOST_LISTED} more")


def _accept(pipeline: "Pipeline", catalog: "Catalog", topics: list[str], console: Console) -> None:
    from confluent_kafka.admin import AdminClient

    from headgate.config.clients import librdkafka_settings
    from headgate.kafka.offsets import partitions_where, topic_ids
    from headgate.lake.commit import TableCommitter

    admin = AdminClient(dict(librdkafka_settings(pipeline)))
    there = {p.topic for p in partitions_where(admin, lambda topic: topic in topics, _BROKER_DEADLINE_S)}
    if unknown := [topic for topic in topics if topic not in there]:
        raise ConfigError(f"Kafka has no topic {', '.join(unknown)}; nothing was changed")
    ids = topic_ids(admin, topics, _BROKER_DEADLINE_S).known
    if unnamed := [topic for topic in topics if topic not in ids]:
        raise KafkaUnavailable(f"the brokers gave no id of {', '.join(unnamed)}; nothing was changed, try again")
    tables = {table.name: table for table in pipeline.tables if any(table.matches(topic) for topic in topics)}

    def accept(name: str) -> None:
        for topic in filter(tables[name].matches, topics):
            accepted = TableCommitter(catalog, pipeline.lake, tables[name]).same_topic(topic, ids[topic])
            console.print(f"{name}: {topic} {'is accepted with its new id' if accepted else 'was known already'}")

    _each("accepting topics", tables, accept, pipeline, console)


def _begin(pipeline: "Pipeline", catalog: "Catalog", tables: list[str], console: Console) -> None:
    from headgate.config.clients import librdkafka_settings
    from headgate.lake.words import begin_anew

    settings = librdkafka_settings(pipeline)
    for table in tables:
        begin_anew(pipeline, settings, catalog, table)
        console.print(f"{table}: begins anew, at the {pipeline.start_from} records", markup=False)


def _forget(pipeline: "Pipeline", catalog: "Catalog", console: Console) -> None:
    from headgate.lake.rejects import land_rejects
    from headgate.lake.tables import load_table

    def forget(name: str) -> None:
        table = load_table(catalog, name)
        lost = () if table is None else land_rejects(catalog, pipeline.lake, table, without_lost=True)
        said = f"goes on without {', '.join(lost)}" if lost else "nothing is lost"
        console.print(f"{name}: {said}", markup=False)

    _each("landing rejected records", [table.name for table in pipeline.tables], forget, pipeline, console)
