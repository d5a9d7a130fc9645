"""A verdict on a long run can be had again: from what a run keeps, and from what runs kept before they told all."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.chaos.promises import judge
from tests.chaos.soak import ALLOWED, report
from tests.chaos.soak_evidence import Lacking, keep, keep_small, load
from tests.chaos.soak_report import Circumstances
from tests.unit.test_soak_judgement import good_hour

ABOUT = Circumstances(7, 60.0, "a machine", {"kill a broker": 3})


def test_what_was_kept_is_what_was_seen(tmp_path: Path) -> None:
    keep(tmp_path / "evidence.json", good_hour(), ABOUT)
    assert load(tmp_path / "evidence.json") == (good_hour(), ABOUT)


def test_the_small_file_is_judged_as_the_full_one(tmp_path: Path) -> None:
    odd = replace(
        good_hour(), processes=tuple(replace(s, at_s=s.at_s + 1 / 7, age_s=s.age_s / 3) for s in good_hour().processes)
    )
    keep_small(tmp_path / "small.json.gz", odd, ABOUT)
    keep(tmp_path / "full.json", odd, ABOUT)
    small, about = load(tmp_path / "small.json.gz")
    assert small.processes[1].at_s == 5.143
    assert judge(small, ALLOWED) == judge(odd, ALLOWED)
    assert about == ABOUT
    assert (tmp_path / "small.json.gz").stat().st_size < (tmp_path / "full.json").stat().st_size / 5


def _of_an_older_run(file: Path) -> Path:
    """As it was before circumstances, disk and rounds that hang were in it."""
    old = asdict(good_hour())
    del old["most_disk_bytes"]
    for ran in old["upkeep"]:
        del ran["hung"]
    file.write_text(json.dumps(old))
    return file


def test_an_older_file_is_judged_with_circumstances_told_by_hand(tmp_path: Path) -> None:
    old = _of_an_older_run(tmp_path / "evidence.json")
    with pytest.raises(Lacking, match="seed"):
        load(old, {"minutes_asked": 60.0, "machine": "a machine", "not_now": {}})
    assert load(old, {**asdict(ABOUT), "disk_bytes": 2 * 10**9}) == (good_hour(), ABOUT)


def test_a_report_can_be_made_again_from_the_evidence_beside_it(tmp_path: Path) -> None:
    first, again = tmp_path / "soak.md", tmp_path / "again" / "soak.md"
    assert report(first, _of_an_older_run(tmp_path / "evidence.json"), {**asdict(ABOUT), "disk_bytes": 2 * 10**9})
    assert report(again, tmp_path / "soak-evidence.json.gz")
    for suffix in (".md", ".json", ".png"):
        assert again.with_suffix(suffix).read_bytes() == first.with_suffix(suffix).read_bytes()
    page = " ".join(first.read_text().split())
    assert "**Every promise was kept.**" in page
    assert "30 MB an hour would be 0.7 GB a day" in page  # what an hour cannot show


def test_a_broken_promise_is_told_by_the_report(tmp_path: Path) -> None:
    keep(tmp_path / "evidence.json", replace(good_hour(), rows=989, most_disk_bytes=11 * 10**9), ABOUT)
    assert not report(tmp_path / "soak.md", tmp_path / "evidence.json")
    page = " ".join((tmp_path / "soak.md").read_text().split())
    assert "promises were broken**: every record exactly once (1,000 records acknowledged" in page
    assert "disk stays under 10 GB (at most 11.0 GB)" in page
