"""Java and the jars that Headgate runs on it: fetched once by the Ivy that PySpark ships, then found on disk."""

import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import SetupError
from headgate.file_lock import locked

Progress = Callable[[str], None]

MIN_JAVA_VERSION = 17
TOO_NEW_JAVA_VERSION = 23
"""From here on `Subject.getSubject` fails, which the Hadoop that comes with PySpark 4.0 calls."""
_INSTALL = "install Java 17 or 21"
FREE_DISK_BYTES = 300 * 1024**2
"""Kafka's jars take 43 MB, Iceberg's runtime 45 MB, and Ivy keeps a second copy of each."""
LOCK_DEADLINE_S = 900.0
IVY_SILENCE_S = 120.0
"""Ivy prints something for every module and every few kB: this long without a word means a dead connection."""
POLL_S = 0.05
SHORT_LIVED_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

SCALA = "2.13"
KAFKA_VERSION = "4.1.0"
LOG4J_VERSION = "2.24.3"
ICEBERG_VERSION = "1.10.0"
SPARK_VERSION = importlib.metadata.version("pyspark")


@dataclass(frozen=True, slots=True)
class Dependency:
    """One Maven coordinate, with or without what it depends on at run time."""

    organisation: str
    module: str
    revision: str
    transitive: bool = True
    classifiers: tuple[str, ...] = ()
    """Of its jars, if it is not the usual one: `tests` and the like; empty for the usual one beside others."""

    def ivy_xml(self) -> str:
        # Of a Maven module, Ivy calls its own jar "master", and that with its run-time dependencies "default".
        named = f'<dependency org="{self.organisation}" name="{self.module}" rev="{self.revision}" '
        named += 'conf="default->default"' if self.transitive else 'conf="default->master" transitive="false"'
        jars = "".join(
            f'<artifact name="{self.module}" type="jar"' + (f' m:classifier="{which}"/>' if which else "/>")
            for which in self.classifiers
        )
        return f"    {named}>{jars}</dependency>" if jars else f"    {named}/>"


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are used together: what to fetch, and which organisations or modules to leave out."""

    name: str
    dependencies: tuple[Dependency, ...]
    excludes: tuple[tuple[str, str], ...] = ()
    """(organisation, module); the module may be `*`."""

    def ivy_xml(self) -> str:
        lines = [d.ivy_xml() for d in self.dependencies]
        lines += [f'    <exclude org="{organisation}" module="{module}"/>' for organisation, module in self.excludes]
        classifies = ""
        if any(d.classifiers for d in self.dependencies):
            classifies = ' xmlns:m="http://ant.apache.org/ivy/maven"'
        return "\n".join(
            [
                f'<ivy-module version="2.0"{classifies}>',
                f'  <info organisation="headgate" module="{self.name}"/>',
                '  <configurations><conf name="default"/></configurations>',
                "  <dependencies>",
                *lines,
                "  </dependencies>",
                "</ivy-module>",
                "",
            ]
        )


KAFKA = JarSet(
    "kafka",
    (
        Dependency("org.apache.kafka", f"kafka_{SCALA}", KAFKA_VERSION),
        Dependency("org.apache.kafka", "kafka-tools", KAFKA_VERSION, transitive=False),
        # Kafka logs through slf4j 1.7 and leaves the choice of a backend to whoever runs it.
        Dependency("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION, transitive=False),
    ),
)
SPARK = JarSet(
    "spark",
    (
        Dependency("org.apache.spark", f"spark-sql-kafka-0-10_{SCALA}", SPARK_VERSION),
        Dependency("org.apache.spark", f"spark-avro_{SCALA}", SPARK_VERSION, transitive=False),
    ),
    # PySpark ships these already, in the versions that it was tested with.
    excludes=(
        ("com.google.code.findbugs", "jsr305"),
        ("org.apache.hadoop", "*"),
        ("org.apache.spark", f"spark-tags_{SCALA}"),
        ("org.lz4", "lz4-java"),
        ("org.scala-lang", "*"),
        ("org.scala-lang.modules", "*"),
        ("org.slf4j", "*"),
        ("org.xerial.snappy", "snappy-java"),
    ),
)
ICEBERG = JarSet(
    "iceberg",
    (
        Dependency(
            "org.apache.iceberg",
            f"iceberg-spark-runtime-{'.'.join(SPARK_VERSION.split('.')[:2])}_{SCALA}",
            ICEBERG_VERSION,
            transitive=False,
        ),
    ),
)


def java() -> Path:
    """The Java to run: $JAVA_HOME's, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None and home:
        raise SetupError(f"there is no bin/java in JAVA_HOME ({home}): correct JAVA_HOME, or unset it and {_INSTALL}")
    if found is None:
        raise SetupError(f"Java was not found: {_INSTALL} and put it on PATH or set JAVA_HOME")
    version = _java_version(found)
    if not MIN_JAVA_VERSION <= version < TOO_NEW_JAVA_VERSION:
        wrong = "too old" if version < MIN_JAVA_VERSION else "too new for Spark"
        raise SetupError(f"{found} is Java {version}, {wrong}: {_INSTALL} and put it first on PATH or set JAVA_HOME")
    return Path(found)


