"""Spark sessions for consumers and for `verify`: quiet, on loopback, with the jars resolved once."""

import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from headgate import jars
from headgate.config.settings import SPARK_ESSENTIALS
from headgate.consumer import class_archive
from headgate.home_folder import using
from headgate.log_files import JVM_ERRORS

log = logging.getLogger(__name__)

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # Several consumers of one process share its executors fairly instead of first come, first served.
    "spark.scheduler.mode": "FAIR",
    **SPARK_ESSENTIALS,
    # A cycle reads a few megabytes: re-planning between stages and hundreds of shuffle partitions cost more.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # Without Kafka in it: the first generation of its source converts every record twice.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    "spark.cleaner.periodicGC.interval": "5min",
    # Without its pages Spark still remembers what they would show: after 1,200 small queries 10 MB of 70.
    **dict.fromkeys(
        (
            "spark.ui.retainedJobs",
            "spark.ui.retainedStages",
            "spark.ui.dagGraph.retainedRootRDDs",
            "spark.sql.ui.retainedExecutions",
        ),
        "20",
    ),
    "spark.ui.retainedTasks": "200",
    # Notes the caller's line for every column expression: two more calls into the JVM for each, every cycle.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}

_PATIENT_COMPILER = tuple(
    f"-XX:Tier4{name}={20 * default}"
    for name, default in {
        "InvocationThreshold": 5_000,
        "MinInvocationThreshold": 600,
        "CompileThreshold": 15_000,
        "BackEdgeThreshold": 40_000,
    }.items()
)
"""Java's second compiler waits for what runs per record. It took a third of a start's processor time for code that
starts once, and what it makes of that is hardly run again."""

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LISTS = {"spark.driver.extraClassPath": os.pathsep, "spark.jars": ",", _JAVA_OPTIONS: " "}
"""Settings with a list in them, and what stands between two of it. Of two Java options that contradict each other Java
takes the later one."""
_A_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")

_OUR_WORKERS = {"spark.python.daemon.module": "headgate.consumer.python_daemon"}

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
logger.kafka.name = org.apache.kafka
logger.kafka.level = error
logger.kafkasql.name = org.apache.spark.sql.kafka010
logger.kafkasql.level = error
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.metrics.name = org.apache.spark.metrics
logger.metrics.level = error
"""


def start_session(
    master: str,
    logs: Path,
    name: str = "headgate",
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    jar_sets: tuple[jars.JarSet, ...] = (jars.SPARK,),
    python_path: Path | None = None,
    java_options: Sequence[str] | None = None,
) -> SparkSession:
    """A session of this process. The JVM's log goes to a file in `logs`; `conf` is the user's and wins, but for jars
    and Java options, which are added to ours.

    `python_path` is where Spark's Python workers find the modules of the user's transforms. `java_options` replace the
    archive of classes that is used if there is one.
    """
    if remote is not None:
        return SparkSession.builder.remote(remote).appName(name).getOrCreate()
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)  # errors are raised anyway; these print pages to stderr
    logs = logs.absolute()
    log4j = logs / "spark-log4j2.properties"
    with using(logs):
        logs.mkdir(parents=True, exist_ok=True)
        log4j.write_text(_LOG4J.format(log=logs / "spark.log"))
    paths = [path for jar_set in jar_sets for path in jars.resolve(jar_set)]
    os.environ.setdefault("JAVA_HOME", str(jars.java().resolve().parent.parent))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # not whatever `python3` is on the path
    if python_path is not None:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(python_path), os.environ.get("PYTHONPATH"))))
    ours = {
        **SETTINGS,
        **(_OUR_WORKERS if _is_our_python(master) else {}),
        **_class_path(master, paths),
        "spark.local.dir": str(logs / "spark-local"),
        "spark.sql.warehouse.dir": str(logs / "spark-warehouse"),
        _JAVA_OPTIONS: _quoted(
            (
                *(class_archive.options(paths) if java_options is None else java_options),
                *_collector((conf or {}).get(_JAVA_OPTIONS, "")),
                *_PATIENT_COMPILER,
                "-Xms128m",  # or the JVM begins with a 64th of the machine's memory and keeps it
                f"-Dlog4j2.configurationFile={log4j.as_uri()}",
                f"-Duser.dir={logs}",  # Spark leaves a folder where it runs, which would be the user's
            )
        ),
    }
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in _with_users(ours, conf or {}).items():
        builder = builder.config(key, value)
    with _errors_to(logs / JVM_ERRORS), _keeping_ctrl_c():
        session: SparkSession = builder.getOrCreate()
    _keep_quiet(session)
    return session


def _with_users(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Without our jars nothing works; ours come first, so that what both have is of our version."""
    joined = {
        key: separator.join(filter(None, (ours[key], theirs[key])))
        for key, separator in _LISTS.items()
        if key in ours and key in theirs
    }
    return {**ours, **theirs, **joined}


