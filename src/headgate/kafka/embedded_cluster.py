"""Which brokers an embedded Kafka has and where they listen, as its home remembers it between runs."""

import base64
import json
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from headgate import jars
from headgate.errors import SetupError
from headgate.kafka.broker_process import LOOPBACK, Node
from headgate.kafka.local_ports import free_ports


@dataclass(frozen=True, slots=True)
class Cluster:
    """What stands in `cluster.json`."""

    cluster_id: str
    version: str
    nodes: tuple[Node, ...]

    @classmethod
    def new(cls, brokers: int, port: int | None) -> "Cluster":
        # Kafka's ids are the URL-safe base64 of a UUID; with a leading dash the storage tool would see an option.
        ids = (base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=") for _ in range(1000))
        cluster_id = next(id for id in ids if not id.startswith("-"))
        first = port if port is not None else free_ports(2 * brokers)
        return cls(cluster_id, jars.KAFKA_VERSION, _nodes(brokers, first))

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{LOOPBACK}:{node.port}" for node in self.nodes)

    def moved_to(self, port: int) -> "Cluster":
        return Cluster(self.cluster_id, self.version, _nodes(len(self.nodes), port))

    @classmethod
    def read(cls, path: Path) -> "Cluster | None":
        try:
            kept = json.loads(path.read_text())
            return cls(kept["cluster_id"], kept["version"], tuple(Node(**node) for node in kept["nodes"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise SetupError(f"{path} is damaged ({error}): restore it, or choose another home for Kafka") from error

    def write(self, path: Path) -> None:
        scratch = path.with_suffix(".new")
        scratch.write_text(json.dumps(asdict(self), indent=1) + "\n")
        scratch.replace(path)


def _nodes(brokers: int, first_port: int) -> tuple[Node, ...]:
    return tuple(Node(n + 1, first_port + n, first_port + brokers + n) for n in range(brokers))
