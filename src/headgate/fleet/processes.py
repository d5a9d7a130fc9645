"""Consumers as processes of this machine, each in its own session, so that they outlive the controller.

A consumer's folder `consumers/<id>/` under the pipeline's home holds `pid.json` (who it is) and `log.txt` (what it
said; the newest of it is kept). A new controller finds survivors there. A pid alone proves nothing, since the system
reuses them: no process is signalled unless its creation time, or the mark in its environment, says that it is ours.
"""

import json
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from headgate import log_files
from headgate.errors import FleetError
from headgate.metrics_endpoint import consumer_part, target_file

log = logging.getLogger(__name__)

MARK = "HEADGATE_CONSUMER"
_CREATE_TIME_TOLERANCE_S = 0.5
_KILL_WAIT_S = 10.0
_FAILED = "headgate:"
_MOST_READ_BYTES = 64_000


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, for as long as the machine runs: its pid and when it was created. It leads its own group."""

    pid: int
    create_time: float

    def process(self) -> psutil.Process | None:
        """The living process, or None if it ended or the pid now belongs to a stranger."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.create_time) < _CREATE_TIME_TOLERANCE_S
            return process if same and _lives(process) else None
        except psutil.NoSuchProcess:
            return None


class ProcessFleet:
    def __init__(self, command: Callable[[int], list[str]], home: Path, stop_deadline_s: float = 30.0) -> None:
        self._command = command
        self._home = home.absolute()
        self._folder = self._home / "consumers"
        self._stop_deadline_s = stop_deadline_s
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        """By pid, only to reap them; adopted consumers are not our children."""
        self._force_after: dict[int, float] = {}
        """Consumers asked to stop, and when (monotonic clock) asking ends."""
        self._log_begins: dict[int, int] = {}
        """Where in its log a consumer's newest life begins, if it was started from here."""
        self._adopt()

    def start(self, consumer_id: int) -> None:
        if consumer_id in self.running():
            return
        self._end(consumer_id)
        folder = self._folder / str(consumer_id)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "log.txt").open("ab") as output:
                self._log_begins[consumer_id] = output.tell()
                child = subprocess.Popen(
                    self._command(consumer_id),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env={**os.environ, MARK: self._mark(consumer_id)},
                )
        except OSError as error:
            raise FleetError(f"cannot start consumer {consumer_id}: {error}; see fleet settings and disk") from error
        self._children[child.pid] = child
        try:
            identity = Identity(child.pid, psutil.Process(child.pid).create_time())
        except psutil.NoSuchProcess:
            raise FleetError(f"consumer {consumer_id} ended at once; see {folder / 'log.txt'}") from None
        self._write(consumer_id, identity)

    def stop(self, consumer_id: int, force: bool = False) -> None:
        if force:
            self._end(consumer_id)
            return
        if consumer_id in self._force_after:
            return
        identity = self._read(consumer_id)
        process = identity.process() if identity else None
        if process is None:
            self._end(consumer_id)
            return
        self._force_after[consumer_id] = time.monotonic() + self._stop_deadline_s
        try:
            process.terminate()  # only the consumer: it needs its JVM to finish the cycle
        except psutil.NoSuchProcess:
            self._end(consumer_id)

    def running(self) -> frozenset[int]:
        self._reap()
        return frozenset(consumer_id for consumer_id in self._known() if self._runs(consumer_id))

    def _runs(self, consumer_id: int) -> bool:
        identity = self._read(consumer_id)
        if identity is not None and identity.process() is not None:
            if consumer_id not in self._force_after:
                self._bound_logs(consumer_id)
                return True
            if time.monotonic() < self._force_after[consumer_id]:
                return False
            log.warning("consumer %d missed its stop deadline of %g s", consumer_id, self._stop_deadline_s)
        try:
            self._end(consumer_id)
        except FleetError as error:  # it neither works nor goes; whoever starts it again is told
            log.error("%s", error)
        return False

    def _bound_logs(self, consumer_id: int) -> None:
        """From here, because others than the consumer hold these open."""
        for name in ("log.txt", log_files.JVM_ERRORS):
            log_files.empty(self._folder / str(consumer_id) / name)

    def last_words(self, consumer_id: int) -> str:
        begins = self._log_begins.get(consumer_id)
        if begins is None:
            return ""
        try:
            with (self._folder / str(consumer_id) / "log.txt").open("rb") as lines:
                size = lines.seek(0, os.SEEK_END)
                lines.seek(max(begins if begins <= size else 0, size - _MOST_READ_BYTES))
                text = lines.read().decode(errors="replace")
        except OSError:
            return ""
        return next(filter(None, map(_said, reversed(text.splitlines()))), "")

    def hand_over(self) -> None:
        """Nothing to do: the folders say who runs, and whoever reads them next adopts them."""

    def close(self, force: bool = False) -> None:
        for consumer_id in self.running():
            self.stop(consumer_id, force)
        until = time.monotonic() + self._stop_deadline_s
        while self._known() and time.monotonic() < until:
            self.running()
            time.sleep(0.05)
        for consumer_id in self._known():
            self._end(consumer_id)

    def _known(self) -> list[int]:
        if not self._folder.is_dir():
            return []
        return sorted(int(f.parent.name) for f in self._folder.glob("*/pid.json") if f.parent.name.isdigit())

    def _pid_file(self, consumer_id: int) -> Path:
        return self._folder / str(consumer_id) / "pid.json"

    def _mark(self, consumer_id: int) -> str:
        return str(self._folder / str(consumer_id))

    def _write(self, consumer_id: int, identity: Identity) -> None:
        file = self._pid_file(consumer_id)
        file.parent.mkdir(parents=True, exist_ok=True)  # somebody may have tidied up while the consumer lived
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps(asdict(identity)))
        draft.replace(file)

    def _read(self, consumer_id: int) -> Identity | None:
        try:
            return Identity(**json.loads(self._pid_file(consumer_id).read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            log.warning("%s is not readable (%s); treated as gone", self._pid_file(consumer_id), error)
            return None

    def _end(self, consumer_id: int) -> None:
        """Kills what is left of this consumer, its JVM and Python workers included, and forgets it."""
        identity = self._read(consumer_id)
        leader = identity.process() if identity else None
        doomed = self._marked(self._mark(consumer_id))
        if leader is not None:
            # Not a stranger's group: its leader is verified and keeps the number while it lives.
            _kill_group(leader.pid)
            doomed.append(leader)
        for process in doomed:  # Spark's Python workers leave the group, so each is killed by itself, too
            _kill(process)
        until = time.monotonic() + _KILL_WAIT_S
        while any(_lives(process) for process in doomed):
            self._reap()
            if time.monotonic() > until:
                raise FleetError(f"consumer {consumer_id} survived SIGKILL for {_KILL_WAIT_S:g} s; is its disk stuck?")
            time.sleep(0.01)
        self._reap()
        self._force_after.pop(consumer_id, None)
        target_file(self._home, consumer_part(consumer_id)).unlink(missing_ok=True)
        self._pid_file(consumer_id).unlink(missing_ok=True)

    def _marked(self, mark: str) -> list[psutil.Process]:
        """Living processes that inherited this consumer's mark, such as the JVM of one that was killed."""
        return [process for process, found in _marks() if found == mark and process.pid != os.getpid()]

    def _adopt(self) -> None:
        """Consumers whose controller was killed between starting them and writing down who they are."""
        for process, mark in _marks():
            path = Path(mark)
            if path.parent != self._folder or not path.name.isdigit() or self._pid_file(int(path.name)).exists():
                continue
            try:
                if os.getsid(process.pid) == process.pid:
                    self._write(int(path.name), Identity(process.pid, process.create_time()))
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue

    def _reap(self) -> None:
        for pid, child in list(self._children.items()):
            if child.poll() is not None:
                del self._children[pid]


def _said(line: str) -> str:
    """The reason, if this is the line with which a command ends that failed; see cli/errors.py."""
    if line.startswith(_FAILED):
        return line.removeprefix(_FAILED).strip()
    try:
        told = json.loads(line)
    except ValueError:
        return ""
    return str(told.get("message", "")) if isinstance(told, dict) and told.get("logger") == "headgate.cli" else ""


def _marks() -> list[tuple[psutil.Process, str]]:
    found = []
    for process in psutil.process_iter():
        try:
            mark = process.environ().get(MARK)
        except (psutil.Error, OSError):  # gone meanwhile, or another user's
            continue
        if mark is not None and _lives(process):
            found.append((process, mark))
    return found


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        log.debug("process %d was already gone", process.pid)


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        log.debug("process group %d was already gone", group)
