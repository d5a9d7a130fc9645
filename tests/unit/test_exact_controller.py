"""The live controller's state machine on virtual time, with consumers that are exact to the record."""

import numpy as np
import pytest

from headgate.controller.exact import ExactPipeline
from headgate.packing.modified_any_fit import ModifiedWorstFit
from headgate.policies.binpack_lag import Algorithm2
from headgate.policies.sentinel import Sentinel
from headgate.simulation.arrivals import burst, counted, even
from headgate.simulation.group import GroupSettings
from headgate.simulation.run import RunSettings, simulate


def test_one_consumer_serves_a_burst_as_the_simulator_says() -> None:
    # The first consumer needs 3 s to start; bursts after that take 5 ms a record.
    pipeline = ExactPipeline(counted([[0]] * 10 + [[60]] * 5), Sentinel(ModifiedWorstFit(), 20_000, 15_000))
    outcome = pipeline.run()
    assert np.sort(outcome.latency_s[0])[-5:] == pytest.approx(0.3)
    assert outcome.sla_percent == 100
    assert outcome.changes == ()  # the first assignment is no change


def test_the_controller_scales_up_and_drains_on_the_way_down_without_losing_a_record() -> None:
    rates = np.concatenate([np.full(30, 40.0), np.full(60, 160.0), np.full(90, 30.0)])
    arrivals = burst(rates, even(4), np.random.default_rng(1))
    pipeline = ExactPipeline(arrivals, Algorithm2())
    outcome = pipeline.run()
    assert not any(np.isnan(latency).any() for latency in outcome.latency_s)
    assert max(r.consumers_after for r in pipeline.channel.records) >= 2
    assert pipeline.channel.records[-1].consumers_after == 1
    assert outcome.moves >= 4
    alone = simulate(arrivals, Algorithm2(), RunSettings(protocol="cooperative"))
    # What the controller adds (readiness, acknowledgements, the ledger) costs little beside the simulator's group.
    assert outcome.sla_percent == pytest.approx(alone.sla_percent, abs=4)
    assert outcome.replica_minutes == pytest.approx(alone.replica_minutes, rel=0.15)


def test_a_backlog_longer_than_the_run_is_worked_off_by_its_owner() -> None:
    # 4,000,000 s of work for one consumer, which is ready 3 s after it was asked for.
    pipeline = ExactPipeline(
        counted([[0]] * 10 + [[400]] + [[0]] * 5),
        Sentinel(ModifiedWorstFit(), 20_000, 15_000),
        GroupSettings(1e-4, pause_s=0.0),
    )
    assert pipeline.run().max_latency_s == pytest.approx(400 / 1e-4)
