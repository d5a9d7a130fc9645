"""Log files with a bound: what a pipeline says in years fits on its disk, and the newest of it is kept."""

import logging
import os
import shutil
from contextlib import suppress
from logging.handlers import WatchedFileHandler
from pathlib import Path

from headgate.errors import SetupError
from headgate.file_lock import locked

log = logging.getLogger(__name__)

LARGEST_BYTES = 20_000_000
KEPT = 3
"""Older files beside the one that is written: name.1 is the newest of them."""
JVM_ERRORS = "spark-stderr.log"
"""What a JVM says beside its log, and what transforms print in Spark's Python workers."""
_LOCK_WAIT_S = 1.0


class BoundedLog(WatchedFileHandler):
    """Several processes may write to one file: who finds it full renames it, and the others open the new one."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            turn_over(Path(self.baseFilename))
        except (OSError, SetupError):  # a log that grows too large is better than none
            self.handleError(record)
        super().emit(record)


def turn_over(file: Path) -> None:
    """Renames a file that is full, once, however many processes see it."""
    if not _is_full(file):
        return
    with locked(file.with_name(f"{file.name}.lock"), _LOCK_WAIT_S, f"{file} cannot be renamed by two at once"):
        if _is_full(file):
            file.replace(_shifted(file))


def empty(file: Path) -> None:
    """The same for a file that others hold open without knowing: they must be appending to it. Its content is copied;
    lines that come in that moment are lost. What cannot be shortened grows on, and that is said."""
    try:
        if _is_full(file):
            shutil.copyfile(file, _shifted(file))
            os.truncate(file, 0)
    except OSError as error:
        log.warning("%s cannot be shortened: %s", file, error)


def _is_full(file: Path) -> bool:
    with suppress(FileNotFoundError):
        return file.stat().st_size >= LARGEST_BYTES
    return False


def _shifted(file: Path) -> Path:
    """Makes room for one more older file, and says where."""
    older = [file.with_name(f"{file.name}.{n}") for n in range(1, KEPT + 1)]
    for newer, next_older in zip(older[-2::-1], older[:0:-1], strict=True):
        with suppress(FileNotFoundError):
            newer.replace(next_older)
    return older[0]
