"""Which code was measured: written down beside what long runs and benchmarks found."""

import subprocess
from pathlib import Path


def revision() -> str:
    """The commit that is checked out, and whether files differ from it; "unknown" without git."""
    try:
        return _git("rev-parse", "--short=10", "HEAD") + (" with changes" if _git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    here = Path(__file__).parent
    return subprocess.run(["git", *arguments], cwd=here, check=True, capture_output=True, text=True).stdout.strip()
