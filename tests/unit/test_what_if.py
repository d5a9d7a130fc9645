"""Policies compared on recorded traffic, by hand-computed runs and through the command line."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from headgate.cli.group import _policy_maker
from headgate.cli.main import app
from headgate.cli.plan import facts_of
from headgate.cli.policy_choice import chosen
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.controller.assembly import events_within, fixed_s, goal_of, policy_of
from headgate.controller.planning import Situation
from headgate.controller.policy_choices import Choice
from headgate.errors import ConfigError, HeadgateError
from headgate.experiments.engines import EngineName
from headgate.experiments.what_if import compare
from headgate.experiments.what_if_circumstances import Circumstances
from headgate.experiments.what_if_scores import Score, mean, ranked
from headgate.experiments.what_if_world import run_settings
from headgate.groups.controller import GroupSettings
from headgate.model import Assignment, Observation, PartitionLoad, TopicPartition
from headgate.policies.registry import policy_names
from headgate.policies.slo import Slo
from headgate.simulation.packets import cut
from headgate.simulation.recorded import Trace

PIPELINE = """\
name: shop
kafka: {brokers: "localhost:1"}
topics: [orders]
tables: [{name: all}]
policy: {consumer_capacity_bytes_per_s: 2 kB/s, packing_capacity_bytes_per_s: 1.6 kB/s}
slo: {latency_s: 5 s, quantile: 0.95}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE)
    return path


@pytest.fixture
def pipeline(file: Path) -> Pipeline:
    return load_pipeline(file)


def steady(bytes_per_s: float, partitions: int = 4, minutes: int = 10, topic: str = "orders") -> Trace:
    """Records of 100 bytes, the same in every partition and second."""
    size = np.full((60 * minutes, partitions), bytes_per_s / partitions)
    names = tuple(TopicPartition(topic, n) for n in range(partitions))
    return Trace(names, np.arange(60.0 * minutes + 1), size / 100, size)


def csv_of(trace: Trace, path: Path) -> Path:
    rows = [
        f"{start:g},{p},{trace.records[row, n]:g},{trace.bytes[row, n]:g}"
        for row, start in enumerate(trace.edges_s[:-1])
        for n, p in enumerate(trace.partitions)
    ]
    path.write_text("\n".join(["time,partition,records,bytes", *rows]) + "\n")
    return path


def simulated(file: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["simulate", str(file), *options])


def test_one_consumer_at_half_its_capacity_is_in_time_and_costs_its_minutes(pipeline: Pipeline) -> None:
    circumstances = Circumstances.of(pipeline, price_per_hour=0.30)
    found = compare(pipeline, lambda _: steady(1000.0), [Choice("one", "equal_count", {"replicas": 1})], circumstances)
    (score,) = found.scores
    assert score.sla_percent == 100.0
    assert score.replica_minutes == pytest.approx(10.0)
    assert score.money == pytest.approx(10 / 60 * 0.30)
    # A record of 100 bytes takes 1/20 s, and every one waits 1 s for its cycle and 1 s for the commit.
    assert score.p50_s == pytest.approx(2.05, abs=1e-6)
    assert score.worst_s == pytest.approx(2.05, abs=1e-6)
    assert (score.moves, score.ups, score.downs, score.causes) == (0, 0, 0, {})
    assert found.cheapest == score
    assert found.resolution.packet_bytes == 100
    assert found.resolution.latency_s == pytest.approx(0.05)


def test_an_overloaded_consumer_falls_behind_as_arithmetic_says(pipeline: Pipeline) -> None:
    circumstances = Circumstances.of(pipeline, consumers=1)
    found = compare(pipeline, lambda _: steady(4000.0), [Choice("one", "equal_count", {"replicas": 1})], circumstances)
    (score,) = found.scores
    # Twice the capacity for 600 s: the last record is done after 1200 s, and waiting grows by a second per second.
    assert score.worst_s == pytest.approx(600 + 2, abs=0.3)
    assert score.p50_s == pytest.approx(300 + 2, abs=0.5)
    # In time are those of the first 3 s (5 s less the 2 s everybody waits) of 600.
    assert score.sla_percent == pytest.approx(100 * 3 / 600, abs=0.05)
    assert set(score.causes) == {"overload"}
    assert score.causes["overload"] == pytest.approx(99.5, abs=0.05)
    assert found.cheapest is None


