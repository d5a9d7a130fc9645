"""A real Apache Kafka on this machine, one to three brokers, for trying things out and for tests."""

import contextlib
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from confluent_kafka.admin import AdminClient

from headgate import jars
from headgate.errors import KafkaUnavailable, SetupError
from headgate.file_lock import locked
from headgate.kafka.broker_process import HEAP_MB, BrokerProcess, Node
from headgate.kafka.embedded_cluster import Cluster
from headgate.kafka.embedded_status import KafkaStatus, brokers_seen, quiet_admin, status_of
from headgate.kafka.local_ports import accepts, check_free

START_DEADLINE_S = 90.0
STOP_DEADLINE_S = 30.0
LOCK_DEADLINE_S = 180.0
POLL_S = 0.05


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
        return self._known().bootstrap

    def start(self, progress: jars.Progress | None = None, deadline_s: float = START_DEADLINE_S) -> bool:
        """Starts every broker that does not run and waits until all answer; False if there was nothing to start."""
        tell = progress or (lambda _: None)
        jars.resolve(jars.KAFKA, progress)
        with self._locked():
            cluster = self._cluster_to_start()
            missing = [broker for broker in self._brokers_of(cluster) if broker.process() is None]
            for broker in missing:
                check_free(broker.node.port)
                check_free(broker.node.controller_port)
            cluster.write(self._file)
            started = False
            try:
                if missing:
                    tell("preparing Kafka's storage")
                    with ThreadPoolExecutor() as formatting:
                        list(formatting.map(lambda broker: self._prepare(broker, cluster), missing))
                for broker in missing:
                    broker.launch()
                tell(f"waiting for Kafka on {cluster.bootstrap}")
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
            brokers = tuple(asking.map(status_of, self._brokers_of(cluster)))
        return KafkaStatus(self.home, cluster.version, cluster.bootstrap, brokers)

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
            waiting_for = [node for node in waiting_for if not accepts(node.port)]
            if not waiting_for:
                admin = admin or quiet_admin(cluster.bootstrap)
                if brokers_seen(admin) == len(cluster.nodes):
                    return
            if time.monotonic() > deadline:
                raise KafkaUnavailable(
                    f"Kafka in {self.home} was not ready after {deadline_s:.0f} s: the machine may be overloaded, "
                    f"try again; the logs are in {self.home}/broker-*/logs"
                )
            time.sleep(POLL_S)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One start or stop at a time."""
        try:
            self.home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SetupError(
                f"Kafka cannot live in {self.home} ({error.strerror}): choose a folder you can write to"
            ) from error
        taken = (
            f"another process has been starting or stopping the Kafka in {self.home} "
            f"for {LOCK_DEADLINE_S:.0f} s: end it and try again"
        )
        with locked(self.home / "lock", LOCK_DEADLINE_S, taken):
            yield


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
