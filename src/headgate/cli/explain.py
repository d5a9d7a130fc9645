"""`headgate explain`: why decisions were taken, and what came of them."""

import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.cli.logs import log_to
from headgate.cli.moments import clock, moment_s
from headgate.cli.output import Output, as_document
from headgate.cli.pipeline_file import PipelineArgument, find_pipeline
from headgate.cli.status import check_it_ran
from headgate.cli.view import rate, seconds
from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.controller.explaining import MOST, Answer, Explainer, Explanation, Moment, Question, triggered_ms
from headgate.errors import HeadgateError
from headgate.kafka.internal_topics import Topics
from headgate.model.messages import DecisionRecord

_MOST_MOVES = 12


def explain(
    file: PipelineArgument = None,
    home: Annotated[Path | None, typer.Option(help="Instead of FILE: a folder that `demo --home` kept.")] = None,
    last: Annotated[
        int | None,
        typer.Option(help="How many: the newest decisions, alerts, and what was kept. Default 3.", min=1, max=MOST),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="Instead of now: a time such as 2026-03-01T12:30 (UTC unless it names another zone), or how long ago, "
            "such as 15min. Shows the decision in force then: the newest that was carried out; with --last, whatever "
            "was looked at up to then.",
            metavar="TIME",
        ),
    ] = None,
    dry_runs: Annotated[bool, typer.Option("--dry-runs", help="What dry runs would have decided, instead.")] = False,
    output: Annotated[Output, typer.Option(help="text for people, json for programs.")] = Output.text,
) -> None:
    """Why each decision was taken, what lost against it, what it moved, how long it took and what came of it.

    Read from the pipeline's own topics: it works while the pipeline runs and after it was stopped, for as long as they
    are kept (decisions 30 days, what came of them 7).
    """
    pipeline = load_pipeline(find_pipeline(file, home))
    log_to(None)
    now_s = time.time()
    at_s = None if at is None else moment_s(at, now_s)
    check_it_ran(pipeline)
    tables = [table.name for table in pipeline.tables]
    explainer = Explainer(librdkafka_settings(pipeline), Topics(pipeline.name), tables)
    count = last or (3 if at is None else None)
    answer = explainer.explain(Question(count, None if at_s is None else 1000 * at_s, dry_runs), 1000 * now_s)
    found = answer.explained
    if (found or output is Output.json) and (said := left_out(answer, count or 1, last is not None, at is not None)):
        typer.echo(said, err=True)
    if output is Output.json:
        typer.echo(json.dumps([as_json(one) for one in found], indent=2))
        return
    if not found:
        when = "" if at_s is None else f" up to {clock(round(1000 * at_s))}"
        if answer.unread:
            raise HeadgateError(f"no decision of pipeline {pipeline.name}{when} can be read: {_unread(answer.unread)}")
        raise HeadgateError(
            f"pipeline {pipeline.name} {'rehearsed' if dry_runs else 'took'} no decision{when} that its journal still "
            "holds: a controller decides once there is something to change; see what it does now with: headgate status "
            "FILE --once"
        )
    console = Console()
    for one in found:
        for line in lines(one, pipeline.policy.consumer_capacity_bytes_per_s):
            console.print(line, highlight=False, soft_wrap=True)
        console.print()


def left_out(answer: Answer, count: int, is_asked: bool, is_past: bool) -> str:
    """Why there may be less than somebody expects; nothing if the newest decisions are all there."""
    found = len(answer.explained)
    parts = []
    if is_asked and 0 < found < count:
        held = "1 decision" if found == 1 else f"{found} decisions"
        parts.append(f"{held} instead of {count}: the journal holds no more{' up to then' if is_past else ''}")
    if answer.unread and (found < count or is_past):
        parts.append(_unread(answer.unread))
    return "; ".join(parts)


def _unread(records: int) -> str:
    counted = "1 record of its journal is" if records == 1 else f"{records:,} records of its journal are"
    return f"{counted} of another release of Headgate, whose messages this one does not read"


