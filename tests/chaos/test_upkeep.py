"""Rounds of upkeep in a long run: how the last one ends is evidence, also if it does not end, and what it leaves."""

import signal
import time
from pathlib import Path

from headgate.config.pipeline import Lake
from headgate.config.table import Table
from headgate.lake.catalogs import open_catalog
from headgate.lake.commit import TableCommitter
from headgate.model import TopicPartition
from tests.announcements import announce, write_file
from tests.chaos.leftovers import unused_files
from tests.chaos.parts import Command
from tests.chaos.upkeep import Upkeep


def _version(folder: Path) -> Command:
    return Command(["--version"], folder / "said.txt", failpoints=None)


def test_a_last_round_that_hangs_is_killed_and_told_instead_of_ending_the_run_without_a_report(tmp_path: Path) -> None:
    command, said = _version(tmp_path), list[str]()
    command.signal(signal.SIGSTOP)  # it never comes back from wherever it is
    upkeep = Upkeep(lambda: command, time.monotonic, said.append)
    upkeep.turn(60)
    upkeep.end(deadline_s=0.2)
    [ran] = upkeep.rounds
    assert (ran.hung, ran.exit_code) == (True, -signal.SIGKILL)
    assert said == ["the last round of upkeep to end: not within 0.2 s"]
    assert not command.runs


def test_a_last_round_that_comes_to_its_end_is_like_any_other(tmp_path: Path) -> None:
    upkeep = Upkeep(lambda: _version(tmp_path), time.monotonic, print)
    upkeep.turn(60)
    upkeep.end(deadline_s=120)
    [ran] = upkeep.rounds
    assert (ran.hung, ran.exit_code) == (False, 0)
    upkeep.turn(60)  # a minute is not over: none begins
    upkeep.end(deadline_s=0)
    assert len(upkeep.rounds) == 1


def test_only_files_that_no_snapshot_and_no_log_refers_to_are_unused(tmp_path: Path) -> None:
    lake = Lake(catalog={"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}, warehouse=str(tmp_path))
    catalog, folder = open_catalog(lake), tmp_path / "lake/t"
    committer = TableCommitter(catalog, lake, Table.model_validate({"name": "lake.t"}))
    for at in range(3):
        path = write_file(folder / f"data/{at}.parquet", announce(("t", 0, at, at + 1)).ranges)
        assert committer.commit([announce(("t", 0, at, at + 1), files=(path,))], {TopicPartition("t", 0): 0}).committed
    assert unused_files(catalog, ["lake.t", "lake.none"]) == []
    strays = [folder / "data/day=1/stray.parquet", folder / "metadata/stray.avro"]
    for stray in strays:
        stray.parent.mkdir(exist_ok=True)
        stray.touch()
    assert unused_files(catalog, ["lake.t"]) == [str(stray) for stray in strays]
