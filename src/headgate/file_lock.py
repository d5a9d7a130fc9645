"""One process at a time: a lock on a file, which the system releases when its holder dies, so that none goes stale."""

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from headgate.errors import SetupError

POLL_S = 0.05


@contextlib.contextmanager
def locked(path: Path, deadline_s: float, taken: str, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Holds the lock; SetupError with what `taken` says if another process has it until the deadline."""
    deadline = time.monotonic() + deadline_s
    try:
        lock = path.open("a")
    except OSError as error:
        raise SetupError(f"{path} cannot be written ({error.strerror}): choose a folder you can write to") from error
    with lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SetupError(taken) from None
                on_wait()
                time.sleep(POLL_S)
        yield
