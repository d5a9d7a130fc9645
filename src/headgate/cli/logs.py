"""Where log lines go, a file, the terminal, or both; and what they look like: text for people or JSON for programs."""

import json
import logging
import os
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.log_files import BoundedLog

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_ENVIRONMENT = "HEADGATE_LOG_FORMAT"
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; anything else was given as `extra`."""


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


def log_to(
    file: Path | None, verbose: bool = False, terminal: bool = False, log_format: LogFormat = LogFormat.text
) -> None:
    """Headgate's own lines at INFO (DEBUG when verbose), libraries' at WARNING; consumers started from here alike."""
    handlers: list[logging.Handler] = [logging.NullHandler()]  # without any, Python prints warnings itself
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(BoundedLog(file))
    if terminal or (log_format is LogFormat.json and file is not None):
        handlers.append(logging.StreamHandler())
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