@functools.lru_cache
def _java_version(executable: str) -> int:
    try:
        ran = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{executable} cannot be run ({error}): {_INSTALL}") from error
    # Until Java 8 the number that matters came second: "1.8.0_392".
    said = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    if said is None:
        raise SetupError(f"{executable} -version names no version: {_INSTALL}")
    return int(said[1])


def cache_dir() -> Path:
    """Where jars are kept between runs: $HEADGATE_CACHE, else `headgate` in the user's cache folder."""
    if own := os.environ.get("HEADGATE_CACHE"):
        return Path(own).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headgate"


def resolve(jar_set: JarSet, progress: Progress | None = None) -> tuple[Path, ...]:
    """The set's jars on disk. Fetches them the first time, or when the cache was damaged; instant otherwise."""
    ivy_xml = jar_set.ivy_xml()
    folder = cache_dir() / "jars" / f"{jar_set.name}-{hashlib.sha256(ivy_xml.encode()).hexdigest()[:12]}"
    if jars := _intact(folder):
        return jars
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"the cache folder {cache_dir()} cannot be made ({error.strerror}): "
            "set HEADGATE_CACHE to a folder you can write to"
        ) from error
    lock, tell = cache_dir() / "lock", progress or (lambda _: None)
    taken = (
        f"another process has been fetching jars for {LOCK_DEADLINE_S:.0f} s: end it and try again (it holds {lock})"
    )
    with locked(lock, LOCK_DEADLINE_S, taken, lambda: tell("waiting for another process that is fetching jars")):
        if jars := _intact(folder):  # another process was faster
            return jars
        return _fetch(jar_set.name, ivy_xml, folder, progress)


def _intact(folder: Path) -> tuple[Path, ...]:
    """The jars that the folder's manifest lists, or nothing if one of them is missing or has another size."""
    try:
        listed: dict[str, int] = json.loads((folder / "manifest.json").read_text())["size_bytes"]
        intact = all((folder / name).stat().st_size == size > 0 for name, size in listed.items())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return ()  # no manifest, a damaged one, or a missing jar: all mean "fetch again"
    return tuple(folder / name for name in sorted(listed)) if intact else ()


