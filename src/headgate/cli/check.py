"""`headgate check`: says everything that would go wrong with a pipeline, before anything is started."""

import inspect
import json
import logging
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import load_catalog
from pyiceberg.io import load_file_io

from headgate.cli.output import Output
from headgate.config import (
    Pipeline,
    PipelineFileError,
    Problem,
    import_transform,
    librdkafka_settings,
    load_pipeline,
)
from headgate.config.pipeline import Table
from headgate.config.problems import nearest
from headgate.config.units import BYTES_PER_S
from headgate.errors import ConfigError, HeadgateError, KafkaUnavailable, LakeError
from headgate.lake.tables import layout_problem, load_table

_BROKER_DEADLINE_S = 5.0
_LAKE_DEADLINE_S = 20.0
_SQLITE = "sqlite:///"


class Status(StrEnum):
    ok = "ok"
    failed = "failed"
    warning = "warning"
    skipped = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    status: Status
    message: str


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file.")],
    offline: Annotated[
        bool, typer.Option("--offline", help="Skip what needs the network: brokers, topics, remote lakes.")
    ] = False,
    spark: Annotated[
        bool, typer.Option("--spark", help="Let Spark read schemas, where, sql and transforms, too (some 15 s).")
    ] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="text for people, json for programs.")] = Output.text,
) -> None:
    """Validate a pipeline file without starting anything.

    Every problem is listed, with file, line and field where it lies in the file; the exit code is 0 only when there is
    none, and 2 when the file itself is wrong.
    """
    try:
        pipeline = load_pipeline(file)
    except PipelineFileError as error:
        _print_problems(file, error.problems, output)
        raise typer.Exit(error.exit_code) from None
    findings = []
    for finding in check_pipeline(pipeline, offline=offline, spark=spark):
        findings.append(finding)
        if output is Output.text:
            typer.echo(_line(finding))
    failed = sum(finding.status is Status.failed for finding in findings)
    if output is Output.json:
        shown = {"file": str(file), "ok": not failed, "problems": [], "checks": [asdict(f) for f in findings]}
        typer.echo(json.dumps(shown, indent=2))
    else:
        typer.echo(f"{file}: {f'{failed} of {len(findings)} checks failed' if failed else 'nothing stands in the way'}")
    if failed:
        raise typer.Exit(1)


def check_pipeline(pipeline: Pipeline, offline: bool = False, spark: bool = False) -> Iterator[Finding]:
    """One finding per check, as each is made; none hides another, and no secret is shown."""
    yield Finding("file", Status.ok, f"pipeline {pipeline.name}: {len(pipeline.tables)} table(s)")
    for findings in (
        _plugins(pipeline),
        _interval(pipeline),
        _transforms(pipeline),
        _with_spark(pipeline) if spark else _without_spark(pipeline),
        _warehouse(pipeline, offline),
        _catalog(pipeline, offline),
        _brokers(pipeline, offline),
    ):
        for finding in findings:
            yield Finding(finding.check, finding.status, pipeline.redact(finding.message))


# What Python can answer


def _plugins(pipeline: Pipeline) -> Iterator[Finding]:
    policy = pipeline.policy
    yield _plugin("policy", "headgate.policies", policy.name, "policy.params", policy.params)
    yield _plugin("packer", "headgate.packers", policy.packer, "policy.packer_params", policy.packer_params)
    yield _plugin("fleet", "headgate.fleets", pipeline.fleet.kind, "", {})


def _interval(pipeline: Pipeline) -> Iterator[Finding]:
    capacity, most = pipeline.policy.consumer_capacity_bytes_per_s, pipeline.most_read_bytes_per_s
    if most < capacity:
        yield Finding(
            "consumer",
            Status.warning,
            f"it cannot read more than {BYTES_PER_S.format(round(most, -3))} and counts for "
            f"{BYTES_PER_S.format(capacity)}: from one commit to the next (lake.commit_interval_s) it reads "
            "consumer.max_uncommitted_cycles batches of consumer.batch_bytes at most; raise one of those",
        )


def _plugin(what: str, group: str, name: str, field: str, parameters: Mapping[str, Any]) -> Finding:
    registered: dict[str, EntryPoint] = {entry.name: entry for entry in entry_points(group=group)}
    if name not in registered:
        guess = nearest(name, registered)
        hint = f"did you mean {guess}?" if guess else f"there are {', '.join(sorted(registered)) or 'none'}"
        return Finding(what, Status.failed, f"no {what} is called {name}; {hint}")
    try:
        found = registered[name].load()
    except Exception as error:  # noqa: BLE001 — a plugin is anybody's code and may fail in any way on import
        return Finding(what, Status.failed, f"{name} ({registered[name].value}) cannot be imported: {_said(error)}")
    accepted = inspect.signature(found).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        for parameter in parameters:
            if parameter not in accepted:
                guess = nearest(parameter, accepted)
                hint = f"; did you mean {guess}?" if guess else f"; it takes {', '.join(accepted) or 'none'}"
                return Finding(what, Status.failed, f"{field}: {name} has no parameter {parameter}{hint}")
    return Finding(what, Status.ok, name)


