"""What a consumer group is like right now: its real members and assignment, and per partition rate and lag (E-4, E-13).

All counts are records. The group is asked for with kafka-python: it shows what members say of themselves, which
confluent-kafka does not, and confluent-kafka's admin client does not survive losing a group's coordinator.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaConfigurationError, KafkaError

from headgate.errors import ConfigError, KafkaUnavailable
from headgate.groups.assignor import member_data
from headgate.groups.placement import Joining
from headgate.kafka.accepted import open_admin
from headgate.kafka.offset_counts import OffsetCounts
from headgate.kafka.offsets import end_offsets, partitions_where
from headgate.kafka.rates import Rate, Sample, WriteRates
from headgate.kafka.smoothing import BoxMean
from headgate.model import TopicPartition

ANSWER_S = 5.0
STABLE = "Stable"
_NOT_CLASSIC = "not a classic group"
_NO_MEMBERS = ("Dead", "Empty")


@dataclass(frozen=True, slots=True)
class GroupLook:
    """A group as its coordinator describes it."""

    state: str
    strategy: str
    """The assignor that the members agreed on."""
    members: Mapping[str, Joining]
    """What each said when it joined."""
    assigned: Mapping[str, frozenset[TopicPartition]]
    """What each owns now."""

    @property
    def is_settled(self) -> bool:
        return self.state == STABLE or self.state in _NO_MEMBERS


@dataclass(frozen=True, slots=True)
class Load:
    """One partition, in records."""

    rate: Rate
    lag: int


class GroupMeter:
    """Asks Kafka; every call either answers within seconds or raises KafkaUnavailable."""

    def __init__(
        self,
        settings: Mapping[str, str],
        kafka_python: Mapping[str, Any],
        group: str,
        window_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._group, self._clock = group, clock
        self._admin = open_admin(settings, "the Kafka client cannot use these settings")
        self._kafka_python = dict(kafka_python)
        self._client: Any = None
        self._counts = OffsetCounts()
        self._rates = WriteRates(BoxMean(window_s), window_s / 2)

    def group(self) -> GroupLook:
        """ConfigError for a group of the new protocol (KIP-848): its brokers assign, and ask nobody (E-33)."""
        described = self._asked(lambda client: client.describe_groups([self._group]))[self._group]
        if _NOT_CLASSIC in (described["error"] or ""):
            raise ConfigError(
                f"group {self._group} uses the new group protocol (KIP-848), in which brokers place partitions and no "
                "member can be told where: set group.protocol=classic in its consumers, or let Headgate's own fleet "
                "read the topics"
            )
        members = {m["member_id"]: m for m in described["members"]}
        return GroupLook(
            described["group_state"],
            described["protocol_data"],
            {name: _joining(m["member_metadata"]) for name, m in members.items()},
            {name: _assigned(m["member_assignment"]) for name, m in members.items()},
        )

    def loads(self, topics: frozenset[str]) -> dict[TopicPartition, Load]:
        """All partitions of these topics, or KafkaUnavailable: half a picture would be taken for silence (E-21)."""
        partitions = partitions_where(self._admin, topics.__contains__, ANSWER_S)
        asked_s = self._clock()
        ends = end_offsets(self._admin, partitions, read_committed=False, deadline_s=ANSWER_S)
        at_s = (asked_s + self._clock()) / 2
        missing = partitions - ends.keys()
        if missing or topics - {p.topic for p in partitions}:
            what = ", ".join(str(p) for p in sorted(missing)[:3]) or ", ".join(sorted(topics))
            raise KafkaUnavailable(f"no end offset of {what} right now")
        wanted = [KafkaPythonPartition(p.topic, p.partition) for p in sorted(partitions)]
        answers = self._asked(lambda client: client.list_group_offsets({self._group: wanted}))[self._group]
        # -1: nothing committed yet. Where it begins is the consumer's setting; its lag is unknown, not infinite.
        committed = {TopicPartition(p.topic, p.partition): o.offset for p, o in answers.items() if o.offset >= 0}
        sample = Sample(at_s, {p: self._counts.count(p, end, 1.0) for p, end in ends.items()})
        rates = self._rates.update(sample, partitions)
        return {p: Load(rates[p], max(0, end - committed.get(p, end))) for p, end in ends.items()}

    def _asked(self, question: Callable[[Any], Any]) -> Any:
        try:
            return question(self._connected())
        except KafkaConfigurationError as error:
            raise ConfigError(f"kafka-python cannot use these client settings: {error}") from error
        except KafkaError as error:
            self.close()
            why = error.args[0] if error.args else type(error).__name__
            raise KafkaUnavailable(f"no broker told about group {self._group}: {why}") from error

    def _connected(self) -> Any:
        if self._client is None:
            wait_ms = int(ANSWER_S * 1000)
            self._client = KafkaAdminClient(
                **self._kafka_python,
                request_timeout_ms=wait_ms,
                bootstrap_timeout_ms=wait_ms,
                reconnect_backoff_max_ms=1000,
                metadata_max_age_ms=10_000,
            )
        return self._client

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _joining(metadata: Any) -> Joining:
    if not isinstance(metadata, dict):  # joined and not yet assigned, or a member that speaks something else
        return Joining(frozenset())
    said = metadata.get("user_data") or b""
    return member_data(said.encode() if isinstance(said, str) else bytes(said)).joining(metadata["topics"])


def _assigned(assignment: Any) -> frozenset[TopicPartition]:
    if not isinstance(assignment, dict):
        return frozenset()
    return frozenset(
        TopicPartition(of["topic"], n) for of in assignment["assigned_partitions"] for n in of["partitions"]
    )
