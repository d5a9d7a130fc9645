"""The live picture of a pipeline in the terminal, for `status` and `demo`."""

import time
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headgate.config.units import BYTES_PER_S
from headgate.controller.status import ALIVE_S, ConsumerStatus, PartitionStatus, PipelineStatus
from headgate.model.messages import DecisionRecord

_MOST_PARTITIONS = 24


def rate(bytes_per_s: float) -> str:
    return BYTES_PER_S.format(round(bytes_per_s, -2))


def seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"


def render(status: PipelineStatus, decisions: Sequence[DecisionRecord] = (), title: str = "") -> RenderableType:
    problems = [Text(problem, "red") for problem in status.problems]
    parts: list[RenderableType] = [_headline(status), *problems, _consumers(status), _partitions(status.partitions)]
    shown = [d for d in decisions if d.moved or d.created or d.deleted or d.alerts][-4:]
    if shown:
        parts.append(_decisions(shown))
    elif status.unread_decisions:
        parts.append(Text(f"{status.unread_decisions} decisions of another release of Headgate are not shown", "dim"))
    return Panel(Group(*parts), title=title or None, title_align="left")


def _headline(status: PipelineStatus) -> Text:
    alive = sum(1 for c in status.consumers if c.seen_s_ago < ALIVE_S)
    text = Text.assemble(
        ("in ", "dim"),
        rate(status.bytes_per_s),
        ("   consumers ", "dim"),
        str(alive),
        ("   lag ", "dim"),
        f"{status.lag_records:,} records",
        ("   latency p50 ", "dim"),
        seconds(status.latency_p50_s),
        (" p99 ", "dim"),
        seconds(status.latency_p99_s),
        ("   commits/min ", "dim"),
        str(status.commits_per_minute),
        ("   a move pauses ", "dim"),
        seconds(status.pause_s),
    )
    if status.slo_met is not None:
        text.append("   goal met" if status.slo_met else "   goal missed", "green" if status.slo_met else "yellow")
    for count, word in (
        (status.rejected, "rejected"),
        (status.skipped, "skipped by Kafka"),
        (status.refused, "refused"),
    ):
        if count:
            text.append(f"   {word} {count:,}", "yellow")
    if status.crowding > 1:
        text.append("   consumers share cores or a disk: more of them bring no more", "yellow")
    if status.measured_s_ago is None or status.measured_s_ago > 15:
        text.append("   no fresh measurements: is the monitor running?", "red")
    elif status.committed_s_ago is None or status.committed_s_ago > 30:
        text.append("   no committer heard of for a while", "red")
    return text


def _consumers(status: PipelineStatus) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("consumer", "partitions", "given", "reads", "can do"):
        table.add_column(name, justify="left" if name == "consumer" else "right")
    configured = status.configured_bytes_per_s
    table.add_column("counts for" if configured is None else f"counts for (of {rate(configured)})", justify="right")
    table.add_column("busy")
    table.add_column("uncommitted", justify="right")
    table.add_column("")
    given: dict[int, float] = {}
    for p in status.partitions:
        if p.owner is not None:
            given[p.owner] = given.get(p.owner, 0.0) + p.bytes_per_s
    for c in status.consumers:
        table.add_row(
            f"{c.consumer_id}",
            f"{len(c.partitions)}",
            rate(given.get(c.consumer_id, 0.0)),
            rate(c.throughput_bytes_per_s),
            "–" if c.measured_bytes_per_s is None else rate(c.measured_bytes_per_s),
            _counted(c, configured),
            _bar(c.busy_share),
            f"{c.uncommitted_cycles}",
            _note(c),
        )
    return table


def _counted(consumer: ConsumerStatus, configured: float | None) -> Text:
    counted = consumer.counted_bytes_per_s
    if counted is None:
        return Text("–")
    return Text(rate(counted), "yellow" if configured is not None and counted < configured else "")


def _note(consumer: ConsumerStatus) -> Text:
    if consumer.seen_s_ago > ALIVE_S:
        return Text(f"silent for {consumer.seen_s_ago:.0f} s", "red")
    return Text(consumer.last_error[:80], "yellow")


def _bar(share: float) -> str:
    filled = round(min(1.0, max(0.0, share)) * 10)
    return "█" * filled + "░" * (10 - filled)


def _partitions(partitions: Sequence[PartitionStatus]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("partition", "owner", "rate", "lag"):
        table.add_column(name, justify="left" if name == "partition" else "right")
    hottest = sorted(partitions, key=lambda p: -p.bytes_per_s)[:_MOST_PARTITIONS]
    for p in sorted(hottest, key=lambda p: p.partition):
        owner = "–" if p.owner is None else str(p.owner)
        table.add_row(
            str(p.partition), owner, rate(p.bytes_per_s), "–" if p.lag_records is None else f"{p.lag_records:,}"
        )
    if len(partitions) > len(hottest):
        table.add_row(f"… and {len(partitions) - len(hottest)} slower ones", "", "", "")
    return table


def _decisions(decisions: Sequence[DecisionRecord]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("decided", "consumers", "moved", "why"):
        table.add_column(name)
    for d in decisions:
        ago = time.time() - d.at_ms / 1000
        why = " ".join(dict.fromkeys((d.reason, *d.alerts)))  # of an alert alone, both are the same
        table.add_row(
            f"{ago:.0f} s ago",
            f"{d.consumers_before} → {d.consumers_after}",
            f"{d.moved}",
            Text(why[:160] + ("" if d.outcome == "applied" else f" ({d.outcome})")),
        )
    return table
