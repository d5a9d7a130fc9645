"""A lock on a file: one holder at a time, and a reason for whoever is refused."""

from pathlib import Path

import pytest

from headgate.errors import SetupError
from headgate.file_lock import locked


def test_who_comes_second_waits_and_is_told_at_the_deadline_what_to_do(tmp_path: Path) -> None:
    waits: list[None] = []
    with (
        locked(tmp_path / "lock", 1.0, "not said"),
        pytest.raises(SetupError, match="end the other one"),
        locked(tmp_path / "lock", 0.1, "end the other one", lambda: waits.append(None)),
    ):
        pytest.fail("two held the lock")
    assert waits


def test_a_lock_is_free_again_after_its_holder_whatever_happened_to_it(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "lock", 0.0, "taken"):
        raise ZeroDivisionError
    with locked(tmp_path / "lock", 0.0, "taken"):
        pass


def test_a_folder_that_does_not_exist_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="nowhere/lock cannot be written"), locked(tmp_path / "nowhere/lock", 0.0, ""):
        pytest.fail("there is nothing to lock")
