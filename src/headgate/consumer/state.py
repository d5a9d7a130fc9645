"""What a consumer must remember over a kill -9: its partitions and how far it read its commands (L-20)."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from headgate.home_folder import using
from headgate.model import TopicPartition


@dataclass(frozen=True, slots=True)
class SavedState:
    incarnation: str
    partitions: frozenset[TopicPartition]
    control_offset: int | None
    """Next command to read; None until one was read."""
    epoch: int


class StateFile:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "state.json"
        with using(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def load(self) -> SavedState | None:
        """None for a consumer that never lived, or whose disk lost the file: it then owns nothing."""
        try:
            saved = json.loads(self._path.read_text())
            return SavedState(
                saved["incarnation"],
                frozenset(TopicPartition(topic, number) for topic, number in saved["partitions"]),
                saved["control_offset"],
                saved["epoch"],
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def save(self, state: SavedState) -> None:
        """Durable when it returns: written aside, flushed to disk, renamed into place."""
        content = {
            "incarnation": state.incarnation,
            "partitions": [[p.topic, p.partition] for p in sorted(state.partitions)],
            "control_offset": state.control_offset,
            "epoch": state.epoch,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)  # somebody may have deleted it while we lived
        aside = self._path.with_suffix(f".{state.incarnation}.tmp")
        with open(aside, "w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
