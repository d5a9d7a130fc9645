"""Sweeping: deleting files below a table's location that the table does not use and that are old enough."""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.fs as pafs
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from headgate.config.pipeline import Lake
from headgate.config.table import REJECTED_SUFFIX
from headgate.errors import LakeError
from headgate.failpoints import reach
from headgate.lake.rejects import land_rejects, promised_rejects
from headgate.lake.tables import load_table

_FOLDERS = ("data", "metadata")
"""Other tables may have their places below this one's."""
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep found below a table's location."""

    orphans: tuple[str, ...]
    bytes: int
    removed: bool


@dataclass(frozen=True, slots=True)
class _Used:
    """Files that somebody still needs, by `_place`, with the paths they are referred to by."""

    paths: dict[str, str]
    live: frozenset[str]
    """Places of the current snapshot's data."""


def sweep_orphans(catalog: Catalog, name: str, lake: Lake, remove: bool) -> Sweep:
    """Files of the table that no snapshot refers to and that are older than `orphan_age_s`.

    Young files may belong to a cycle that is just being written or announced, so age is what makes this safe. Without
    the table nobody can say what is used: nothing is swept then.
    """
    table = load_table(catalog, name)
    if table is None:
        return Sweep((), 0, remove)
    if remove:
        land_rejects(catalog, lake, table)  # files that a snapshot promised are not orphans
    used = _used(catalog, name, table)
    scheme, netloc, path = PyArrowFileIO.parse_location(table.location(), {})
    filesystem = PyArrowFileIO({**catalog.properties}).fs_by_scheme(scheme, netloc)
    listed = list(_list(filesystem, path))
    _check_that_nothing_is_astray(table, used, {_place(info.path) for info in listed})
    unused = [i for i in listed if _place(i.path) not in used.paths and not _is_another_tables(i.path, path)]
    _check_that_it_is_alone(table, filesystem, (info.path for info in unused))
    limit = datetime.now(UTC) - timedelta(seconds=lake.orphan_age_s)
    orphans = [i for i in unused if i.mtime and i.mtime < limit]
    if remove:
        used = _used(catalog, name, load_table(catalog, name) or table)  # somebody may have committed meanwhile
        orphans = [info for info in orphans if _place(info.path) not in used.paths]
        for info in orphans:
            with suppress(FileNotFoundError):  # swept by another round of upkeep
                filesystem.delete_file(info.path)
                reach("sweep.deleted")
    return Sweep(tuple(sorted(i.path for i in orphans)), sum(i.size for i in orphans), remove)


def _place(path: str) -> str:
    """What is the same in every spelling of a path: a warehouse may be reached through links, mounts and schemes, and
    each writer's own spelling is what the table keeps."""
    parts = path.split("/")
    folder = max((number for number, part in enumerate(parts[:-1]) if part in _FOLDERS), default=0)
    return "/".join(parts[folder:])


def _is_another_tables(file: str, location: str) -> bool:
    """Whether it is in such a folder within one of ours: `lake.t.data` has its place in the data of `lake.t`."""
    folders = file.removeprefix(location).split("/")[:-1]
    return sum(folder in _FOLDERS for folder in folders) > 1


def _list(filesystem: pafs.FileSystem, location: str) -> Iterator[pafs.FileInfo]:
    for folder in _FOLDERS:
        selector = pafs.FileSelector(f"{location}/{folder}", recursive=True, allow_not_found=True)
        yield from (info for info in filesystem.get_file_info(selector) if info.type == pafs.FileType.File)


def _check_that_nothing_is_astray(table: Table, used: _Used, listed: Set[str]) -> None:
    """What is used and not in the listing may be in it under a name that we do not recognise.

    Only what is live must be there: the other files may have gone with their snapshots since the table was read.
    """
    unseen = used.paths.keys() - listed
    astray = sorted(used.paths[p] for p in unseen if p in used.live or table.io.new_input(used.paths[p]).exists())
    if astray:
        raise LakeError(
            f"nothing of {'.'.join(table.name())} is swept: {len(astray)} files that it uses are not found below "
            f"{table.location()}, where it is, such as {astray[0]}; so files in use cannot be told from others. Bring "
            f"back what was moved or lost; if they are elsewhere on purpose, sweep with the program that wrote them"
        )


def _check_that_it_is_alone(table: Table, filesystem: pafs.FileSystem, unused: Iterable[str]) -> None:
    """A table's place goes by its name. What had the name before may have been renamed, or dropped without its files,
    or another catalog may know it: its files look like orphans. Metadata without a snapshot is left by one of two that
    made the table at once."""
    for path in unused:
        other = _metadata(filesystem, path) if path.endswith(".metadata.json") else None
        if other is None or other.get("table-uuid") == str(table.metadata.table_uuid):
            continue
        if other.get("snapshots") or "table-uuid" not in other:
            raise LakeError(
                f"nothing of {'.'.join(table.name())} is swept: {table.location()}, where it is, also holds files of "
                f"an older table, as {path} says, and they cannot be told from orphans. If somebody still needs that "
                f"table, copy it to another place; then delete its metadata files, and the rest is swept"
            )


def _metadata(filesystem: pafs.FileSystem, path: str) -> dict[str, Any] | None:
    """None for what was half written by somebody who was killed, or deleted meanwhile. Whatever else it says, also what
    PyIceberg would not understand, somebody's table."""
    try:
        with filesystem.open_input_stream(path, compression=None) as stream:
            content = stream.read()
        found = json.loads(gzip.decompress(content) if content.startswith(_GZIP) else content)
        return found if isinstance(found, dict) else {}
    except (FileNotFoundError, ValueError, EOFError, zlib.error, gzip.BadGzipFile):
        return None


def _used(catalog: Catalog, name: str, table: Table) -> _Used:
    """Files that are referred to, and those that a main table's snapshot promised and nobody could land so far."""
    main = load_table(catalog, name.removesuffix(REJECTED_SUFFIX)) if name.endswith(REJECTED_SUFFIX) else None
    promised = [] if main is None else promised_rejects(main)
    referenced, live = _referenced(table)
    return _Used({_place(path): path for path in (*referenced, *promised)}, frozenset(map(_place, live)))


def _referenced(table: Table) -> tuple[set[str], set[str]]:
    """Every file that any snapshot still there can reach (data, manifests, manifest lists, metadata), and of these the
    data of the current one."""
    metadata, current = table.metadata, table.current_snapshot()
    paths = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    paths |= {s.statistics_path for s in (*metadata.statistics, *metadata.partition_statistics)}
    current_manifests = {m.manifest_path for m in (current.manifests(table.io) if current is not None else ())}
    live = set[str]()
    for snapshot in table.metadata.snapshots:
        paths.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in paths:
                continue
            paths.add(manifest.manifest_path)
            data = {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
            paths |= data
            live |= data if manifest.manifest_path in current_manifests else set()
    return paths, live
