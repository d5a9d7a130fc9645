"""Named steps at which the chaos tests end or freeze a process. Without HEADGATE_FAILPOINT this does nothing.

HEADGATE_FAILPOINT=name[@n][:action] acts when step `name` is reached for the n-th time (default 1); the action is
`kill` (SIGKILL, the default), `stop` (SIGSTOP: a zombie in the making) or `raise`.
"""

import os
import signal
import threading
from dataclasses import dataclass

STEPS = (
    "cycle.gathered",
    "cycle.files-written",
    "cycle.announced",
    "command.received",
    "command.persisted",
    "command.acknowledged",
    "commit.checked",
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
)


class FailpointReached(Exception):
    """Raised by the `raise` action; only ever in tests."""


@dataclass(frozen=True, slots=True)
class _Armed:
    step: str
    count: int
    action: str


def _parse(text: str) -> _Armed | None:
    if not text:
        return None
    head, _, action = text.partition(":")
    step, _, count = head.partition("@")
    if step not in STEPS or action not in ("", "kill", "stop", "raise"):
        raise ValueError(f"HEADGATE_FAILPOINT={text}: steps are {', '.join(STEPS)}; actions are kill, stop, raise")
    return _Armed(step, int(count or 1), action or "kill")


_armed = _parse(os.environ.get("HEADGATE_FAILPOINT", ""))
_lock = threading.Lock()
_reached = 0


def reach(step: str) -> None:
    """Marks a step of the protocol; free unless a failpoint is armed in the environment."""
    if _armed is None or step != _armed.step:
        return
    global _reached
    with _lock:
        _reached += 1
        due = _reached == _armed.count
    if due:
        if _armed.action == "raise":
            raise FailpointReached(step)
        os.kill(os.getpid(), signal.SIGKILL if _armed.action == "kill" else signal.SIGSTOP)
