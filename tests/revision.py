"""Which code was measured: written down beside what long runs and benchmarks found."""

import subprocess
from pathlib import Path


def revision() -> str:
    """The commit that is checked out, and whether code differs from it; "unknown" without git. To be asked when a run
    begins: it may be another one when that ends."""
    try:
        changed = _git("status", "--porcelain", "--", ".", ":!docs", ":!benchmarks/results.json")
        return _git("rev-parse", "--short=10", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    here = Path(__file__).parent.parent
    return subprocess.run(["git", *arguments], cwd=here, check=True, capture_output=True, text=True).stdout.strip()
