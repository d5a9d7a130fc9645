"""Work that is done beside other work and may hang without keeping anybody, not even the process from ending."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Beside:
    """So many at once. Python waits for the threads of its own pools when a process ends; these it leaves."""

    def __init__(self, most: int, name: str) -> None:
        self._places = threading.Semaphore(most)
        self._name = name

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()

        def run() -> None:
            with self._places:
                try:
                    done.set_result(work(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001 — it is raised where the result is asked for
                    done.set_exception(error)

        threading.Thread(target=run, name=self._name, daemon=True).start()
        return done
