"""`headgate group`: placement and size for ordinary consumer groups."""

import json
import shlex
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headgate.cli.client_setting import client_option, client_setting
from headgate.cli.logs import log_to
from headgate.cli.output import Output
from headgate.cli.policy_choice import chosen
from headgate.cli.quantities import positive_s, seconds
from headgate.config.clients import as_kafka_python
from headgate.controller.assembly import events_within
from headgate.controller.policy_choices import Choice
from headgate.errors import ConfigError, KafkaUnavailable, SetupError
from headgate.fleet.processes import ProcessFleet
from headgate.groups.carrying import Carrier
from headgate.groups.controller import GroupController, GroupSettings
from headgate.groups.desk import Desk
from headgate.groups.measuring import GroupMeter
from headgate.groups.server import DeskServer
from headgate.policies.protocol import Policy
from headgate.policies.registry import build_policy, parameters_of

RESIZING = "algorithm2:literal=false"
PLACING = "load_balance"

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""For consumers that are ordinary members of a Kafka group: who gets which partition, and how many there are.

Your consumers stay what they are, kafka-python programs; one line of each changes:

  consumer = PlannedConsumer("payments", controller="http://127.0.0.1:8787", group_id="pay", ...)

  [bold]headgate group run[/]      measures the group, decides, and answers its leader in every rebalance
  [bold]headgate group status[/]   members, who owns what, rates, lag, the last decision

