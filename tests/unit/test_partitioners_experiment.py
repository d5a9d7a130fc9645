"""The partitioner experiment: layouts, intervals, verdicts, what is published, what is kept, the report."""

import math
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.errors import ConfigError, SetupError
from headgate.experiments.intervals import Interval, Verdict
from headgate.experiments.partitioners import QUICK, Plan
from headgate.experiments.partitioners_cases import (
    ACKS,
    BASELINE,
    PAPER,
    SCENARIOS,
    SHARED,
    Cell,
    Part,
    cells,
    expected,
    shuffled,
)
from headgate.experiments.partitioners_live import Size, landed, spent_ms
from headgate.experiments.partitioners_model import PREDICTED, START, Model, Predicted, predict
from headgate.experiments.partitioners_plots import draw
from headgate.experiments.partitioners_published import DOUBTFUL, PUBLISHED, published
from headgate.experiments.partitioners_report import BY_HAND, published_change, report, write
from headgate.experiments.partitioners_results import Client, Results, Run, run_of
from headgate.experiments.partitioners_simulated import SETTINGS, highest_load, simulate, write_csv
from headgate.experiments.partitioners_tables import change, prose
from headgate.experiments.partitioners_threads import PHASES, measure_threads
from headgate.topology.failures import failed

U2 = Cell(Part.paper, "U2", "all", "default-rr")
U2_NODE = Cell(Part.paper, "U2", "all", "node")


def ran(cell: Cell, number: int, mib_per_s: float, phase: str = "", avg_ms: float = 2.0) -> Run:
    """A run of a MiB of records that is over after 1 / mib_per_s seconds; all latencies are the same."""
    records = 1024**2 // 128
    led, held = landed({(topic, 0): records for topic in cell.topics}, cell.topics)
    return run_of(cell, number, 128, [avg_ms / 1000] * records, 0, 1 / mib_per_s, led, held, phase)


# Intervals


def test_an_interval_is_the_mean_and_students_t_times_the_standard_error() -> None:
    """1, 2, 3, 4, 5: mean 3, deviation sqrt(10 / 4) = 1.5811, error / sqrt(5) = 0.7071, t(4) = 4.604: 3.2555."""
    found = Interval.of([1, 2, 3, 4, 5])
    assert found.mean == 3
    assert found.half == pytest.approx(4.604 * 1.5811388 / math.sqrt(5), rel=1e-6)
    assert found.half == pytest.approx(3.2555, abs=1e-4)


def test_two_runs_have_a_very_wide_interval_and_one_has_none() -> None:
    """10 and 12: deviation sqrt(2), error 1, t(1) = 63.657."""
    assert Interval.of([10, 12]).mean == 11
    assert Interval.of([10, 12]).half == pytest.approx(63.657)
    assert Interval.of([7]).half == math.inf
    assert str(Interval.of([7])) == "7.00"
    assert Interval.of([7]).against(Interval(1, 0.1), more_is_better=True) is Verdict.unknown


def test_twenty_runs_use_nineteen_degrees_of_freedom_and_very_many_the_last_of_the_table() -> None:
    """Half of them 0, half 2: mean 1, deviation sqrt(20 / 19)."""
    assert Interval.of([0, 2] * 10).half == pytest.approx(2.861 * math.sqrt(20 / 19) / math.sqrt(20))
    assert Interval.of([0, 2] * 50).half == pytest.approx(2.750 * math.sqrt(100 / 99) / 10)


@pytest.mark.parametrize(
    ("ours", "theirs", "more_is_better", "verdict"),
    [
        (Interval(10, 1), Interval(12, 1), True, Verdict.level),  # they touch at 11
        (Interval(10, 0.9), Interval(12, 1), True, Verdict.worse),
        (Interval(10, 0.9), Interval(12, 1), False, Verdict.better),
        (Interval(12, 1), Interval(10, 0.9), True, Verdict.better),
        (Interval(3, 0), Interval(3, 0), True, Verdict.level),
    ],
)
def test_only_intervals_that_do_not_overlap_differ(
    ours: Interval, theirs: Interval, more_is_better: bool, verdict: Verdict
) -> None:
    assert ours.against(theirs, more_is_better) is verdict


# Scenarios


def test_the_four_scenarios_have_the_leaders_and_copies_of_the_paper() -> None:
    """B-58: one leader on each of two nodes, or one and two; one copy or two."""
    for name, leaders, copies in (("B1", [1, 1], 1), ("B2", [1, 1], 2), ("U1", [1, 2], 1), ("U2", [1, 2], 2)):
        (topic,) = SCENARIOS[name].topology.topics
        assert [topic.led_by()[node] for node in (1, 2)] == leaders
        assert {len(partition.replicas) for partition in topic.partitions} == {copies}