def test_coarse_packets_change_little(pipeline: Pipeline) -> None:
    fine = Circumstances.of(pipeline)
    choices = [Choice("sentinel", "sentinel")]
    (exact,) = compare(pipeline, lambda _: steady(3000.0), choices, fine).scores
    (coarse,) = compare(pipeline, lambda _: steady(3000.0), choices, replace(fine, most_packets=3000)).scores
    assert coarse.replica_minutes == pytest.approx(exact.replica_minutes, rel=0.02)
    assert coarse.p50_s == pytest.approx(exact.p50_s, abs=4 * 0.3)  # a packet of 600 bytes takes 0.3 s


def test_a_batch_is_as_many_bytes_as_the_file_says_whatever_a_packet_is(pipeline: Pipeline) -> None:
    # Moves wait for the batch in hand, so coarse packets must not make them wait longer.
    for most, packet_bytes in ((1_000_000, 100), (1000, 2400)):  # 4 kB/s for 600 s
        packets = cut(steady(4000.0), most)
        assert packets.packet_bytes == packet_bytes
        batch = run_settings(pipeline, packets, Circumstances.of(pipeline), seed=0).group.max_poll_records
        assert batch * packet_bytes == pytest.approx(5_000_000, rel=0.001)  # consumer.batch_bytes


def test_policies_are_built_with_the_goal_of_the_file_and_their_own_parameters_only(pipeline: Pipeline) -> None:
    # 5 s less 1 s to gather and 1 s to commit.
    assert goal_of(pipeline)["slo_s"] == 3.0
    policy = policy_of(pipeline, "slo", {"thrift": 2.0})
    assert isinstance(policy, Slo)
    assert (policy.slo_s, policy.quantile, policy.thrift) == (3.0, 0.95, 2.0)
    assert policy.max_consumers == 10
    assert policy.capacity_records_per_s is None  # it would rather measure


@pytest.mark.parametrize("name", policy_names())
def test_every_policy_can_be_tried(pipeline: Pipeline, name: str) -> None:
    found = compare(pipeline, lambda _: steady(3000.0, minutes=2), [Choice(name, name)], Circumstances.of(pipeline))
    assert found.scores[0].replica_minutes >= 2.0


def scored(policy: str, sla: float, cost: float) -> Score:
    return Score(policy, sla, cost, 0, 0, 0, 0, 1, 2, 3, {}, (sla,))


def test_the_front_holds_whatever_nothing_else_beats_in_both() -> None:
    found = ranked(
        [scored("dear", 99.9, 30), scored("cheap", 90, 10), scored("worse", 89, 20), scored("even", 99.9, 40)], 0.999
    )
    assert [s.policy for s in found] == ["cheap", "worse", "dear", "even"]
    assert [s.policy for s in found if s.on_front] == ["cheap", "dear"]
    assert [s.policy for s in found if s.meets_goal] == ["dear", "even"]


def test_of_two_that_are_the_same_both_are_on_the_front() -> None:
    found = ranked([scored("a", 99, 10), scored("b", 99, 10), scored("dear", 99, 11), scored("c", 98, 10)], 0.9)
    assert [s.policy for s in found if s.on_front] == ["a", "b"]


