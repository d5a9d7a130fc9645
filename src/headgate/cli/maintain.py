"""`headgate maintain`: expires snapshots and sweeps files that no table refers to."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from headgate.cli.logs import log_to
from headgate.cli.pipeline_file import PipelineArgument, find_pipeline
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from headgate.config.pipeline import Pipeline


def maintain(
    file: PipelineArgument = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Really delete orphan files; otherwise they are listed.")
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
    forget_lost_rejects: Annotated[
        bool,
        typer.Option(
            "--forget-lost-rejects",
            help="Go on without rejected records whose file was lost before it was committed; the committer waits for "
            "it otherwise.",
        ),
    ] = False,
) -> None:
    """Upkeep of a pipeline's tables; safe while it runs.

    Expires snapshots beyond lake.keep_snapshots and lake.keep_snapshots_s (never the one with the ledger), and finds
    files that no snapshot refers to and that are older than lake.orphan_age_s: what killed consumers and refused
    announcements leave behind.
    """
    from headgate.config.loader import load_pipeline
    from headgate.config.table import REJECTED_SUFFIX, SKIPPED_SUFFIX
    from headgate.lake.maintenance import expire_snapshots, sweep_orphans
    from headgate.lake.rejects import land_rejects
    from headgate.lake.tables import load_table, open_catalog

    pipeline = load_pipeline(find_pipeline(file, None))
    log_to(None)
    catalog = open_catalog(pipeline.lake)
    console = Console()
    if same_topic:
        _accept(pipeline, catalog, same_topic, console)
        return
    if forget_lost_rejects:
        for table in filter(None, (load_table(catalog, t.name) for t in pipeline.tables)):
            land_rejects(catalog, pipeline.lake, table, without_lost=True)
        return
    for configured in pipeline.tables:
        for name in (configured.name, configured.name + REJECTED_SUFFIX, configured.name + SKIPPED_SUFFIX):
            expired = expire_snapshots(catalog, name, pipeline.lake)
            sweep = sweep_orphans(catalog, name, pipeline.lake, remove)
            done = "removed" if sweep.removed else "found"
            console.print(
                f"{name}: expired {expired} snapshots, {done} {len(sweep.orphans)} orphan files ({sweep.bytes:,} bytes)"
            )
            if not remove:
                for path in sweep.orphans:
                    console.print(f"  {path}", highlight=False)


def _accept(pipeline: "Pipeline", catalog: "Catalog", topics: list[str], console: Console) -> None:
    from confluent_kafka.admin import AdminClient

    from headgate.config.clients import librdkafka_settings
    from headgate.kafka.offsets import topic_ids
    from headgate.lake.commit import TableCommitter

    ids = topic_ids(AdminClient(dict(librdkafka_settings(pipeline))), topics)
    for topic in topics:
        if topic not in ids:
            raise ConfigError(f"topic {topic} is not there, or its broker did not answer; nothing was changed for it")
        for table in (t for t in pipeline.tables if t.matches(topic)):
            accepted = TableCommitter(catalog, pipeline.lake, table).same_topic(topic, ids[topic])
            console.print(f"{table.name}: {topic} {'is accepted with its new id' if accepted else 'was known already'}")
