"""Whether files can become part of a table, and whose fault it is if not: the files', or that of where they are kept.

Files that are gone or damaged are refused. A storage that does not answer says nothing about them, so they wait.
"""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.table.metadata import TableMetadata

from headgate.errors import LakeError

_MAGIC = b"PAR1"
_TAIL = 4 + len(_MAGIC)
"""A Parquet file ends with its footer, the footer's length, and this."""
_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, TypeError)
"""Nothing of this name, a folder (whose size is None), or a name that means nothing."""


def unreadable_files(io: FileIO, paths: Iterable[str]) -> dict[str, str]:
    """Which of these are gone or are no Parquet files, and why."""
    found = {}
    for path in paths:
        try:
            footer = _footer(io, path)
        except _NO_FILE as error:
            found[path] = str(error)
            continue
        except OSError as error:
            raise LakeError(f"cannot look at {path}: {error}; trying again") from error
        if (damage := _damage(footer)) is not None:
            found[path] = damage
    return found


def misfit(io: FileIO, table: TableMetadata, paths: Iterable[str]) -> str | None:
    """Why the first of these that does not fit cannot become part of the table."""
    paths = list(paths)
    for path, why in unreadable_files(io, paths).items():
        return f"{path}: {why}"
    for path in paths:
        try:
            parquet_file_to_data_file(io, table, path)
        except OSError as error:
            raise LakeError(f"cannot look at {path}: {error}; trying again") from error
        except Exception as error:  # noqa: BLE001 — whatever PyIceberg makes of them, it is about these files
            return f"{path}: {error}"
    return None


def _footer(io: FileIO, path: str) -> bytes:
    """With the tail, as it is in the file; what there is, of a file that is too short or no Parquet."""
    file = io.new_input(path)
    size = len(file)
    with file.open() as stream:
        stream.seek(max(0, size - _TAIL))
        tail = stream.read(_TAIL)
        if not tail.endswith(_MAGIC):
            return tail
        length = min(size - _TAIL, int.from_bytes(tail[:4], "little"))
        stream.seek(size - _TAIL - length)
        return stream.read(length + _TAIL)


def _damage(footer: bytes) -> str | None:
    try:
        pq.read_metadata(pa.BufferReader(footer))
    except (OSError, ValueError) as error:  # of bytes in memory, so it is what they say
        return str(error)
    return None
