"""Keeping a process with many short-lived threads from holding on to memory that none of them uses any more."""

import ctypes
import os
import sys
from contextlib import suppress

_M_ARENA_MAX = -8
"""`mallopt`'s number for it."""
_ARENAS = 2
_ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"


def keep_memory_modest() -> None:
    """To be called before Arrow is first used. Who sets ARROW_DEFAULT_MEMORY_POOL has the last word on Arrow's part.

    glibc has heaps for threads, eight for each core, and Arrow's own allocator one for each thread; each keeps what was
    once needed there. A committer, whose threads all need much for a moment and little ever after, comes to hold a
    hundred megabytes more than one with two heaps that all share. Others would be slower with them, so processes that
    this one starts decide for themselves.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):  # no glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)
    if _ARROW_POOL in os.environ:
        return
    os.environ[_ARROW_POOL] = "system"
    try:
        import pyarrow as pa

        pa.default_memory_pool()  # looks at the environment once
    finally:
        del os.environ[_ARROW_POOL]
