"""Compaction: many small files of a table become few large ones, while others commit.

Small files are read back and written again as one, and one snapshot exchanges them: whoever reads sees each record
exactly once, before, while and after. The snapshot carries no ledger, so the one in force stays what it was. Files that
are only written or announced are not part of the table and are never looked at. A compaction that is killed leaves
files that nobody refers to, and a sweep finds them.

What was replaced stays readable for `lake.orphan_age_s`: a snapshot that still refers to it is tagged for that long, so
that queries that began before can finish.
"""

import logging
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, ParquetFormatWriter, schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import ManageSnapshots, _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT

from headgate.config.pipeline import Lake
from headgate.failpoints import reach
from headgate.lake.attempts import Attempt
from headgate.lake.tables import load_table
from headgate.lake.turns import ask_for_turn, end_turn

log = logging.getLogger(__name__)

REPLACED_TAG = "headgate-replaced-"
"""Followed by the time in milliseconds: tags of snapshots that keep replaced files readable."""

SMALL_SHARE = 0.25
"""A file below this share of `lake.target_file_bytes` is small."""
FEWEST_FILES = 5
"""Fewer small files than this are not worth a rewrite, unless they fill a large one."""

NOBODY_ELSE: AbstractContextManager[object] = nullcontext()
"""A turn that is always ours."""

_MOST_ATTEMPTS = 20
_ASKS_AT = (3, 12)
"""At these attempts a committer in another process, to which all before were lost, is asked to wait."""
_GROUPS_PER_COMMIT = 16
_BUFFER_BYTES = 64_000_000
"""How much is held in memory before it is written, as one row group."""


@dataclass(frozen=True, slots=True)
class Group:
    """Small files of one partition value that become one file."""

    tasks: tuple[FileScanTask, ...]

    @property
    def bytes(self) -> int:
        return sum(task.file.file_size_in_bytes for task in self.tasks)


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction found, or did."""

    files: int = 0
    """Small files that were (or would be) replaced."""
    bytes: int = 0
    into: int = 0
    """How many files they became (or would)."""

    def plus(self, groups: Sequence[Group]) -> "Compaction":
        return Compaction(
            self.files + sum(len(g.tasks) for g in groups),
            self.bytes + sum(g.bytes for g in groups),
            self.into + len(groups),
        )


@dataclass(frozen=True, slots=True)
class _Rewritten:
    group: Group
    file: DataFile


def plan_compaction(table: Table, target_bytes: int) -> list[Group]:
    """Which small files to join. Files that have deletes against them are left to whoever deletes."""
    by_partition: dict[str, list[FileScanTask]] = {}
    for task in table.scan().plan_files():
        small = task.file.file_size_in_bytes < SMALL_SHARE * target_bytes
        if small and not task.delete_files and task.file.spec_id == table.spec().spec_id:
            by_partition.setdefault(repr(task.file.partition), []).append(task)
    return [group for tasks in by_partition.values() for group in _grouped(tasks, target_bytes)]


def _grouped(tasks: Iterable[FileScanTask], target_bytes: int) -> Iterator[Group]:
    """In the order of their names, which is that of consumers and cycles, so that neighbours stay neighbours."""
    group: list[FileScanTask] = []
    size = 0
    for task in sorted(tasks, key=lambda task: task.file.file_path):
        group.append(task)
        size += task.file.file_size_in_bytes
        if size >= target_bytes:
            yield Group(tuple(group))
            group, size = [], 0
    if len(group) >= FEWEST_FILES:
        yield Group(tuple(group))


def compact(
    catalog: Catalog,
    name: str,
    lake: Lake,
    turn: AbstractContextManager[object] = NOBODY_ELSE,
    progress: Callable[[Compaction, Compaction], None] = lambda done, planned: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Compaction:
    """Joins a table's small files; what is done is committed in between, so that a kill costs little.

    `turn` is held while committing. A commit here reads all manifests, so beside a busy committer it would mostly lose;
    one in another process is asked to wait.
    """
    table = load_table(catalog, name)
    groups = [] if table is None else plan_compaction(table, lake.target_file_bytes)
    planned, done = Compaction().plus(groups), Compaction()
    waiting: list[_Rewritten] = []
    for number, group in enumerate(groups, 1):
        if table is None or is_stopped():
            break
        waiting.append(_Rewritten(group, _rewrite(table, group)))
        pa.default_memory_pool().release_unused()  # or Arrow keeps the rows' memory, several times the committer's own
        reach("compact.written")
        if number % _GROUPS_PER_COMMIT == 0 or number == len(groups):
            done = done.plus(_exchange(catalog, name, lake, waiting, turn))
            waiting = []
            reach("compact.committed")
        progress(done, planned)
    return done


def _rewrite(table: Table, group: Group) -> DataFile:
    """One new file with the rows of all; as the table's schema is now, with its field ids."""
    path = f"{table.location()}/data/compacted-{uuid.uuid4().hex}.parquet"
    output = table.io.new_output(path)
    schema = schema_to_pyarrow(table.schema(), include_field_ids=True)
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    writer = ParquetFormatWriter(output, table.schema(), table.properties)
    with writer:
        held: list[pa.Table] = []
        for task in group.tasks:  # one by one: the scan would read all of them at once
            held += [pa.Table.from_batches([batch]).cast(schema) for batch in scan.to_record_batches([task])]
            if sum(rows.nbytes for rows in held) >= _BUFFER_BYTES:
                writer.write(pa.concat_tables(held))
                held = []
        writer.write(pa.concat_tables(held) if held else schema.empty_table())
    written = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=group.tasks[0].file.partition,
        file_size_in_bytes=len(output),
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **writer.result().to_serialized_dict(),
    )
    before = sum(task.file.record_count for task in group.tasks)
    if written.record_count != before:
        raise AssertionError(f"{name_of(table)}: {written.record_count} rows written of {before}; nothing was replaced")
    return written


