"""`headgate rollback`: takes a table back to what it was, to be filled again from Kafka."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from headgate.cli.logs import log_to
from headgate.cli.moments import clock, moment_s
from headgate.errors import ConfigError, HeadgateError, KafkaUnavailable, LakeError

if TYPE_CHECKING:
    from headgate.config.pipeline import Pipeline
    from headgate.lake.rollback import RestorePoint
    from headgate.model import Ledger, TopicPartition

_BROKER_DEADLINE_S = 15.0


def rollback(
    file: Annotated[Path, typer.Argument(help="The pipeline file.", metavar="FILE")],
    table: Annotated[
        str | None, typer.Argument(help="Which table; may be left out if there is only one.", show_default=False)
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="What to go back to: the newest snapshot up to a time such as 2026-03-01T12:30 (UTC unless it names "
            "another zone), or up to so long ago, such as 3h; or the snapshot with this id.",
            metavar="TIME|ID",
        ),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Really do it; otherwise it is only said what would be done.")
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Go back although Kafka does not hold all of the records any more."),
    ] = False,
) -> None:
    """Takes a table back to an earlier snapshot; what came after it is read from Kafka again.

    For rows that should not be there: a wrong transform, rows that somebody changed or deleted. Without --to it lists
    what there is to go back to: the newest lake.keep_snapshots, and what was in force at the last lake.keep_hourly
    full hours. Rows and ledger go back in one step, and <table>__rejected loses what will be read again. Stop the
    pipeline first, mend what was wrong, roll back, start it. Safe to kill: say it again.
    """
    from headgate.config.loader import load_pipeline
    from headgate.lake.catalogs import open_catalog
    from headgate.lake.ledger import ledger_snapshot
    from headgate.lake.rollback import held as held_by
    from headgate.lake.rollback import repeated_by_current, restore_points, roll_back
    from headgate.lake.tables import load_table

    pipeline = load_pipeline(file)
    log_to(None)
    console = Console(highlight=False, soft_wrap=True)
    name = _named(pipeline, table)
    catalog = open_catalog(pipeline.lake)
    try:
        found = load_table(catalog, name)
    except HeadgateError:
        raise
    except Exception as error:  # catalogs and file systems fail in ways of their own
        said = pipeline.redact((str(error) or repr(error)).splitlines()[0])
        raise LakeError(f"{name} cannot be read: {said}; nothing was changed") from error
    if found is None:
        raise LakeError(f"{name} is not in the catalog")
    points, ledger = restore_points(found), held_by(found)
    if not points or ledger is None:
        raise LakeError(f"{name} has no snapshot with a ledger to go back to; lake.keep_hourly says how many are kept")
    held = _held(pipeline, name, ledger)
    if to is None:
        if ledger_snapshot(found) is None:
            console.print(f"{name} has lost its ledger: nothing is committed to it until it is taken to one")
        _list(console, name, points, held, repeated_by_current(found))
        return
    point = _chosen(points, to)
    said = f"{name} to snapshot {point.snapshot_id} of {clock(point.at_ms)}: {held.again(point.ledger)}"
    if not apply:
        console.print(f"would roll back {said}")
        console.print("Nothing was changed; --apply does it, while the pipeline is stopped.")
        return
    if held.gone(point.ledger) and not accept_loss:
        raise LakeError(f"{said}. Nothing was changed; --accept-loss goes back all the same")
    _check_that_it_is_stopped(pipeline, name)
    rejected = roll_back(catalog, pipeline.lake, name, point.snapshot_id)
    console.print(f"rolled back {said}")
    if rejected:
        console.print(f"{rejected:,} rejected records were taken out of {name}__rejected, to be read again as well")
    for topic in held.counted_as_another(point.ledger):
        console.print(
            f"{topic} had another id then: say headgate maintain {file} --same-topic {topic} before you start the "
            f"pipeline, as was said since"
        )


def _list(
    console: Console, name: str, points: list["RestorePoint"], held: "_Held", current_snapshot: int | None
) -> None:
    console.print(f"{name} can go back to")
    for point in points:
        said = "what it is now" if point.snapshot_id == current_snapshot else held.again(point.ledger)
        console.print(f"  {clock(point.at_ms)}  snapshot {point.snapshot_id}  {said}")
    console.print("headgate rollback FILE TABLE --to TIME says what would be done, with --apply it does it")


def _named(pipeline: "Pipeline", table: str | None) -> str:
    names = [one.name for one in pipeline.tables]
    if table is None and len(names) > 1:
        raise ConfigError(f"name a table: {', '.join(names)}")
    if table is not None and table not in names:
        raise ConfigError(f"{table} is not one of the pipeline's tables: {', '.join(names)}")
    return table or names[0]


@dataclass(frozen=True, slots=True)
class _Held:
    """What a table holds now, and how much of that Kafka could give it once more."""

    ledger: "Ledger"
    oldest: Mapping["TopicPartition", int]
    """The first offset that can be read again; where nothing can, that of the ledger."""

    def again(self, then: "Ledger") -> str:
        """What going back to this ledger means."""
        offsets = sum(following - self._from(then, p) for p, following in self.ledger.next.items())
        gone = self.gone(then)
        return f"{offsets:,} offsets would be read again, " + (
            f"of which Kafka does not hold {gone:,} any more" if gone else "all of them still in Kafka"
        )

    def gone(self, then: "Ledger") -> int:
        """Offsets that it holds now and would not get back."""
        return sum(
            max(0, min(self.oldest[p], following) - self._from(then, p)) for p, following in self.ledger.next.items()
        )

    def _from(self, then: "Ledger", partition: "TopicPartition") -> int:
        """Where it would be read from; one that came later, from its first record."""
        return then.next.get(partition, self.ledger.origin[partition])

    def counted_as_another(self, then: "Ledger") -> list[str]:
        """Topics that a person said are the same as those counted then."""
        return sorted(then.made_anew(self.ledger.topic_ids))


def _held(pipeline: "Pipeline", name: str, ledger: "Ledger") -> _Held:
    """Of a topic that is deleted, or was made anew, or that the table does not read any more, nothing can be read."""
    from confluent_kafka.admin import AdminClient

    from headgate.config.clients import librdkafka_settings
    from headgate.kafka.offsets import beginning_offsets, partitions_where, topic_ids

    admin = AdminClient(dict(librdkafka_settings(pipeline)))
    read = {p.topic for p in ledger.next if name in {table.name for table in pipeline.tables_of(p.topic)}}
    ids = topic_ids(admin, read, _BROKER_DEADLINE_S)
    read -= ledger.made_anew(ids.known)
    there = partitions_where(admin, lambda topic: topic in read, _BROKER_DEADLINE_S) & ledger.next.keys()
    oldest = beginning_offsets(admin, there, _BROKER_DEADLINE_S)
    if unknown := there - oldest.keys():
        raise KafkaUnavailable(f"the brokers do not say what they still hold of {min(unknown)}; nothing was changed")
    return _Held(ledger, {**ledger.next, **oldest})


def _chosen(points: list["RestorePoint"], to: str) -> "RestorePoint":
    """`points` are newest first."""
    if to.isdecimal():
        chosen = next((point for point in points if point.snapshot_id == int(to)), None)
    else:
        at_ms = 1000 * moment_s(to, time.time())
        chosen = next((point for point in points if point.at_ms <= at_ms), None)
    if chosen is None:
        raise LakeError(
            f"nothing to go back to by --to {to}: the oldest snapshot with a ledger is {points[-1].snapshot_id} of "
            f"{clock(points[-1].at_ms)}"
        )
    return chosen


def _check_that_it_is_stopped(pipeline: "Pipeline", name: str) -> None:
    """Consumers, too: those that outlived a killed `run` would go on with the transform that they have."""
    from headgate.config.clients import librdkafka_settings
    from headgate.controller.health_facts import consumers_heard_since
    from headgate.lake.words import SILENT_S, last_words

    settings = librdkafka_settings(pipeline)
    last_words(pipeline, settings).check_that_nobody_commits(name)
    if heard := consumers_heard_since(pipeline, settings, time.time() - SILENT_S):
        raise LakeError(
            f"{heard[0]} is at work, or was a moment ago: stop the pipeline, and what a killed one left (headgate run "
            f"ends them when it is stopped), wait {SILENT_S:g} s, try again"
        )
