"""The fluid simulator against hand arithmetic and against the exact one."""

from collections.abc import Callable

import numpy as np
import pytest

from headgate.model import Assignment, Decision, Observation
from headgate.policies import Policy
from headgate.policies.linear import Linear
from headgate.policies.slo import Slo
from headgate.simulation.arrivals import burst, even
from headgate.simulation.fluid import FluidSettings, simulate_fluid
from headgate.simulation.group import GroupSettings, partition_of
from headgate.simulation.run import RunSettings, simulate
from headgate.simulation.traces import w1


class Script:
    def __init__(self, at_s: float = 1e9, assignment: Assignment | None = None) -> None:
        self._at_s, self._assignment = at_s, assignment

    def decide(self, seen: Observation) -> Decision:
        return Decision(self._assignment if seen.at_s >= self._at_s else None, "as told")


def test_what_stands_beyond_capacity_times_slo_is_late() -> None:
    outcome = simulate_fluid(np.array([[120.0], [80.0], [0.0]]), Script(), FluidSettings())
    assert outcome.late == 20
    assert outcome.sla_percent == pytest.approx(90)
    assert outcome.replica_minutes == pytest.approx(3 / 60)


def test_backlog_is_carried_over() -> None:
    # 300 at once: 200 late, 100 left after a second; 50 more then stand at 150: 50 late.
    assert simulate_fluid(np.array([[300.0], [50.0]]), Script(), FluidSettings()).late == 250


def test_a_spread_stream_is_late_only_once_the_backlog_is_too_long() -> None:
    steady = np.full((100, 1), 190.0)
    assert simulate_fluid(steady, Script(), FluidSettings(bunched=False)).late == 0
    # 250/s against 200/s: the backlog passes 100 after 2 s, so the arrivals of the third second on are late.
    over = simulate_fluid(np.full((5, 1), 250.0), Script(), FluidSettings(bunched=False))
    assert over.late == pytest.approx(750)


def test_new_consumers_are_billed_from_the_request_and_work_after_their_start() -> None:
    split = Assignment({1: frozenset({partition_of(0)}), 2: frozenset({partition_of(1)})})
    settings = FluidSettings(GroupSettings(start_up_s=3.0, pause_s=0.0))
    outcome = simulate_fluid(np.full((10, 2), 75.0), Script(2.0, split), settings)
    assert outcome.late == 5 * 50  # seconds 0 to 4 at 150 on one consumer
    assert outcome.replica_minutes * 60 == pytest.approx(10 + 8)


@pytest.mark.parametrize("make", [Slo, Linear])
def test_it_agrees_with_the_exact_simulator_on_w1(make: Callable[[], Policy]) -> None:
    # Not for policies that read the lag of an instant: within a burst's second it depends on the instant.
    arrivals = burst(w1(), even(5), np.random.default_rng(2))
    exact = simulate(arrivals, make(), RunSettings(protocol="cooperative", period_s=1.03, warm_up_s=1.0, seed=2))
    fluid = simulate_fluid(arrivals.per_second().astype(np.float64), make(), FluidSettings())
    assert fluid.sla_percent == pytest.approx(exact.sla_percent, abs=0.5)
    assert fluid.replica_minutes == pytest.approx(exact.replica_minutes, rel=0.03)


def test_malformed_traces_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        simulate_fluid(np.array([[np.nan]]), Script(), FluidSettings())
    with pytest.raises(ValueError, match="table"):
        simulate_fluid(np.array([1.0]), Script(), FluidSettings())
