"""Where log lines go, a file, the terminal, or both; and what they look like: text for people or JSON for programs."""

import json
import logging
import os
import time
from datetime import UTC, datetime
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from headgate.home_folder import using
from headgate.log_files import BoundedLog

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_ENVIRONMENT = "HEADGATE_LOG_FORMAT"
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; anything else was given as `extra`."""
_MOST_KINDS = 1_000


class LogFormat(StrEnum):
    text = "text"
    json = "json"


LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        envvar=_ENVIRONMENT,
        help="text for people; json: one object a line, in the log files and on standard error.",
    ),
]


class JsonLines(logging.Formatter):
    """One object a line: time (UTC), level, logger, message, and whatever fields the line came with."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class Troubles(logging.StreamHandler[TextIO]):
    """Headgate's warnings, for whoever watches the terminal: one line each, and the same kind again after a while only.
    All of them are in the log."""

    def __init__(self, every_s: float = 300.0) -> None:
        super().__init__()
        self.setLevel(logging.WARNING)
        self._every_s = every_s
        self._told: dict[tuple[str, str], tuple[float, int]] = {}
        """When each kind was told last, and how many were left out since."""

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("headgate."):
            return
        kind, now_s = (record.name, str(record.msg)), time.monotonic()
        told_s, left_out = self._told.get(kind, (-inf, 0))
        if now_s - told_s < self._every_s:
            self._told[kind] = told_s, left_out + 1
            return
        if len(self._told) >= _MOST_KINDS:
            self._told.clear()
        self._told[kind] = now_s, 0
        super().emit(_one_line(record, f" ({left_out} more like this)" if left_out else ""))


def _one_line(record: logging.LogRecord, addition: str) -> logging.LogRecord:
    text = (record.getMessage().splitlines() or [""])[0] + addition
    return logging.makeLogRecord({**vars(record), "msg": text, "args": (), "exc_info": None, "exc_text": None})


def log_to(
    file: Path | None,
    verbose: bool = False,
    terminal: bool = False,
    log_format: LogFormat = LogFormat.text,
    troubles: bool = False,
) -> None:
    """Headgate's own lines at INFO (DEBUG when verbose), libraries' at WARNING; consumers started from here alike.

    `troubles`: warnings come to the terminal, too, where not everything does.
    """
    handlers: list[logging.Handler] = [logging.NullHandler()]  # without any, Python prints warnings itself
    if file is not None:
        with using(file.parent):
            file.parent.mkdir(parents=True, exist_ok=True)
            handlers.append(BoundedLog(file))
    if terminal or (log_format is LogFormat.json and file is not None):
        handlers.append(logging.StreamHandler())
    elif troubles:
        handlers.append(Troubles())
    formatter = JsonLines() if log_format is LogFormat.json else logging.Formatter(_FORMAT)
    for handler in handlers:
        handler.setFormatter(formatter)
    logging.basicConfig(level=logging.WARNING, handlers=handlers, force=True)
    logging.getLogger("headgate").setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    logging.raiseExceptions = False  # a full disk must not cost a traceback on the terminal for every line
    os.environ[_ENVIRONMENT] = log_format


def writes_json() -> bool:
    """Whether whoever reads the log expects JSON only."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)