def _collector(theirs: str) -> tuple[str, ...]:
    """Ours, unless the user's options name one: Java does not start with two garbage collectors."""
    return () if _A_COLLECTOR.search(theirs) else ("-XX:+UseSerialGC",)


def _quoted(options: Sequence[str]) -> str:
    """Folders may have spaces in their names."""
    return " ".join(f'"{option}"' for option in options)


def _class_path(master: str, paths: Sequence[Path]) -> dict[str, str]:
    """Spark sends what is in `spark.jars` to its executors; within one process it would be copied for nothing."""
    if master == "local" or master.startswith("local["):
        return {"spark.driver.extraClassPath": os.pathsep.join(map(str, paths))}
    return {"spark.jars": ",".join(map(str, paths))}


def _is_our_python(master: str) -> bool:
    """Whether Spark's Python workers run on this machine and with this Python."""
    return master.startswith("local") and os.environ.get("PYSPARK_PYTHON") == sys.executable


def workers_have_headgate(session: SparkSession) -> bool:
    """Also asks that a thread here has a thread of its own in the JVM, for properties of its jobs."""
    if not hasattr(session, "_jsparkSession"):  # Spark Connect
        return False
    conf = session.sparkContext.getConf()
    pinned = os.environ.get("PYSPARK_PIN_THREAD", "true").lower() == "true"
    return pinned and all(conf.get(key) == value for key, value in _OUR_WORKERS.items())


def local_folders(session: SparkSession) -> tuple[Path, ...]:
    """Where this session keeps what does not fit into memory; it does not make them anew if somebody deletes them."""
    if not hasattr(session, "_jsparkSession"):  # Spark Connect
        return ()
    jvm = session.sparkContext._jvm
    assert jvm is not None
    manager = jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
    return tuple(Path(folder.getPath()) for folder in manager.localDirs())


def what_is_gone(folders: Iterable[Path]) -> str:
    """In words; empty if they are all there."""
    gone = next((folder for folder in folders if not folder.exists()), None)
    return f"somebody deleted {gone}, which Spark needs" if gone is not None else ""


def _keep_quiet(session: SparkSession) -> None:
    """PySpark's server for accumulators prints a stack trace when the JVM ends, which is told elsewhere in one line."""
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *connection: log.debug("lost a connection from the JVM", exc_info=True)


def settle(session: SparkSession, conf: Mapping[str, str]) -> None:
    """Settings that hold for one session: a new one, or one on a server (Spark Connect), knows nothing of ours."""
    for key, value in {**SETTINGS, **conf}.items():
        if not key.startswith("spark.sql."):
            continue
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
        elif session.conf.get(key, None) != value:
            log.warning("%s cannot be set for a session; set it where Spark is started", key)


@contextmanager
def _keeping_ctrl_c() -> Iterator[None]:
    """In the main thread PySpark takes Ctrl-C for itself, to cancel all jobs and to raise wherever the program is."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


@contextmanager
def _errors_to(file: Path) -> Iterator[None]:
    """What is started meanwhile writes its errors to a file: the JVM, whose chatter would spoil the terminal."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with file.open("ab") as target:
        os.dup2(target.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def ship_modules(spark: SparkSession, folder: Path) -> None:
    """Sends the modules that were imported from the pipeline's folder to Spark's Python workers, wherever they run."""
    folder = folder.resolve()
    found = set()
    for name, module in list(sys.modules.items()):
        file = Path(getattr(module, "__file__", None) or "").resolve()
        top = name.partition(".")[0]
        if file == folder / f"{top}.py":
            found.add(file)
        elif folder / top in file.parents:
            found.add(folder / top)
    for path in sorted(found):
        if path.is_dir():
            path = Path(shutil.make_archive(f"{tempfile.mkdtemp()}/{path.name}", "zip", folder, path.name))
        if hasattr(spark, "_jsparkSession"):
            spark.sparkContext.addPyFile(str(path))
        else:
            spark.addArtifacts(str(path), pyfile=True)


def first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__


def reason(error: BaseException) -> str:
    """The line of a Spark error that tells a person what happened: the Python exception, or the root cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in reversed(lines):
        if line.startswith(("Caused by: ", "pyspark.errors", "SparkRuntimeException")):
            return line.removeprefix("Caused by: ")[:300]
    python = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) and ":" in line]
    return (python[-1] if python else first_line(error))[:300]
