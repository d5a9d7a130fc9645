"""Where `headgate topology` takes its cluster from: live brokers, a pipeline's brokers, or a file."""

import logging
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from confluent_kafka.admin import AdminClient

from headgate.cli.quantities import time_option
from headgate.config.clients import kafka_python_settings, librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.errors import ConfigError, KafkaUnavailable
from headgate.kafka.internal_topics import Topics
from headgate.kafka.monitor import last_rates
from headgate.kafka.reassign import Reassigner
from headgate.kafka.topology import ClusterReader, measured_records_per_s, with_rates
from headgate.topology.cluster import Topology
from headgate.topology.document import read_topology
from headgate.topology.reassignment import read_reassignment, reassigned

log = logging.getLogger(__name__)

CLUSTER = "cluster"

From = Annotated[
    str, typer.Option("--from", metavar="cluster|FILE", help="A live cluster, or a cluster described in a JSON file.")
]
Brokers = Annotated[
    str | None, typer.Option(help="The live cluster's address: host:port, several separated by commas.")
]
PipelineOption = Annotated[
    Path | None,
    typer.Option("--pipeline", metavar="FILE", help="Instead of --brokers: a pipeline's brokers and measured traffic."),
]
Change = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Look at the cluster as it would be after this Kafka reassignment file."),
]
Internal = Annotated[bool, typer.Option("--internal", help="Also topics whose names begin with two underscores.")]
Measure = Annotated[float | None, time_option("Measure traffic so long (10s); else all topics count alike.")]


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """How to reach it, with either client."""

    librdkafka: dict[str, Any]
    kafka_python: dict[str, Any]
    pipeline: str | None
    internal: bool

    def admin(self) -> AdminClient:
        return AdminClient(self.librdkafka)

    def reader(self, admin: AdminClient) -> ClusterReader:
        return ClusterReader(admin, self.internal)

    def mover(self, admin: AdminClient) -> Reassigner:
        return Reassigner(admin, self.kafka_python)

    def rates(self, admin: AdminClient, topology: Topology, measure_s: float | None) -> dict[str, float]:
        """Empty if nobody knows: then all topics count alike."""
        if measure_s is not None:
            return measured_records_per_s(admin, topology, measure_s)
        if self.pipeline is None:
            return {}
        try:
            found = last_rates(self.librdkafka, admin, Topics(self.pipeline), time.time())
        except KafkaUnavailable:
            return {}
        rates: dict[str, float] = {}
        for at, rate in found.items():
            rates[at.topic] = rates.get(at.topic, 0.0) + rate.bytes_per_s
        return rates


class LiveReader:
    """Reads a live cluster as often as asked, and what Kafka is moving in it."""

    def __init__(self, live: LiveCluster, admin: AdminClient) -> None:
        self._live, self._admin, self._reader = live, admin, live.reader(admin)
        self._mover: Reassigner | None = None

    def read(self, consumer_groups: bool = False) -> Topology:
        topology = self._reader.read(consumer_groups)
        try:
            self._mover = self._mover or self._live.mover(self._admin)
            return replace(topology, moves=self._mover.moves())
        except KafkaUnavailable as error:  # not everybody who may read topics may ask for reassignments
            log.info("reassignments are not known: %s", error)
            return replace(topology, moves=None)

    def close(self) -> None:
        if self._mover is not None:
            self._mover.close()


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    topology: Topology
    """With the planned change, if there is one."""
    live: LiveCluster | None


def live_cluster(brokers: str | None, pipeline: Path | None, internal: bool) -> LiveCluster:
    if (brokers is None) == (pipeline is None):
        raise ConfigError("say which cluster: --brokers HOST:PORT, --pipeline FILE, or --from FILE for one in a file")
    if pipeline is not None:
        loaded = load_pipeline(pipeline)
        return LiveCluster(librdkafka_settings(loaded), kafka_python_settings(loaded), loaded.name, internal)
    assert brokers is not None
    addresses = [address.strip() for address in brokers.split(",")]
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(f"--brokers: {address!r} is no address; give host:port, such as kafka-1:9092")
    settings = {"bootstrap.servers": ",".join(addresses), "log_level": "2"}
    return LiveCluster(settings, {"bootstrap_servers": addresses}, None, internal)


def load_source(
    source: str,
    brokers: str | None,
    pipeline: Path | None,
    change: Path | None,
    internal: bool = False,
    measure_s: float | None = None,
) -> Source:
    if source == CLUSTER:
        live = live_cluster(brokers, pipeline, internal)
        admin = live.admin()
        with closing(LiveReader(live, admin)) as reader:
            topology = reader.read(consumer_groups=True)
        if rates := live.rates(admin, topology, measure_s):
            topology = with_rates(topology, rates)
        found = Source(live.librdkafka["bootstrap.servers"], topology, live)
    else:
        if brokers or pipeline or measure_s:
            raise ConfigError(f"--from {source} is a file: leave out --brokers, --pipeline and --measure")
        found = Source(source, read_topology(read_text(Path(source)), source), None)
    if change is None:
        return found
    after = reassigned(found.topology, read_reassignment(read_text(change), str(change)), str(change))
    return Source(f"{found.name} after {change}", after, found.live)


def read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not a text file: {error.reason} at byte {error.start}") from error


def write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from error
