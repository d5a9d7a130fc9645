"""One contract for every fleet, with real threads and real processes that do nothing but live and end."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import psutil
import pytest

from headgate import log_files
from headgate.errors import ConfigError, FleetError
from headgate.fleet import Fleet
from headgate.fleet.processes import ProcessFleet
from headgate.fleet.threads import ThreadFleet
from tests.eventually import eventually

SCRIPT = """
import pathlib, signal, subprocess, sys, time
folder = pathlib.Path(sys.argv[1])
if (folder / "ends-at-once").exists():
    sys.exit(3)
if (folder / "fails").exists():
    print("about to fail\\nheadgate: no such column", flush=True)
    sys.exit(2)
deaf = (folder / "deaf").exists()
if (folder / "with-child").exists():
    detached = (folder / "detached-child").exists()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=detached)
    (folder / "child").write_text(str(child.pid))
def ask(*_):
    if not deaf:
        with (folder / "drained").open("a") as drained:
            drained.write(sys.argv[2] + "\\n")
        sys.exit(0)
signal.signal(signal.SIGTERM, ask)
with (folder / "lives").open("a") as lives:
    lives.write(sys.argv[2] + "\\n")
print("consumer", sys.argv[2], "is up", flush=True)
while not (folder / f"die-{sys.argv[2]}").exists():
    time.sleep(0.01)
sys.exit(1)
"""


class Yard(Protocol):
    """A fleet with a way to see and disturb the consumers it runs."""

    folder: Path

    def fleet(self) -> Fleet: ...


class _File:
    """The test's consumer for threads: the same files as SCRIPT."""

    def __init__(self, folder: Path, consumer_id: int) -> None:
        self._folder, self._id = folder, consumer_id

    def run(self, stop: threading.Event, kill: threading.Event) -> None:
        if (self._folder / "ends-at-once").exists():
            raise RuntimeError("ends at once")
        if (self._folder / "fails").exists():
            raise ConfigError("no such column")
        deaf = (self._folder / "deaf").exists()
        with (self._folder / "lives").open("a") as lives:
            lives.write(f"{self._id}\n")
        while not kill.wait(0.01):
            if stop.is_set() and not deaf:
                with (self._folder / "drained").open("a") as drained:
                    drained.write(f"{self._id}\n")
                return
            if (self._folder / f"die-{self._id}").exists():
                raise RuntimeError("died")


class ThreadYard:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fleet(self) -> Fleet:
        return ThreadFleet(lambda consumer_id: _File(self.folder, consumer_id), stop_deadline_s=1)


class ProcessYard:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"

    def fleet(self) -> Fleet:
        script = self.folder / "consumer.py"
        script.write_text(SCRIPT)
        return ProcessFleet(
            lambda n: [sys.executable, str(script), str(self.folder), str(n)], self.home, stop_deadline_s=1
        )


@pytest.fixture(params=[ThreadYard, ProcessYard], ids=["threads", "processes"])
def yard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Yard]:
    made: Yard = request.param(tmp_path)
    yield made
    if isinstance(made, ProcessYard):
        made.fleet().close(force=True)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[ProcessYard]:
    made = ProcessYard(tmp_path)
    yield made
    made.fleet().close(force=True)


def lives(yard: Yard, consumer_id: int) -> int:
    """How often this consumer came up."""
    file = yard.folder / "lives"
    return file.read_text().splitlines().count(str(consumer_id)) if file.exists() else 0


def drained(yard: Yard, consumer_id: int) -> int:
    file = yard.folder / "drained"
    return file.read_text().splitlines().count(str(consumer_id)) if file.exists() else 0


def test_consumers_run_from_start_to_stop(yard: Yard) -> None:
    fleet = yard.fleet()
    assert fleet.running() == frozenset()
    fleet.start(1)
    fleet.start(3)
    assert fleet.running() == {1, 3}
    eventually(lambda: lives(yard, 1) == 1 and lives(yard, 3) == 1, "the fleet is as it should be")
    fleet.stop(3)
    assert fleet.running() == {1}
    eventually(lambda: drained(yard, 3) == 1, "the fleet is as it should be")
    assert drained(yard, 1) == 0
    fleet.close()
    assert fleet.running() == frozenset()
    assert drained(yard, 1) == 1


def test_starting_a_running_consumer_changes_nothing(yard: Yard) -> None:
    fleet = yard.fleet()
    fleet.start(1)
    eventually(lambda: lives(yard, 1) == 1, "the fleet is as it should be")
    fleet.start(1)
    fleet.close()
    assert lives(yard, 1) == 1


