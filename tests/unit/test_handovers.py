"""E4: times of decisions out of journals, by hand."""

import csv
from pathlib import Path

import pytest

from headgate.experiments.handovers import LiveRun, LoadStep, Sample, draw, report, samples, summary, table, write_csv
from headgate.experiments.handovers_live import Plan
from headgate.model.messages import CycleRecord, DecisionRecord, Measurement, PartitionRate

BEGAN_S = 1000.0


def decided(
    at_s: float, before: int, after: int, times: tuple[float, float, float], created: int = 0, outcome: str = "applied"
) -> DecisionRecord:
    at_ms = int(1000 * (BEGAN_S + at_s))
    ids = tuple(range(1, created + 1))
    return DecisionRecord(
        at_ms, 1, 1, "overload", "why", outcome, before, after, 2, 0, 0, (), ids, (), (), (), {}, 30.0, *times
    )


def measured(at_s: float, *rates: float) -> Measurement:
    listed = tuple(PartitionRate("t", n, rate, rate / 100, 0, 30.0) for n, rate in enumerate(rates))
    return Measurement(int(1000 * (BEGAN_S + at_s)), 30.0, "offsets", listed)


def cycled(total_s: float) -> CycleRecord:
    return CycleRecord(1, "1", 1, 0, 1, 1, 1, 1, 1, 0.0, total_s, 0.0, 0.0, 0, False, (), "")


RUN = LiveRun(
    "processes, 0 spares",
    BEGAN_S,
    (LoadStep(10, 50, 200.0), LoadStep(50, 90, 100.0)),
    (
        decided(5, 0, 1, (0.1, 20.0, 0.5), created=1),
        decided(60, 1, 3, (0.3, 40.0, 4.0), created=2),
        decided(70, 3, 3, (0.2, 0.0, 6.0)),
        decided(80, 3, 2, (9.9, 9.9, 9.9), outcome="out of sync: consumer 2 was replaced meanwhile"),
    ),
    # 200 is reached to within 5 % (190) at 38 s, in two partitions of which none shows it alone; 100 never.
    (measured(9, 100, 100), measured(20, 60, 60), measured(38, 95, 95), measured(49, 100, 100), measured(85, 75, 75)),
    (cycled(2.0), cycled(4.0)),
)


def of(time: str) -> list[float]:
    return [s.seconds for s in samples(RUN) if s.time == time]


def test_t1_ends_with_the_first_measurement_near_the_new_level_before_the_next_step() -> None:
    assert of("t1") == [28.0]


def test_t3_counts_only_where_the_group_grew_and_nothing_counts_that_was_not_carried_out() -> None:
    assert of("t2") == [0.1, 0.3, 0.2]
    assert of("t3") == [20.0, 40.0]
    assert of("t4") == [0.5, 4.0, 6.0]
    assert RUN.failed == 1


def test_growing_into_a_spare_counts_as_a_start_of_no_time() -> None:
    spare = LiveRun("s", BEGAN_S, (), (decided(5, 1, 2, (0.1, 0.0, 3.0)),), (), ())
    assert [s.seconds for s in samples(spare) if s.time == "t3"] == [0.0]


def test_quantiles_are_those_of_all_samples_and_a_time_without_samples_says_so() -> None:
    count, values = summary(samples(RUN), RUN.fleet, "t4")
    assert count == 3
    assert values == pytest.approx((0.5, 4.0, 5.6, 5.96, 6.0))  # 90 % lie 0.8 of the way from 4 to 6
    rows = {(row[0], row[1]): row[2:] for row in table([s for s in samples(RUN) if s.time != "t1"])}
    assert rows["t1", RUN.fleet] == ("0", "", "", "", "", "")
    assert rows["t3", RUN.fleet][:3] == ("2", "20.00", "30.00")


def test_everything_is_written_down(tmp_path: Path) -> None:
    found = samples(RUN)
    write_csv(found, tmp_path / "samples.csv")
    with (tmp_path / "samples.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert [(r["time"], r["seconds"]) for r in rows if r["consumers_after"] == "3" and r["created"] == "2"] == [
        ("t2", "0.3"),
        ("t3", "40.0"),
        ("t4", "4.0"),
    ]
    text = report([RUN], found, "How it was measured.")
    assert "2 cycles, p50 3.00 s" in text
    assert "1 decisions were not carried out" in text
    draw([*found, Sample("threads, 0 spares", "t4", 0.0, 2.0)], tmp_path / "handovers.png")
    assert (tmp_path / "handovers.png").stat().st_size > 10_000


def test_the_load_is_made_of_steps_and_then_walks_within_their_bounds() -> None:
    plan = Plan(steps=3, step_s=10.0, walk_s=20.0, partitions=4)
    load = plan.workload()
    assert [sum(load.rates(t).values()) for t in (5, 15, 25)] == [50_000, 200_000, 50_000]
    assert plan.load_steps() == (LoadStep(10, 20, 200_000), LoadStep(20, 30, 50_000))
    assert all(0 <= rate <= 60_000 for t in range(30, 50) for rate in load.rates(t).values())
