"""Named steps at which the chaos tests end or freeze a process. Without HEADGATE_FAILPOINTS this does nothing.

HEADGATE_FAILPOINTS names a folder. A file in it, named after a step and holding an action, arms that step; whichever
process reaches it first takes the file away, so that one armed step fires once, however often it is reached and
however many processes share the folder: the successor of a consumer that was killed at a step is not killed there.
Actions are `kill` (SIGKILL), `stop` (SIGSTOP: a zombie in the making) and `raise`.
"""

import os
import signal
import time
from pathlib import Path

ENVIRONMENT = "HEADGATE_FAILPOINTS"

STEPS = (
    "cycle.gathered",
    "cycle.files-written",
    "cycle.announced",
    "command.received",
    "command.persisted",
    "command.acknowledged",
    "commit.checked",
    "commit.staged",
    "commit.committed",
    "commit.rejects-landed",
    "commit.published",
    "commit.mirrored",
    "handover.stops-sent",
    "handover.stopped",
    "handover.starts-sent",
    "handover.started",
    "handover.consumers-created",
    "handover.consumers-deleted",
    "compact.written",
    "compact.committed",
    "expire.committed",
    "sweep.deleted",
    "rollback.committed",
)
ACTIONS = ("kill", "stop", "raise")


class FailpointReached(Exception):
    """Raised by the `raise` action; only ever in tests."""


def arm(folder: Path, step: str, action: str = "kill") -> None:
    """The next process to reach `step` with this folder in its environment suffers `action`."""
    if step not in STEPS or action not in ACTIONS:
        raise ValueError(
            f"{step}: {action} cannot be armed; steps are {', '.join(STEPS)}; actions {', '.join(ACTIONS)}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{step}.new"
    draft.write_text(action)
    draft.replace(folder / step)


def disarm(folder: Path, step: str) -> bool:
    """Whether it was still armed."""
    try:
        (folder / step).unlink()
        return True
    except FileNotFoundError:
        return False


def fired(folder: Path, step: str) -> tuple[int, ...]:
    """Pids of the processes that suffered at this step, each as often as it did, in no particular order."""
    marks = (file.name.rpartition(".fired-")[2] for file in folder.glob(f"{step}.fired-*"))
    return tuple(int(mark.partition("-")[0]) for mark in marks)


_folder = os.environ.get(ENVIRONMENT, "")


def reach(step: str) -> None:
    """Marks a step of the protocol; free unless the environment names a folder of failpoints."""
    if not _folder:
        return
    taken = Path(_folder) / f"{step}.fired-{os.getpid()}-{time.time_ns()}"
    try:
        os.rename(Path(_folder) / step, taken)  # atomic: of several processes one succeeds
    except FileNotFoundError:
        return
    action = taken.read_text()
    if action == "raise":
        raise FailpointReached(step)
    os.kill(os.getpid(), signal.SIGKILL if action == "kill" else signal.SIGSTOP)
