"""A pipeline's course over time: sampled from its status, written as CSV, drawn as a picture."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from headgate.controller.status import ALIVE_S, PipelineStatus
from headgate.model.messages import CommitRecord, DecisionRecord


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    bytes_per_s: float
    consumers: int
    """Those that own partitions."""
    lag_records: int

    @classmethod
    def of(cls, status: PipelineStatus) -> "Sample":
        working = sum(1 for c in status.consumers if c.partitions and c.seen_s_ago < ALIVE_S)
        return cls(status.at_s, status.bytes_per_s, working, status.lag_records)


def write_csv(path: Path, samples: Sequence[Sample]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Sample)])
        writer.writeheader()
        writer.writerows(asdict(sample) for sample in samples)


def draw(
    path: Path,
    samples: Sequence[Sample],
    commits: Sequence[CommitRecord],
    decisions: Sequence[DecisionRecord],
    slo_s: float,
    title: str,
) -> None:
    """Rate, consumers and latency over one time axis, with a mark where the assignment changed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not samples:
        return
    zero = samples[0].at_s
    figure = Figure(figsize=(10, 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    rate, count, latency = figure.subplots(3, 1, sharex=True)
    times = [s.at_s - zero for s in samples]
    rate.plot(times, [s.bytes_per_s / 1e6 for s in samples], color="tab:blue")
    rate.fill_between(times, [s.bytes_per_s / 1e6 for s in samples], alpha=0.15, color="tab:blue")
    rate.set_ylabel("written, MB/s")
    rate.set_title(title, loc="left")
    count.step(times, [s.consumers for s in samples], where="post", color="tab:green")
    count.set_ylabel("consumers")
    count.set_ylim(bottom=0)
    count.yaxis.get_major_locator().set_params(integer=True)
    shown = [c for c in commits if c.latency_ms and c.at_ms / 1000 >= zero]
    at = [c.at_ms / 1000 - zero for c in shown]
    latency.plot(at, [c.latency_ms[-1] / 1000 for c in shown], ".", ms=3, color="tab:red", label="slowest record")
    latency.plot(
        at,
        [c.latency_ms[len(c.latency_ms) // 2] / 1000 for c in shown],
        ".",
        ms=3,
        color="tab:gray",
        label="median record",
    )
    latency.axhline(slo_s, ls="--", lw=1, color="black", label=f"goal {slo_s:g} s")
    latency.set_ylabel("latency of a commit, s")
    latency.set_xlabel("seconds")
    latency.set_ylim(bottom=0)
    latency.legend(loc="upper right")
    for decision in decisions:
        moment = decision.at_ms / 1000 - zero
        if (decision.moved or decision.created or decision.deleted) and moment >= 0:
            for axes in (rate, count, latency):
                axes.axvline(moment, lw=0.6, color="tab:orange", alpha=0.8)
    for axes in (rate, count, latency):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
