"""What an embedded Kafka is doing: which of its brokers run, and which answer."""

from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headgate.kafka.broker_process import LOOPBACK, BrokerProcess
from headgate.kafka.local_ports import accepts

_ANSWER_DEADLINE_S = 2.0


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    id: int
    port: int
    controller_port: int
    pid: int | None
    """None while it does not run."""
    reachable: bool
    """It answered a metadata request."""


@dataclass(frozen=True, slots=True)
class KafkaStatus:
    home: Path
    version: str
    bootstrap: str
    brokers: tuple[BrokerStatus, ...]

    @property
    def running(self) -> bool:
        """At least one broker's process is alive."""
        return any(broker.pid is not None for broker in self.brokers)

    @property
    def ready(self) -> bool:
        """Every broker answers."""
        return all(broker.reachable for broker in self.brokers)


def status_of(broker: BrokerProcess) -> BrokerStatus:
    process, node = broker.process(), broker.node
    answers = process is not None and accepts(node.port) and brokers_seen(quiet_admin(f"{LOOPBACK}:{node.port}")) > 0
    return BrokerStatus(node.id, node.port, node.controller_port, process.pid if process else None, answers)


def quiet_admin(bootstrap: str) -> AdminClient:
    # While a broker comes up, failed connections are expected and must not reach the terminal.
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200})


def brokers_seen(admin: AdminClient) -> int:
    try:
        return len(admin.list_topics(timeout=_ANSWER_DEADLINE_S).brokers)
    except KafkaException:
        return 0  # not yet
