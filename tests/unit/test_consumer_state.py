"""What a consumer remembers on disk."""

import shutil
from pathlib import Path

from headgate.consumer.state import SavedState, StateFile
from headgate.model import TopicPartition


def test_a_consumer_whose_folder_was_deleted_while_it_lived_remembers_from_then_on(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "consumers" / "1")
    state = SavedState("0001-a", frozenset({TopicPartition("t", 3)}), 7, 2)
    file.save(state)
    shutil.rmtree(tmp_path / "consumers")
    assert file.load() is None
    file.save(state)
    assert file.load() == state