def _transforms(pipeline: Pipeline) -> Iterator[Finding]:
    for table in pipeline.tables:
        if table.transform is None:
            continue
        try:
            import_transform(table.transform, pipeline.folder)
        except ConfigError as error:
            yield Finding("transform", Status.failed, f"{table.name}: {error}")
        else:
            yield Finding("transform", Status.ok, f"{table.name}: {table.transform}")


def _with_spark(pipeline: Pipeline) -> Iterator[Finding]:
    """Builds each table's job as a consumer does before it reads anything."""
    from headgate.consumer.files import Warehouse
    from headgate.consumer.job import TableJob
    from headgate.consumer.spark import start_session

    with tempfile.TemporaryDirectory(prefix="headgate-check-") as folder:
        conf = pipeline.consumer.spark.conf  # what transforms need may be in it: jars, catalogs
        session = start_session("local[1]", Path(folder), conf=conf, python_path=pipeline.folder)
        try:
            for table in pipeline.tables:
                try:
                    TableJob(session, pipeline, table, Warehouse(pipeline.lake))
                except HeadgateError as error:
                    yield Finding("spark", Status.failed, str(error))
                else:
                    yield Finding("spark", Status.ok, f"{table.name}: schema, where, sql and transform fit together")
        finally:
            session.stop()


def _without_spark(pipeline: Pipeline) -> Iterator[Finding]:
    """Only Spark can parse these, and starting it takes a while."""
    for table in pipeline.tables:
        parts = {"where": table.where, "sql": table.sql, "schema": table.schema_ if table.format == "json" else None}
        named = ", ".join(name for name, text in parts.items() if text is not None)
        if named:
            yield Finding(
                "sql", Status.skipped, f"{table.name}: {named}: checked when the consumer starts, or now with --spark"
            )


# What the lake answers


def _warehouse(pipeline: Pipeline, offline: bool) -> Iterator[Finding]:
    location = pipeline.lake.warehouse
    if pipeline.lake.local_folder is not None:
        yield _writable_folder("warehouse", pipeline.lake.local_folder)
    elif offline:
        yield Finding("warehouse", Status.skipped, f"{location}: not asked (--offline)")
    else:
        yield _answered("warehouse", location, lambda: write_probe(location, pipeline.lake.catalog_properties))


def _writable_folder(check: str, folder: Path) -> Finding:
    """Tries to write where the folder is or, if it does not exist yet, where it would be created; leaves nothing."""
    existing = folder
    try:
        existing = next(place for place in (folder, *folder.parents) if place.exists())
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return Finding(check, Status.failed, f"{folder} is not writable: {error.strerror} ({existing})")
    return Finding(check, Status.ok, f"{folder}{'' if existing == folder else ' (will be created)'}")


def write_probe(location: str, properties: Mapping[str, str]) -> str:
    """Writes and deletes a small object where tables will be."""
    io = load_file_io(dict(properties), location)
    probe = f"{location.rstrip('/')}/.headgate-check-{uuid.uuid4().hex}"
    with io.new_output(probe).create() as stream:
        stream.write(b"headgate check")
    io.delete(probe)
    return "writable"


def _catalog(pipeline: Pipeline, offline: bool) -> Iterator[Finding]:
    lake = pipeline.lake
    properties = dict(lake.catalog_properties)
    uri = properties.get("uri", "")
    sqlite = Path(uri.removeprefix(_SQLITE)) if uri.startswith(_SQLITE) else None
    if sqlite is not None and not os.path.exists(sqlite):  # `Path.exists` may raise; the next line says why
        place = _writable_folder("catalog", sqlite.parent)
        yield place
        if place.status is not Status.ok:
            return
        properties["uri"] = f"{_SQLITE}:memory:"  # tries the other properties; checking must not create the file
    elif offline and sqlite is None:
        yield Finding("catalog", Status.skipped, f"{lake.catalog_name}: not asked (--offline)")
        return

    def namespaces() -> str:
        return f"{len(load_catalog(lake.catalog_name, **properties).list_namespaces())} namespace(s)"

    asked = _answered("catalog", lake.catalog_name, namespaces)
    yield asked
    if asked.status is not Status.ok:
        return
    for table in pipeline.tables:
        yield _answered("table", table.name, partial(_layout, lake.catalog_name, properties, table))


