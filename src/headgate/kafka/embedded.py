"""A real Apache Kafka on this machine, one to three brokers, for trying things out and for tests."""

import base64
import contextlib
import fcntl
import json
import random
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headgate import jars
from headgate.errors import HeadgateError, KafkaUnavailable, SetupError
from headgate.kafka.broker_process import HEAP_MB, LOOPBACK, BrokerProcess, Node, java_command

START_DEADLINE_S = 90.0
STOP_DEADLINE_S = 30.0
LOCK_DEADLINE_S = 180.0
ANSWER_DEADLINE_S = 2.0
POLL_S = 0.05
# Below the ports that systems hand to outgoing connections: a client that keeps knocking while the broker is away
# must not be given the broker's own port.
FREE_PORTS = range(20_000, 30_000)


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


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a home remembers between runs (`cluster.json`)."""

    cluster_id: str
    version: str
    nodes: tuple[Node, ...]

    @classmethod
    def new(cls, brokers: int, port: int | None) -> "Cluster":
        # Kafka's ids are the URL-safe base64 of a UUID; with a leading dash the storage tool would see an option.
        ids = (base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=") for _ in range(1000))
        cluster_id = next(id for id in ids if not id.startswith("-"))
        first = port if port is not None else _free_ports(2 * brokers)
        return cls(cluster_id, jars.KAFKA_VERSION, _nodes(brokers, first))

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


class EmbeddedKafka:
    """Kafka whose whole state is one folder: start, stop and status work from any process that knows the folder.

    >>> with EmbeddedKafka(Path("my-kafka")) as kafka:        # doctest: +SKIP
    ...     produce_to(kafka.bootstrap)
    """

    def __init__(
        self,
        home: Path,
        brokers: int | None = None,
        port: int | None = None,
        settings: Mapping[str, str | int] | None = None,
        heap_mb: int = HEAP_MB,
    ) -> None:
        """`brokers` (1 to 3) and `port` describe a new home; an existing one remembers them. With 2 both must run:
        neither of them alone is a majority of the controllers. `settings` are Kafka's own and `heap_mb` is
        each broker's memory, for brokers that start: thousands of partitions want more of it."""
        if brokers not in (None, 1, 2, 3):
            raise SetupError(f"the embedded Kafka has 1 to 3 brokers, not {brokers}")
        if port is not None and not 1024 <= port <= 65535 - 2 * (brokers or 1):
            raise SetupError(f"port {port} cannot be used: choose one from 1024 to {65535 - 2 * (brokers or 1)}")
        self.home = home.expanduser().resolve()
        if "," in str(self.home):
            raise SetupError(f"Kafka cannot keep its data in {self.home}: choose a path without a comma")
        self._brokers, self._port, self._settings, self._heap_mb = brokers, port, settings or {}, heap_mb
        self._processes: dict[Node, BrokerProcess] = {}

    @property
    def bootstrap(self) -> str:
        return _bootstrap(self._known().nodes)

    def start(self, progress: jars.Progress | None = None, deadline_s: float = START_DEADLINE_S) -> bool:
        """Starts every broker that does not run and waits until all answer; False if there was nothing to start."""
        tell = progress or (lambda _: None)
        jars.resolve(jars.KAFKA, progress)
        with self._locked():
            cluster = self._cluster_to_start()
            missing = [broker for broker in self._brokers_of(cluster) if broker.process() is None]
            for broker in missing:
                _check_free(broker.node.port)
                _check_free(broker.node.controller_port)
            cluster.write(self._file)
            started = False
            try:
                if missing:
                    tell("preparing Kafka's storage")
                    with ThreadPoolExecutor() as formatting:
                        list(formatting.map(lambda broker: self._prepare(broker, cluster), missing))
                for broker in missing:
                    broker.launch()
                tell(f"waiting for Kafka on {_bootstrap(cluster.nodes)}")
                self._wait_until_ready(cluster, missing, deadline_s)
                started = True
            finally:
                if not started:  # leave nothing half-started behind, on Ctrl-C neither
                    _end(missing, signal.SIGKILL, STOP_DEADLINE_S)
        return bool(missing)

    def stop(self, deadline_s: float = STOP_DEADLINE_S) -> bool:
        """Ends every broker in order, by force after the deadline; False if none was running."""
        cluster = Cluster.read(self._file)
        if cluster is None:
            return False
        with self._locked():
            brokers = self._brokers_of(cluster)
            ended = _end(brokers, signal.SIGTERM, deadline_s)
            for broker in brokers:
                broker.forget()
        return ended

    def kill(self, broker: int) -> None:
        """SIGKILL for broker 1, 2 or 3: it gets no chance to say goodbye. `start` brings it back."""
        _end([self._broker(broker)], signal.SIGKILL, STOP_DEADLINE_S)

    def freeze(self, broker: int) -> None:
        """SIGSTOP for broker 1, 2 or 3: it keeps its connections and says nothing, as on a stalled disk."""
        self._broker(broker).signal(signal.SIGSTOP)

    def thaw(self, broker: int) -> None:
        """After `freeze`."""
        self._broker(broker).signal(signal.SIGCONT)

    def _broker(self, number: int) -> BrokerProcess:
        for broker in self._brokers_of(self._known()):
            if broker.node.id == number:
                return broker
        raise SetupError(f"{self.home} has no broker {number}")

    def status(self) -> KafkaStatus:
        cluster = self._known()
        with ThreadPoolExecutor() as asking:
            brokers = tuple(asking.map(_status_of, self._brokers_of(cluster)))
        return KafkaStatus(self.home, cluster.version, _bootstrap(cluster.nodes), brokers)

    def __enter__(self) -> "EmbeddedKafka":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _file(self) -> Path:
        return self.home / "cluster.json"

    def _known(self) -> Cluster:
        cluster = Cluster.read(self._file)
        if cluster is None:
            raise SetupError(
                f"no Kafka was ever started in {self.home}: start one with `headgate kafka start --home …`"
            )
        return cluster

    def _cluster_to_start(self) -> Cluster:
        kept, port = Cluster.read(self._file), self._port
        if kept is None:
            return Cluster.new(self._brokers or 1, port)
        if self._brokers not in (None, len(kept.nodes)):
            raise SetupError(
                f"{self.home} holds a Kafka with {len(kept.nodes)} broker(s), not {self._brokers}: "
                "leave the number out, or choose another home"
            )
        if port is None or port == kept.nodes[0].port:
            return kept
        if any(broker.process() for broker in self._brokers_of(kept)):
            raise SetupError(
                f"the Kafka in {self.home} is running on port {kept.nodes[0].port}: stop it before moving it to {port}"
            )
        return kept.moved_to(port)

    def _prepare(self, broker: BrokerProcess, cluster: Cluster) -> None:
        broker.prepare(cluster.cluster_id, cluster.nodes, self._settings)

    def _brokers_of(self, cluster: Cluster) -> list[BrokerProcess]:
        for node in cluster.nodes:
            self._processes.setdefault(node, BrokerProcess(self.home, node, self._heap_mb))
        return [self._processes[node] for node in cluster.nodes]

    def _wait_until_ready(self, cluster: Cluster, launched: Sequence[BrokerProcess], deadline_s: float) -> None:
        deadline = time.monotonic() + deadline_s
        waiting_for = list(cluster.nodes)
        admin: AdminClient | None = None
        while True:
            for broker in launched:
                if broker.process() is None:
                    raise SetupError(
                        f"broker {broker.node.id} ended while starting: {broker.complaint()}; "
                        f"its logs are in {broker.logs}"
                    )
            waiting_for = [node for node in waiting_for if not _accepts(node.port)]
            if not waiting_for:
                admin = admin or _admin(_bootstrap(cluster.nodes))
                if _brokers_seen(admin) == len(cluster.nodes):
                    return
            if time.monotonic() > deadline:
                raise KafkaUnavailable(
                    f"Kafka in {self.home} was not ready after {deadline_s:.0f} s: the machine may be overloaded, "
                    f"try again; the logs are in {self.home}/broker-*/logs"
                )
            time.sleep(POLL_S)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One start or stop at a time; the system releases the lock when its holder dies."""
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            lock = (self.home / "lock").open("a")
        except OSError as error:
            raise SetupError(
                f"Kafka cannot live in {self.home} ({error.strerror}): choose a folder you can write to"
            ) from error
        deadline = time.monotonic() + LOCK_DEADLINE_S
        with lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise SetupError(
                            f"another process has been starting or stopping the Kafka in {self.home} "
                            f"for {LOCK_DEADLINE_S:.0f} s: end it and try again"
                        ) from None
                    time.sleep(POLL_S)
            yield


def run_kafka_tool(main_class: str, *args: str, timeout_s: float = 60.0) -> str:
    """Runs one of Kafka's own tools, for example org.apache.kafka.tools.consumer.group.ConsumerGroupCommand."""
    command, environment = java_command("-Dlog4j2.level=OFF", main_class, *args)
    tool = main_class.rpartition(".")[2]
    try:
        ran = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise KafkaUnavailable(f"{tool} did not end within {timeout_s:g} s: check that Kafka is running") from None
    if ran.returncode != 0:
        said = (ran.stderr.strip() or ran.stdout.strip() or "it said nothing").splitlines()
        raise HeadgateError(f"{tool} failed with exit code {ran.returncode}: {said[0]}")
    return ran.stdout