def test_every_cell_of_the_paper_is_there_once_and_every_round_has_another_order() -> None:
    chosen = cells(Part.paper)
    assert len(chosen) == len(set(chosen)) == len(PAPER) * len(ACKS) * 5
    first, second = shuffled(chosen, 1, 0), shuffled(chosen, 1, 1)
    assert set(first) == set(second) == set(chosen)
    assert first != second
    assert first == shuffled(chosen, 1, 0)


def test_the_default_loads_a_node_by_its_partitions_and_node_loads_nodes_alike() -> None:
    """U2: node 2 leads two of three. Both hold everything, since both have a copy of all partitions."""
    default, node = (expected(name, SCENARIOS["U2"].topology) for name in ("default-rr", "node"))
    assert default is not None
    assert node is not None
    assert default.led == pytest.approx({1: 1 / 3, 2: 2 / 3})
    assert node.led == pytest.approx({1: 1 / 2, 2: 1 / 2})
    assert default.held == pytest.approx({1: 1, 2: 1}) == node.held


def test_copies_of_a_partition_are_as_many_as_its_records() -> None:
    """K, a quarter for each partition: node 1 has partitions 0, 2 and 3, node 2 has 1 and 2, node 3 has 0, 1 and 3."""
    found = expected("default-rr", SCENARIOS["K"].topology)
    assert found is not None
    assert found.led == pytest.approx({1: 0.25, 2: 0.5, 3: 0.25})
    assert found.held == pytest.approx({1: 0.75, 2: 0.5, 3: 0.75})
    away = expected("node", failed(SCENARIOS["K"].topology, [2]))
    assert away is not None
    assert away.led == pytest.approx({1: 0.5, 2: 0, 3: 0.5})


def test_several_producers_are_predicted_as_in_the_papers_prototype() -> None:
    """B-25 with a = b = 1/2 of everything: default a/3, 2a/3 + b/2, b/2; node a/2, (a + b)/2, b/2; shared a third."""
    topology = SCENARIOS["AB"].topology
    for name, shares in (
        ("default-rr", [1 / 6, 1 / 3 + 1 / 4, 1 / 4]),
        ("node", [1 / 4, 1 / 2, 1 / 4]),
        ("sqf", [1 / 4, 1 / 2, 1 / 4]),
        (SHARED, [1 / 3, 1 / 3, 1 / 3]),
    ):
        found = expected(name, topology)
        assert found is not None
        assert [found.led[node] for node in (1, 2, 3)] == pytest.approx(shares)
    assert expected("sqf-inflight", topology) is None


def test_records_land_on_leaders_and_are_held_by_all_replicas() -> None:
    led, held = landed({("t", 0): 10, ("t", 1): 5}, {"t": ((1, 2), (2, 3))})
    assert led == {1: 10, 2: 5, 3: 0}
    assert held == {1: 10, 2: 15, 3: 5}


def test_times_in_the_client_are_means_over_requests_and_not_over_windows() -> None:
    """Two brokers, one with three requests of 1 ms and one with a single one of 5 ms: 2 ms."""

    def window(count: int, total_us: int) -> str:
        return f'{{"cnt": {count}, "sum": {total_us}}}'

    def broker(count: int, total_us: int) -> str:
        names = ("int_latency", "outbuf_latency", "rtt")
        return "{" + ", ".join(f'"{name}": {window(count, (n + 1) * total_us)}' for n, name in enumerate(names)) + "}"

    text = f'{{"brokers": {{"a": {broker(3, 3000)}, "b": {broker(1, 5000)}}}}}'
    assert spent_ms([text, text]) == [2.0, 4.0, 6.0]
    assert all(math.isnan(ms) for ms in spent_ms([]))


# What is published


def test_all_eighteen_tables_are_there_and_their_throughput_and_time_agree() -> None:
    """A-7: 10^10 bytes over the time are MiB/s, to within what a mean of ratios may differ from a ratio of means."""
    assert [row.table for row in PUBLISHED] == [f"7.{n}" for n in range(1, 19)]
    for row in PUBLISHED:
        assert row.mib_per_s.mean == pytest.approx(10**10 / 2**20 / row.seconds.mean, rel=0.06)


def test_percentiles_that_contradict_their_average_are_marked() -> None:
    """A-1."""
    assert {row.table for row in PUBLISHED if row.avg_ms.mean > row.highest_mean_ms} == DOUBTFUL