def test_optimal_packs_what_is_done_within_the_slo_wherever_it_is_asked(pipeline: Pipeline) -> None:
    # 200 records a second within half a second are 100; within 30 s a second's batch is 200.
    assert [events_within(200, slo_s) for slo_s in (0.5, 1.0, 30.0)] == [100, 200, 200]
    settings = GroupSettings("g", 0.5, 200.0)
    grouped = _policy_maker(settings, Choice("optimal", "optimal"), 8)(200.0, 1)
    rates = {TopicPartition("t", n): PartitionLoad(60.0, 60.0, 0, 0) for n in range(2)}
    seen = Observation(10.0, 10.0, rates, Assignment({1: frozenset(rates)}), {}, 0.0)
    grows = grouped.decide(seen).assignment
    assert grows is not None
    assert len(grows) == 2  # 120 are more than 100
    tight = pipeline.model_copy(update={"slo": pipeline.slo.model_copy(update={"latency_s": fixed_s(pipeline) + 0.5})})
    sized = {p: PartitionLoad(1000 * load.records_per_s, load.records_per_s, 0, 0) for p, load in rates.items()}
    now = Situation(replace(seen, partitions=sized), 0.0, is_past=False, peak_records_per_s=120.0)
    capacity = pipeline.policy.consumer_capacity_bytes_per_s / 1000
    assert facts_of(tight, now)["events"] == pytest.approx(capacity / 2)


def test_a_number_may_be_written_as_programs_print_it() -> None:
    (choice,) = chosen("slo:thrift=1e1")
    assert choice.params == {"thrift": 10.0}


def test_seeds_are_averaged_and_the_worst_latency_stays() -> None:
    one = replace(scored("a", 100, 10), worst_s=3.0, causes={"overload": 2.0})
    two = replace(scored("a", 98, 14), worst_s=9.0)
    both = mean([one, two])
    assert (both.sla_percent, both.replica_minutes, both.worst_s) == (99, 12, 9)
    assert both.causes == {"overload": 1.0}
    assert both.sla_by_seed == (100, 98)


def test_topics_the_pipeline_does_not_have_are_noted(pipeline: Pipeline) -> None:
    found = compare(
        pipeline,
        lambda _: steady(1000.0, minutes=1, topic="else"),
        [Choice("sentinel", "sentinel")],
        Circumstances.of(pipeline),
    )
    assert found.notes == ("else: not among the pipeline's topics; taken to be read once, for one table",)


# The command line


def test_a_csv_is_replayed_and_told_as_text(file: Path, tmp_path: Path) -> None:
    trace = csv_of(steady(3000.0, minutes=2), tmp_path / "trace.csv")
    plot = tmp_path / "plot.png"
    result = simulated(
        file,
        "--trace",
        str(trace),
        "--policy",
        "sentinel,sentinel:packer=bfd",
        "--plot",
        str(plot),
        "--pause",
        "500 ms",
    )
    assert result.exit_code == 0, result.output
    assert "2.0 minutes in 4 partitions" in result.stdout
    assert "packets of 100 bytes" in result.stdout
    assert "● sentinel" in result.stdout
    assert "Cheapest that meets the goal of 95 % within 5 s" in result.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_programs_get_json_and_nothing_else(file: Path, tmp_path: Path) -> None:
    trace = csv_of(steady(1000.0, minutes=1), tmp_path / "trace.csv")
    result = simulated(
        file, "--trace", str(trace), "--policy", "equal_count:replicas=1,hpa", "--slo", "4s", "--output", "json"
    )
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert {p["policy"] for p in told["policies"]} == {"equal_count:replicas=1", "hpa"}
    assert told["circumstances"]["slo_s"] == 4.0
    assert told["trace"] == {"duration_s": 60, "interval_s": 1, "partitions": 4, "records": 600, "bytes": 60000}
    assert told["cheapest_that_meets_the_goal"] in ("equal_count:replicas=1", "hpa")


