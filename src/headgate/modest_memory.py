"""Keeping a process with many short-lived threads from holding on to memory that none of them uses any more."""

import ctypes
import os
import sys
import threading
import time
from contextlib import suppress

_M_ARENA_MAX = -8
"""`mallopt`'s number for it."""
_ARENAS = 2
_ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
_GIVE_BACK_EVERY_S = 60.0


def keep_memory_modest() -> None:
    """To be called before Arrow is first used. Who sets ARROW_DEFAULT_MEMORY_POOL has the last word on Arrow's part.

    glibc has heaps for threads, eight for each core, and Arrow's own allocator one for each thread; each keeps what was
    once needed there. A committer, whose threads all need much for a moment and little ever after, comes to hold a
    hundred megabytes more than one with two heaps that all share. Others would be slower with them, so processes that
    this one starts decide for themselves.

    Two heaps, too, keep what lies free between things in use, and by and by tens of megabytes do: those go back to the
    system every minute.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):  # no glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)
        threading.Thread(target=_keep_giving_back, name="memory", daemon=True).start()
    if _ARROW_POOL in os.environ:
        return
    os.environ[_ARROW_POOL] = "system"
    try:
        import pyarrow as pa

        pa.default_memory_pool()  # looks at the environment once
    finally:
        del os.environ[_ARROW_POOL]


def give_back_memory() -> None:
    """What glibc's heaps hold and nobody uses, also in their midst."""
    ctypes.CDLL(None).malloc_trim(0)


def _keep_giving_back() -> None:
    while True:
        time.sleep(_GIVE_BACK_EVERY_S)
        give_back_memory()
