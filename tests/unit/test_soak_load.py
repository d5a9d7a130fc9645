"""The load of a long run: dials turn it while it runs, and its odd records are odd in the way they claim to be."""

import json
import random
from pathlib import Path

import pytest

from headgate.model import TopicPartition
from tests.chaos.soak_run import Dial, WrongTypes, exchange

FOUR = [TopicPartition("t", n) for n in range(4)]


def test_a_dial_spreads_its_total_evenly_and_swings_around_it() -> None:
    dial = Dial(FOUR, 40_000)
    assert list(dial.rates(75).values()) == pytest.approx([10_000] * 4)  # a quarter wave: the mean
    assert sum(dial.rates(0).values()) == pytest.approx(52_000)  # its crest, 30 % more
    assert sum(dial.rates(150).values()) == pytest.approx(28_000)


def test_a_dial_follows_its_level_and_a_push_goes_before_it() -> None:
    dial = Dial(FOUR, 40_000)
    dial.level = 0.0
    assert sum(dial.rates(75).values()) == 0
    dial.pushed = True
    assert sum(dial.rates(75).values()) == pytest.approx(120_000)


def test_a_favoured_partition_gets_three_fifths_but_never_more_than_a_consumer_may_own() -> None:
    dial = Dial(FOUR, 40_000)
    dial.favoured = FOUR[2]
    rates = dial.rates(75)
    assert rates[FOUR[2]] == pytest.approx(24_000)
    assert rates[FOUR[0]] == pytest.approx(16_000 / 3)
    dial.level = 9.0
    assert dial.rates(75)[FOUR[2]] == 80_000


def test_a_record_of_another_schema_is_json_whose_amount_is_no_number() -> None:
    records = WrongTypes(FOUR[0], 250, random.Random(1))
    _, value = records.make(7, 250)
    assert isinstance(json.loads(value)["amount"], float)
    assert json.loads(records.spoil(value))["amount"] == "much"


def test_a_folder_and_a_file_change_places_and_back(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    (folder / "kept").touch()
    file.touch()
    exchange(folder, file)
    assert folder.is_file()
    assert (file / "kept").exists()
    exchange(file, folder)
    assert (folder / "kept").exists()
