"""A pipeline's own journal read back as a trace: what arrived, and what changes cost at the time."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headgate.controller.observing import cost_of_changes
from headgate.errors import ConfigError
from headgate.kafka.channel import Last, Tail
from headgate.kafka.internal_topics import Topics
from headgate.model.messages import CommitRecord, DecisionRecord, Measurement
from headgate.simulation.recorded import Trace, of_measurements

_READ_S = 600.0
_DECISIONS = 1000
_COMMITS = 100_000


@dataclass(frozen=True, eq=False)
class Recording:
    trace: Trace
    pause_s: float | None
    """The 99th percentile of the newest handovers; None if there were none."""
    start_s: float | None
    decisions: tuple[DecisionRecord, ...] = ()
    commits: tuple[CommitRecord, ...] = ()
    """Those since the trace began."""


def read_recording(settings: Mapping[str, Any], topics: Topics, last_s: float, poll_s: float) -> Recording:
    """The newest `last_s` seconds of the pipeline's measurements, taken every `poll_s`, and its newest decisions."""
    wanted = math.ceil(last_s / poll_s) + 1
    tail = Tail(
        settings,
        {
            (topics.measurements, 0): Last(wanted),
            (topics.decisions, 0): Last(_DECISIONS),
            (topics.commits, 0): Last(_COMMITS),
        },
    )
    try:
        messages = [received.message for received in tail.read_to_end(_READ_S)]
    finally:
        tail.close()
    measurements = [m for m in messages if isinstance(m, Measurement)]
    if not measurements:
        raise ConfigError(f"nothing was measured yet on {topics.measurements}: run the pipeline for a while first")
    decisions = tuple(d for d in messages if isinstance(d, DecisionRecord))
    pause_s, start_s = cost_of_changes(decisions)
    trace = of_measurements(measurements).newest(last_s)
    commits = tuple(
        c for c in messages if isinstance(c, CommitRecord) and c.at_ms >= 1000 * trace.started_at_s and c.announcements
    )
    return Recording(trace, pause_s, start_s, decisions, commits)