def test_the_published_changes_are_those_of_the_requirements() -> None:
    """The starred cells of table E-5, and one that is level."""
    assert published_change("U2", "all", "node", "mib_per_s") == "+14.0 %, **better**"
    assert published_change("U2", "all", "sqf", "avg_ms") == "-12.3 %, **better**"
    assert published_change("U1", "1", "sqf", "mib_per_s") == "-13.5 %, **worse**"
    assert published_change("U2", "1", "node", "avg_ms") == "+62.0 %, **worse**"
    assert published_change("B2", "all", "node", "mib_per_s") == "-10.3 %, level"
    assert published("B1", "all", "node") is published("B1", "1", "node")
    assert published("B1", "1", "improved") is None


# The published rows in the simulator of one producer


@pytest.fixture(scope="module")
def simulated_rows() -> dict[tuple[str, str, str], Predicted]:
    """With round numbers for what things cost, which are not even fitted."""
    return {(row.scenario, row.acks, row.partitioner): row for row in predict(Model.of(START))}


@pytest.mark.parametrize("name", PREDICTED)
@pytest.mark.parametrize(("scenario", "acks", "faster"), [("U2", "1", False), ("U2", "all", True)])
def test_node_and_sqf_gain_and_lose_where_they_are_published_to(
    simulated_rows: dict[tuple[str, str, str], Predicted], scenario: str, acks: str, faster: bool, name: str
) -> None:
    """E-5: the signs of every difference with two copies whose published intervals are disjoint."""
    row, default = simulated_rows[scenario, acks, name], simulated_rows[scenario, acks, BASELINE]
    throughput, _, latency, _ = row.changes(default)
    assert (throughput > 0) == faster
    assert (latency < 0) == faster


def test_without_copies_levelling_costs_where_batches_one_by_one_are_all_that_a_node_can_take() -> None:
    """A batch of 1/64 MiB takes 0.4 ms and 1/64/150 s: 31 MiB/s are the most for a node with one partition, and half of
    64 go to it by Node. By the default it is a third, and the other node gets two batches with each request."""
    model = Model.of((64 * 2**20, *START[1:]))
    default, node = (
        model.produced("U1", "1", name, buffer_bytes=2**18, grain_bytes=4096, grains=16_000).bytes_per_s / 2**20
        for name in (BASELINE, "node")
    )
    assert default == pytest.approx(64, rel=0.005)
    assert node == pytest.approx(62, rel=0.005)


def test_where_leaders_are_even_it_makes_no_difference(
    simulated_rows: dict[tuple[str, str, str], Predicted],
) -> None:
    for scenario, acks in (("B1", "1"), ("B2", "1"), ("B2", "all")):
        for name in PREDICTED:
            row, default = simulated_rows[scenario, acks, name], simulated_rows[scenario, acks, BASELINE]
            assert row.changes(default)[0] == pytest.approx(0, abs=1)


def test_changes_are_against_the_default_in_the_same_cell() -> None:
    row, default = Predicted("U2", "1", "node", 30, 50, 16, 12, 8), Predicted("U2", "1", BASELINE, 20, 100, 16, 10, 16)
    assert row.changes(default) == pytest.approx((50, 20, -50, -50))


# Runs and what they come to


def test_a_run_knows_its_throughput_percentiles_and_shares() -> None:
    """100 latencies of 1 to 100 ms: the median lies between 50 and 51, p99 0.01 of the way from 99 to 100."""
    run = run_of(
        U2,
        0,
        1024,
        [n / 1000 for n in range(1, 101)],
        1,
        0.5,
        {1: 25, 2: 75},
        {1: 100, 2: 100},
        client=Client(1.0, 2.0, 3.0, 0.4, 0.2),
    )
    assert (run.records, run.failed) == (101, 1)
    assert run.mib_per_s == pytest.approx(100 * 1024 / 2**20 / 0.5, abs=1e-4)
    assert (run.avg_ms, run.p50_ms, run.p99_ms, run.max_ms) == (50.5, 50.5, 99.01, 100)
    assert run.led_shares == {1: 0.25, 2: 0.75}
    assert run.held_shares == {1: 1, 2: 1}


def test_finished_runs_are_kept_and_not_done_again(tmp_path: Path) -> None:
    file = tmp_path / "new" / "runs.csv"
    results = Results(file)
    results.add([ran(U2, 0, 2.0), ran(U2, 1, 4.0)])
    again = Results(file, resume=True)
    assert list(map(str, again.runs)) == list(map(str, results.runs))  # nan is not equal to itself
    assert again.has(U2, 1)
    assert not again.has(U2, 2)
    found = again.interval(U2, lambda run: run.mib_per_s)
    assert found is not None
    assert (found.mean, found.half) == pytest.approx((3.0, 63.657))
    assert again.interval(U2_NODE, lambda run: run.mib_per_s) is None
    assert Results(file).runs == []


