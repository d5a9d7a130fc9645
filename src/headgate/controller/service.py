"""A whole pipeline in one process: monitor, controller, committer and fleet, started and stopped in the right order."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from headgate import jars, log_files
from headgate.config.clients import librdkafka_settings
from headgate.config.pipeline import Pipeline
from headgate.consumer.spark import local_folders, start_session, what_is_gone
from headgate.controller.assembly import channel_of, controller_of, dry_run_of
from headgate.controller.fleets import build_fleet
from headgate.errors import ConfigError, ConsumerError, HeadgateError, KafkaUnavailable, SetupError, Superseded
from headgate.fleet import Fleet
from headgate.home_folder import using
from headgate.kafka.build_info import show_build
from headgate.kafka.channel import END, Tail
from headgate.kafka.internal_topics import Topics, ensure_topics
from headgate.kafka.monitor import OF_A_DRY_RUN, build_monitor
from headgate.lake.committer import Committer
from headgate.lake.turns import Turns
from headgate.lake.upkeep import Maintainer
from headgate.metrics_endpoint import Endpoint, serve

log = logging.getLogger(__name__)

ROLES = ("monitor", "controller", "committer")
_STOP_S = 60.0
_MOST_RESTARTS = 5
_RESTARTS_FORGOTTEN_S = 600.0
_POLLS_MISSED, _POLL_TAKES_S = 3, 5.0
"""Who missed so many polls in a row, and what one may take, measures no more."""


class SharedSession:
    """One Spark session for all consumers of this process, started by the first that needs it."""

    def __init__(
        self, pipeline: Pipeline, jar_sets: tuple[jars.JarSet, ...] = (jars.SPARK,), master: str | None = None
    ) -> None:
        self._pipeline = pipeline
        self.logs = pipeline.home / "spark"
        written = pipeline.consumer.spark.master
        # `local[1]` is right for a process per consumer; threads share all cores.
        self.master = master or ("local[*]" if written == "local[1]" else written)
        self.lost = ""
        """Why no consumer can work with it any more; PySpark cannot start another JVM in the same process."""
        self._jar_sets = jar_sets
        self._lock = threading.Lock()
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        with self._lock:
            if self._session is not None:
                self.lost = _why_lost(self._session)
            if self.lost:
                raise ConsumerError(f"{self.lost}; see the spark logs in the pipeline's home")
            if self._session is None:
                spark = self._pipeline.consumer.spark
                self._session = start_session(
                    self.master,
                    self.logs,
                    self._pipeline.name,
                    spark.remote,
                    spark.conf,
                    self._jar_sets,
                    self._pipeline.folder,
                )
            return self._session

    def shorten_log(self) -> None:
        """The JVM holds it open for as long as the pipeline runs."""
        log_files.empty(self.logs / log_files.JVM_ERRORS)

    def stop(self) -> None:
        with self._lock:
            if self._session is not None:
                self._session.stop()
                self._session = None


def _why_lost(session: SparkSession) -> str:
    process = getattr(getattr(session, "_sc", None), "_gateway", None)
    launched = getattr(process, "proc", None)
    if launched is not None and launched.poll() is not None:
        return "Spark's JVM has ended (out of memory?)"
    return what_is_gone(local_folders(session))


class Service:
    """Runs the named roles until `stop`. Roles may be spread over several processes: they meet on Kafka only."""

    def __init__(
        self,
        pipeline: Pipeline,
        roles: tuple[str, ...] = ROLES,
        dry_run: bool = False,
        session: Callable[[], SparkSession] | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._roles = roles
        self._dry_run = dry_run
        self._session = session or SharedSession(pipeline)
        self._settings = librdkafka_settings(pipeline)
        self._threads: list[tuple[threading.Thread, threading.Event]] = []
        self._fleet: Fleet | None = None
        self._endpoint: Endpoint | None = None
        self._failure: HeadgateError | None = None
        self.failed = threading.Event()
        """Set when a role cannot go on; `stop` then raises why."""

    def start(self) -> None:
        """Returns once everything is under way; refuses at once what cannot work."""
        with using(self._pipeline.home):
            self._pipeline.home.mkdir(parents=True, exist_ok=True)
        self._prepare_kafka()
        if self._pipeline.metrics_port is not None:
            show_build()
            part = "run" if self._roles == ROLES else "-".join(sorted(self._roles))
            part = "dry-run" if self._dry_run else part  # nobody misses its controller
            self._endpoint = self._serve(self._pipeline.metrics_port, part)
        if "committer" in self._roles and not self._dry_run:
            turns = Turns()
            self._launch("committer", lambda stop: Committer(self._pipeline, self._settings, turns=turns).run(stop))
            if self._pipeline.lake.maintain_every_s is not None:
                self._launch("maintainer", Maintainer(self._pipeline, turns).run)
        if "monitor" in self._roles:
            self._launch("monitor", self._measure_beside if self._dry_run else self._measure)
        if "controller" in self._roles:
            if self._dry_run:
                self._launch("dry run", self._rehearse)
            else:
                self._fleet = build_fleet(self._pipeline, self._session)
                self._launch("controller", self._control)

    def _serve(self, port: int, part: str) -> Endpoint:
        """A dry run beside its pipeline takes any port that is free."""
        pipeline = self._pipeline
        try:
            return serve(port, pipeline.metrics_address, pipeline.home, pipeline.name, part)
        except SetupError:
            if not self._dry_run:
                raise
        return serve(0, pipeline.metrics_address, pipeline.home, pipeline.name, part)

    def _measure(self, stop: threading.Event) -> None:
        build_monitor(self._pipeline, self._settings).run(stop)

    def _measure_beside(self, stop: threading.Event) -> None:
        """A dry run measures while nobody else does."""
        tail = Tail(self._settings, {(Topics(self._pipeline.name).measurements, 0): END})
        try:
            while not stop.is_set():
                self._await_silence(tail, stop)
                self._measure_until_others_do(tail, stop)
        finally:
            tail.close()

    def _await_silence(self, tail: Tail, stop: threading.Event) -> None:
        heard_s, told = time.monotonic(), False
        while time.monotonic() - heard_s < _POLLS_MISSED * self._pipeline.monitor.poll_s + _POLL_TAKES_S:
            if stop.is_set():
                return
            if tail.poll(0.2):
                heard_s = time.monotonic()
                if not told:
                    log.info("another monitor is at work; the dry run goes by what it measures")
                told = True

    def _measure_until_others_do(self, tail: Tail, stop: threading.Event) -> None:
        if stop.is_set():
            return
        log.info("nobody measures this pipeline; the dry run does")
        enough = threading.Event()
        with ThreadPoolExecutor(1) as beside:
            mine = beside.submit(build_monitor(self._pipeline, self._settings, OF_A_DRY_RUN).run, enough)
            while not (stop.is_set() or mine.done()):
                if any(received.origin.sender != OF_A_DRY_RUN for received in tail.poll(0.2)):
                    break
            enough.set()
        mine.result()

    def _rehearse(self, stop: threading.Event) -> None:
        channel = channel_of(self._pipeline)
        try:
            dry_run_of(self._pipeline, channel, stop).run(stop)
        finally:
            channel.close()

    def _control(self, stop: threading.Event) -> None:
        assert self._fleet is not None
        if isinstance(self._session, SharedSession):
            threading.Thread(target=self._watch_spark, args=(self._session, stop), daemon=True).start()
        channel = channel_of(self._pipeline)
        try:
            controller_of(self._pipeline, self._fleet, channel, stop).run(stop)
        finally:
            channel.close()

    def _watch_spark(self, session: SharedSession, stop: threading.Event) -> None:
        while not stop.wait(1.0):
            session.shorten_log()
            if session.lost:
                self._give_up(HeadgateError(f"{session.lost}; start the pipeline again"))
                return

    def stop(self) -> None:
        """Controller first, then the consumers finish and announce, then the committer commits what they announced."""
        for name in ("controller", "dry run", "monitor", "maintainer"):
            self._end(name)
        if self._fleet is not None:
            if isinstance(self._failure, Superseded):
                self._fleet.hand_over()
            else:
                self._fleet.close()
        self._end("committer")
        # Who fails for good stays to be looked for: that nobody answers is the alert. Superseded, another one does.
        if self._endpoint is not None and (self._failure is None or isinstance(self._failure, Superseded)):
            self._endpoint.withdraw()
        if self._failure is not None:
            raise self._failure

    def _end(self, name: str) -> None:
        for thread, stop in self._threads:
            if thread.name == name:
                stop.set()
                thread.join(_STOP_S)
                if thread.is_alive():
                    log.error("the %s did not stop within %.0f s; the next start repeats what it left", name, _STOP_S)

    def _launch(self, name: str, role: Callable[[threading.Event], None]) -> None:
        stop = threading.Event()
        thread = threading.Thread(target=self._keep, args=(name, role, stop), name=name, daemon=True)
        self._threads.append((thread, stop))
        thread.start()

    def _keep(self, name: str, role: Callable[[threading.Event], None], stop: threading.Event) -> None:
        """Runs a role; one that falls over is started again, but not for ever."""
        restarts: list[float] = []
        while not stop.is_set():
            try:
                role(stop)
                return
            except (Superseded, ConfigError) as error:
                self._give_up(error)
                return
            except Exception as error:
                log.exception("the %s ended unexpectedly", name)
                now = time.monotonic()
                restarts = [at for at in restarts if now - at < _RESTARTS_FORGOTTEN_S] + [now]
                if len(restarts) > _MOST_RESTARTS:
                    self._give_up(
                        HeadgateError(f"the {name} failed {len(restarts)} times within ten minutes, last with: {error}")
                    )
                    return
                stop.wait(min(10.0, 2.0 ** len(restarts) / 2))

    def _give_up(self, error: HeadgateError) -> None:
        self._failure = error
        self.failed.set()

    def _prepare_kafka(self) -> None:
        admin = AdminClient(dict(self._settings))
        try:
            brokers = len(admin.list_topics(timeout=15).brokers)
        except KafkaException as error:
            reason = self._pipeline.redact(error.args[0].str())
            raise KafkaUnavailable(
                f"no broker answers at {self._pipeline.kafka.brokers}: {reason}; check kafka.brokers and kafka.client"
            ) from error
        replication = self._pipeline.kafka.internal_replication or min(3, brokers)
        ensure_topics(admin, Topics(self._pipeline.name), replication, self._pipeline.fleet.max_consumers)