def _exchange(
    catalog: Catalog,
    name: str,
    lake: Lake,
    rewritten: Sequence[_Rewritten],
    turn: AbstractContextManager[object] = NOBODY_ELSE,
) -> list[Group]:
    """Commits what is still as it was read; the rest is left for the next time. Returns what was replaced."""
    left = list(rewritten)
    for attempt in range(_MOST_ATTEMPTS):
        if turn is NOBODY_ELSE and attempt in _ASKS_AT:
            ask_for_turn(catalog, name)
        try:
            with turn:
                table = load_table(catalog, name)
                if table is None or not left:
                    return []
                _attempt(table, lake, left)
            return [one.group for one in left]
        except CommitFailedException as error:
            log.info("compaction of %s met another commit, trying again: %s", name, error)
        except (CommitStateUnknownException, ValidationException) as error:
            log.info("compaction of %s: %s", name, error)
            table = catalog.load_table(name)
            live = {task.file.file_path: task for task in table.scan().plan_files()}
            if left[0].file.file_path in live:
                return [one.group for one in left]
            left = [one for one in left if all(_is_untouched(task, live) for task in one.group.tasks)]
        time.sleep(random.uniform(0, min(1.0, 0.05 * 2**attempt)))
    log.warning("compaction of %s met another commit %d times in a row; left for the next time", name, _MOST_ATTEMPTS)
    return []


def _is_untouched(task: FileScanTask, live: dict[str, FileScanTask]) -> bool:
    found = live.get(task.file.file_path)
    return found is not None and not found.delete_files


def _attempt(table: Table, lake: Lake, rewritten: Sequence[_Rewritten]) -> None:
    if _has_deletes(table):  # deletes may have come since the files were read; rows must not come back
        live = {task.file.file_path: task for task in table.scan().plan_files()}
        if not all(_is_untouched(task, live) for one in rewritten for task in one.group.tasks):
            raise ValidationException("files were deleted, or rows in them, since they were read")
    transaction = Attempt(table)
    with transaction.update_snapshot().fast_append():
        pass  # a snapshot of its own to tag: without a ledger, it weighs little
    pinned = transaction.table_metadata.current_snapshot()
    if pinned is not None:
        tag, age_ms = f"{REPLACED_TAG}{pinned.timestamp_ms}", int(1000 * lake.orphan_age_s)
        ManageSnapshots(transaction).create_tag(pinned.snapshot_id, tag, max_ref_age_ms=age_ms).commit()
    with _Replace(Operation.OVERWRITE, transaction, table.io) as replace:
        for one in rewritten:
            replace.append_data_file(one.file)
            for task in one.group.tasks:
                replace.delete_data_file(task.file)
    end_turn(transaction)
    transaction.commit_transaction()


def _has_deletes(table: Table) -> bool:
    current = table.current_snapshot()
    totals = current.summary.additional_properties if current is not None and current.summary is not None else {}
    return totals.get("total-delete-files", "unknown") != "0"


class _Replace(_OverwriteFiles):
    """PyIceberg can exchange files and calls it an overwrite. No row changes here, and incremental readers skip what
    is called a replacement."""

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        overwrite = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **overwrite.additional_properties)


def name_of(table: Table) -> str:
    return ".".join(table.name())
