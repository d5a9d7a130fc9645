"""`headgate kafka`: a real Kafka on this machine, without Docker or a download page."""

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.embedded_status import KafkaStatus

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""A real Apache Kafka on this machine, for trying things out and for tests.

It needs Java 17 or 21 and nothing else. The first start fetches Kafka's
jars (43 MB) into the cache ($HEADGATE_CACHE, else ~/.cache/headgate); later
ones take seconds. It listens on 127.0.0.1 only. All it keeps is in one
folder, its home: stop it, start it again, and the records are still there.

  [bold]headgate kafka start[/]    one broker; prints its address
  [bold]headgate kafka status[/]   does it run, and where
  [bold]headgate kafka stop[/]     in order; delete the home to forget the data""",
)

Home = Annotated[
    Path,
    typer.Option("--home", metavar="DIR", help="The folder with everything that this Kafka keeps: data, logs, ports."),
]
DEFAULT_HOME = Path("headgate-kafka")


class Brokers(StrEnum):
    one = "1"
    three = "3"


class Output(StrEnum):
    table = "table"
    json = "json"


@app.command()
def start(
    home: Home = DEFAULT_HOME,
    brokers: Annotated[
        Brokers | None,
        typer.Option(help="How many brokers a new home gets: 1, or 3 for replication and fail-over.", show_default="1"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="The first broker's port; the others and the controllers take the ones that follow. "
            "Without it, a new home chooses free ports and keeps them.",
        ),
    ] = None,
) -> None:
    """Start Kafka, or what is missing of it, and wait until it answers. Harmless if it already runs.

    [bold]headgate kafka start[/]
    [bold]headgate kafka start --port 9092[/]   where clients expect it
    [bold]headgate kafka start --brokers 3 --home ./three[/]   survives one broker
    """
    kafka = EmbeddedKafka(home, int(brokers) if brokers else None, port)
    screen = Console(stderr=True)
    with screen.status("starting Kafka") as line:
        started = kafka.start(line.update)
    typer.echo(f"Kafka {'is ready' if started else 'was already running'} on {kafka.bootstrap} (home: {kafka.home})")


@app.command()
def stop(
    home: Home = DEFAULT_HOME,
    deadline_s: Annotated[
        float, typer.Option("--deadline", metavar="SECONDS", min=0, help="How long it may take before it is killed.")
    ] = 30.0,
) -> None:
    """Stop Kafka in order. The data stays in its home. Harmless if it does not run.

    [bold]headgate kafka stop[/]
    [bold]headgate kafka stop --home ./three --deadline 60[/]
    """
    kafka = EmbeddedKafka(home)
    with Console(stderr=True).status("stopping Kafka"):
        stopped = kafka.stop(deadline_s)
    typer.echo(f"Kafka {'has stopped' if stopped else 'was not running'} (home: {kafka.home})")


@app.command()
def status(
    home: Home = DEFAULT_HOME,
    output: Annotated[Output, typer.Option("--output", "-o", help="For people, or for programs.")] = Output.table,
) -> None:
    """Show whether Kafka runs, on which ports, and whether every broker answers.

    Exit code 0 if all brokers answer, 1 if not.

    [bold]headgate kafka status[/]
    [bold]headgate kafka status --output json[/]
    """
    seen = EmbeddedKafka(home).status()
    if output is Output.json:
        typer.echo(json.dumps(_as_json(seen), indent=2))
    else:
        _print(seen)
    if not seen.ready:
        raise typer.Exit(1)


def _as_json(seen: KafkaStatus) -> dict[str, object]:
    return {
        "home": str(seen.home),
        "version": seen.version,
        "bootstrap": seen.bootstrap,
        "running": seen.running,
        "ready": seen.ready,
        "brokers": [asdict(broker) for broker in seen.brokers],
    }


def _print(seen: KafkaStatus) -> None:
    console = Console()
    state = (
        "[green]ready[/]" if seen.ready else "[yellow]not all brokers answer[/]" if seen.running else "[red]stopped[/]"
    )
    console.print(f"Kafka {seen.version} is {state} on [bold]{seen.bootstrap}[/], home {seen.home}", soft_wrap=True)
    table = Table("broker", "port", "controller", "pid", "answers")
    for broker in seen.brokers:
        answers = "[green]yes[/]" if broker.reachable else "[red]no[/]"
        table.add_row(str(broker.id), str(broker.port), str(broker.controller_port), str(broker.pid or "–"), answers)
    console.print(table)