def lines(explained: Explanation, configured_bytes_per_s: float) -> Iterator[Text | Table]:
    """`configured_bytes_per_s` is a consumer's capacity by the pipeline file as it is now."""
    d = explained.decision
    yield Text.assemble((f"{clock(triggered_ms(d))}  ", "dim"), (d.trigger or "decision", "bold"), f"  {d.outcome}")
    yield _line("why", d.reason)
    for alert in d.alerts:
        if alert != d.reason:
            yield _line("alert", alert)
    if d.inputs:
        yield _line("inputs", ", ".join(f"{name} {value:,.6g}" for name, value in d.inputs.items()))
    if d.capacities:
        yield _line("can do", _capacities(d, configured_bytes_per_s))
    for other in d.rejected:
        yield _line("instead", other)
    if d.moves or d.created or d.deleted:
        yield _line("did", _changes(d))
        yield _line(
            "took",
            f"t1 measure up to {d.measure_s:.1f} s, t2 decide {d.decide_s:.1f} s, "
            f"t3 consumers ready {d.ready_s:.1f} s, t4 handover {d.handover_s:.1f} s{_pause(d)}",
        )
    yield _course(explained)
    if silent := sorted({name for m in (explained.before, *explained.afterwards) for name in m.silent}):
        said = "no commit in the ten minutes before, so more may have waited there"
        yield _line("silent", f"{', '.join(silent)}: {said}")


def _line(name: str, text: str) -> Text:
    return Text.assemble((f"  {name:<8}", "dim"), text)


def _changes(d: DecisionRecord) -> str:
    parts = [f"{d.consumers_before} → {d.consumers_after} consumers"]
    parts += [f"started {_ids(d.created)}"] if d.created else []
    parts += [f"ended {_ids(d.deleted)}"] if d.deleted else []
    shown = [f"{m.topic}-{m.partition} {m.old or '–'} → {m.new or '–'}" for m in d.moves[:_MOST_MOVES]]
    more = len(d.moves) - len(shown)
    parts += [f"moved {d.moved} (Rscore {d.rscore_consumer:.2f})" if d.moved else "moved none"]
    parts += [f"new owners: {', '.join(shown)}{f' and {more} more' if more else ''}"] if shown else []
    return "; ".join(parts)


def _capacities(d: DecisionRecord, configured_bytes_per_s: float) -> str:
    """Measured, and in brackets what it counted for where that is less than others, or all for less than configured."""
    full = max(one.counted_bytes_per_s for one in d.capacities)
    said = []
    for one in d.capacities:
        measured = rate(one.measured_bytes_per_s) if one.measured_bytes_per_s else "not measured"
        less = f" (counts for {rate(one.counted_bytes_per_s)})" if one.counted_bytes_per_s < full else ""
        said.append(f"{one.consumer_id}: {measured}{less}")
    configured = "" if math.isclose(full, configured_bytes_per_s) else f" (configured {rate(configured_bytes_per_s)})"
    return f"each counts for {rate(full)}{configured}; measured {', '.join(said)}"


def _pause(d: DecisionRecord) -> str:
    """t_r beside what was expected of it."""
    if not d.pause_s:
        return ""
    expected = f" (expected {d.expected_pause_s:.1f} s)" if d.expected_pause_s else ""
    return f"; no partition paused longer than {d.pause_s:.1f} s{expected}"


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


def _course(explained: Explanation) -> Table:
    table = Table(box=None, pad_edge=True, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("", "in", "lag", "latency p50", "p99"):
        table.add_column(name, justify="left" if not name else "right")
    done_ms = explained.decision.at_ms
    moments = [("when it was taken", explained.before)]
    moments += [(f"{(m.at_ms - done_ms) / 60_000:.0f} min after", m) for m in explained.afterwards]
    for name, m in moments:
        table.add_row(f"  {name}", *_numbers(m))
    if not explained.afterwards:
        table.add_row("  afterwards", "less than a minute has passed", "", "", "")
    return table


def _numbers(m: Moment) -> tuple[str, str, str, str]:
    written = "–" if m.bytes_per_s is None else rate(m.bytes_per_s)
    lag = "–" if m.lag_records is None else f"{'at least ' if m.silent else ''}{m.lag_records:,} records"
    return written, lag, seconds(m.latency_p50_s), seconds(m.latency_p99_s)


def as_json(explained: Explanation) -> dict[str, Any]:
    fields: dict[str, Any] = as_document(explained)
    return fields | {"taken_at_ms": triggered_ms(explained.decision)}
