"""`headgate plan`: what policies would do with a pipeline as it is now."""

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from headgate.cli.logs import log_to
from headgate.cli.output import Output
from headgate.cli.policy_choice import POLICY_HELP, chosen
from headgate.cli.status import check_it_ran
from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.config.units import BYTES_PER_S
from headgate.controller.assembly import events_within, goal_of, policy_of
from headgate.controller.observing import in_records
from headgate.controller.planning import Answer, Situation, listen, situation
from headgate.controller.policy_choices import Choice, buildable
from headgate.kafka.internal_topics import Topics


def plan(
    file: Annotated[Path, typer.Argument(help="The pipeline file.", metavar="FILE")],
    policy: Annotated[
        str | None, typer.Option(help=f"{POLICY_HELP} Default: the file's own policy, and slo.", show_default=False)
    ] = None,
    output: Annotated[Output, typer.Option(help="text for people, json for programs.")] = Output.text,
) -> None:
    """What each policy would do now, and why; nothing is done.

    Reads the pipeline's own topics once. A pipeline that is stopped is looked at as it was when it was last measured.
    Policies that need to watch for a while say so.
    """
    pipeline = load_pipeline(file)
    log_to(None)
    choices = chosen(policy or f"{pipeline.policy.name},slo")
    check_it_ran(pipeline)
    now = situation(
        listen(librdkafka_settings(pipeline), Topics(pipeline.name)),
        pipeline.controller.stale_after_s,
        pipeline.monitor.poll_s,
        lambda topic: len(pipeline.tables_of(topic)),
        pipeline.landed,
    )
    answers, notes = ask(pipeline, choices, now)
    if output is Output.json:
        typer.echo(json.dumps(as_json(now, answers, notes), indent=2))
    else:
        _print(pipeline, now, answers, notes)


def ask(pipeline: Pipeline, choices: tuple[Choice, ...], now: Situation) -> tuple[list[Answer], list[str]]:
    facts = facts_of(pipeline, now)
    able, left_out = buildable(pipeline, choices, facts)
    return [
        Answer.of(choice.label, policy_of(pipeline, choice.name, choice.params, facts), now.seen) for choice in able
    ], left_out


def facts_of(pipeline: Pipeline, now: Situation) -> dict[str, Any]:
    """What policies may ask for by name; in records where the present mix says how large they are."""
    facts: dict[str, Any] = {"partitions": len(now.seen.partitions)}
    partitions = now.seen.partitions
    capacity = in_records(pipeline.policy.consumer_capacity_bytes_per_s, partitions, partitions)
    if capacity is not None:
        share = pipeline.policy.packing_capacity_bytes_per_s / pipeline.policy.consumer_capacity_bytes_per_s
        facts |= {
            "events": events_within(capacity, goal_of(pipeline)["slo_s"]),
            "peak_records_per_s": now.peak_records_per_s,
            "replicas": max(1, math.ceil(now.peak_records_per_s / (capacity * share))),
        }
    return facts


def as_json(now: Situation, answers: list[Answer], notes: list[str]) -> dict[str, Any]:
    seen = now.seen
    return {
        "measured_s_ago": now.age_s,
        "as_of_last_measurement": now.is_past,
        "partitions": len(seen.partitions),
        "consumers": len(seen.assignment),
        "bytes_per_s": sum(seen.rates().values()),
        "lag_records": _lag(now),
        "pause_s": seen.pause_s,
        "start_s": seen.start_s,
        "notes": notes,
        "policies": [_answer(answer) for answer in answers],
    }


def _answer(answer: Answer) -> dict[str, Any]:
    decision = answer.decision
    following = decision.assignment
    return {
        "policy": answer.policy,
        "action": answer.action,
        "consumers_before": answer.consumers_before,
        "consumers_after": answer.consumers_after,
        "moves": answer.moves,
        "trigger": decision.trigger,
        "reason": decision.reason,
        "rejected": [{"what": other.what, "why_not": other.why_not} for other in decision.rejected],
        "alerts": [alert.text for alert in decision.alerts],
        "inputs": dict(decision.inputs),
        "assignment": None
        if following is None
        else {str(c): [str(p) for p in sorted(following[c])] for c in following},
    }


def _lag(now: Situation) -> int:
    return sum(load.lag_records for load in now.seen.partitions.values())


def _print(pipeline: Pipeline, now: Situation, answers: list[Answer], notes: list[str]) -> None:
    console, seen = Console(), now.seen
    if now.is_past:
        console.print(
            f"[yellow]The newest measurement is {now.age_s:.0f} s old; the pipeline or its monitor is stopped. "
            "This is what policies would have done then.[/]"
        )
    console.print(
        f"[bold]{pipeline.name}[/]: {len(seen.partitions)} partitions, "
        f"{BYTES_PER_S.format(round(sum(seen.rates().values())))}, "
        f"{len(seen.assignment)} consumers, {_lag(now):,} records behind",
        highlight=False,
    )
    for note in notes:
        console.print(f"[yellow]Note[/]: {escape(note)}", highlight=False)
    for answer in answers:
        change = f"{answer.consumers_before} → {answer.consumers_after} consumers, {answer.moves} moves"
        console.print(f"\n[bold]{escape(answer.policy)}[/]: {answer.action}, {change}", highlight=False)
        console.print(f"  {escape(answer.decision.reason)}", highlight=False)
        for other in answer.decision.rejected:
            console.print(f"  not: {escape(other.what)}, because: {escape(other.why_not)}", highlight=False)
        for alert in answer.decision.alerts:
            console.print(f"  [yellow]{escape(alert.text)}[/]", highlight=False)
