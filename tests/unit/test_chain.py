"""Chained groups (E-47) by hand arithmetic."""

import numpy as np
import pytest

from headgate.errors import ConfigError
from headgate.model import Decision, Observation
from headgate.policies.binpack_lag import Algorithm2
from headgate.simulation.arrivals import burst, counted, even
from headgate.simulation.chain import ChainedGroup, Path, budgets, simulate_chain
from headgate.simulation.run import Decides, RunSettings


class Keeps:
    def decide(self, seen: Observation) -> Decision:
        return Decision(None, "keep")


def keeps(slo_s: float) -> Decides:
    return Keeps()


def at(records_per_s: float) -> RunSettings:
    return RunSettings(protocol="cooperative").with_group(capacity_records_per_s=records_per_s)


def test_latency_adds_up_along_a_path() -> None:
    # Ten records at once at 100/s are done 10, 20 … 100 ms later; each then takes 5 ms at 200/s, without queueing.
    first = ChainedGroup("first", keeps, counted([[10]]), settings=at(100))
    second = ChainedGroup("second", keeps, after={"first": 1.0}, partitions=1, settings=at(200))
    outcome = simulate_chain([second, first], [Path(("first", "second"), 0.08)])
    (path,) = outcome.paths
    assert np.sort(path.latency_s) == pytest.approx(0.01 * np.arange(1, 11) + 0.005)
    assert path.sla_percent == 70  # 15, 25 … 75 ms
    assert outcome.budgets_s == {"first": 0.04, "second": 0.04}
    assert outcome.groups["second"].max_latency_s == pytest.approx(0.005)


def test_the_backlog_of_a_parent_arrives_late_at_its_child() -> None:
    # 200 records at once at 100/s: the child, ten times as fast, gets them over two seconds.
    first = ChainedGroup("first", keeps, counted([[200], [0], [0]]), settings=at(100))
    second = ChainedGroup("second", keeps, after={"first": 1.0}, partitions=1, settings=at(1000))
    outcome = simulate_chain([first, second], [Path(("first", "second"), 1.0)])
    arrived = np.sort(np.concatenate(outcome.groups["second"].arrived_s))
    assert arrived == pytest.approx(0.01 * np.arange(1, 201))
    assert outcome.paths[0].sla_percent == pytest.approx(100 * 99 / 200)  # done at 0.011 … 0.991
    assert outcome.replica_minutes == pytest.approx(6 / 60)


def test_ratios_multiply_and_thin_out_and_paths_are_told_apart() -> None:
    a = ChainedGroup("a", keeps, counted([[8]]), settings=at(1000))
    b = ChainedGroup("b", keeps, counted([[3]]), settings=at(1000))
    joined = ChainedGroup("joined", keeps, after={"a": 0.5, "b": 2.0}, partitions=2, settings=at(1000))
    paths = [Path(("a", "joined"), 1.0), Path(("b", "joined"), 2.0), Path(("a",), 0.1)]
    outcome = simulate_chain([a, b, joined], paths)
    assert [len(p.latency_s) for p in outcome.paths] == [4, 6, 8]
    # The smallest share counts: a has half of 1 s and all of 0.1 s, joined half of 1 s and half of 2 s.
    assert outcome.budgets_s == {"a": 0.1, "b": 1.0, "joined": 0.5}


def test_budgets_are_split_by_weight() -> None:
    a = ChainedGroup("a", keeps, counted([[1]]), weight=1.0)
    b = ChainedGroup("b", keeps, after={"a": 1.0}, weight=3.0)
    assert budgets([a, b], [Path(("a", "b"), 2.0)]) == {"a": 0.5, "b": 1.5}


def test_each_group_is_scaled_by_its_own_policy_for_its_own_budget() -> None:
    told: list[float] = []

    def scaled(slo_s: float) -> Decides:
        told.append(slo_s)
        return Algorithm2(slo_s=slo_s)

    rates = np.concatenate([np.full(40, 60.0), np.full(60, 250.0)])
    first = ChainedGroup("first", scaled, burst(rates, even(5), np.random.default_rng(1)))
    second = ChainedGroup("second", scaled, after={"first": 1.0})
    outcome = simulate_chain([first, second], [Path(("first", "second"), 2.0)])
    assert told == [1.0, 1.0]
    assert all(result.ups >= 1 for result in outcome.groups.values())
    (path,) = outcome.paths
    records = sum(len(t) for t in outcome.groups["first"].arrived_s)
    assert len(path.latency_s) == records
    assert path.quantile_s(0.0) >= 0.01 - 1e-9  # 5 ms in each group


@pytest.mark.parametrize(
    ("groups", "paths", "said"),
    [
        ([ChainedGroup("a", keeps, after={"b": 1}), ChainedGroup("b", keeps, after={"a": 1})], [], "no path leads"),
        ([ChainedGroup("a", keeps, counted([[1]])), ChainedGroup("a", keeps)], [], "same name"),
        ([ChainedGroup("a", keeps, counted([[1]]))], [Path(("a", "z"), 1.0)], "no group z"),
        ([ChainedGroup("a", keeps, counted([[1]]))], [Path(("a",), 0.0)], "above 0"),
        ([ChainedGroup("a", keeps)], [Path(("a",), 1.0)], "come from outside"),
        (
            [ChainedGroup("a", keeps, counted([[1]])), ChainedGroup("b", keeps, counted([[1]]))],
            [Path(("a", "b"), 1.0)],
            "does not come after",
        ),
        (
            [ChainedGroup("a", keeps, counted([[1]]), after={"z": 1.0})],
            [Path(("a",), 1.0)],
            "does not exist",
        ),
        (
            [ChainedGroup("a", keeps, counted([[1]])), ChainedGroup("b", keeps, after={"a": 0.0})],
            [Path(("a", "b"), 1.0)],
            "more than 0",
        ),
    ],
)
def test_a_graph_that_cannot_be_is_refused(groups: list[ChainedGroup], paths: list[Path], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        simulate_chain(groups, paths)


def test_groups_in_a_circle_are_refused() -> None:
    a = ChainedGroup("a", keeps, counted([[1]]))
    b = ChainedGroup("b", keeps, after={"a": 1.0, "c": 1.0})
    c = ChainedGroup("c", keeps, after={"b": 1.0})
    with pytest.raises(ConfigError, match="circle"):
        simulate_chain([a, b, c], [Path(("a", "b", "c"), 1.0)])
