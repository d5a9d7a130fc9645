"""What calibration makes of cycles, and in which layouts it measures, by hand-computed numbers."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from headgate.cli.calibrate import session_of_a_consumer, write_capacities
from headgate.cli.calibrate_view import doubts, suggested_texts
from headgate.cli.main import app
from headgate.config.clients import reader_settings
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.controller.layouts import layouts
from headgate.controller.measured import Calibration, Measure, Measured
from headgate.controller.scratch import scratch_of
from headgate.controller.warming import WarmUp, is_warm
from headgate.errors import ConfigError
from headgate.kafka.internal_topics import Topics
from headgate.model import TopicPartition
from headgate.model.capacity import CapacityMeter
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


def test_only_full_cycles_after_the_first_two_count() -> None:
    cold, short, full = cycle(5_000_000, 50.0), cycle(1000, 1.0, peak=False), cycle(5_000_000, 2.0)
    measured = Measured.of("x", [cold, short, cold, *[full] * 6, short])
    assert measured is not None
    assert measured.cycles == 6
    assert asdict(measured.bytes_per_s) == pytest.approx({"mean": 2.5e6, "low": 2.5e6, "high": 2.5e6})
    assert measured.records_per_s.mean == pytest.approx(2500)
    assert measured.process_s.mean == pytest.approx(1.4)
    assert measured.total_bytes == 30_000_000


def test_too_few_full_cycles_measure_nothing() -> None:
    assert Measured.of("x", [cycle(5_000_000, 2.0)] * 6) is None  # two of them do not count, four are left


def test_a_rate_is_all_bytes_over_all_time_as_consumers_measure_it_themselves() -> None:
    cycles = [cycle(500_000, 1.0), cycle(500_000, 4.0)] * 10
    measured = Measured.of("x", cycles)
    assert measured is not None
    # 1 MB in 5 s; the mean of 500 and 125 kB/s would be 312.5.
    assert measured.bytes_per_s.mean == pytest.approx(200_000)
    assert measured.records_per_s.mean == pytest.approx(200)
    assert measured.bytes_per_s.mean == pytest.approx(measured.total_bytes / (measured.cycles * measured.cycle_s.mean))
    meter = CapacityMeter("mean")
    for one in cycles[2:]:
        meter.add(one.payload_bytes, one.busy_s)
    assert measured.bytes_per_s.mean == pytest.approx(meter.per_s)


def test_the_interval_of_a_rate_comes_from_whole_cycles() -> None:
    # Twice the bytes in twice the time: however the cycles are drawn, the rate is the same.
    measured = Measured.of("x", [cycle(500_000, 1.0), cycle(1_000_000, 2.0)] * 10)
    assert measured is not None
    assert (measured.bytes_per_s.low, measured.bytes_per_s.high) == pytest.approx((500_000, 500_000))
    assert (measured.records_per_s.low, measured.records_per_s.high) == pytest.approx((500, 500))
    # Nine of 1 s and nine of 4 s, 500 kB each: a share p of long ones makes 500 kB / (1 + 3 p), and of 18 draws with
    # p = 1/2 all but 5 % give between 5 and 13 long ones: between 157.9 and 272.7 kB/s.
    uneven = Measured.of("x", [cycle(500_000, 1.0), cycle(500_000, 4.0)] * 10)
    assert uneven is not None
    assert (uneven.bytes_per_s.low, uneven.bytes_per_s.high) == pytest.approx((157_895, 272_727), rel=1e-4)


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


def test_a_jvm_is_warm_when_twenty_full_cycles_brought_nothing_faster() -> None:
    cold, warmer, warm = ([cycle(5_000_000, busy_s)] * 10 for busy_s in (1.0, 0.5, 0.48))
    assert not is_warm([*warm, *warm])  # too few to say
    assert not is_warm([*cold, *warmer, *warm])  # twice as fast as the first ten
    assert is_warm([*cold, *warmer, *warm, *warm])  # by 4 %, which is noise
    assert is_warm([*warm, *cold, *cold])  # a machine that became busy is not warming up


def test_cycles_that_stay_the_same_for_a_while_or_pause_are_not_taken_for_the_end_of_the_warm_up() -> None:
    # As measured: 3.3, 5.7, 5.9 and 6.8 MB/s, and only then 8.4 and 8.0.
    spans = [[cycle(5_000_000, 5 / mb_per_s)] * 10 for mb_per_s in (3.3, 5.7, 5.9, 6.8, 8.4, 8.0, 8.2)]
    warm = [is_warm([one for span in spans[:count] for one in span]) for count in range(8)]
    assert warm == [False] * 7 + [True]
    # With a pause of 6 s, which makes them slow as a whole, the newest twenty still have ten that are faster.
    pausing = [cycle(5_000_000, 0.5)] * 9 + [cycle(5_000_000, 6.0)] + [cycle(5_000_000, 0.5)] * 10
    assert not is_warm([cycle(5_000_000, 1.0)] * 20 + pausing)


def test_two_cycles_at_once_that_take_turns_in_being_short_are_no_faster() -> None:
    # 10 MB in 1 s, whichever of the two it is counted for.
    assert is_warm([cycle(5_000_000, busy_s) for busy_s in [0.5] * 10 + [0.01, 0.99] * 10])


def test_it_is_said_when_there_was_not_enough_to_warm_up_with() -> None:
    measured = Measured.of("all tables", [cycle(2_307_501, 1.0)] * 8)
    assert measured is not None
    assert doubts(Calibration((measured,), (), WarmUp(42, 31.0, is_complete=True))) == []
    (doubt,) = doubts(Calibration((measured,), (), WarmUp(12, 60.2, is_complete=False)))
    assert "too slow: 12 full cycles in 60 s were not enough" in doubt


def test_layouts_are_the_published_ones_where_the_pipeline_is_large_enough(tmp_path: Path) -> None:
    backlog = {TopicPartition(f"t{n % 5}", n // 5): 1000 - n for n in range(200)}  # 40 partitions for each of 5 tables
    few, thin, many = layouts(pipeline(tmp_path, 5), backlog)
    assert [len(one.partitions) for one in (few, thin, many)] == [32, 116, 144]
    assert [len(one.tables) for one in (few, thin, many)] == [1, 5, 5]
    assert {p.topic for p in few.partitions} == {"t0"}  # which holds most
    assert {p.partition for p in few.partitions} == set(range(32))  # its fullest
    assert thin.most_bytes == 100e6


def test_no_table_is_missing_because_its_partitions_hold_a_little_less(tmp_path: Path) -> None:
    backlog = {TopicPartition(f"t{n}", m): 1000 - n for n in range(5) for m in range(29)}  # 145 partitions
    _, thin, _ = layouts(pipeline(tmp_path, 5), backlog)
    chosen = Counter(p.topic for p in thin.partitions)
    assert chosen == {"t0": 24, "t1": 23, "t2": 23, "t3": 23, "t4": 23}  # 116 in turns


def test_layouts_that_are_the_same_here_are_measured_once_and_empty_partitions_never(tmp_path: Path) -> None:
    backlog = {TopicPartition("t0", n): 1000 * (n != 3) for n in range(8)}
    (only,) = layouts(pipeline(tmp_path, 1), backlog)
    assert [p.partition for p in only.partitions] == [0, 1, 2, 4, 5, 6, 7]
    assert only.most_bytes == float("inf")


def test_scratch_topics_lie_within_what_a_pipeline_may_do_and_are_nobodys_data(tmp_path: Path) -> None:
    long = "orders-" + "x" * 121  # the longest name there is
    ours = pipeline(tmp_path, 1).model_copy(update={"name": long, "topics_pattern": ".*"})
    scratch = scratch_of(ours, tmp_path / "scratch")
    names = set(Topics(scratch.name).settings())
    assert all(name.startswith(f"__headgate.{long}.") and len(name) <= 249 for name in names)  # Kafka's longest
    assert not names & set(Topics(long).settings())
    assert not any(ours.matches(name) for name in names)
    assert reader_settings(scratch)["group.id"] == reader_settings(ours)["group.id"] == f"headgate-{long}-reader"
    assert scratch.home == tmp_path / "scratch"


def test_a_consumer_is_measured_with_the_cores_its_fleet_would_give_it(tmp_path: Path) -> None:
    threads = pipeline(tmp_path, 1)
    processes = threads.model_copy(update={"fleet": threads.fleet.model_copy(update={"kind": "processes"})})
    assert threads.consumer.spark.master == "local[1]"
    assert session_of_a_consumer(threads, tmp_path).master == "local[*]"
    assert session_of_a_consumer(processes, tmp_path).master == "local[1]"


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["pipeline.yaml", "--megabytes", "400"], "--megabytes: for generated records only"),
        (["pipeline.yaml", "--tables", "5", "--partitions", "9"], "--partitions, --tables: for generated records only"),
        (["--tables", "5", "--partitions", "3"], "5 --tables need as many --partitions at least, not 3"),
        (["--write"], "--write needs the FILE"),
    ],
)
def test_options_that_would_do_nothing_are_refused(words: list[str], refusal: str) -> None:
    refused = CliRunner().invoke(app, ["calibrate", *words])
    assert isinstance(refused.exception, ConfigError)
    assert str(refused.exception).startswith(refusal)


def test_spark_keeps_out_of_the_home_of_a_pipeline_that_may_be_running(tmp_path: Path) -> None:
    ours = pipeline(tmp_path, 1)
    session = session_of_a_consumer(ours, tmp_path / "scratch")
    assert session.logs.is_relative_to(tmp_path / "scratch")
    assert not session.logs.is_relative_to(ours.home)


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
