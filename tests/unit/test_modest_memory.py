"""Memory of processes that run parts of a pipeline."""

import os
import platform
import subprocess
import sys

import pytest

SAY = (
    "import headgate.cli.main; from headgate.modest_memory import keep_memory_modest; keep_memory_modest(); "
    "import os, pyarrow; print(pyarrow.default_memory_pool().backend_name, os.environ.get('ARROW_DEFAULT_MEMORY_POOL'))"
)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is about glibc's heaps")
@pytest.mark.parametrize(
    ("asked", "said"), [({}, "system None"), ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc mimalloc")]
)
def test_arrow_shares_the_systems_heaps_unless_the_user_says_otherwise_and_children_are_not_told(
    asked: dict[str, str], said: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"} | asked
    done = subprocess.run([sys.executable, "-c", SAY], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == said


HOLD_AND_GIVE_BACK = """
import ctypes, mmap
from headgate.modest_memory import give_back_memory

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

def resident_mb():
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * mmap.PAGESIZE >> 20

size = 50_000
blocks = [libc.malloc(size) for _ in range(1000)]
for block in blocks:
    ctypes.memset(block, 1, size)
for number, block in enumerate(blocks):
    if number % 20 != 19:
        libc.free(block)  # one of twenty stays, the topmost among them
held_mb = resident_mb()
give_back_memory()
print(held_mb - resident_mb())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is about glibc's heaps")
def test_what_lies_free_between_things_in_use_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", HOLD_AND_GIVE_BACK], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 40, "of 50 MB in blocks of 50 kB, 47 are free"
