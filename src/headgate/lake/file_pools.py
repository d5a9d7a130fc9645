"""A pool of threads for the files of one commit.

PyIceberg reads and writes files on one pool for the whole process. A storage that hangs for one table would take its
threads one by one, and then no table could be committed to; a table with thousands of files would keep all others
waiting; and Python waits for such a pool when the process ends, for ever.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

from pyiceberg.utils.concurrent import ExecutorFactory

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = 8
"""They mostly wait, for an object store."""


class FilePool(Executor):
    """Threads that are started as there is work for them, and that nobody waits for."""

    def __init__(self, most: int = _THREADS) -> None:
        self._most, self._threads, self._unfinished = most, 0, 0
        self._lock = threading.Lock()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    @property
    def is_idle(self) -> bool:
        return not self._unfinished

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()

        def run() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 — it is raised where the result is asked for
                self._finished()
                done.set_exception(error)
            else:
                self._finished()
                done.set_result(result)

        with self._lock:
            self._unfinished += 1
            is_new = self._threads < min(self._most, self._unfinished)
            self._threads += is_new
        self._work.put(run)
        if is_new:
            threading.Thread(target=self._serve, name="files", daemon=True).start()
        return done

    def _finished(self) -> None:
        """Before whoever waits for the result goes on, so that a pool without open results is idle."""
        with self._lock:
            self._unfinished -= 1

    def _serve(self) -> None:
        while (run := self._work.get()) is not None:
            run()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Threads end with what is there to do; nobody waits for them, whatever is asked."""
        for _ in range(self._threads):
            self._work.put(None)


_mine = threading.local()
_of_the_process = ExecutorFactory.get_or_create


def _get_or_create() -> Executor:
    pool: Executor | None = getattr(_mine, "pool", None)
    return pool or _of_the_process()


ExecutorFactory.get_or_create = staticmethod(_get_or_create)  # type: ignore[method-assign]


_idle: list[FilePool] = []
"""To be used again: threads that come and go cost memory that is not given back."""


@contextmanager
def own_pool() -> Iterator[None]:
    """For everything that this thread has PyIceberg do meanwhile."""
    try:
        pool = _idle.pop()
    except IndexError:
        pool = FilePool()
    _mine.pool = pool
    try:
        yield
    finally:
        _mine.pool = None
        if pool.is_idle:
            _idle.append(pool)
        else:
            pool.shutdown()  # something hangs in it
