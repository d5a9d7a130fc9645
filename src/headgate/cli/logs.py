"""Where log lines go: a file, the terminal, or both."""

import logging
from pathlib import Path

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_to(file: Path | None, verbose: bool = False, terminal: bool = False) -> None:
    """Headgate's own lines at INFO (DEBUG when verbose), libraries' at WARNING."""
    handlers: list[logging.Handler] = [logging.NullHandler()]  # without any, Python prints warnings itself
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(file))
    if terminal:
        handlers.append(logging.StreamHandler())
    logging.basicConfig(level=logging.WARNING, format=_FORMAT, handlers=handlers, force=True)
    logging.getLogger("headgate").setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.getLogger("py4j").setLevel(logging.ERROR)
