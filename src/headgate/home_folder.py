"""What the system refuses in a pipeline's home, as one line that says what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.errors import SetupError


@contextmanager
def using(folder: Path) -> Iterator[None]:
    """That a folder cannot be made, read or written is this machine's lack and no bug."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise SetupError(f"cannot use the folder {folder}: {why}; mend that, or set `home` to another one") from error
