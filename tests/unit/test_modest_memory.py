"""Memory of processes that run parts of a pipeline."""

import os
import subprocess
import sys

import pytest

SAY = (
    "import headgate.cli.main; from headgate.modest_memory import keep_memory_modest; keep_memory_modest(); "
    "import os, pyarrow; print(pyarrow.default_memory_pool().backend_name, os.environ.get('ARROW_DEFAULT_MEMORY_POOL'))"
)


@pytest.mark.skipif(sys.platform != "linux", reason="it is about glibc's heaps")
@pytest.mark.parametrize(
    ("asked", "said"), [({}, "system None"), ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc mimalloc")]
)
def test_arrow_shares_the_systems_heaps_unless_the_user_says_otherwise_and_children_are_not_told(
    asked: dict[str, str], said: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"} | asked
    done = subprocess.run([sys.executable, "-c", SAY], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == said
