"""`headgate topology watch`: follows a cluster and speaks when something changes (B-11, B-21, B-26)."""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from prometheus_client import start_http_server
from rich.console import Console
from rich.markup import escape

from headgate.cli.topology_source import CLUSTER, LiveReader, live_cluster, load_source, write
from headgate.errors import ConfigError, KafkaUnavailable
from headgate.kafka.topology import with_rates
from headgate.kafka.topology_metrics import show
from headgate.topology.checks import findings_of
from headgate.topology.cluster import Topology
from headgate.topology.findings import Finding, Severity, joined, listed
from headgate.topology.history import History, News, Seen
from headgate.topology.page import page
from headgate.topology.report import make_report, pair_as_json
from headgate.topology.standing import Standing

MOST_PAIRS = 100
"""That one line of JSON tells."""


@dataclass(frozen=True, slots=True)
class Change:
    what: str
    epoch: int | None = None
    new: tuple[Finding, ...] = ()
    ended: tuple[Finding, ...] = ()
    overlaps: News = News((), ())  # noqa: RUF009 - it is a value
    pairs_known: int = 0
    """Pairs of groups that overlapped at any time, as far as there is room to remember them."""


class Traffic:
    """Rates as last heard. Those of before stay while nobody tells new ones: other units would look like a change."""

    def __init__(self) -> None:
        self._rates: Mapping[str, float] = {}

    def on(self, seen: Topology, rates: Mapping[str, float]) -> Topology:
        """`rates` may be empty."""
        self._rates = rates or self._rates
        return with_rates(seen, self._rates) if self._rates else seen


@dataclass(frozen=True, slots=True)
class Look:
    """A cluster, live or in a file, as often as asked. KafkaUnavailable or ConfigError while it cannot be seen."""

    source: str
    now: Callable[[], Topology]


@contextmanager
def looking(source: str, brokers: str | None, pipeline: Path | None, internal: bool) -> Iterator[Look]:
    if source == CLUSTER:
        live = live_cluster(brokers, pipeline, internal)
        admin, traffic = live.admin(), Traffic()
        with closing(LiveReader(live, admin)) as reader:

            def read() -> Topology:
                seen = reader.read()
                return traffic.on(seen, live.rates(admin, seen, None))

            yield Look(live.librdkafka["bootstrap.servers"], read)
    else:
        epochs = itertools.count()
        yield Look(source, lambda: replace(load_source(source, brokers, pipeline, None).topology, epoch=next(epochs)))


def watching(
    look: Look,
    interval_s: float,
    times: int | None,
    metrics_port: int | None,
    as_json: bool = False,
    page_file: Path | None = None,
) -> None:
    if metrics_port is not None:
        try:
            start_http_server(metrics_port, addr="127.0.0.1")
        except (OSError, OverflowError) as error:
            raise ConfigError(f"metrics cannot be served on port {metrics_port}: {error}") from error
    history, console = History(), Console()
    standing: Standing | None = None
    looks, silent = 0, False
    try:
        while times is None or looks < times:
            if looks:
                time.sleep(interval_s)
            looks += 1
            try:
                seen = look.now()
            except (KafkaUnavailable, ConfigError) as error:
                if standing is None:
                    raise
                if not silent:
                    _say(console, as_json, "unreachable", Change(str(error)))
                silent = True
                continue
            silent = False
            standing, change = followed(standing, seen, history)
            if change is not None:
                if page_file is not None:
                    write(page_file, page(make_report(standing, look.source), standing))
                _say(console, as_json, "changed", change)
            show(standing)
    except KeyboardInterrupt:
        pass


def followed(standing: Standing | None, seen: Topology, history: History) -> tuple[Standing, Change | None]:
    """The standing after this look, and what is new if leaders, replicas or nodes changed."""
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
            return after, None
        what = _difference(online, seen.online, len(moved))
    overlaps = history.note(seen.epoch, after.overlaps)
    now = findings_of(after)
    known = {(f.kind, f.what) for f in before}
    still = {(f.kind, f.what) for f in now}
    news = tuple(f for f in now if (f.kind, f.what) not in known)
    ended = tuple(f for f in before if (f.kind, f.what) not in still)
    return after, Change(what, seen.epoch, news, ended, overlaps, len(history.pairs))


def _difference(before: frozenset[int], after: frozenset[int], topics: int) -> str:
    parts = []
    if before - after:
        parts.append(f"node {joined(before - after)} went away")
    if after - before:
        parts.append(f"node {joined(after - before)} came back")
    parts.append(f"{topics} topics changed")
    return ", ".join(parts)


def _say(console: Console, as_json: bool, event: str, change: Change) -> None:
    at, overlaps = datetime.now().astimezone(), change.overlaps
    if as_json:
        line = {
            "at": at.isoformat(timespec="seconds"),
            "event": event,
            "what": change.what,
            "epoch": change.epoch,
            "new": [{"severity": f.severity.name, "kind": f.kind, "what": f.what} for f in change.new],
            "ended": [{"kind": f.kind, "what": f.what} for f in change.ended],
            "overlaps": [_seen_as_json(pair) for pair in overlaps.begun[:MOST_PAIRS]],
            "overlaps_ended": [_seen_as_json(pair) for pair in overlaps.over[:MOST_PAIRS]],
            "overlaps_left_out": sum(max(0, len(pairs) - MOST_PAIRS) for pairs in (overlaps.begun, overlaps.over)),
            "overlapping_pairs_known": change.pairs_known,
            "overlapping_pairs_forgotten": overlaps.forgotten,
        }
        print(json.dumps(line), flush=True)
        return
    console.print(f"[dim]{at:%H:%M:%S}[/] {escape(change.what)}", highlight=False)
    styles = {Severity.critical: "bold red", Severity.warning: "yellow", Severity.note: "cyan"}
    lines = [(styles[f.severity], f.severity.name, f.what) for f in change.new]
    lines += [("green", "over", f.what) for f in change.ended]
    lines += [("cyan", "overlap", line) for line in listed(map(_overlapping, overlaps.begun))]
    lines += [("green", "over", line) for line in listed(map(_overlapping, overlaps.over))]
    if overlaps.forgotten:
        lines.append(("cyan", "overlap", f"at least {overlaps.forgotten:,} more pairs overlap than can be followed"))
    for style, word, what in lines:
        console.print(f"         [{style}]{word}[/] {escape(what)}", highlight=False)


def _overlapping(seen: Seen) -> str:
    pair = seen.overlap
    epochs = f"epochs {seen.first_epoch} to {seen.last_epoch}" if seen.last_epoch > seen.first_epoch else "first seen"
    return f"{pair.first.short()} and {pair.second.short()} on node {joined(pair.shared)} ({epochs})"


def _seen_as_json(seen: Seen) -> dict[str, Any]:
    return pair_as_json(seen.overlap) | {"first_epoch": seen.first_epoch, "last_epoch": seen.last_epoch}