def test_what_is_not_known_is_no_number_and_has_no_mean(tmp_path: Path) -> None:
    results = Results(tmp_path / "runs.csv")
    results.add([ran(U2, 0, 2.0)])
    assert Results(tmp_path / "runs.csv", resume=True).interval(U2, lambda run: run.rtt_ms) is None


def test_runs_of_another_size_or_another_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    Results(file).add([ran(U2, 0, 2.0)])
    plan = replace(QUICK, size=Size(8192, 128))
    plan.check(Results(file, resume=True))
    with pytest.raises(ConfigError, match="8,192 records of 128 bytes"):
        Plan().check(Results(file, resume=True))
    file.write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match="leave out --resume"):
        Results(file, resume=True)


def test_what_is_left_to_do_are_the_rounds_that_are_not_whole(tmp_path: Path) -> None:
    results = Results(tmp_path / "runs.csv")
    plan = replace(QUICK, runs=2, more_runs=1)
    assert plan.todo(results, 2) == [(Part.paper, 0), (Part.limited, 0), (Part.consumed, 0), (Part.paper, 1)]
    on_three = (Part.three, Part.several, Part.slow, Part.killed, Part.two_killed)
    assert plan.todo(results, 3) == [(part, 0) for part in on_three]
    results.add([ran(cell, 0, 2.0) for cell in cells(Part.paper)])
    results.add([ran(cell, 0, 2.0, "healthy") for cell in cells(Part.slow)])
    assert plan.todo(results, 2) == [(Part.limited, 0), (Part.consumed, 0), (Part.paper, 1)]
    assert (Part.slow, 0) not in plan.todo(results, 3)


def test_a_change_says_whether_the_intervals_allow_it(tmp_path: Path) -> None:
    results = Results(tmp_path / "runs.csv")
    results.add([ran(U2, n, mib) for n, mib in enumerate([9.8, 9.9, 10.0, 10.1, 10.2])])
    results.add([ran(U2_NODE, n, mib) for n, mib in enumerate([11.8, 11.9, 12.0, 12.1])])
    assert change(results, U2_NODE, "mib_per_s") == "+19.5 %, too few runs"
    results.add([ran(U2_NODE, 4, 12.2)])
    assert change(results, U2_NODE, "mib_per_s") == "+20.0 %, **better**"
    assert change(results, U2_NODE, "avg_ms") == "+0.0 %, level"
    assert change(results, U2, "mib_per_s") == ""


# The simulator's part


def test_the_highest_load_is_what_the_busiest_node_allows() -> None:
    """U2: node 2 gets 2/3 of what two nodes could do, so 3/4 of it at most. S with one node at half speed: a third goes
    there, so 1/2; whoever goes by speed uses 2.5 of 3 nodes."""
    settings = {setting.name: setting for setting in SETTINGS}
    assert highest_load(settings["unbalanced, two nodes"], "default-rr") == pytest.approx(0.75)
    assert highest_load(settings["unbalanced, two nodes"], "node") == pytest.approx(1.0)
    assert highest_load(settings["slow node"], "node") == pytest.approx(0.5)
    assert highest_load(settings["slow node"], "sqf-inflight") == pytest.approx(2.5 / 3)


def test_in_the_simulator_node_relieves_the_node_that_leads_two_and_adaptive_ones_the_slow_one() -> None:
    chosen = [replace(s, loads=s.loads[:2]) for s in SETTINGS if s.name in ("unbalanced, two nodes", "slow node")]
    rows = {(row.setting, row.partitioner, row.load): row for row in simulate(10_000, 1, settings=chosen)}
    uneven = {name: rows["unbalanced, two nodes", name, 0.7] for name in ("default-rr", "node")}
    assert uneven["default-rr"].wait_mean > 2 * uneven["node"].wait_mean
    assert uneven["default-rr"].shares == "33 / 67"
    assert uneven["node"].shares == "50 / 50"
    slow = {name: rows["slow node", name, 0.4].wait_mean for name in ("node", "sqf-inflight", "latency-weighted")}
    assert max(slow["sqf-inflight"], slow["latency-weighted"]) < slow["node"]
    assert not rows["slow node", "node", 0.6].stable


# The report