def _end(brokers: Sequence[BrokerProcess], first: signal.Signals, deadline_s: float) -> bool:
    """Signals all that run, waits, and kills what is left at the deadline; False if none ran."""
    running = [broker for broker in brokers if broker.signal(first)]
    left = _wait_for_end(running, deadline_s)
    for broker in left:
        broker.signal(signal.SIGKILL)
    if immortal := _wait_for_end(left, STOP_DEADLINE_S):
        raise KafkaUnavailable(
            f"broker {immortal[0].node.id} in {immortal[0].folder} survived SIGKILL: see what the system is waiting for"
        )
    return bool(running)


def _wait_for_end(brokers: Sequence[BrokerProcess], deadline_s: float) -> list[BrokerProcess]:
    """Those that still run at the deadline."""
    deadline = time.monotonic() + deadline_s
    left = list(brokers)
    while (left := [broker for broker in left if broker.process()]) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return left


def _status_of(broker: BrokerProcess) -> BrokerStatus:
    process, node = broker.process(), broker.node
    answers = process is not None and _accepts(node.port) and _brokers_seen(_admin(f"{LOOPBACK}:{node.port}")) > 0
    return BrokerStatus(node.id, node.port, node.controller_port, process.pid if process else None, answers)


def _bootstrap(nodes: Sequence[Node]) -> str:
    return ",".join(f"{LOOPBACK}:{node.port}" for node in nodes)


