"""Writing a batch: Arrow batches in, Parquet files out, inside Spark's Python workers.

Spark's own writer costs a cycle more than its records do: it makes and renames folders, lists them, and on a local disk
starts a `chmod` for each. Here a task writes its files where they stay and says what it wrote. A file that nobody
announces is an orphan, so nothing needs renaming.

Spark ships this module to the workers as it stands (they need pyarrow, not Headgate): it must not import from Headgate.
"""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark import TaskContext

ROW_GROUP_BYTES = 64_000_000
"""Of Arrow memory; more than that is written before the rest of the batch is read."""
WRITTEN = "path STRING, rows BIGINT, timestamps_ms ARRAY<BIGINT>"

Batches = Iterable[pa.RecordBatch]


def writer(
    filesystem: pafs.FileSystem, folder: str, by: tuple[str, ...], timestamp: str, points: int
) -> Callable[[Batches], Batches]:
    """For `mapInArrow`: writes to `folder`, one value of the columns `by` per file, and yields a row per file.

    The columns `by` are for splitting only and do not get into the files. Of `timestamp`, so many
    evenly spaced quantiles are told.
    """

    def write(batches: Batches) -> Batches:
        context = TaskContext.get()
        name = f"{folder}/{context.partitionId() if context else 0:05d}-{context.taskAttemptId() if context else 0}"
        files = _split_files(filesystem, name, by, batches) if by else _one_file(filesystem, name, batches)
        for path, part in files:
            yield pa.RecordBatch.from_pylist(
                [{"path": path, "rows": part.num_rows, "timestamps_ms": _quantiles_ms(part[timestamp], points)}],
                pa.schema([("path", pa.string()), ("rows", pa.int64()), ("timestamps_ms", pa.list_(pa.int64()))]),
            )

    return write


def _one_file(filesystem: pafs.FileSystem, name: str, batches: Batches) -> Iterator[tuple[str, pa.Table]]:
    """One row group after the other; each is told of as a part of the same file."""
    path, out = f"{name}.parquet", None
    for chunk in _chunks(batches):
        if out is None:
            out = _open(filesystem, path, chunk.schema)
        out.write_table(chunk, row_group_size=chunk.num_rows)
        yield path, chunk
    if out is not None:
        out.close()


def _split_files(
    filesystem: pafs.FileSystem, name: str, by: tuple[str, ...], batches: Batches
) -> Iterator[tuple[str, pa.Table]]:
    count = 0
    for chunk in _chunks(batches):
        ordered = chunk.take(pc.sort_indices(chunk, sort_keys=[(column, "ascending") for column in by]))
        for start, end in _runs(ordered.select(by)):
            part = ordered.slice(start, end - start).drop_columns(list(by))
            path = f"{name}-{count:05d}.parquet"
            with _open(filesystem, path, part.schema) as out:
                out.write_table(part)
            count += 1
            yield path, part


def _runs(keys: pa.Table) -> Iterator[tuple[int, int]]:
    """Where equal rows of a sorted table begin and end."""
    changes = None
    for column in keys.combine_chunks().columns:
        values = column.chunk(0) if column.num_chunks else pa.array([], column.type)
        differs = pc.not_equal(values[1:], values[:-1])
        changes = differs if changes is None else pc.or_(changes, differs)
    inner = [] if changes is None else (i + 1 for i in pc.indices_nonzero(changes).to_pylist())
    start = 0
    for end in (*inner, keys.num_rows):
        yield start, end
        start = end


def _chunks(batches: Batches) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _open(filesystem: pafs.FileSystem, path: str, schema: pa.Schema) -> pq.ParquetWriter:
    if isinstance(filesystem, pafs.LocalFileSystem):  # others have no folders, or make them by themselves
        filesystem.create_dir(path.rpartition("/")[0])
    return pq.ParquetWriter(path, schema, filesystem=filesystem, compression="zstd", store_schema=False)


def _quantiles_ms(timestamps: pa.ChunkedArray, points: int) -> list[int]:
    known = pc.drop_null(timestamps.cast(pa.int64()))
    if not len(known):
        return []
    places = [i / (points - 1) for i in range(points)]
    return [int(us) // 1000 for us in pc.quantile(known, places, interpolation="nearest").to_pylist()]
