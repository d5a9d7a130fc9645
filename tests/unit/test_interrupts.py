"""Ctrl-C, once and twice."""

import os
import signal
import subprocess
import sys

import pytest

from headgate.cli.interrupts import Interrupts


def fail() -> None:
    raise AssertionError("it ended at once")


def test_the_first_ctrl_c_asks_and_the_handlers_from_before_come_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interrupts(fail) as interrupts:
        assert not interrupts.stop.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.stop.is_set()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_the_first_is_raised_in_what_cannot_look_at_it() -> None:
    with Interrupts(fail) as interrupts:
        with pytest.raises(KeyboardInterrupt), interrupts.raised():
            os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.stop.is_set()
        with pytest.raises(KeyboardInterrupt), interrupts.raised():
            fail()  # it has been asked to stop and is not begun


def test_the_second_ends_the_program_at_once_whatever_it_waits_for() -> None:
    program = """
import os, signal, threading
from headgate.cli.interrupts import Interrupts
threading.Thread(target=threading.Event().wait).start()  # which an ordinary end would wait for
with Interrupts(lambda: print("left", flush=True)):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        print("not reached", flush=True)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "left\n", "")