def test_a_profile_can_be_saved_and_replayed(file: Path, tmp_path: Path) -> None:
    saved = tmp_path / "w1.csv"
    result = simulated(file, "--profile", "w1", "--record-bytes", "100 B", "--save", str(saved))
    assert result.exit_code == 0, result.output
    assert "saved to" in result.stdout
    again = simulated(
        file, "--trace", str(saved), "--last", "60s", "--policy", "hpa", "--output", "json", "--eager", "--seeds", "2"
    )
    assert again.exit_code == 0, again.output
    told = json.loads(again.stdout)
    assert told["trace"]["partitions"] == 5
    assert told["trace"]["duration_s"] == 60
    assert told["circumstances"]["protocol"] == "eager"
    assert len(told["policies"][0]["sla_by_seed"]) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "say which traffic: one of --trace FILE, --from-journal and --profile NAME"),
        (["--profile", "w1", "--from-journal"], "say which traffic"),
        (["--profile", "spikey"], "did you mean 'spiky'"),
        (["--trace", "missing.csv"], "cannot read --trace missing.csv: No such file"),
        (["--profile", "w1", "--policy", "sentinal"], "did you mean 'sentinel'"),
        (["--profile", "w1", "--policy", " , "], "--policy names no policy"),
        (["--profile", "w1", "--policy", "slo:thrifd=2"], "slo has no parameter 'thrifd': did you mean 'thrift'"),
        (["--profile", "w1", "--policy", "slo:thrift"], "'thrift' must be written as param=value"),
        (["--profile", "w1", "--policy", "slo:thrift=-1"], "thrift must be above 0"),
        (["--profile", "w1", "--policy", "slo:thrift=nan"], "thrift must be a finite number, not nan"),
        (["--profile", "w1", "--policy", "slo:thrift=.inf"], "thrift must be a finite number, not inf"),
        (["--profile", "w1", "--policy", "slo:thrift=much"], "thrift must be a finite number, not much"),
        (["--profile", "w1", "--policy", "hpa", "--scale", "inf"], "the scale must be above 0 and finite, not inf"),
        (["--profile", "w1", "--policy", "slo:payback_s=5 MB"], "payback_s has a unit that does not fit here"),
        (["--profile", "w1", "--policy", "sentinel:packer=mwv"], "unknown packer 'mwv': did you mean"),
        (["--profile", "w1", "--policy", "hpa:packer=mwf"], "hpa has no parameter 'packer'"),
        (["--profile", "w1", "--slo", "1s"], "no policy meets a goal of 1 s"),
        (["--profile", "w1", "--plot", "plot.xyz", "--policy", "hpa"], "cannot write plot.xyz"),
        (["--profile", "w1", "--save", "no/such/folder/t.csv"], "cannot write no/such/folder/t.csv"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_allowed(file: Path, options: list[str], said: str) -> None:
    result = simulated(file, *options)
    assert isinstance(result.exception, HeadgateError), result.output
    assert said in str(result.exception)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--slo", "soon"], "must start with a number"),
        (["--slo", "0"], "must be above 0"),
        (["--pause", "-1s"], "must not be negative"),
        (["--record-bytes", "5 s"], "has a unit that does not fit"),
        (["--seeds", "0"], "should be greater than or equal to 1"),
    ],
)
def test_a_wrong_quantity_is_refused(file: Path, options: list[str], said: str) -> None:
    result = simulated(file, "--profile", "w1", *options)
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())


