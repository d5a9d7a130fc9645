import subprocess
import sys
import threading

import pytest

from headgate.lake.beside import Beside

_HANGS = """
import threading
from headgate.lake.beside import Beside
Beside(1, "hangs").submit(threading.Event().wait)
print("the end")
"""


def test_what_hangs_takes_one_place_and_the_others_go_on() -> None:
    beside, free = Beside(2, "test"), threading.Event()
    hanging = beside.submit(free.wait, 60)
    assert [beside.submit(sum, (n, 1)).result(30) for n in range(3)] == [1, 2, 3]
    assert not hanging.done()
    free.set()
    assert hanging.result(30)


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    with pytest.raises(ZeroDivisionError):
        Beside(1, "test").submit(divmod, 1, 0).result(30)


def test_a_process_ends_though_work_hangs() -> None:
    ended = subprocess.run([sys.executable, "-c", _HANGS], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "the end\n"
