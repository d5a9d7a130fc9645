"""Files below the tables that no table uses: what upkeep has to take away, looked for without its code."""

from collections.abc import Iterable
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headgate.config.table import REJECTED_SUFFIX, SKIPPED_SUFFIX
from headgate.lake.tables import load_table


def unused_files(catalog: Catalog, tables: Iterable[str]) -> list[str]:
    """Below the places of these tables, and of what they rejected and skipped."""
    names = [table + suffix for table in tables for suffix in ("", REJECTED_SUFFIX, SKIPPED_SUFFIX)]
    return [file for name in names if (table := load_table(catalog, name)) is not None for file in _unused(table)]


def _unused(table: Table) -> Iterable[str]:
    used = {_plain(path) for path in _used(table)}
    files = (file for folder in ("data", "metadata") for file in (_plain(table.location()) / folder).rglob("*"))
    return sorted(str(file) for file in files if file.is_file() and file not in used)


def _used(table: Table) -> Iterable[str]:
    yield table.metadata_location
    yield from (entry.metadata_file for entry in table.metadata.metadata_log)
    for snapshot in table.metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path
            yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io))


def _plain(path: str) -> Path:
    return Path(path.removeprefix("file://")).resolve()