def _fetch(name: str, ivy_xml: str, folder: Path, progress: Progress | None) -> tuple[Path, ...]:
    """Retrieves into a temporary folder and renames it, so that nobody ever sees half a set."""
    free_bytes = shutil.disk_usage(folder.parent).free
    if free_bytes < FREE_DISK_BYTES:
        raise SetupError(
            f"{cache_dir()} has {free_bytes // 1024**2} MB left and the jars need {FREE_DISK_BYTES // 1024**2} MB: "
            "free some space or set HEADGATE_CACHE to a folder on another disk"
        )
    executable, log = java(), cache_dir() / f"ivy-{name}.log"
    for left_by_a_killed_process in folder.parent.glob(".*"):
        shutil.rmtree(left_by_a_killed_process, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent, ignore_cleanup_errors=True) as scratch:
        Path(scratch, "ivy.xml").write_text(ivy_xml)
        fetched = Path(scratch, "jars")
        command = [str(executable), *SHORT_LIVED_JVM, "-jar", str(_ivy_jar()), "-cache", str(cache_dir() / "ivy")]
        if settings := os.environ.get("HEADGATE_IVY_SETTINGS"):
            command += ["-settings", settings]
        command += ["-ivy", f"{scratch}/ivy.xml", "-confs", "default", "-types", "jar", "bundle"]
        command += ["-retrieve", f"{fetched}/[artifact]-[revision](-[classifier]).[ext]"]
        _run_ivy(command, name, log, progress)
        jars = sorted(fetched.glob("*.jar"))
        if not jars or not all(zipfile.is_zipfile(jar) for jar in jars):
            shutil.rmtree(cache_dir() / "ivy", ignore_errors=True)
            raise SetupError(f"the {name} jars came damaged and were thrown away: try again; the log is {log}")
        manifest = {"size_bytes": {jar.name: jar.stat().st_size for jar in jars}}
        (fetched / "manifest.json").write_text(json.dumps(manifest, indent=1))
        if folder.exists():
            folder.rename(Path(scratch, "damaged"))
        fetched.rename(folder)
    return tuple(folder / jar.name for jar in jars)


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")  # found, not imported: importing PySpark takes a second
    jars = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not jars:
        raise SetupError("PySpark's Ivy jar was not found: reinstall it, `pip install --force-reinstall pyspark`")
    return jars[-1]


def _run_ivy(command: Sequence[str], name: str, log: Path, progress: Progress | None) -> None:
    """Runs Ivy with its output in the log, from which the progress is read while it grows."""
    counted = _DownloadCount(name, progress or (lambda _: None))
    with log.open("wb") as out, log.open("rb") as grown:
        ivy = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        try:
            heard_at = time.monotonic()
            while True:
                ended = ivy.poll() is not None
                if news := grown.read():
                    heard_at = time.monotonic()
                    counted.read(news.decode(errors="replace"))
                elif ended:
                    break
                elif time.monotonic() - heard_at > IVY_SILENCE_S:
                    raise SetupError(
                        f"downloading the {name} jars stalled for {IVY_SILENCE_S:.0f} s: "
                        f"check the network and try again; the log is {log}"
                    )
                else:
                    time.sleep(POLL_S)
        finally:
            if ivy.poll() is None:
                ivy.kill()
            ivy.wait()
    if ivy.returncode != 0:
        raise SetupError(_why_ivy_failed(name, log))


class _DownloadCount:
    """Turns Ivy's output into "12 of 47 kafka jars"."""

    def __init__(self, name: str, progress: Progress) -> None:
        self.name, self.progress = name, progress
        self.found = self.downloaded = 0
        self.rest = ""

    def read(self, text: str) -> None:
        *lines, self.rest = (self.rest + text).split("\n")
        for line in lines:
            if seen := re.match(r"\s*found [^#]+#([^;]+);(\S+)", line):
                self.found += 1
                self.progress(f"looking up {self.name} jars: {self.found} found, {seen[1]} {seen[2]}")
            elif seen := re.match(r"\s*\[SUCCESSFUL ?\] .*!([^.]\S*\.jar)", line):
                self.downloaded += 1
                total = max(self.found, self.downloaded)
                self.progress(f"downloading {self.name} jars: {self.downloaded} of {total}, {seen[1]}")


def _why_ivy_failed(name: str, log: Path) -> str:
    said = log.read_text(errors="replace")
    if "No space left" in said:
        reason = "the disk is full: free some space or set HEADGATE_CACHE to a folder on another disk"
    elif re.search(r"UnknownHost|Host .* not found|ConnectException|Connection refused|timed out|unreachable", said):
        reason = (
            "the Maven repository cannot be reached: check the network or proxy, "
            "or name a mirror in an Ivy settings file given by HEADGATE_IVY_SETTINGS"
        )
    elif missing := re.search(r":: ([^\s:]+#[^\s:]+): not found", said):
        reason = f"{missing[1]} was not found in the Maven repository"
    else:
        reason = "Ivy failed"
    return f"the {name} jars could not be fetched, {reason}; the log is {log}"