def _nodes(brokers: int, first_port: int) -> tuple[Node, ...]:
    return tuple(Node(n + 1, first_port + n, first_port + brokers + n) for n in range(brokers))


def _admin(bootstrap: str) -> AdminClient:
    # While a broker comes up, failed connections are expected and must not reach the terminal.
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200})


def _brokers_seen(admin: AdminClient) -> int:
    try:
        return len(admin.list_topics(timeout=ANSWER_DEADLINE_S).brokers)
    except KafkaException:
        return 0  # not yet


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), timeout=ANSWER_DEADLINE_S):
            return True
    except OSError:
        return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As Kafka does: connections of an earlier life that are still closing do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _free_ports(count: int) -> int:
    """The first of `count` neighbouring free ports, at random so that two homes rarely meet."""
    for _ in range(200):
        first = random.choice(FREE_PORTS[:-count])
        if all(_is_free(first + n) for n in range(count)):
            return first
    raise SetupError(
        f"no {count} neighbouring free ports between {FREE_PORTS[0]} and {FREE_PORTS[-1]}: choose one with --port"
    )


def _check_free(port: int) -> None:
    if not _is_free(port):
        raise SetupError(
            f"port {port} on {LOOPBACK} is taken{_by_whom(port)}: stop what uses it, or choose another one with --port"
        )


def _by_whom(port: int) -> str:
    try:
        found = [c.pid for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port and c.pid]
        return f" by {psutil.Process(found[0]).name()} (pid {found[0]})" if found else ""
    except (psutil.Error, OSError):
        return ""  # some systems show this to the administrator only
