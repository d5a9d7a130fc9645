"""`headgate topology watch`: follows a live cluster and speaks when something changes (B-11, B-21, B-26)."""

import json
import time
from datetime import datetime

from prometheus_client import start_http_server
from rich.console import Console
from rich.markup import escape

from headgate.cli.topology_source import LiveCluster
from headgate.errors import ConfigError, KafkaUnavailable
from headgate.kafka.topology import with_rates
from headgate.kafka.topology_metrics import show
from headgate.topology.checks import findings_of
from headgate.topology.cluster import Topology
from headgate.topology.findings import Finding, Severity, joined
from headgate.topology.history import History
from headgate.topology.standing import Standing


def watching(
    live: LiveCluster, interval_s: float, times: int | None, metrics_port: int | None, as_json: bool = False
) -> None:
    if metrics_port is not None:
        try:
            start_http_server(metrics_port, addr="127.0.0.1")
        except (OSError, OverflowError) as error:
            raise ConfigError(f"metrics cannot be served on port {metrics_port}: {error}") from error
    admin = live.admin()
    reader, history, console = live.reader(admin), History(), Console()
    standing: Standing | None = None
    looks, silent = 0, False
    try:
        while times is None or looks < times:
            if looks:
                time.sleep(interval_s)
            looks += 1
            try:
                seen = reader.read()
                if rates := live.rates(admin, seen, None):
                    seen = with_rates(seen, rates)
            except KafkaUnavailable as error:
                if standing is None:
                    raise
                if not silent:
                    _say(console, as_json, "unreachable", str(error), [])
                silent = True
                continue
            silent = False
            standing = _followed(standing, seen, history, console, as_json)
            show(standing)
    except KeyboardInterrupt:
        pass


def _followed(standing: Standing | None, seen: Topology, history: History, console: Console, as_json: bool) -> Standing:
    """The standing after this look; a line if leaders, replicas or nodes changed."""
    if standing is None or [node.id for node in standing.topology.nodes] != [node.id for node in seen.nodes]:
        before = [] if standing is None else findings_of(standing)
        after = Standing(seen)
        what = f"{len(seen.nodes)} nodes, {len(seen.topics)} topics, {seen.partitions} partitions"
    else:
        before, online = findings_of(standing), standing.topology.online
        old = {topic.name: topic.partitions for topic in standing.topology.topics}
        new = {topic.name: topic.partitions for topic in seen.topics}
        # Rates change all the time and are followed in silence.
        moved = [name for name in standing.update(seen) if old.get(name) != new.get(name)]
        after = standing
        if online == seen.online and not moved:
            return after
        what = _difference(online, seen.online, len(moved))
    history.note(seen.epoch, after.overlaps)
    now = findings_of(after)
    known = {(f.kind, f.what) for f in before}
    still = {(f.kind, f.what) for f in now}
    news = [f for f in now if (f.kind, f.what) not in known]
    ended = [f for f in before if (f.kind, f.what) not in still]
    _say(console, as_json, "changed", what, news, ended, len(history.pairs))
    return after


def _difference(before: frozenset[int], after: frozenset[int], topics: int) -> str:
    parts = []
    if before - after:
        parts.append(f"node {joined(before - after)} went away")
    if after - before:
        parts.append(f"node {joined(after - before)} came back")
    parts.append(f"{topics} topics changed")
    return ", ".join(parts)


def _say(
    console: Console,
    as_json: bool,
    event: str,
    what: str,
    news: list[Finding],
    ended: list[Finding] | None = None,
    pairs_known: int = 0,
) -> None:
    at = datetime.now().astimezone()
    if as_json:
        line = {
            "at": at.isoformat(timespec="seconds"),
            "event": event,
            "what": what,
            "new": [{"severity": f.severity.name, "kind": f.kind, "what": f.what} for f in news],
            "ended": [{"kind": f.kind, "what": f.what} for f in ended or ()],
            "overlapping_pairs_ever_seen": pairs_known,
        }
        print(json.dumps(line), flush=True)
        return
    console.print(f"[dim]{at:%H:%M:%S}[/] {escape(what)}", highlight=False)
    for finding in news:
        style = {Severity.critical: "bold red", Severity.warning: "yellow"}.get(finding.severity, "cyan")
        console.print(f"         [{style}]{finding.severity.name}[/] {escape(finding.what)}", highlight=False)
    for finding in ended or ():
        console.print(f"         [green]over[/] {escape(finding.what)}", highlight=False)
