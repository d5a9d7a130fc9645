"""Work that is done beside other work and may hang without keeping anybody, not even the process from ending."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

from headgate.lake.file_pools import own_pool

P = ParamSpec("P")
T = TypeVar("T")

_LONG_S = 5.0
"""Work that takes longer than this is taken to wait for something, and its place is given to another."""


class Beside:
    """So many at once, each with a pool of its own for files. Python waits for the threads of its own pools when a
    process ends; these it leaves."""

    def __init__(self, most: int, name: str, long_s: float = _LONG_S) -> None:
        self._most, self._name, self._long_s = most, name, long_s
        self._began_s: dict[int, float] = {}
        """Of work that has a place, by its number."""
        self._changed = threading.Condition()
        self._number = 0

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()

        def run() -> None:
            number = self._take_place()
            try:
                with own_pool():
                    done.set_result(work(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 — it is raised where the result is asked for
                done.set_exception(error)
            finally:
                self._give_back(number)

        threading.Thread(target=run, name=self._name, daemon=True).start()
        return done

    def _take_place(self) -> int:
        with self._changed:
            while (first_s := self._first_to_be_long_s()) is not None:
                self._changed.wait(max(0.0, first_s - time.monotonic()))
            self._number += 1
            self._began_s[self._number] = time.monotonic()
            return self._number

    def _first_to_be_long_s(self) -> float | None:
        """When a place becomes free at the latest; None if there is one."""
        long = [began_s + self._long_s for began_s in self._began_s.values()]
        at_work = [until_s for until_s in long if until_s > time.monotonic()]
        return None if len(at_work) < self._most else min(at_work)

    def _give_back(self, number: int) -> None:
        with self._changed:
            del self._began_s[number]
            self._changed.notify_all()
