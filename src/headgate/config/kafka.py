"""The `kafka` part of a pipeline file: where the brokers are and how to talk to them."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from headgate.config.java_client import Untranslatable, to_java
from headgate.config.problems import Wrong, raise_all, wrong
from headgate.config.section import Section
from headgate.config.units import Bytes, Seconds, SecondsOrZero

_BROKER = re.compile(r"(?:[A-Z_]+://)?(?:\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
_GROUP = re.compile(r"[A-Za-z0-9._-]{1,249}")

_OWN = {
    "bootstrap.servers": "kafka.brokers",
    "metadata.broker.list": "kafka.brokers",
    "group.id": "kafka.group",
    "fetch.max.bytes": "kafka.fetch_max_bytes",
    "max.partition.fetch.bytes": "kafka.max_partition_fetch_bytes",
    "fetch.wait.max.ms": "kafka.fetch_wait_s",
    "fetch.max.wait.ms": "kafka.fetch_wait_s",
    "session.timeout.ms": "kafka.session_timeout_s",
    "isolation.level": "kafka.isolation",
    "auto.offset.reset": "start_from",
    "enable.auto.commit": "nothing: the ledger in the lake decides what is committed",
}
"""Client settings that Headgate sets itself, and the setting of the pipeline that decides each."""


def _setting(value: Any) -> Any:
    """Clients take texts; YAML reads `true` and `6000` as something else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


Setting = Annotated[str, BeforeValidator(_setting)]


class Kafka(Section):
    """Where the brokers are, how to log in, and how records are fetched."""

    brokers: str = Field(
        description="Bootstrap servers as host:port, separated by commas. No default: there is no sensible guess. Two "
        "or three are enough, the clients find the rest."
    )
    java_client: dict[str, Setting] = Field(
        default={},
        description="Settings for Spark's Java client only, in Java's names, on top of the translated ones. Default: "
        "none. Needed where no translation exists: OAUTHBEARER, Kerberos, certificate and key in two files.",
    )
    client: dict[str, Setting] = Field(
        default={},
        description="Client settings in librdkafka's names, passed through (security.protocol, sasl.mechanism, "
        "sasl.username, sasl.password, ssl.ca.location ...). Default: none, a plain connection. They are translated "
        "for Spark's Java client. Take secrets from the environment: `sasl.password: ${KAFKA_PASSWORD}`.",
    )
    group: str | None = Field(
        default=None,
        description="Consumer group that committed offsets are mirrored to, for lag tools. Default: headgate-<name>, "
        "so that two pipelines never share one by accident.",
    )
    fetch_max_bytes: Bytes = Field(
        default=52_428_800,
        description="Most bytes in one fetch answer (L-25). Default 50 MiB, Kafka's own: larger batches of one answer "
        "cost memory, smaller ones cost round trips. A larger record is still read.",
    )
    max_partition_fetch_bytes: Bytes = Field(
        default=1_048_576,
        description="Most bytes of one partition in one fetch answer (L-25). Default 1 MiB, Kafka's own. Raise it "
        "when few partitions carry the whole load. A larger record is still read.",
    )
    fetch_wait_s: SecondsOrZero = Field(
        default=0.5,
        description="How long a broker may wait for more data before it answers a fetch of Spark's connector, in "
        "seconds (L-25); where Spark's workers read themselves it is 20 ms. Default 0.5 s: below the cycle's "
        "wait_s, so that it never sets the pace.",
    )
    session_timeout_s: Seconds = Field(
        default=45.0,
        description="How long the group coordinator waits for a silent client, in seconds (L-25). Default 45 s, "
        "Kafka's own. Partitions are assigned by the controller, so this only matters to lag tools.",
    )
    isolation: Literal["read_committed", "read_uncommitted"] = Field(
        default="read_committed",
        description="Whether records of open and aborted transactions are read. Default read_committed: an aborted "
        "record must not reach the lake.",
    )
    internal_replication: int | None = Field(
        default=None,
        ge=1,
        le=32767,
        description="Replication factor of Headgate's own topics. Default: three, or the number of brokers if fewer.",
    )

    @field_validator("brokers")
    @classmethod
    def _brokers_are_addresses(cls, brokers: str) -> str:
        for broker in brokers.split(","):
            match = _BROKER.fullmatch(broker.strip())
            if match is None or not 0 < int(match[1]) < 65536:
                raise wrong("must be host:port addresses separated by commas, such as kafka-1:9092,kafka-2:9092")
        return ",".join(broker.strip() for broker in brokers.split(","))

    @field_validator("java_client", "client")
    @classmethod
    def _settings_are_usable(cls, client: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        found = [
            Wrong((key,), client[key], f"is set by Headgate; what decides it is {_OWN[key]}")
            for key in client
            if key in _OWN
        ]
        if info.field_name == "client":
            try:
                to_java(client, info.data.get("java_client", {}))
            except Untranslatable as error:
                found.append(Wrong((), client, str(error)))
        raise_all(found)
        return client

    @field_validator("group")
    @classmethod
    def _group_is_a_name(cls, group: str | None) -> str | None:
        if group is not None and not _GROUP.fullmatch(group):
            raise wrong("may hold only letters, digits, '.', '_' and '-'")
        return group
