import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyiceberg.utils.concurrent import ExecutorFactory

from headgate.lake.beside import Beside

_HANGS = """
import threading
from headgate.lake.beside import Beside
from pyiceberg.utils.concurrent import ExecutorFactory

hung = threading.Event()

def hang():
    hung.set()
    threading.Event().wait()

Beside(1, "hangs").submit(lambda: ExecutorFactory.get_or_create().submit(hang).result())
hung.wait()
print("the end")
"""


def test_what_hangs_takes_one_place_and_the_others_go_on() -> None:
    beside, free = Beside(2, "test"), threading.Event()
    hanging = beside.submit(free.wait, 60)
    assert [beside.submit(sum, (n, 1)).result(30) for n in range(3)] == [1, 2, 3]
    assert not hanging.done()
    free.set()
    assert hanging.result(30)


def test_what_hangs_in_all_places_is_passed_by_after_a_while() -> None:
    beside, free = Beside(2, "test", long_s=0.2), threading.Event()
    hanging = [beside.submit(free.wait, 60) for _ in range(5)]
    assert beside.submit(sum, (1, 1)).result(30) == 2
    assert not any(one.done() for one in hanging)
    free.set()
    assert all(one.result(30) for one in hanging)


def test_no_more_than_so_many_work_at_once() -> None:
    beside, lock, at_work, most = Beside(3, "test"), threading.Lock(), [0], [0]

    def work() -> None:
        with lock:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
        threading.Event().wait(0.01)
        with lock:
            at_work[0] -= 1

    for one in [beside.submit(work) for _ in range(20)]:
        one.result(30)
    assert most[0] == 3


def test_files_that_hang_for_one_table_hold_up_no_other() -> None:
    """PyIceberg reads and writes them on a pool, which is one for the whole process where nobody cares."""
    beside, free, begun = Beside(4, "test"), threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        begun.release()
        free.wait(60)

    def many_files() -> int:
        return sum(1 for _ in ExecutorFactory.get_or_create().map(lambda _: hang(), range(100)))

    hanging = beside.submit(many_files)
    assert begun.acquire(timeout=30)
    doubled = beside.submit(lambda: list(ExecutorFactory.get_or_create().map(lambda n: 2 * n, range(5))))
    assert doubled.result(30) == [0, 2, 4, 6, 8]
    assert not hanging.done()
    free.set()
    assert hanging.result(30) == 100
    assert isinstance(ExecutorFactory.get_or_create(), ThreadPoolExecutor), "elsewhere all is as it was"


def test_a_pool_is_used_again_unless_something_hangs_in_it() -> None:
    beside, free = Beside(1, "test"), threading.Event()

    def pool(work: Callable[..., object], *args: object) -> int:
        """Which one; does not wait for the work."""
        executor = ExecutorFactory.get_or_create()
        executor.submit(work, *args)
        return id(executor)

    def pool_in_the_end(work: Callable[..., object], *args: object) -> int:
        executor = ExecutorFactory.get_or_create()
        executor.submit(work, *args).result(30)
        return id(executor)

    first = beside.submit(pool_in_the_end, sum, ()).result(30)
    assert beside.submit(pool_in_the_end, sum, ()).result(30) == first
    assert beside.submit(pool, free.wait, 60).result(30) == first
    assert beside.submit(pool_in_the_end, sum, ()).result(30) != first
    free.set()


def test_an_error_with_a_file_is_raised_where_its_result_is_asked_for() -> None:
    work = Beside(1, "test").submit(lambda: ExecutorFactory.get_or_create().submit(divmod, 1, 0).result())
    with pytest.raises(ZeroDivisionError):
        work.result(30)


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    with pytest.raises(ZeroDivisionError):
        Beside(1, "test").submit(divmod, 1, 0).result(30)


def test_a_process_ends_though_work_hangs() -> None:
    ended = subprocess.run([sys.executable, "-c", _HANGS], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "the end\n"