def test_a_file_that_is_not_text_is_refused(file: Path, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_bytes(b"\x89PNG\xff\xfe")
    result = simulated(file, "--trace", str(tmp_path / "trace.csv"))
    assert "is not a text file" in str(result.exception)


def test_all_means_every_installed_policy_and_unbuildable_ones_need_not_be_built(pipeline: Pipeline) -> None:
    assert [c.name for c in chosen("all")] == list(policy_names())
    assert not any(c.required for c in chosen("all"))
    impossible = Choice("impossible", "equal_count", {"replicas": 0}, required=False)
    found = compare(
        pipeline,
        lambda _: steady(1000.0, minutes=1),
        [impossible, Choice("hpa", "hpa")],
        Circumstances.of(pipeline),
    )
    assert [s.policy for s in found.scores] == ["hpa"]
    assert "left out: policy 'equal_count'" in found.notes[0]
    with pytest.raises(ConfigError):
        compare(pipeline, lambda _: steady(1000.0), [replace(impossible, required=True)], Circumstances.of(pipeline))


@pytest.mark.parametrize("engine", ["group", "fluid", "controller"])
def test_every_engine_says_the_same_of_a_consumer_that_cannot_keep_up(pipeline: Pipeline, engine: EngineName) -> None:
    # Twice the capacity for 300 s: waiting grows by a second per second, 3 s of it are in time.
    circumstances = Circumstances.of(pipeline, consumers=1, engine=engine)
    found = compare(
        pipeline, lambda _: steady(4000.0, minutes=5), [Choice("one", "equal_count", {"replicas": 1})], circumstances
    )
    (score,) = found.scores
    assert score.sla_percent == pytest.approx(100 * 3 / 300, abs=0.1)
    assert score.worst_s == pytest.approx(300 + 2, rel=0.01)
    assert score.p50_s == pytest.approx(150 + 2, rel=0.03)
    assert score.replica_minutes == pytest.approx(5.0, abs=0.01)
    assert score.causes == {"overload": pytest.approx(99, abs=0.1)}
    (curve,) = found.curves
    assert set(curve.replicas.tolist()) == {1.0}
    assert curve.p99_s[-1] == pytest.approx(300 + 2, rel=0.03)


@pytest.mark.parametrize("engine", ["group", "fluid", "controller"])
def test_every_engine_grows_and_shrinks_with_the_load(pipeline: Pipeline, engine: EngineName) -> None:
    low, high = steady(1000.0, minutes=3), steady(3000.0, minutes=3)
    records = np.concatenate([low.records, high.records, low.records])
    size = np.concatenate([low.bytes, high.bytes, low.bytes])
    trace = Trace(low.partitions, np.arange(541.0), records, size)
    (score,) = compare(
        pipeline, lambda _: trace, [Choice("s", "sentinel")], Circumstances.of(pipeline, start_s=5.0, engine=engine)
    ).scores
    assert (score.ups, score.downs) == (1, 1)  # one consumer does 2 kB/s, two share 3 kB/s
    # One all the time, and a second one about as long as the load is high.
    assert score.replica_minutes == pytest.approx(9 + 3, abs=1)
    assert score.moves >= 2
    assert sum(score.causes.values()) == pytest.approx(100 - score.sla_percent)


def test_engines_refuse_what_they_cannot_do(file: Path, tmp_path: Path) -> None:
    traffic = ("--trace", str(csv_of(steady(1000.0, minutes=1), tmp_path / "t.csv")), "--policy", "sentinel")
    for options, wanted in (
        (("--fluid", "--controller"), "choose one"),
        (("--fluid", "--eager"), "cooperatively"),
        (("--fluid", "--spacing", "random"), "even or burst"),
        (("--controller", "--eager"), "cooperatively"),
    ):
        refused = simulated(file, *traffic, *options)
        assert refused.exit_code != 0
        assert wanted in str(refused.exception) + refused.output
    assert simulated(file, *traffic, "--start", "publisht").exit_code != 0


@pytest.mark.parametrize("option", ["--fluid", "--controller"])
def test_the_command_shows_every_engine_alike(file: Path, tmp_path: Path, option: str) -> None:
    traffic = ("--trace", str(csv_of(steady(1000.0, minutes=1), tmp_path / "t.csv")), "--policy", "sentinel")
    found = json.loads(simulated(file, *traffic, option, "--output", "json", "--start", "published").stdout)
    assert found["circumstances"]["engine"] == option.removeprefix("--")
    assert found["circumstances"]["start_s"] == pytest.approx(42.9)
    assert found["policies"][0]["sla_percent"] == 100
    assert "starts as published, on average 42.9 s" in " ".join(
        simulated(file, *traffic, option, "--start", "published").stdout.split()
    )
