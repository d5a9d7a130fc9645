"""The world in which policies are compared: the goal, how long starts and moves take, and what a consumer costs."""

from dataclasses import dataclass
from typing import Any, Literal

from headgate.config.pipeline import Pipeline
from headgate.controller.assembly import fixed_s
from headgate.errors import ConfigError
from headgate.experiments.engines import EngineName
from headgate.simulation.packets import MOST_PACKETS, Spacing
from headgate.simulation.start_times import StartTimes

THREAD_START_S, PROCESS_START_S = 1.0, 20.0
"""Until starts are measured: a thread shares the Spark session, a process or a pod makes its own."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the simulated world is like, beyond what the pipeline file says."""

    slo_s: float
    """The goal: from a record's arrival to its commit."""
    fixed_s: float
    """How much of that goes by in gathering and committing, whatever the policy does."""
    quantile: float
    start_s: float
    """From asking for a consumer to its being ready."""
    pause_s: float
    """How long a partition that moves stands still."""
    protocol: Literal["cooperative", "eager"] = "cooperative"
    spacing: Spacing = "even"
    price_per_hour: float = 0.20
    consumers: int | None = None
    """At the beginning; None: as many as the load of the first minute fills."""
    most_packets: int = MOST_PACKETS
    starts: StartTimes | None = None
    """Starts are drawn from this; `start_s` is then their mean."""
    engine: EngineName = "group"

    def __post_init__(self) -> None:
        for name in ("slo_s", "most_packets"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0, not {getattr(self, name):g}")
        for name in ("fixed_s", "start_s", "pause_s", "price_per_hour"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must not be negative, not {getattr(self, name):g}")
        if not 0 < self.quantile < 1:
            raise ConfigError(f"the share of records in time must be between 0 and 1, not {self.quantile:g}")
        if self.fixed_s >= self.slo_s:
            raise ConfigError(
                f"a record waits up to {self.fixed_s:g} s to be gathered and committed (consumer.wait_s and "
                f"lake.commit_interval_s), so no policy meets a goal of {self.slo_s:g} s: raise the goal or lower those"
            )
        if self.engine != "group" and self.protocol == "eager":
            raise ConfigError(f"the {self.engine} engine moves cooperatively only: leave out --eager")
        if self.engine == "fluid" and self.spacing == "random":
            raise ConfigError("a fluid has no single records to place at random: use --spacing even or burst")

    @classmethod
    def of(
        cls,
        pipeline: Pipeline,
        slo_s: float | None = None,
        start_s: float | StartTimes | None = None,
        pause_s: float | None = None,
        **others: Any,
    ) -> "Circumstances":
        """From the pipeline file: a move waits for a cycle to end and a commit, a start for Spark."""
        waits_s = fixed_s(pipeline)
        usual_s = THREAD_START_S if pipeline.fleet.kind == "threads" else PROCESS_START_S
        starts = start_s if isinstance(start_s, StartTimes) else None
        return cls(
            pipeline.slo.latency_s if slo_s is None else slo_s,
            waits_s,
            pipeline.slo.quantile,
            usual_s if start_s is None else start_s.mean_s if isinstance(start_s, StartTimes) else start_s,
            waits_s if pause_s is None else pause_s,
            starts=starts,
            **others,
        )