def test_the_report_keeps_what_was_written_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    write(file, "# first")
    assert file.read_text() == f"# first\n{BY_HAND}\n"
    file.write_text(f"# first\n{BY_HAND}\n\n## What the machine was doing\n\nNothing else.\n")
    write(file, "# second")
    assert file.read_text() == f"# second\n{BY_HAND}\n\n## What the machine was doing\n\nNothing else.\n"


def test_a_point_of_a_list_is_wrapped_and_indented() -> None:
    lines = prose(f"- {'word ' * 40}")
    assert len(lines) == 2
    assert lines[1].startswith("  word")


def test_the_report_and_the_plots_stand_with_all_runs_with_some_and_with_none(tmp_path: Path) -> None:
    simulated = simulate(500, 1)
    model, row = Model.of(START), Predicted("U2", "1", "node", 30, 50, 16, 12, 8)
    predicted = [replace(row, partitioner=name) for name in (BASELINE, *PREDICTED)]
    for name, runs in (("none", 0), ("all", 2)):
        out = tmp_path / name
        results = Results(out / "runs.csv")
        for part in Part:
            phases = {
                Part.slow: ("healthy", "slow"),
                Part.killed: ("before", "failing", "away", "returning", "back"),
                Part.two_killed: ("before", "failing", "returning", "back"),
                Part.consumed: ("acknowledged", "read"),
                Part.threads: tuple(PHASES),
            }
            results.add(
                ran(cell, n, 10.0 + n, phase)
                for cell in cells(part)
                for n in range(runs)
                for phase in phases.get(part, ("",))
            )
        text = report(results, simulated, (model, predicted), QUICK, "How.")
        write_csv(simulated, out / "simulated.csv")
        write_csv(predicted, out / "published_simulated.csv")
        draw(results, simulated, out)
        for is_table, lines in groupby(text.splitlines(), key=lambda line: line.startswith("|")):
            assert not is_table or len({line.count("|") for line in lines}) == 1
        assert "+14.0 %, **better**" in text
        assert {file.name for file in out.glob("*.png")} == {"changes.png", "load.png", "faults.png", "simulated.png"}
        for heading in ("Where nodes limit", "Three nodes", "Several producers", "A slow node", "A node killed"):
            assert f"## {heading}" in text
        for heading in ("Two of three nodes killed", "Until a consumer has a record", "What stresses `improved`"):
            assert f"## {heading}" in text
        assert ("too few runs" in text) == (runs > 0)
        assert ("here not measured" in " ".join(text.split())) == (runs == 0)


def test_one_part_begins_anew_and_the_runs_of_the_others_stay(tmp_path: Path) -> None:
    file, slow = tmp_path / "runs.csv", cells(Part.slow)[0]
    Results(file).add([ran(U2, 0, 2.0), ran(slow, 0, 2.0, "healthy"), ran(slow, 0, 2.0, "slow")])
    assert [run.cell for run in Results(file, anew=(Part.slow,)).runs] == [U2]
    assert [run.cell for run in Results(file, resume=True, anew=(Part.paper,)).runs] == [U2]
    assert [run.cell for run in Results(file, anew=(Part.paper,)).runs] == []


def test_a_part_that_is_there_is_not_measured_again_unasked_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    Results(tmp_path / "runs.csv").add([ran(U2, 0, 2.0)])
    words = ["experiment", "partitioners", "--quick", "--out", str(tmp_path), "--part"]
    refused = CliRunner().invoke(app, [*words, "paper"]).exception
    assert isinstance(refused, SetupError)
    assert "--overwrite" in str(refused)
    unknown = CliRunner().invoke(app, [*words, "paper", "--part", "slow node"]).exception
    assert isinstance(unknown, ConfigError)
    assert "two_killed" in str(unknown)
    assert len(Results(tmp_path / "runs.csv", resume=True).runs) == 1


def test_improved_is_stressed_by_threads_and_new_topics() -> None:
    runs = list(measure_threads(0, seed=1, calls=800))
    assert {(run.partitioner, run.phase) for run in runs} == {
        (name, phase) for name in ("default-rr", "improved") for phase in PHASES
    }
    assert all((run.records, run.failed) == (800, 0) and run.seconds > 0 for run in runs)


def test_finished_runs_are_not_thrown_away_unasked(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("hours of work")
    result = CliRunner().invoke(app, ["experiment", "partitioners", "--quick", "--out", str(tmp_path)])
    assert isinstance(result.exception, SetupError)
    assert "--overwrite" in str(result.exception)
    assert (tmp_path / "runs.csv").read_text() == "hours of work"
