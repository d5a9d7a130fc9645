"""The live half of E4, as short as it can be: a broker, a fleet of processes, one step of the load."""

from pathlib import Path

from headgate.experiments.handovers import samples
from headgate.experiments.handovers_live import Plan, run_live


def test_a_live_run_yields_times_of_its_decisions_and_of_its_steps(tmp_path: Path) -> None:
    plan = Plan(window_s=3.0, steps=2, step_s=10.0, walk_s=4.0, partitions=2, most_consumers=1)
    run = run_live(tmp_path, "processes", 0, plan)
    found = {sample.time: sample for sample in samples(run)}
    assert found.keys() == {"t1", "t2", "t3", "t4"}
    assert found["t3"].seconds > 0.5  # a Python process, a JVM and Spark
    assert 0 < found["t1"].seconds <= 10
    assert (found["t3"].consumers_before, found["t3"].consumers_after) == (0, 1)
    assert sum(cycle.records for cycle in run.cycles) > 0
