"""The packing experiment: its random walks, its published values and its verdicts."""

import csv
from itertools import pairwise
from pathlib import Path

import pytest

from headgate.experiments import e3, packing_report
from headgate.experiments.packing import Mean, Settings, distances, measure, ours
from headgate.experiments.packing_verdicts import dominating_price, reproduced
from headgate.packing.classical import BestFitDecreasing


def test_a_walk_stays_within_the_capacity_takes_whole_steps_and_repeats() -> None:
    case = e3.Case("uniform", 25, seed=3, iterations=50, partitions=40)
    walked = list(case.rates())
    assert walked == list(case.rates())
    for before, after in pairwise(walked):
        for partition, rate in after.items():
            assert 0 <= rate <= 100
            assert rate == int(rate)
            assert abs(rate - before[partition]) <= 25
    assert walked != list(e3.Case("uniform", 25, seed=4, iterations=50, partitions=40).rates())


def test_a_walk_starts_where_it_is_told() -> None:
    assert set(next(e3.Case("50", 5, 1).rates()).values()) == {50.0}
    assert len(set(next(e3.Case("uniform", 5, 1).rates()).values())) > 50


def test_nothing_counts_as_moved_in_the_first_iteration_nor_when_nothing_changes() -> None:
    history = e3.run(e3.Case("uniform", 0, 1, iterations=5, partitions=30), BestFitDecreasing(), measure_forced=True)
    assert history.rscores == history.forced == (0, 0, 0, 0, 0)
    assert len(set(history.consumers)) == 1


def test_the_published_table_has_every_packer_and_delta() -> None:
    published = e3.published_values()
    assert published.keys() == {(packer, delta) for packer in e3.PUBLISHED for delta in e3.DELTAS}
    assert published["MWF", 5] == e3.PublishedRow(0.118, 9.2)
    assert published["MBFP", 25] == e3.PublishedRow(0.0014, 24.1)


def test_the_band_is_five_percent_of_r_and_fifteen_thousandths_of_cbs() -> None:
    published = e3.PublishedRow(cbs=0.1, rscore=20.0)
    assert reproduced(Mean(0.114, 0, 20.9, 0), published)
    assert not reproduced(Mean(0.116, 0, 20.0, 0), published)
    assert not reproduced(Mean(0.1, 0, 21.1, 0), published)
    assert reproduced(Mean(0.0, 0, 0.4, 0), e3.PublishedRow(0.0, 0.0))


def test_a_packer_is_dominated_only_if_it_loses_in_both() -> None:
    others = {(ours(price), 5): Mean(0.5, 0, 9.0, 0) for price in (0.0, 1.25, 2.5)}
    beaten = {("MWF", 5): Mean(0.1, 0, 8.0, 0)}
    assert dominating_price({**others, **beaten, (ours(float("inf")), 5): Mean(0.1, 0, 7.0, 0)}, "MWF", 5) is None
    assert dominating_price({**others, **beaten, (ours(float("inf")), 5): Mean(0.09, 0, 7.0, 0)}, "MWF", 5) == float(
        "inf"
    )


def test_a_small_run_writes_rows_a_picture_and_a_report(tmp_path: Path) -> None:
    pytest.importorskip("ortools", reason="OR-tools is not installed: pip install headgate[exact]")
    settings = Settings(1, 12, (5,), ("uniform",), exact_deltas=(5,), exact_every=100, exact_partitions=12)
    told: list[str] = []
    rows = measure(settings, told.append)
    verdicts = packing_report.write(tmp_path, rows, distances(settings, told.append), ["A small run."])
    assert {row.packer for row in rows} > set(e3.PUBLISHED)
    assert min(row.cbs for row in rows if row.packer in e3.PUBLISHED) >= 0
    assert len(told) == len(rows) + 2
    assert [v.what[:5] for v in verdicts] == ["δ = 5"] * 3
    with (tmp_path / "rows.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    assert (tmp_path / "pareto.png").read_bytes().startswith(b"\x89PNG")
    report = (tmp_path / "report.md").read_text()
    assert "A small run." in report
    assert "optimum on 12 partitions" in report
    assert all(f"| {packer} |" in report for packer in e3.PUBLISHED)
