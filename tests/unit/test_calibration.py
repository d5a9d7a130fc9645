"""What calibration makes of cycles, and in which layouts it measures, by hand-computed numbers."""

from dataclasses import asdict
from pathlib import Path

import pytest
import typer
from rich.console import Console

from headgate.cli.calibrate import session_of_a_consumer, suggested_texts, write_capacities
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.controller.calibration import Calibration, Measure, Measured
from headgate.controller.layouts import layouts
from headgate.model import TopicPartition
from headgate.model.messages import CycleRecord


def cycle(payload_bytes: int, busy_s: float, peak: bool = True) -> CycleRecord:
    return CycleRecord(
        1, "life", 1, 0, 32, 1, payload_bytes // 1000, payload_bytes // 1000, payload_bytes,
        0.2 * busy_s, 0.7 * busy_s, 0.1 * busy_s, 0.0, 0, peak, (), "",
    )  # fmt: skip


def pipeline(tmp_path: Path, tables: int) -> Pipeline:
    listed = "".join(
        f"  - {{name: lake.t{n}, topics: [t{n}], format: json, schema: 'id long'}}\n" for n in range(tables)
    )
    file = tmp_path / "pipeline.yaml"
    topics = ", ".join(f"t{n}" for n in range(tables))
    file.write_text(f"name: x\nkafka: {{brokers: 'localhost:1'}}\ntopics: [{topics}]\ntables:\n{listed}")
    return load_pipeline(file)


def test_only_full_cycles_after_the_warm_up_count() -> None:
    cold, short, full = cycle(5_000_000, 50.0), cycle(1000, 1.0, peak=False), cycle(5_000_000, 2.0)
    measured = Measured.of("x", [cold, short, cold, *[full] * 6, short])
    assert measured is not None
    assert measured.cycles == 6
    assert asdict(measured.bytes_per_s) == pytest.approx(asdict(Measure(2.5e6, 0.0, 2.5e6, 2.5e6)))
    assert measured.records_per_s.mean == pytest.approx(2500)
    assert measured.process_s.mean == pytest.approx(1.4)
    assert measured.total_bytes == 30_000_000


def test_too_few_full_cycles_measure_nothing() -> None:
    assert Measured.of("x", [cycle(5_000_000, 2.0)] * 6) is None  # two of them warm up, four are left


def test_the_interval_holds_the_mean_and_shrinks_with_more_cycles() -> None:
    few, many = Measure.of([1.0, 2.0, 3.0] * 3), Measure.of([1.0, 2.0, 3.0] * 100)
    assert few.mean == many.mean == pytest.approx(2.0)
    assert few.low < many.low < 2.0 < many.high < few.high
    # 300 values of deviation 0.82: the mean's own is 0.82 / sqrt(300) = 0.047, and 95 % lie within 1.96 of those.
    assert (many.low, many.high) == pytest.approx((2 - 0.092, 2 + 0.092), abs=0.02)


def test_the_published_measurements_lead_to_the_published_capacities() -> None:
    # E2: 2.42, 2.31 and 2.42 MB/s were measured, 2.0 and 1.5 chosen (L-2).
    published = []
    for bytes_per_s in (2_418_855, 2_307_501, 2_418_220):
        one = Measured.of("x", [cycle(bytes_per_s, 1.0)] * 8)
        assert one is not None
        published.append(one)
    result = Calibration(tuple(published))
    assert result.slowest is published[1]
    assert result.consumer_capacity_bytes_per_s == pytest.approx(2.0e6, rel=0.02)
    assert result.packing_capacity_bytes_per_s == pytest.approx(1.5e6, rel=0.02)
    assert result.packing_capacity_bytes_per_s < result.consumer_capacity_bytes_per_s


def test_layouts_are_the_published_ones_where_the_pipeline_is_large_enough(tmp_path: Path) -> None:
    backlog = {TopicPartition(f"t{n % 5}", n // 5): 1000 - n for n in range(200)}  # 40 partitions for each of 5 tables
    few, thin, many = layouts(pipeline(tmp_path, 5), backlog)
    assert [len(one.partitions) for one in (few, thin, many)] == [32, 116, 144]
    assert [len(one.tables) for one in (few, thin, many)] == [1, 5, 5]
    assert {p.topic for p in few.partitions} == {"t0"}  # which holds most
    assert {p.partition for p in few.partitions} == set(range(32))  # its fullest
    assert thin.most_bytes == 100e6


def test_layouts_that_are_the_same_here_are_measured_once_and_empty_partitions_never(tmp_path: Path) -> None:
    backlog = {TopicPartition("t0", n): 1000 * (n != 3) for n in range(8)}
    (only,) = layouts(pipeline(tmp_path, 1), backlog)
    assert [p.partition for p in only.partitions] == [0, 1, 2, 4, 5, 6, 7]
    assert only.most_bytes == float("inf")


def test_a_consumer_is_measured_with_the_cores_its_fleet_would_give_it(tmp_path: Path) -> None:
    threads = pipeline(tmp_path, 1)
    processes = threads.model_copy(update={"fleet": threads.fleet.model_copy(update={"kind": "processes"})})
    assert threads.consumer.spark.master == "local[1]"
    assert session_of_a_consumer(threads).master == "local[*]"
    assert session_of_a_consumer(processes).master == "local[1]"


def test_suggestions_have_two_digits_however_fast_or_slow_the_consumer_is() -> None:
    def texts(consumer: float, packing: float) -> list[str]:
        return list(suggested_texts(consumer, packing).values())

    assert texts(1_961_375, 1_471_031) == ["2 MB/s", "1.5 MB/s"]  # the published measurements lead to what was chosen
    assert texts(4321.0, 3240.75) == ["4.3 kB/s", "3.2 kB/s"]
    assert texts(87_654_321, 65_740_740) == ["88 MB/s", "66 MB/s"]
    assert texts(12.6, 9.3) == ["13 B/s", "9.3 B/s"]


def test_a_measurement_that_was_stopped_writes_nothing_and_fails(tmp_path: Path) -> None:
    pipeline(tmp_path, 1)
    file = tmp_path / "pipeline.yaml"
    before = file.read_text()
    measured = Measured.of("x", [cycle(2_307_501, 1.0)] * 8)
    assert measured is not None
    console = Console(quiet=True)
    with pytest.raises(typer.Exit) as stopped:
        write_capacities(console, Calibration((measured,)), file, stopped=True)
    assert stopped.value.exit_code == 1
    assert file.read_text() == before
    write_capacities(console, Calibration((measured,)), file, stopped=False)
    assert load_pipeline(file).policy.consumer_capacity_bytes_per_s == 2e6  # 85 % of 2.31 MB/s is 1.96
