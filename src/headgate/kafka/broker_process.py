"""One broker of the embedded Kafka as an operating-system process: its settings, its storage, its life and death."""

import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from headgate.errors import SetupError
from headgate.kafka.java_programs import java_command

LOOPBACK = "127.0.0.1"
FORMAT_DEADLINE_S = 120.0
HEAP_MB = 384
MAX_MESSAGE_BYTES = 16 * 1024**2

LOG4J2_PROPERTIES = """\
# Kafka's own log, one file per broker, 40 MB at most.
status=error
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName=${sys:headgate.logs}/server.log
appender.file.filePattern=${sys:headgate.logs}/server.log.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %m (%c{1})%n
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=10MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=3
rootLogger.level=INFO
rootLogger.appenderRef.file.ref=file
"""


@dataclass(frozen=True, slots=True)
class Node:
    """Where one broker listens. Every broker is a controller too."""

    id: int
    port: int
    controller_port: int


def server_properties(
    node: Node, cluster: Sequence[Node], data: Path, others: Mapping[str, str | int] | None = None
) -> str:
    """Kafka's settings for a small machine: loopback only, few threads, nothing created by accident."""
    copies = min(3, len(cluster))
    enough_copies = min(2, copies)
    settings = {
        "node.id": node.id,
        "process.roles": "broker,controller",
        "controller.quorum.voters": ",".join(f"{n.id}@{LOOPBACK}:{n.controller_port}" for n in cluster),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{node.port},CONTROLLER://{LOOPBACK}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{node.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": _escaped(str(data)),
        "default.replication.factor": copies,
        "auto.create.topics.enable": "false",
        "message.max.bytes": MAX_MESSAGE_BYTES,
        "replica.fetch.max.bytes": MAX_MESSAGE_BYTES,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 10,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": enough_copies,
        "transaction.state.log.num.partitions": 10,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": enough_copies,
        "share.coordinator.state.topic.num.partitions": 10,
        "group.initial.rebalance.delay.ms": 0,
        # A killed broker is noticed, and let in again, after this long instead of 9 s.
        "broker.session.timeout.ms": 4000,
        "broker.heartbeat.interval.ms": 500,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "background.threads": 4,
        "log.cleaner.dedupe.buffer.size": 16 * 1024**2,
        **(others or {}),
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _escaped(value: str) -> str:
    """Java reads .properties files as Latin-1, with \\uXXXX for the rest and a backslash as the escape."""
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    codes = [int.from_bytes(units[i : i + 2]) for i in range(0, len(units), 2)]
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)


class BrokerProcess:
    """One broker, found again from any process by its home: `home/broker-N` with its settings, data, logs and pid."""

    def __init__(self, home: Path, node: Node, heap_mb: int = HEAP_MB) -> None:
        self.node = node
        self._heap_mb = heap_mb
        self.folder = home / f"broker-{node.id}"
        self.data = self.folder / "data"
        self.logs = self.folder / "logs"
        self._formatted = self.folder / "formatted"
        self._log4j2 = home / "log4j2.properties"
        self._pid = self.folder / "pid"
        self._mark = f"-Dheadgate.broker={self.folder}"
        self._log_begins_at = 0
        self._child: subprocess.Popen[bytes] | None = None

    def prepare(
        self, cluster_id: str, cluster: Sequence[Node], settings: Mapping[str, str | int] | None = None
    ) -> None:
        """Writes the settings, and formats the storage unless that was done to the end before."""
        self.logs.mkdir(parents=True, exist_ok=True)
        self._log4j2.write_text(LOG4J2_PROPERTIES)
        self._properties.write_text(server_properties(self.node, cluster, self.data, settings))
        if self._formatted.exists():
            return
        # The mark is set after formatting and before the first start, so what lies here holds no records.
        shutil.rmtree(self.data, ignore_errors=True)
        # Log4j's own default writes to the terminal; the tool says what went wrong by itself.
        command, environment = java_command("-Dlog4j2.level=OFF", "kafka.tools.StorageTool", "format")
        command += ["--cluster-id", cluster_id, "--config", str(self._properties)]
        log = self.logs / "format.log"
        with log.open("wb") as out:
            try:
                ended = subprocess.run(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    timeout=FORMAT_DEADLINE_S,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                raise SetupError(
                    f"formatting Kafka's storage in {self.data} took longer than {FORMAT_DEADLINE_S:.0f} s: "
                    f"the machine may be overloaded, try again; the log is {log}"
                ) from None
        if ended != 0:
            raise SetupError(
                f"Kafka's storage in {self.data} could not be formatted: {_last_complaint(log)}; see {log}"
            )
        self._formatted.touch()

    def launch(self) -> None:
        """Starts the broker apart from our terminal, so that Ctrl-C stops it through us and in order."""
        command, environment = java_command(
            f"-Xmx{self._heap_mb}M",
            self._mark,
            f"-Dheadgate.logs={self.logs}",
            f"-Dlog4j2.configurationFile={self._log4j2}",
            "kafka.Kafka",
            str(self._properties),
        )
        server_log = self.logs / "server.log"
        self._log_begins_at = server_log.stat().st_size if server_log.exists() else 0
        with (self.logs / "console.log").open("wb") as out:
            self._child = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._pid.write_text(f"{self._child.pid}\n")

    def process(self) -> psutil.Process | None:
        """The running broker. The pid file is a hint: whoever launched it may have died before writing it."""
        try:
            # Our own child needs no other proof: its number is not given away before `poll` has seen it end, and for a
            # moment after its launch its command line is still empty.
            if self._child is not None and self._child.poll() is None:
                return psutil.Process(self._child.pid)
            noted = psutil.Process(int(self._pid.read_text()))
            if self._is_ours(noted):
                return noted
        except (OSError, ValueError, psutil.NoSuchProcess):
            pass  # no pid file, half of one, or one from an earlier life
        return next(filter(self._is_ours, psutil.process_iter()), None)

    def _is_ours(self, process: psutil.Process) -> bool:
        # A number may have been given to a stranger since; the command line names our home.
        try:
            return self._mark in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False

    def signal(self, number: signal.Signals) -> bool:
        """Sends the signal; False if the broker does not run."""
        process = self.process()
        if process is None:
            return False
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            return False
        return True

    def forget(self) -> None:
        self._pid.unlink(missing_ok=True)

    def complaint(self) -> str:
        """The last thing that this launch complained about."""
        found = _last_complaint(self.logs / "server.log", self._log_begins_at)
        return found or _last_complaint(self.logs / "console.log") or "it left no message"

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"


def _last_complaint(log: Path, begins_at: int = 0) -> str:
    """The last line that looks like an error, else the last line at all."""
    if not log.exists():
        return ""
    with log.open("rb") as lines:
        lines.seek(begins_at if begins_at <= log.stat().st_size else 0)
        said = [line.strip() for line in lines.read().decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in said if re.search(r"\b(ERROR|FATAL|Error|\w*Exception)\b", line)]
    causes = [line for line in errors if not line.startswith("at ")]
    return (causes or said or [""])[-1][:500]
