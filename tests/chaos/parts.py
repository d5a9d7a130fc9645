"""What a chaos run is made of: `headgate` commands as processes of ours, and loads that keep count."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from headgate.errors import KafkaUnavailable
from headgate.failpoints import ENVIRONMENT as FAILPOINTS
from headgate.fleet.processes import MARK, Identity
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_report import LoadReport

POLL_S = 0.1
QUICK_JVM = "-XX:TieredStopAtLevel=1"
"""Most JVMs here are killed before optimised code pays for its compilation, and two cores are few."""


class Overdue(AssertionError):
    """Something that had to happen did not happen in time."""


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float) -> None:
    until = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > until:
            raise Overdue(f"{what}: not within {deadline_s:g} s")
        time.sleep(POLL_S)


class Command:
    """One `headgate …` process of ours; what it prints goes to a file."""

    def __init__(self, arguments: list[str], output: Path, failpoints: Path | None, quick_jvm: bool = True) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in (MARK, FAILPOINTS)}
        if quick_jvm:
            environment["JAVA_TOOL_OPTIONS"] = QUICK_JVM
        if failpoints is not None:
            environment[FAILPOINTS] = str(failpoints)
        self.output = output
        with output.open("ab") as file:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "headgate", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that a Ctrl-C at the test reaches nobody behind its back
                env=environment,
            )
        self.pid = self._child.pid

    @property
    def runs(self) -> bool:
        return self._child.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._child.poll()

    def signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def kill(self) -> None:
        self._child.kill()
        self._child.wait(10)

    def end(self, deadline_s: float) -> int:
        """As Ctrl-C would, and its exit code; Overdue if it does not go."""
        self._child.terminate()
        wait_until(lambda: not self.runs, f"the end of {self.output.stem}", deadline_s)
        return self._child.wait()

    def said(self) -> str:
        return self.output.read_text(errors="replace")


def consumer_pid(folder: Path) -> int | None:
    """Of the fleet's consumer that lives in this folder, while it does."""
    try:
        identity = Identity(**json.loads((folder / "pid.json").read_text()))
    except (FileNotFoundError, ValueError):
        return None
    process = identity.process()
    return process.pid if process else None


class Load:
    """A load generator in its thread. `stop` returns what was acknowledged."""

    def __init__(self, generator: LoadGenerator) -> None:
        self._generator = generator
        self._stop = threading.Event()
        self._report: LoadReport | None = None
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self._report is None:
            try:
                self._report = self._generator.run(stop=self._stop)
            except KafkaUnavailable:  # no broker to begin with: nothing was written yet
                if self._stop.is_set():
                    self._report = LoadReport({}, 0.0, True, {})

    def stop(self, deadline_s: float = 1000.0) -> LoadReport:
        self._stop.set()
        self._thread.join(deadline_s)
        if self._report is None:
            raise Overdue(f"the load generator gave no account of itself within {deadline_s:g} s")
        return self._report
