"""A pipeline: what one file describes. Topics in, tables out, a fleet, a policy, a goal."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr, ValidationError, ValidationInfo, ValidatorFunctionWrapHandler, field_validator

from headgate.config.kafka import Kafka
from headgate.config.lake import HOME, Lake
from headgate.config.problems import Wrong, nearest, raise_all, wrong
from headgate.config.secrets import Redactor
from headgate.config.section import Section, folder_of
from headgate.config.settings import Consumer, Controller, Fleet, Monitor, Policy, Slo, Spark
from headgate.config.table import PartitionField, Table, check_pattern, check_topics, fully_matches, qualified
from headgate.config.units import SECONDS
from headgate.model import TopicPartition
from headgate.model.messages import LedgerState

__all__ = [
    "Consumer",
    "Controller",
    "Fleet",
    "Kafka",
    "Lake",
    "Monitor",
    "PartitionField",
    "Pipeline",
    "Policy",
    "Slo",
    "Spark",
    "Table",
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NOT_DATA = ("__", "headgate.")
"""How the names of Kafka's and of Headgate's own topics begin."""
_PLACEHOLDER = "<name>"
_DEFAULT_HOME = Path(".headgate") / _PLACEHOLDER


class Pipeline(Section):
    """Everything one pipeline file says, checked."""

    name: str = Field(
        description="Letters, digits, '-', '_' and '.'; part of Headgate's topic names and of the group. No default: "
        "it is what keeps two pipelines on one Kafka apart."
    )
    kafka: Kafka = Field(description="Where the brokers are and how to talk to them. brokers has no default.")
    topics: tuple[str, ...] = Field(
        default=(),
        description="Topics to ingest. At least one of topics and topics_pattern is required. Default: none.",
    )
    topics_pattern: str | None = Field(
        default=None,
        description="Regular expression that must match a topic's whole name; new topics are picked up while running. "
        "Names that begin with __ (Kafka's own) or headgate. (ours) match only if listed in topics. Default: none.",
    )
    start_from: Literal["earliest", "latest"] = Field(
        default="earliest",
        description="Where a new table begins. Default earliest: every record that Kafka still holds. Topics and "
        "partitions that come to a table later are always read from their first record.",
    )
    tables: tuple[Table, ...] = Field(
        description="The tables records land in; a record lands in every table it matches. At least one."
    )
    home: Path = Field(
        default=_DEFAULT_HOME,
        description="Folder for state, logs and the default catalog and warehouse. Default .headgate/<name>; relative "
        "paths are relative to the pipeline file.",
    )
    lake: Lake = Field(default_factory=Lake, description="Catalog, warehouse, and how snapshots come and go.")
    consumer: Consumer = Field(default_factory=Consumer, description="One consumer's cycle.")
    fleet: Fleet = Field(default_factory=Fleet, description="Where consumers run and how many there may be.")
    policy: Policy = Field(default_factory=Policy, description="When to act and how to place partitions.")
    monitor: Monitor = Field(default_factory=Monitor, description="How write rates are measured.")
    controller: Controller = Field(
        default_factory=Controller, description="The deadlines of deciding and handing over."
    )
    slo: Slo = Field(default_factory=Slo, description="The goal: how fresh the lake should be.")
    metrics_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Port for Prometheus metrics; consumers in processes take any that is free and note it in "
        "<home>/metrics. Default: none are served, so that two pipelines never fight for a port.",
    )
    metrics_address: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address that metrics are served on, consumers' as well. Default loopback: they name topics and "
        "tables, and there is no password. A Prometheus that runs elsewhere, as in Kubernetes, needs 0.0.0.0.",
    )

    _file: Path | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any, /) -> None:
        self._file = (context or {}).get("file")

    @property
    def file(self) -> Path | None:
        """The file this was loaded from, absolute; None when it was made in Python."""
        return self._file

    @property
    def folder(self) -> Path:
        """What relative paths, and the modules of transforms, are relative to."""
        return self._file.parent if self._file is not None else Path.cwd()

    @property
    def group(self) -> str:
        """The consumer group that committed offsets are mirrored to."""
        return self.kafka.group or f"headgate-{self.name}"

    @property
    def verdict_deadline_s(self) -> float:
        """How long a consumer waits for an answer to an announcement, which may just have missed a commit."""
        return self.consumer.commit_deadline_s + self.lake.commit_interval_s

    @property
    def most_read_bytes_per_s(self) -> float:
        """By one consumer: it is no more than so many batches ahead of the commits."""
        return self.consumer.max_uncommitted_cycles * self.consumer.batch_bytes / self.lake.commit_interval_s

    def matches(self, topic: str) -> bool:
        """Whether the pipeline ingests this topic."""
        return topic in self.topics or _found(self.topics_pattern, topic)

    def tables_of(self, topic: str) -> tuple[Table, ...]:
        """The tables that take this topic's records, in the file's order."""
        return tuple(table for table in self.tables if table.matches(topic)) if self.matches(topic) else ()

    def landed(self, ledger: LedgerState) -> Mapping[TopicPartition, int]:
        """Where a table is, as far as it still is one of ours and takes those topics: earlier versions of the file may
        have had others, and ledgers go on speaking of them."""
        following, topics = ledger.following, ledger.topics
        ours = {topic for topic in topics if any(table.name == ledger.table for table in self.tables_of(topic))}
        if ours == topics:
            return following
        return {partition: offset for partition, offset in following.items() if partition.topic in ours}

    def describe(self) -> dict[str, Any]:
        """Every setting in force, as plain values that can be printed: secrets are shown as ***."""
        return self.model_dump(mode="json")

    def redact(self, text: str) -> str:
        """Any text (a client's error, a log line) with this pipeline's secrets masked."""
        return Redactor(frozenset(self.secret_texts()))(text)

    @field_validator("name")
    @classmethod
    def _name_fits_topics(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise wrong("may hold only letters, digits, '-', '_' and '.', starting with a letter or digit, at most 128")
        return name

    @field_validator("topics")
    @classmethod
    def _topics_are_names(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        return check_topics(topics)

    @field_validator("topics_pattern")
    @classmethod
    def _something_is_read(cls, pattern: str | None, info: ValidationInfo) -> str | None:
        if pattern is None and info.data.get("topics") == ():
            raise wrong("is required when there is no topics list: say which topics to ingest")
        return check_pattern(pattern)

    @field_validator("tables", mode="wrap")
    @classmethod
    def _tables_fit_topics(
        cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> tuple[Table, ...]:
        """Checks the tables against each other even when some are wrong in themselves."""
        try:
            tables: tuple[Table, ...] = handler(value)
        except ValidationError as error:
            outlines = [_outline(item) for item in value] if isinstance(value, list | tuple) else []
            raise_all(_across_tables(outlines, info.data), also=error)
            raise
        if not tables:
            raise wrong("needs at least one table")
        raise_all(_across_tables(tables, info.data) + _left_out(tables, info.data))
        return tables

    @field_validator("home", mode="after")
    @classmethod
    def _home_is_absolute(cls, home: Path, info: ValidationInfo) -> Path:
        if home == _DEFAULT_HOME:
            home = home.with_name(info.data.get("name", "unnamed"))
        return _absolute(str(home), info)

    @field_validator("lake")
    @classmethod
    def _lake_is_at_home(cls, lake: Lake, info: ValidationInfo) -> Lake:
        home = info.data.get("home")
        if home is None:
            return lake
        warehouse = lake.warehouse.replace(HOME, str(home))
        if "://" not in warehouse:
            warehouse = str(_absolute(warehouse, info))
        catalog = {key: value.replace(HOME, str(home)) for key, value in lake.catalog.items()}
        return lake.model_copy(update={"warehouse": warehouse, "catalog": catalog})

    @field_validator("consumer")
    @classmethod
    def _commits_before_the_sweep(cls, consumer: Consumer, info: ValidationInfo) -> Consumer:
        lake = info.data.get("lake")
        if lake is not None and 2 * (consumer.commit_deadline_s + lake.commit_interval_s) > lake.orphan_age_s:
            limit = SECONDS.format(lake.orphan_age_s)
            message = (
                f"must be at most half of lake.orphan_age_s ({limit}), together with lake.commit_interval_s: older "
                "files are not committed any more"
            )
            raise_all([Wrong(("commit_deadline_s",), consumer.commit_deadline_s, message)])
        return consumer

    @field_validator("controller")
    @classmethod
    def _deadlines_leave_time(cls, controller: Controller, info: ValidationInfo) -> Controller:
        found = []
        consumer, monitor = info.data.get("consumer"), info.data.get("monitor")
        if consumer is not None and controller.heartbeat_deadline_s <= consumer.heartbeat_s:
            beat = SECONDS.format(consumer.heartbeat_s)
            message = f"must exceed consumer.heartbeat_s ({beat}): every consumer would count as dead"
            found.append(Wrong(("heartbeat_deadline_s",), controller.heartbeat_deadline_s, message))
        if monitor is not None and controller.stale_after_s <= monitor.poll_s:
            poll = SECONDS.format(monitor.poll_s)
            message = f"must exceed monitor.poll_s ({poll}): every measurement would count as stale"
            found.append(Wrong(("stale_after_s",), controller.stale_after_s, message))
        raise_all(found)
        return controller


def _found(pattern: str | None, topic: str) -> bool:
    """A pattern as wide as `.*` still means the user's topics, not Kafka's or Headgate's own."""
    return not topic.startswith(_NOT_DATA) and fully_matches(pattern, topic)


def _absolute(path: str, info: ValidationInfo) -> Path:
    """Without links, so that everybody who opens the file by whichever path writes to the same place."""
    return (folder_of(info) / Path(path).expanduser()).resolve()


@dataclass(frozen=True, slots=True)
class _Outline:
    """What can be read of a table that is wrong elsewhere."""

    name: str | None
    topics: tuple[str, ...]


def _outline(item: Any) -> _Outline:
    table = item if isinstance(item, dict) else {}
    name, topics = table.get("name"), table.get("topics")
    return _Outline(
        qualified(name) if isinstance(name, str) else None,
        tuple(str(topic) for topic in topics) if isinstance(topics, list) else (),
    )


def _across_tables(tables: Sequence[Table | _Outline], pipeline: dict[str, Any]) -> list[Wrong]:
    """Names given twice, and topics that the pipeline does not have."""
    found: list[Wrong] = []
    names = [table.name for table in tables]
    for index, name in enumerate(names):
        if name is not None and name in names[:index]:
            found.append(Wrong((index, "name"), name, "is the name of an earlier table"))
    if not _topics_are_known(pipeline):
        return found
    topics, pattern = pipeline["topics"], pipeline["topics_pattern"]
    for index, table in enumerate(tables):
        for position, topic in enumerate(table.topics):
            if topic not in topics and not _found(pattern, topic):
                guess = nearest(topic, topics)
                hint = f"; did you mean {guess!r}?" if guess else ""
                found.append(Wrong((index, "topics", position), topic, "is not among the pipeline's topics", hint))
    return found


def _left_out(tables: Sequence[Table], pipeline: dict[str, Any]) -> list[Wrong]:
    if not _topics_are_known(pipeline):
        return []
    unused = [topic for topic in pipeline["topics"] if not any(table.matches(topic) for table in tables)]
    return (
        [Wrong((), tables, f"no table takes these topics of the pipeline: {', '.join(map(repr, unused))}")]
        if unused
        else []
    )


def _topics_are_known(pipeline: dict[str, Any]) -> bool:
    """If they are wrong themselves, nothing can be said about who covers what."""
    return "topics" in pipeline and "topics_pattern" in pipeline