def _layout(catalog: str, properties: Mapping[str, str], table: Table) -> str:
    existing = load_table(load_catalog(catalog, **properties), table.name)
    if existing is None:
        return "will be created"
    problem = layout_problem(existing, table.partition_by)
    if problem is not None:
        raise LakeError(problem)
    return f"{len(existing.schema().fields)} column(s)"


def _answered(check: str, what: str, ask: Callable[[], str]) -> Finding:
    """Asks in a thread of its own, because not every client of a lake has a deadline."""
    answers: list[Finding] = []

    def run() -> None:
        try:
            answers.append(Finding(check, Status.ok, f"{what}: {ask()}"))
        except Exception as error:  # noqa: BLE001 — each catalog and file system has its own errors; all are shown
            answers.append(Finding(check, Status.failed, f"{what}: {_said(error)}"))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_LAKE_DEADLINE_S)
    return answers[0] if answers else Finding(check, Status.failed, f"{what}: no answer in {_LAKE_DEADLINE_S:g} s")


# What Kafka answers


def _brokers(pipeline: Pipeline, offline: bool) -> Iterator[Finding]:
    brokers = pipeline.kafka.brokers
    if offline:
        yield Finding("brokers", Status.skipped, f"{brokers}: not asked (--offline)")
        yield Finding("topics", Status.skipped, "not looked up (--offline)")
        return
    try:
        count, topics = _list_topics(librdkafka_settings(pipeline))
    except HeadgateError as error:
        yield Finding("brokers", Status.failed, f"{brokers}: {error}")
        yield Finding("topics", Status.skipped, "not looked up: the brokers did not answer")
        return
    yield Finding("brokers", Status.ok, f"{brokers}: {count} broker(s) answered")
    yield from topic_findings(pipeline, topics)


def _list_topics(settings: Mapping[str, str]) -> tuple[int, frozenset[str]]:
    reasons: list[str] = []

    def remember(error: KafkaError) -> None:
        if error.str() not in reasons:
            reasons.append(error.str())

    silent = logging.Logger("headgate.check.silent")  # of its own, not in the tree: librdkafka's words go to `reasons`
    silent.addHandler(logging.NullHandler())
    try:
        callbacks: dict[str, Any] = {"error_cb": remember}
        admin = AdminClient({**settings, **callbacks}, logger=silent)
    except KafkaException as error:
        raise ConfigError(f"kafka.client: {error.args[0].str()}") from None
    try:
        found = admin.list_topics(timeout=_BROKER_DEADLINE_S)
    except KafkaException as error:
        until = time.monotonic() + 1
        while not reasons and time.monotonic() < until:
            admin.poll(0.1)
        said = "; ".join(reasons) or error.args[0].str()
        raise KafkaUnavailable(
            f"no answer in {_BROKER_DEADLINE_S:g} s ({said}); check the address and kafka.client"
        ) from None
    return len(found.brokers), frozenset(found.topics)


def topic_findings(pipeline: Pipeline, existing: frozenset[str]) -> Iterator[Finding]:
    """What the topics that exist say about those that the pipeline asks for."""
    for topic in pipeline.topics:
        if topic in existing:
            yield Finding("topics", Status.ok, topic)
        else:
            guess = nearest(topic, existing)
            hint = f"did you mean {guess}?" if guess else "create it first"
            yield Finding("topics", Status.failed, f"there is no topic {topic}; {hint}")
    if pipeline.topics_pattern is None:
        return
    matched = sorted(topic for topic in existing - set(pipeline.topics) if pipeline.matches(topic))
    if matched:
        yield Finding(
            "topics", Status.ok, f"{pipeline.topics_pattern} matches {len(matched)}: {', '.join(matched[:5])}"
        )
    else:
        yield Finding("topics", Status.warning, f"{pipeline.topics_pattern} matches no topic yet")
    for topic in matched:
        if not pipeline.tables_of(topic):
            yield Finding("topics", Status.failed, f"{topic} matches topics_pattern, but no table takes it")


# What is printed


def _said(error: Exception) -> str:
    if isinstance(error, HeadgateError):
        return str(error)
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _line(finding: Finding) -> str:
    return f"{finding.status:<8} {finding.check:<10} {finding.message}"


def _print_problems(file: Path, problems: tuple[Problem, ...], output: Output) -> None:
    if output is Output.json:
        listed = [{**asdict(problem), "file": str(problem.file)} for problem in problems]
        typer.echo(json.dumps({"file": str(file), "ok": False, "problems": listed, "checks": []}, indent=2))
        return
    for problem in problems:
        typer.echo(str(problem))
    typer.echo(
        f"{file}: {len(problems)} problem(s); brokers, topics, lake and transforms are checked once the file is right"
    )
