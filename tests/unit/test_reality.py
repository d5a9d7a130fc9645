"""A recorded run beside its simulation, with numbers computed by hand."""

from pathlib import Path

import numpy as np
import pytest

from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.controller.recording import Recording
from headgate.errors import ConfigError
from headgate.experiments.reality import Line, consumers_over_time, draw, report, validate
from headgate.model import TopicPartition
from headgate.model.messages import CommitRecord, DecisionRecord
from headgate.simulation.recorded import Trace

START_S = 1_000_000.0


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        """
name: shop
kafka: {brokers: "localhost:1"}
topics: [orders]
tables: [{name: all}]
policy: {consumer_capacity_bytes_per_s: 2 kB/s, packing_capacity_bytes_per_s: 1.6 kB/s}
monitor: {window_s: 4 s, min_span_s: 1 s}
slo: {latency_s: 5 s}
"""
    )
    return load_pipeline(file)


def decided(at_s: float, before: int, after: int, moved: int = 0, outcome: str = "applied") -> DecisionRecord:
    at_ms = int(1000 * (START_S + at_s))
    return DecisionRecord(at_ms, 1, 1, "t", "why", outcome, before, after, moved, 0, 0, (), (), (), (), ())


def committed(at_s: float, latency_ms: int, rows: int = 100) -> CommitRecord:
    at_ms = int(1000 * (START_S + at_s))
    return CommitRecord("all", at_ms, "c", 1, 1, 1, 0, 1, rows, 0, 0, 0, 0, 0.1, 0, (latency_ms,) * 21)


def recording(*decisions: DecisionRecord, late: int = 0) -> Recording:
    """Ten minutes of 1 kB/s in two partitions: half of what one consumer can do."""
    sizes = np.full((600, 2), 500.0)
    partitions = (TopicPartition("orders", 0), TopicPartition("orders", 1))
    trace = Trace(partitions, np.arange(601.0), sizes / 100, sizes, START_S)
    commits = [committed(at_s, 9000 if at_s < late else 1500) for at_s in range(0, 600, 10)]
    return Recording(trace, 1.0, 2.0, decisions, tuple(commits))


def test_the_journal_says_how_many_consumers_there_were_when() -> None:
    decisions = [decided(-50, 0, 2), decided(120, 2, 3), decided(300, 3, 1)]
    assert consumers_over_time(decisions, START_S) == ((0.0, 2), (120.0, 3), (300.0, 1))
    assert consumers_over_time([decided(60, 1, 2)], START_S) == ((0.0, 1), (60.0, 2))


def test_real_and_simulated_stand_side_by_side(pipeline: Pipeline, tmp_path: Path) -> None:
    recorded = recording(
        decided(-50, 0, 1), decided(60, 1, 2, 1), decided(90, 2, 1, 1), decided(95, 1, 9, 9, "dry-run"), late=60
    )
    found = validate(pipeline, recorded, seeds=1)
    numbers = {line.what: line for line in found.lines}
    # One consumer for ten minutes, and a second one for half a minute; the simulated policy never needs it.
    assert numbers["consumer-minutes"].real == 10.5
    assert numbers["consumer-minutes"].simulated == pytest.approx(10.0)
    assert (numbers["most consumers"].real, numbers["most consumers"].simulated) == (2, 1)
    assert (numbers["consumers added"].real, numbers["consumers removed"].real) == (1, 1)
    assert (numbers["partitions moved"].real, numbers["partitions moved"].simulated) == (2, 0)
    assert numbers["latency p50, s"].real == 1.5
    assert numbers["latency p99, s"].real == 9.0
    assert numbers["in time, %"].real == pytest.approx(90.0)
    assert numbers["in time, %"].simulated == 100.0
    assert "| consumer-minutes | 10.50 | 10.00 | -5 % |" in report(found, "Title")
    draw(found, recorded, tmp_path / "reality.png")
    assert (tmp_path / "reality.png").stat().st_size > 10_000


def test_a_run_without_decisions_proves_nothing(pipeline: Pipeline) -> None:
    with pytest.raises(ConfigError, match="let the pipeline run for a while"):
        validate(pipeline, recording(decided(5, 0, 1, outcome="dry-run")))


def test_differences_are_relative_where_they_can_be() -> None:
    assert Line("x", 4.0, 5.0).difference == "+25 %"
    assert Line("x", 0.0, 2.0).difference == "+2.00"
    assert Line("x", 0.0, 0.0).difference == "–"
