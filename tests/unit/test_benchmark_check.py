"""What a run of the benchmarks is blamed for, with numbers made by hand: worse than committed, a target missed, a row
that is gone; and what is kept of it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.check import findings
from benchmarks.ratio import Ratio

AGE = Ratio("age of records", "streaming", ours=1.0, peers=2.0, low=0.4, high=0.6)
SPEED = Ratio("speed", "a loop", ours=30.0, peers=20.0, low=1.4, high=1.6, unit="MB/s", better="higher", target=1.2)
COMMITTED = {"a": [AGE, SPEED]}


def _found(*ratios: Ratio) -> list[tuple[str, str]]:
    return [(finding.kind, finding.what) for finding in findings({"a": ratios}, COMMITTED)]


def test_what_was_committed_is_no_finding() -> None:
    assert _found(AGE, SPEED) == []


def test_a_ratio_may_be_fifteen_percent_worse_than_its_spread_and_not_more() -> None:
    assert _found(replace(AGE, ours=1.37), SPEED) == []  # 0.685; 0.6 and 15 % are 0.69
    assert _found(replace(AGE, ours=1.39), SPEED) == [("worse than committed", "age of records")]  # 0.695


def test_a_wild_round_does_not_excuse_whatever_comes_after_it() -> None:
    wild = {"a": [replace(AGE, high=20.0), replace(SPEED, low=0.1)]}
    half_as_much_again = replace(AGE, ours=1.7), replace(SPEED, ours=18.0, target=None)  # 0.85 of 0.8625, 0.9 of 0.85
    assert findings({"a": half_as_much_again}, wild) == []
    twice_as_bad = replace(AGE, ours=2.0), replace(SPEED, ours=15.0, target=None)
    assert [finding.kind for finding in findings({"a": twice_as_bad}, wild)] == ["worse than committed"] * 2


def test_more_is_better_where_more_is_better() -> None:
    assert _found(AGE, replace(SPEED, ours=60.0)) == []
    slower = replace(SPEED, ours=23.6, target=None)  # 1.18; 1.4 less 15 % is 1.19
    assert _found(AGE, slower) == [("worse than committed", "speed")]


def test_a_missed_target_is_found_even_if_it_was_missed_before() -> None:
    missed = replace(SPEED, ours=22.0, low=1.05, high=1.15)  # 1.1
    [finding] = findings({"a": [AGE, missed]}, {"a": [AGE, missed]})
    assert finding.sentence() == "target missed: a: speed against a loop: 1.10, asked for is ≥ 1.2"


def test_a_missed_target_of_a_row_never_seen_before_is_found() -> None:
    new = replace(AGE, what="pause", target=0.4)
    assert _found(AGE, SPEED, new) == [("target missed", "pause")]
    assert _found(AGE, SPEED, replace(new, target=0.5)) == []


def test_a_row_that_is_renamed_or_has_another_peer_is_gone() -> None:
    assert _found(SPEED) == [("gone", "age of records")]
    assert _found(replace(AGE, what="median age"), SPEED) == [("gone", "age of records")]
    assert _found(AGE, replace(SPEED, peer="another loop")) == [("gone", "speed")]


def test_benchmarks_that_did_not_run_are_not_missed() -> None:
    assert findings({"b": [AGE]}, COMMITTED) == []


# What the command makes of it


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Results that were committed: packing and cycle, with a row each."""
    file = tmp_path / "results.json"
    assert _run(file, {"packing": [AGE], "cycle": [SPEED]}, "--save", "packing", "cycle") == 0
    return file


def _run(file: Path, measured: dict[str, Sequence[Ratio]], *arguments: str) -> int:
    return main(arguments, measured.__getitem__, file, file.with_name("no-page.md"))


def _ours(file: Path) -> dict[str, float]:
    return {name: entry["ratios"][0]["ours"] for name, entry in json.loads(file.read_text()).items()}


WORSE, MISSED = replace(AGE, ours=1.5, low=0.7, high=0.8), replace(SPEED, ours=22.0, low=1.0, high=1.4)


def test_the_exit_code_tells_a_missed_target_and_a_row_that_is_gone(kept: Path) -> None:
    assert _run(kept, {"packing": [AGE]}, "packing") == 0
    assert _run(kept, {"packing": [WORSE]}, "packing") == 1
    assert _run(kept, {"deciding": [MISSED]}, "deciding") == 1
    assert _run(kept, {"cycle": [replace(SPEED, what="pace")]}, "cycle") == 1


def test_saving_keeps_what_is_good_and_refuses_the_rest(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    better = replace(SPEED, ours=31.0)
    assert _run(kept, {"packing": [WORSE], "cycle": [better]}, "--save", "packing", "cycle") == 1
    assert _ours(kept) == {"packing": 1.0, "cycle": 31.0}
    assert "packing is not kept" in capsys.readouterr().out
    assert _run(kept, {"packing": [WORSE]}, "--save", "packing") == 1, "it is compared with what was good, again"
    assert _run(kept, {"cycle": [MISSED]}, "--save", "cycle") == 1
    assert _ours(kept) == {"packing": 1.0, "cycle": 31.0}


def test_who_accepts_it_keeps_it_whatever_it_is(kept: Path) -> None:
    assert _run(kept, {"packing": [WORSE]}, "--save", "--accept", "packing") == 0
    assert _ours(kept)["packing"] == 1.5
    assert _run(kept, {"packing": [WORSE]}, "packing") == 0, "it is what to compare with now"


def test_accepting_without_saving_is_refused(kept: Path) -> None:
    with pytest.raises(SystemExit):
        _run(kept, {}, "--accept", "packing")
