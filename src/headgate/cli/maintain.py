"""`headgate maintain`: expires snapshots and sweeps files that no table refers to."""

from typing import Annotated

import typer
from rich.console import Console

from headgate.cli.logs import log_to
from headgate.cli.pipeline_file import PipelineArgument, find_pipeline


def maintain(
    file: PipelineArgument = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Really delete orphan files; otherwise they are listed.")
    ] = False,
) -> None:
    """Upkeep of a pipeline's tables; safe while it runs.

    Expires snapshots beyond lake.keep_snapshots and lake.keep_snapshots_s (never the one with the ledger), and finds
    files that no snapshot refers to and that are older than lake.orphan_age_s: what killed consumers and refused
    announcements leave behind.
    """
    from headgate.config.loader import load_pipeline
    from headgate.lake.maintenance import expire_snapshots, sweep_orphans
    from headgate.lake.tables import REJECTED_SUFFIX, open_catalog

    pipeline = load_pipeline(find_pipeline(file, None))
    log_to(None)
    catalog = open_catalog(pipeline.lake)
    console = Console()
    for table in pipeline.tables:
        for name in (table.name, table.name + REJECTED_SUFFIX):
            expired = expire_snapshots(catalog, name, pipeline.lake)
            sweep = sweep_orphans(catalog, name, pipeline.lake, remove)
            done = "removed" if sweep.removed else "found"
            console.print(
                f"{name}: expired {expired} snapshots, {done} {len(sweep.orphans)} orphan files ({sweep.bytes:,} bytes)"
            )
            if not remove:
                for path in sweep.orphans:
                    console.print(f"  {path}", highlight=False)
