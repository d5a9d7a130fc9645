"""Which topics are forwarded, and whether the main cluster is ready for them."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from headgate.collectors.placement import Counts
from headgate.errors import ConfigError, KafkaUnavailable
from headgate.kafka.accepted import open_admin
from headgate.kafka.load_topics import prepare_topics

log = logging.getLogger(__name__)

ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """Topics by name, or all whose whole name matches a pattern; Kafka's own (`__…`) never match."""

    names: tuple[str, ...] = ()
    pattern: str | None = None

    def __post_init__(self) -> None:
        if bool(self.names) == (self.pattern is not None):
            raise ConfigError("say which topics: --topic NAME, once for each, or --pattern REGEX")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ConfigError(f"--pattern {self.pattern!r} is no regular expression: {error}") from None

    def among(self, topics: Mapping[str, int]) -> tuple[str, ...]:
        """Of these; ConfigError if there is none, or one that was named is missing."""
        if self.pattern is not None:
            found = [name for name in topics if re.fullmatch(self.pattern, name) and not name.startswith("__")]
            if not found:
                raise ConfigError(f"no topic of the collector cluster matches --pattern {self.pattern!r}")
            return tuple(sorted(found))
        if unknown := sorted(set(self.names) - topics.keys()):
            raise ConfigError(
                f"the collector cluster has no topic {', '.join(unknown)}: create it there, or correct --topic"
            )
        return tuple(sorted(set(self.names)))


class Route:
    """From one cluster to another, as far as topics are concerned."""

    def __init__(
        self,
        source: Mapping[str, Any],
        target: Mapping[str, Any],
        wanted: Wanted,
        create: bool,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._source = open_admin(source, "--from-client cannot be used")
        self._target = open_admin(target, "--to-client cannot be used")
        self._addresses = str(source["bootstrap.servers"]), str(target["bootstrap.servers"])
        self._wanted, self._create, self._answer_s = wanted, create, answer_s

    @property
    def by_name(self) -> bool:
        """Whether each topic was asked for, and did not just match a pattern."""
        return self._wanted.pattern is None

    def group(self) -> str:
        """For forwarders to this main cluster, and to no other; one for all if its brokers do not say which it is."""
        return "-".join(filter(None, ("headgate-collect", self._answers()[1].cluster_id)))

    def open(self) -> dict[str, Counts]:
        """What is forwarded. Refuses what can never work; creates what is missing, if it may."""
        source, target = self._answers()
        if source.cluster_id is not None and source.cluster_id == target.cluster_id:
            raise ConfigError(
                f"{self._addresses[0]} and {self._addresses[1]} are one cluster ({source.cluster_id}): its topics "
                "would be forwarded to themselves without end; give the address of the main cluster with --to"
            )
        there = partition_counts(source)
        names = self._wanted.among(there)
        missing = {name: there[name] for name in names if name not in partition_counts(target)}
        if missing and not self._create:
            raise ConfigError(
                f"the main cluster has no topic {', '.join(sorted(missing))}: create it there, or say --create to get "
                "it with as many partitions as at the collector"
            )
        self._make(missing)
        here = partition_counts(target) | missing
        return {name: Counts(there[name], here[name]) for name in names}

    def look(self, known: Mapping[str, Counts]) -> dict[str, Counts]:
        """What is forwarded now: partition counts anew, and topics that came to match the pattern. A topic that cannot
        be forwarded yet, or cannot be seen, changes nothing for the others."""
        try:
            source, target = self._answers()
            there, here = partition_counts(source), partition_counts(target)
            names = self._wanted.among(there)
            missing = {name: there[name] for name in names if name not in here}
            if self._create:
                self._make(missing)
                here |= missing
            elif missing.keys() - known.keys():
                log.warning("not forwarded, since the main cluster lacks them: %s", ", ".join(sorted(missing)))
        except (ConfigError, KafkaUnavailable) as error:
            log.warning("topics could not be looked at, so nothing changes: %s", error)
            return dict(known)
        return {**known, **{name: Counts(there[name], here[name]) for name in names if name in here}}

    def _answers(self) -> tuple[ClusterMetadata, ClusterMetadata]:
        return (
            _answer(self._source, f"collector cluster (--from {self._addresses[0]})", self._answer_s),
            _answer(self._target, f"main cluster (--to {self._addresses[1]})", self._answer_s),
        )

    def _make(self, missing: Mapping[str, int]) -> None:
        if missing:
            prepare_topics(self._target, missing)
            log.info("created at the main cluster: %s", ", ".join(f"{t} ({n})" for t, n in sorted(missing.items())))


def partition_counts(cluster: ClusterMetadata) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in cluster.topics.items() if topic.error is None}


def _answer(admin: AdminClient, which: str, answer_s: float) -> ClusterMetadata:
    try:
        return admin.list_topics(timeout=answer_s)
    except KafkaException as error:
        raise KafkaUnavailable(
            f"the {which} did not answer within {answer_s:g} s: {error.args[0].str()}; check the address, and whether "
            "it asks for encryption or a password (--from-client, --to-client)"
        ) from error