def test_force_ends_a_consumer_without_draining(yard: Yard) -> None:
    fleet = yard.fleet()
    fleet.start(1)
    eventually(lambda: lives(yard, 1) == 1, "the fleet is as it should be")
    fleet.stop(1, force=True)
    assert fleet.running() == frozenset()
    assert drained(yard, 1) == 0


def test_a_consumer_that_ignores_stop_is_ended_after_the_deadline(yard: Yard) -> None:
    (yard.folder / "deaf").touch()
    fleet = yard.fleet()
    fleet.start(1)
    eventually(lambda: lives(yard, 1) == 1, "the fleet is as it should be")
    fleet.stop(1)
    assert fleet.running() == frozenset()
    (yard.folder / "deaf").unlink()
    fleet.close()
    fleet.start(1)
    eventually(lambda: lives(yard, 1) == 2, "the fleet is as it should be")
    assert drained(yard, 1) == 0


def test_an_id_can_be_started_again(yard: Yard) -> None:
    fleet = yard.fleet()
    for life in (1, 2):
        fleet.start(1)
        eventually(lambda life=life: lives(yard, 1) == life, "the fleet is as it should be")  # type: ignore[misc]
        fleet.stop(1, force=True)
    fleet.start(1)
    eventually(lambda: lives(yard, 1) == 3, "the fleet is as it should be")
    fleet.stop(1)
    fleet.start(1)  # while the last life may still be stopping
    eventually(lambda: lives(yard, 1) == 4, "the fleet is as it should be")
    assert fleet.running() == {1}
    fleet.close()


def test_a_consumer_that_dies_by_itself_disappears(yard: Yard) -> None:
    fleet = yard.fleet()
    fleet.start(1)
    fleet.start(2)
    eventually(lambda: lives(yard, 1) == 1 and lives(yard, 2) == 1, "the fleet is as it should be")
    (yard.folder / "die-1").touch()
    eventually(lambda: fleet.running() == {2}, "the fleet is as it should be")
    fleet.close()


def test_a_consumer_that_ends_at_once_disappears(yard: Yard) -> None:
    (yard.folder / "ends-at-once").touch()
    fleet = yard.fleet()
    fleet.start(1)
    eventually(lambda: fleet.running() == frozenset(), "the fleet is as it should be")


def test_why_a_consumer_failed_is_known_until_its_next_life(yard: Yard) -> None:
    fleet = yard.fleet()
    assert fleet.last_words(1) == ""
    (yard.folder / "fails").touch()
    fleet.start(1)
    eventually(lambda: fleet.running() == frozenset(), "it is gone")
    assert fleet.last_words(1) == "no such column"
    fleet.stop(1, force=True)
    assert fleet.last_words(1) == "no such column"
    (yard.folder / "fails").unlink()
    fleet.start(1)
    assert fleet.last_words(1) == ""
    eventually(lambda: lives(yard, 1) == 1, "it lives")
    fleet.close(force=True)
    assert fleet.last_words(1) == ""


def test_words_are_found_in_a_log_of_json_too(processes: ProcessYard) -> None:
    fleet = processes.fleet()
    (processes.folder / "ends-at-once").touch()
    fleet.start(1)
    eventually(lambda: fleet.running() == frozenset(), "it is gone")
    assert fleet.last_words(1) == ""
    with (processes.home / "consumers" / "1" / "log.txt").open("a") as log:
        log.write('{"level": "error", "logger": "headgate.cli", "message": "no such table"}\n[1]\n')
    assert fleet.last_words(1) == "no such table"


def test_stopping_what_does_not_run_is_fine(yard: Yard) -> None:
    fleet = yard.fleet()
    fleet.stop(7)
    fleet.stop(7, force=True)
    fleet.close()


def pid_of(processes: ProcessYard, consumer_id: int) -> int:
    identity = json.loads((processes.home / "consumers" / str(consumer_id) / "pid.json").read_text())
    assert isinstance(identity["pid"], int)
    return identity["pid"]


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_new_fleet_on_the_same_home_adopts_the_survivors(processes: ProcessYard) -> None:
    first = processes.fleet()
    first.start(1)
    first.start(2)
    eventually(lambda: lives(processes, 1) == 1 and lives(processes, 2) == 1, "the fleet is as it should be")
    second = processes.fleet()
    assert second.running() == {1, 2}
    second.start(1)
    os.kill(pid_of(processes, 2), signal.SIGKILL)
    eventually(lambda: second.running() == {1}, "the fleet is as it should be")
    second.close()
    assert lives(processes, 1) == 1
    assert drained(processes, 1) == 1


