"""The warehouse as consumers see it: folders to write into and the files Spark left there. No catalog needed."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow.fs as pafs
from pyiceberg.io.pyarrow import PyArrowFileIO

from headgate.config.pipeline import Lake
from headgate.lake.tables import table_location

log = logging.getLogger(__name__)


class Warehouse:
    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._io = PyArrowFileIO({**lake.catalog_properties})

    def data_folder(self, table: str, stem: str) -> str:
        return f"{table_location(self._lake, table)}/data/{stem}"

    def open(self, location: str) -> tuple[pafs.FileSystem, str, str]:
        """The file system, the path on it, and what to put before a path to make it a location again."""
        scheme, netloc, path = PyArrowFileIO.parse_location(location, {})
        filesystem = self._io.fs_by_scheme(scheme, netloc)
        prefix = location[: len(location) - len(path)] if location.endswith(path) else ""
        return filesystem, path, prefix

    def remove(self, files: tuple[str, ...]) -> None:
        """What cannot be removed is left to upkeep: nobody refers to it."""
        for location in files:
            filesystem, path, _ = self.open(location)
            with _left_to_upkeep(location):
                filesystem.delete_file(path)

    def remove_folder(self, location: str) -> None:
        filesystem, path, _ = self.open(location)
        with _left_to_upkeep(location):
            filesystem.delete_dir(path)


@contextmanager
def _left_to_upkeep(location: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        log.warning("%s is not removed, upkeep will: %s", location, error)
