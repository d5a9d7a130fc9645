"""`headgate run`: a pipeline, until it is told to stop."""

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from headgate.cli.logs import LogFormat, LogFormatOption, log_to
from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.controller.garbage import collect_seldom
from headgate.controller.ports import STARTED
from headgate.errors import ConfigError
from headgate.kafka.channel import END, Tail
from headgate.kafka.internal_topics import Topics
from headgate.model.messages import DecisionRecord
from headgate.modest_memory import keep_memory_modest


def run(
    file: Annotated[Path, typer.Argument(help="The pipeline file.", metavar="FILE")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print decisions and their reasons; start nothing, move nothing.")
    ] = False,
    roles: Annotated[
        str,
        typer.Option(
            help="Which parts run here. monitor: measures write rates; controller: decides, and starts and stops "
            "consumers; committer: commits what they wrote. Each may run as a process of its own."
        ),
    ] = "monitor,controller,committer",
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more, also to the terminal.")] = False,
    log_format: LogFormatOption = LogFormat.text,
) -> None:
    """Ingests a pipeline's topics into its tables, with as few consumers as its load needs.

    Ctrl-C or SIGTERM stops cleanly: consumers finish their cycle and everything they read is committed. A kill -9
    at any moment is safe too; the next start goes on where the lake is.

    Watch it from another terminal with [bold]headgate status FILE[/]. Log files are in the pipeline's home.
    """
    keep_memory_modest()
    from headgate.controller.service import ROLES, Service

    pipeline = load_pipeline(file)
    chosen = tuple(role.strip() for role in roles.split(",") if role.strip())
    if unknown := [role for role in chosen if role not in ROLES]:
        raise ConfigError(f"--roles: {', '.join(unknown)} unknown; choose from {', '.join(ROLES)}")
    log_to(pipeline.home / "headgate.log", verbose, terminal=verbose, log_format=log_format, troubles=True)
    console = Console(quiet=log_format is LogFormat.json)  # decisions are log lines then
    stop = threading.Event()

    def asked_to_stop(number: int, frame: FrameType | None) -> None:
        if stop.is_set():  # a second Ctrl-C does not wait; what is lost is only work that the next start repeats
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGTERM, asked_to_stop)
    signal.signal(signal.SIGINT, asked_to_stop)
    service = Service(pipeline, chosen, dry_run)
    service.start()
    if {"monitor", "controller"} & set(chosen):
        collect_seldom()
    doing = "dry run: decisions are printed and not acted on" if dry_run else f"{', '.join(chosen)} running"
    console.print(f"[bold]{pipeline.name}[/]: {doing}; log in {pipeline.home / 'headgate.log'}; Ctrl-C ends it.")
    try:
        follow_decisions(console, pipeline, stop, service.failed)
    finally:
        if not dry_run:
            console.print("stopping: consumers finish their cycles, the committer commits what they announced")
        service.stop()
    console.print("stopped")


def follow_decisions(console: Console, pipeline: Pipeline, stop: threading.Event, failed: threading.Event) -> None:
    """Prints each decision as it is journalled, until stopped."""
    topics = Topics(pipeline.name)
    tail = Tail(librdkafka_settings(pipeline), {(topics.decisions, 0): END})
    try:
        while not (stop.is_set() or failed.is_set()):
            for received in tail.poll(0.5):
                if isinstance(received.message, DecisionRecord):
                    console.print(sentence(received.message), highlight=False)
    finally:
        tail.close()


def sentence(decision: DecisionRecord) -> str:
    if decision.outcome == STARTED:
        return "[bold]controller started[/]; it asks the consumers that run what they own"
    change = f"{decision.consumers_before} → {decision.consumers_after} consumers, {decision.moved} partitions moved"
    if decision.alerts == (decision.reason,):
        return f"[bold yellow]{decision.outcome}[/]: {escape(decision.reason)}"
    alerts = "".join(f"\n  [yellow]{escape(alert)}[/]" for alert in decision.alerts)
    return f"[bold]{decision.outcome}[/]: {change}. {escape(decision.reason)}{alerts}"
