"""Waiting in tests: until something is so, or too long."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(look: Callable[[], T | None], what: str, deadline_s: float = 120) -> T:
    """Looks until the answer is truthy, and gives it back."""
    until = time.monotonic() + deadline_s
    while not (seen := look()):
        assert time.monotonic() < until, f"not within {deadline_s:g} s: {what}; last seen {seen!r}"
        time.sleep(0.05)
    return seen
