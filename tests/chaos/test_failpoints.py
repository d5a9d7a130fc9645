"""The tool before its use: an armed step fires once, in one process, and nowhere else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headgate import failpoints

_REACH_TWICE = "from headgate.failpoints import reach; [reach('commit.checked') for _ in range(2)]; print('survived')"
_REACH_AND_CATCH = """
from headgate.failpoints import FailpointReached, reach
try:
    reach('commit.checked')
except FailpointReached:
    print('raised')
reach('commit.checked')
print('survived')
"""

_SUFFER_TWICE = """
import os
from pathlib import Path
from headgate.failpoints import ENVIRONMENT, FailpointReached, arm, reach
for _ in range(2):
    arm(Path(os.environ[ENVIRONMENT]), 'commit.checked', 'raise')
    try:
        reach('commit.checked')
    except FailpointReached:
        pass
print(os.getpid())
"""


def _run(code: str, folder: Path | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != failpoints.ENVIRONMENT}
    if folder is not None:
        environment[failpoints.ENVIRONMENT] = str(folder)
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_an_armed_step_kills_the_first_process_that_reaches_it_and_spares_the_next(tmp_path: Path) -> None:
    failpoints.arm(tmp_path, "commit.checked")
    assert _run(_REACH_TWICE, tmp_path).returncode == -9
    assert len(failpoints.fired(tmp_path, "commit.checked")) == 1
    assert _run(_REACH_TWICE, tmp_path).stdout == "survived\n"


def test_a_step_that_raises_does_so_once(tmp_path: Path) -> None:
    failpoints.arm(tmp_path, "commit.checked", "raise")
    assert _run(_REACH_AND_CATCH, tmp_path).stdout == "raised\nsurvived\n"


def test_a_process_that_suffers_twice_at_a_step_is_counted_twice(tmp_path: Path) -> None:
    """Or a process that was frozen before would not be known to be frozen again, and nobody would wake it."""
    pid = int(_run(_SUFFER_TWICE, tmp_path).stdout)
    assert failpoints.fired(tmp_path, "commit.checked") == (pid, pid)


def test_another_step_and_a_process_without_the_folder_are_spared(tmp_path: Path) -> None:
    failpoints.arm(tmp_path, "commit.committed")
    assert _run(_REACH_TWICE, tmp_path).stdout == "survived\n"
    failpoints.arm(tmp_path, "commit.checked")
    assert _run(_REACH_TWICE, None).stdout == "survived\n"
    assert failpoints.disarm(tmp_path, "commit.checked")
    assert not failpoints.disarm(tmp_path, "commit.checked")


def test_steps_and_actions_that_do_not_exist_cannot_be_armed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"steps are .*commit\.checked"):
        failpoints.arm(tmp_path, "commit.chekced")
    with pytest.raises(ValueError, match="kill, stop, raise"):
        failpoints.arm(tmp_path, "commit.checked", "explode")


def test_every_step_is_reached_somewhere_in_the_code() -> None:
    """A step that was renamed or removed would make `make chaos` wait for nothing."""
    source = "".join(file.read_text() for file in Path(failpoints.__file__).parent.rglob("*.py"))
    assert [step for step in failpoints.STEPS if f'reach("{step}")' not in source] == []