The whole way in five minutes: docs/consumer-groups.md. Groups of the new protocol (KIP-848) cannot be planned.""",
)


@app.command()
def run(
    brokers: Annotated[str, typer.Option(help="Kafka's address, as host:port,host:port.")],
    group: Annotated[str, typer.Option(help="The consumer group's id.")],
    policy: Annotated[
        str | None,
        typer.Option(
            help=f"Who decides, with parameters as in algorithm2:f_up=0.8:cooldown_s=5. Default: {RESIZING}, which was "
            f"made for such groups; without --command {PLACING}, which leaves their size alone.",
            show_default=False,
        ),
    ] = None,
    slo: Annotated[
        str, typer.Option(help="How long a record may take, from its arrival to its commit.", metavar="TIME")
    ] = "500ms",
    capacity: Annotated[
        float | None,
        typer.Option(help="Records a second that one member does. Default: what members measure.", show_default=False),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            help="Starts one member on this machine, as in 'python app.py'; {n} becomes its number. SIGTERM must make "
            "it close its consumer and end. Without it members are yours to start and stop.",
            show_default=False,
        ),
    ] = None,
    max_members: Annotated[int, typer.Option(help="Never more than this.", min=1)] = 32,
    listen: Annotated[
        str, typer.Option(help="Where members find this controller, HOST:PORT. Anyone who can reach it is trusted.")
    ] = "127.0.0.1:8787",
    client: Annotated[list[str] | None, client_option("Client setting")] = None,
    home: Annotated[
        Path | None, typer.Option(help="For the log and for members' logs. Default: headgate-group-<group>.")
    ] = None,
    interval: Annotated[str, typer.Option(help="Time between decisions.", metavar="TIME")] = "1s",
    window: Annotated[str, typer.Option(help="Rates are means over this long.", metavar="TIME")] = "5s",
    warm_up: Annotated[str, typer.Option(help="No decision this soon after the start.", metavar="TIME")] = "5s",
    rebalance_floor: Annotated[
        str, typer.Option(help="A rebalance counts as at least this long, whatever was measured.", metavar="TIME")
    ] = "50ms",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print decisions only: answer nobody, start and stop nothing.")
    ] = False,
    stop_members: Annotated[
        bool, typer.Option("--stop-members", help="At the end stop members started with --command, too.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more, also to the terminal.")] = False,
) -> None:
    """Plans one consumer group until Ctrl-C or SIGTERM.

    [bold]headgate group run --brokers kafka:9092 --group pay[/]   balances load between the members there are
    [bold]headgate group run --brokers kafka:9092 --group pay --command 'python pay.py'[/]   and decides their number
    [bold]headgate group run --brokers kafka:9092 --group pay --capacity 200 --dry-run[/]   what would it do?

    Stopping it, or losing it, is safe at any moment: the group goes on with the last plan its leader saw, members
    started here keep running, and the next start takes them over.
    """
    if dry_run and capacity is None:
        raise ConfigError("--dry-run hears nothing from members: say what one does with --capacity RECORDS_PER_S")
    if capacity is not None and not capacity > 0:
        raise ConfigError(f"--capacity must be above 0, not {capacity:g}")
    settings = GroupSettings(group, positive_s(slo), capacity, positive_s(interval), seconds(warm_up))
    make_policy = _policy_maker(settings, _one(policy or (RESIZING if command else PLACING)), max_members)
    settings_of_client = dict(client_setting(text) for text in client or ())
    host, port = _address(listen)
    starts = _command(command) if command is not None else None
    folder = (home or Path(f"headgate-group-{group}")).absolute()
    log_to(folder / "headgate.log", verbose, terminal=verbose)
    stop, console = _stop_on_signals(), Console(highlight=False, soft_wrap=True)

    def tell(text: str) -> None:
        console.print(f"{time.strftime('%H:%M:%S')} {escape(text)}")

    kafka = {"bootstrap.servers": brokers, "log_level": "2", **settings_of_client}
    meter = GroupMeter(kafka, as_kafka_python(brokers, settings_of_client), group, positive_s(window), time.time)
    desk = Desk(group, seconds(rebalance_floor), time.time)
    fleet = ProcessFleet(starts, folder) if starts and not dry_run else None
    carrier = None if dry_run else Carrier(desk, fleet, tell)
    controller = GroupController(settings, meter, desk, make_policy, carrier, tell, time.time, starts is not None)
    _first_look(meter, brokers)  # what can never work is said before anything is started
    server = None if dry_run else DeskServer(desk, host, port, lambda: controller.status)
    if server is None:
        tell(f"dry run of group {group}: decisions are printed and not acted on; Ctrl-C ends it")
    else:
        server.start()
        tell(f"group {group}: members find this controller at {server.address}; Ctrl-C ends it")
    try:
        while not stop.wait(settings.interval_s):
            controller.turn()
    finally:
        if server is not None:
            server.stop()
        meter.close()
        if fleet is not None and stop_members:
            tell("stopping members")
            fleet.close()
    tell("stopped" if stop_members or fleet is None else "stopped; members keep running")


@app.command()
def status(
    controller: Annotated[str, typer.Option(help="The address that `headgate group run` printed.")] = (
        "http://127.0.0.1:8787"
    ),
    output: Annotated[Output, typer.Option(help="text for people, json for programs.")] = Output.text,
) -> None:
    """Shows a group as its controller last saw it."""
    try:
        with urllib.request.urlopen(controller, timeout=5) as answer:
            seen: dict[str, Any] = json.loads(answer.read())
    except (urllib.error.URLError, ValueError, OSError) as error:
        raise SetupError(f"no controller answers at {controller}: {error}; start one with headgate group run") from None
    if output is Output.json:
        typer.echo(json.dumps(seen, indent=2))
        return
    console = Console(highlight=False, soft_wrap=True)
    pause = seen.get("pause_s")
    console.print(
        f"[bold]{escape(str(seen['group']))}[/]: {seen.get('state', 'not seen yet')}, generation "
        f"{seen.get('generation', '–')}, rebalances take {'–' if pause is None else f'{pause:.2f} s'}, "
        f"{seen.get('fallbacks', 0)} assignments made without the controller"
    )
    loads = seen.get("loads", {})
    table = Table("member", "partitions", "records/s", "lag")
    for member, owned in sorted(seen.get("members", {}).items()):
        rate = sum(loads[p]["records_per_s"] for p in owned if p in loads)
        lag = sum(loads[p]["lag_records"] for p in owned if p in loads)
        table.add_row(escape(member), escape(", ".join(owned)), f"{rate:.0f}", f"{lag:,.0f}")
    console.print(table)
    console.print(escape(str(seen.get("decision", "no decision yet"))))


def _first_look(meter: GroupMeter, brokers: str) -> None:
    try:
        meter.group()
    except KafkaUnavailable as error:
        meter.close()
        raise KafkaUnavailable(
            f"{error}; is Kafka running, is --brokers {brokers} its address as seen from here, and does it ask for "
            "encryption or a password (--client security.protocol=...)?"
        ) from error


def _one(text: str) -> Choice:
    choices = chosen(text)
    if len(choices) != 1 or text.strip() == "all":
        raise ConfigError(f"--policy: one policy decides, not {text!r}")
    return choices[0]


def _policy_maker(settings: GroupSettings, choice: Choice, max_members: int) -> Callable[[float, int], Policy]:
    accepted = parameters_of(choice.name)
    fixed = {"capacity_records_per_s": settings.capacity_records_per_s}
    said = {key: value for key, value in fixed.items() if value is not None and key in accepted} | dict(choice.params)
    packer = str(said.pop("packer", "repair"))

    def make(capacity: float, members: int) -> Policy:
        return build_policy(
            choice.name,
            packer,
            consumer_capacity_bytes_per_s=capacity,
            packing_capacity_bytes_per_s=settings.fill * capacity,
            max_consumers=max_members,
            params=said,
            facts={
                "slo_s": settings.slo_s,
                "capacity_records_per_s": capacity,
                "replicas": members,
                "interval_s": settings.interval_s,
                "beat_s": settings.interval_s,
                "events": events_within(capacity, settings.slo_s),
            },
        )

    make(settings.capacity_records_per_s or 1.0, 1)  # wrong parameters are told now, not once members have measured
    return make


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"--listen must be HOST:PORT, such as 0.0.0.0:8787, not {listen!r}")
    return host, int(port)


def _command(template: str) -> Callable[[int], list[str]]:
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise ConfigError(f"--command {template!r} cannot be read: {error}") from None
    if not words:
        raise ConfigError("--command is empty; give what starts one member, as in 'python app.py'")
    return lambda n: [word.replace("{n}", str(n)) for word in words]


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()

    def asked_to_stop(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, asked_to_stop)
    signal.signal(signal.SIGINT, asked_to_stop)
    return stop