def test_a_consumer_whose_controller_died_before_writing_its_pid_is_adopted(processes: ProcessYard) -> None:
    processes.fleet().start(4)
    eventually(lambda: lives(processes, 4) == 1, "the fleet is as it should be")
    pid = pid_of(processes, 4)
    (processes.home / "consumers" / "4" / "pid.json").unlink()
    assert processes.fleet().running() == {4}
    assert pid_of(processes, 4) == pid


def test_a_consumer_whose_folder_was_deleted_while_it_lived_is_adopted(processes: ProcessYard) -> None:
    processes.fleet().start(1)
    eventually(lambda: lives(processes, 1) == 1, "the fleet is as it should be")
    pid = pid_of(processes, 1)
    shutil.rmtree(processes.home / "consumers" / "1")
    assert processes.fleet().running() == {1}
    assert pid_of(processes, 1) == pid


def test_a_stranger_with_a_recycled_pid_is_neither_counted_nor_signalled(processes: ProcessYard) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        file = processes.home / "consumers" / "1" / "pid.json"
        file.parent.mkdir(parents=True)
        created = psutil.Process(stranger.pid).create_time()
        file.write_text(json.dumps({"pid": stranger.pid, "create_time": created - 60}))
        fleet = processes.fleet()
        assert fleet.running() == frozenset()
        fleet.stop(1, force=True)
        fleet.stop(1)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("child_leaves_the_group", [False, True])
def test_nothing_a_killed_consumer_started_survives(processes: ProcessYard, child_leaves_the_group: bool) -> None:
    (processes.folder / "with-child").touch()
    if child_leaves_the_group:
        (processes.folder / "detached-child").touch()
    fleet = processes.fleet()
    ends: list[Callable[[], None]] = [
        lambda: fleet.stop(1, force=True),
        lambda: os.kill(pid_of(processes, 1), signal.SIGKILL),
    ]
    for end in ends:
        known = lives(processes, 1)
        fleet.start(1)
        eventually(lambda known=known: lives(processes, 1) > known, "the fleet is as it should be")  # type: ignore[misc]
        child = int((processes.folder / "child").read_text())
        assert alive(child)
        end()
        eventually(lambda: fleet.running() == frozenset(), "the fleet is as it should be")
        assert not alive(child)


def test_a_paused_consumer_can_still_be_ended_by_force(processes: ProcessYard) -> None:
    fleet = processes.fleet()
    fleet.start(1)
    eventually(lambda: lives(processes, 1) == 1, "the fleet is as it should be")
    pid = pid_of(processes, 1)
    os.kill(pid, signal.SIGSTOP)
    assert fleet.running() == {1}
    fleet.stop(1, force=True)
    assert not alive(pid)


def test_dead_children_leave_no_zombies(processes: ProcessYard) -> None:
    fleet = processes.fleet()
    fleet.start(1)
    eventually(lambda: lives(processes, 1) == 1, "the fleet is as it should be")
    pid = pid_of(processes, 1)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: fleet.running() == frozenset(), "the fleet is as it should be")
    assert not psutil.pid_exists(pid)


def test_output_goes_to_the_consumers_log(processes: ProcessYard) -> None:
    fleet = processes.fleet()
    fleet.start(2)
    log = processes.home / "consumers" / "2" / "log.txt"
    eventually(lambda: log.exists() and log.read_text() == "consumer 2 is up\n", "the fleet is as it should be")


def test_a_consumers_log_is_bounded_while_it_runs(processes: ProcessYard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "LARGEST_BYTES", 1000)
    fleet = processes.fleet()
    fleet.start(2)
    log = processes.home / "consumers" / "2" / "log.txt"
    eventually(lambda: log.exists() and log.read_text() == "consumer 2 is up\n", "the fleet is as it should be")
    with log.open("a") as said:
        said.write("x" * 1000)
    of_spark = log.with_name(log_files.JVM_ERRORS)
    of_spark.write_text("y" * 1000)
    assert fleet.running() == {2}
    assert (log.read_text(), of_spark.read_text()) == ("", "")
    assert log.with_name("log.txt.1").stat().st_size > 1000


def test_a_command_that_does_not_exist_is_a_fleet_error(tmp_path: Path) -> None:
    fleet = ProcessFleet(lambda n: [str(tmp_path / "missing"), str(n)], tmp_path)
    with pytest.raises(FleetError, match=r"cannot start consumer 1: .*missing"):
        fleet.start(1)
