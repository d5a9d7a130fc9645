"""`headgate collect`: forwards a collector cluster to the main cluster, topic for topic."""

import logging
import signal
import threading
from dataclasses import asdict
from types import FrameType
from typing import Annotated, Any

import typer
from prometheus_client import start_http_server

from headgate.cli.client_setting import client_option, client_setting
from headgate.cli.logs import LogFormat, LogFormatOption, log_to
from headgate.cli.quantities import time_option
from headgate.collectors.clients import address, consumer_settings, open_producer
from headgate.collectors.forwarder import Forwarder, Limits
from headgate.collectors.placement import SAME, KeepKeys, KeepPartitions, Placement, SpreadKeys
from headgate.collectors.topics import Route, Wanted
from headgate.errors import ConfigError, SetupError
from headgate.producers.protocol import Partitioner
from headgate.producers.registry import build_partitioner

log = logging.getLogger(__name__)

_DEFAULT = Limits()
_WHERE, _HOW, _OUTPUT = "From where to where", "How", "What it tells"


def collect(
    source: Annotated[
        str,
        typer.Option("--from", metavar="HOST:PORT,…", help="The collector cluster's brokers.", rich_help_panel=_WHERE),
    ],
    target: Annotated[
        str, typer.Option("--to", metavar="HOST:PORT,…", help="The main cluster's brokers.", rich_help_panel=_WHERE)
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="NAME", help="Topic to forward; repeat it.", rich_help_panel=_WHERE),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX",
            help="Instead of --topic: all topics whose whole name matches, also those that appear later.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    create: Annotated[
        bool,
        typer.Option(
            "--create",
            help="Create topics that the main cluster lacks, with as many partitions as at the collector, "
            "the brokers' default replication, and no other settings of the topic.",
            rich_help_panel=_WHERE,
        ),
    ] = False,
    from_client: Annotated[list[str] | None, client_option("Setting of the client that reads", _WHERE)] = None,
    to_client: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="The same for the client that writes.", rich_help_panel=_WHERE),
    ] = None,
    partitioner: Annotated[
        str,
        typer.Option(
            help="Who places records without a key: sqf, node, sqf-host (for several forwarders on one host), … "
            f"(docs/producers.md). {SAME}: every record keeps its partition.",
            rich_help_panel=_HOW,
        ),
    ] = "sqf",
    spread_keys: Annotated[
        bool,
        typer.Option(
            "--spread-keys",
            help="Let the partitioner place records with a key, too. A key's records are then read out of order.",
            rich_help_panel=_HOW,
        ),
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            help="Consumer group at the collector. Forwarders of one group share its partitions and take each other's "
            "over, so they must have the same main cluster.",
            show_default="headgate-collect-CLUSTER, with the main cluster's id",
            rich_help_panel=_HOW,
        ),
    ] = None,
    max_in_flight: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="RECORDS",
            help="Read no further while so many records wait for the main cluster's acknowledgement.",
            rich_help_panel=_HOW,
        ),
    ] = _DEFAULT.in_flight_records,
    drain: Annotated[
        float,
        time_option("How long to wait for acknowledgements when partitions are given up, or at the end.", "30 s", _HOW),
    ] = _DEFAULT.drain_s,
    report: Annotated[
        float, time_option("Time between two lines of progress.", "10 s", _OUTPUT)
    ] = _DEFAULT.tell_every_s,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve Prometheus metrics on loopback.", rich_help_panel=_OUTPUT)
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more.", rich_help_panel=_OUTPUT)] = False,
    log_format: LogFormatOption = LogFormat.text,
) -> None:
    """Forwards a small "collector" cluster to the main cluster, until Ctrl-C or SIGTERM.

    Producers that cannot be changed get the collector's address and nothing else. What they write arrives in the topics
    of the same name at the main cluster, spread over its nodes by a partitioner of your choice, with keys, headers and
    timestamps.

    [bold]headgate collect --from edge:9092 --to main:9092 --topic orders --topic clicks[/]
    [bold]headgate collect --from edge:9092 --to main:9092 --pattern 'web-.*' --create[/]   also topics to come
    [bold]headgate collect --from edge:9092 --to main:9092 --topic log --partitioner same[/]   whole partitions in order

    Run it twice, on two machines, with the same --group: they share the work, and if one is lost the other takes over
    within seconds. Nothing is lost, at whatever moment: an offset is committed at the collector only when the main
    cluster has acknowledged everything before it. What was sent and not yet committed is sent again.

    Order, fallback, several levels and what it costs: docs/collectors.md.
    """
    limits = Limits(in_flight_records=max_in_flight, tell_every_s=report, drain_s=drain)
    chosen, placement = _placing(partitioner, spread_keys)
    wanted = Wanted(tuple(topic or ()), pattern)
    reading = _address(source, from_client, "--from-client")
    writing = _address(target, to_client, "--to-client")
    log_to(None, verbose, terminal=True, log_format=log_format)
    _serve_metrics(metrics_port)
    route = Route(reading, writing, wanted, create)
    route.open()  # what can never work is said before a group is joined
    joined = group or route.group()
    forwarder = Forwarder(
        consumer_settings(reading, joined),
        open_producer(writing, chosen, max_in_flight),
        placement,
        route,
        limits,
        lambda progress: log.info("%s", progress.sentence, extra={"event": "progress", **asdict(progress)}),
    )
    log.info("from %s to %s as a member of group %s; Ctrl-C ends it", source, target, joined)
    done = forwarder.run(_stop_on_signals())
    log.info("%s", done.farewell, extra={"event": "stopped", **asdict(done)})


def _address(brokers: str, settings: list[str] | None, option: str) -> dict[str, Any]:
    return address(brokers, dict(client_setting(text, option) for text in settings or ()), option)


def _placing(partitioner: str, spread_keys: bool) -> tuple[Partitioner, Placement]:
    if partitioner == SAME:
        if spread_keys:
            raise ConfigError(f"--spread-keys and --partitioner {SAME} contradict each other: leave one out")
        return build_partitioner("client"), KeepPartitions()
    if not spread_keys:
        return build_partitioner(partitioner), KeepKeys()
    takes_keys: dict[str, Any] = {} if partitioner in ("default-rr", "improved", "client") else {"allow_keys": True}
    return build_partitioner(partitioner, takes_keys), SpreadKeys()


def _serve_metrics(port: int | None) -> None:
    if port is None:
        return
    try:
        start_http_server(port, addr="127.0.0.1")
    except (OSError, OverflowError) as error:
        raise SetupError(f"metrics cannot be served on port {port}: {error}; choose another --metrics-port") from error


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()

    def asked_to_stop(number: int, frame: FrameType | None) -> None:
        if stop.is_set():  # a second Ctrl-C does not wait; what is not committed is forwarded again
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGTERM, asked_to_stop)
    signal.signal(signal.SIGINT, asked_to_stop)
    return stop
