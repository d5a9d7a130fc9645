"""Spark's classes as a JVM has them in memory, in a file that later JVMs map instead of loading jars again.

A consumer in a process of its own spends much of its start on loading thousands of classes. Java can keep them (class
data sharing): a JVM that is told so writes what it loaded when it ends. A short Spark session does that here, once per
Java and PySpark on a machine, beside the first fleet of processes. A JVM that finds that the file does not fit goes
without it.

    python -m headgate.consumer.class_archive     # by hand, as for the image of a container
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import pyspark

from headgate import jars
from headgate.errors import SetupError
from headgate.file_lock import locked

_NICE = 10
_DEADLINE_S = 300.0
_KEPT = 3
"""Archives of other installations take 140 MB each."""
_PIPELINE = """
name: class-archive
home: .
kafka: {brokers: "127.0.0.1:9", client: {log_level: 0}}
topics: [none]
tables:
  - {name: lake.json, format: json, schema: "n BIGINT, s STRING, d DOUBLE, t TIMESTAMP", sql: "SELECT * FROM input"}
  - {name: lake.raw}
"""
"""The brokers are not there, and nobody asks them: warming up makes its records up."""
_QUIETLY = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def options(class_path: Sequence[Path], folder: Path | None = None) -> tuple[str, ...]:
    """For a JVM with these jars before Spark's own; nothing if there is no archive for it."""
    archive = path_of(class_path, folder)
    return (f"-XX:SharedArchiveFile={archive}", *_QUIETLY) if archive.exists() else ()


def make_beside() -> None:
    """Has it made by a process of its own, unless it is there or could not be made before; nobody waits for it."""
    archive = path_of(jars.resolve(jars.SPARK))
    if archive.exists() or _failure(archive).exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    threading.Thread(target=process.wait, daemon=True).start()


def make(folder: Path | None = None) -> Path:
    archive = path_of(jars.resolve(jars.SPARK), folder)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with (
        locked(archive.with_suffix(".lock"), _DEADLINE_S, f"another process is making {archive}; wait for it"),
        tempfile.TemporaryDirectory(dir=archive.parent) as scratch,
    ):
        if not archive.exists():
            written = Path(scratch, archive.name)
            try:
                _load_classes(Path(scratch), f"-XX:ArchiveClassesAtExit={written}")
                written.rename(archive)
            except Exception as error:
                _failure(archive).write_text(f"{error!r}\n")  # so that it is not tried with every start
                raise SetupError(
                    f"this Java did not write an archive of its classes: {error!r}; consumers start without one"
                ) from error
            _failure(archive).unlink(missing_ok=True)
            for old in sorted(archive.parent.glob("*.jsa"), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
                old.unlink()
    return archive


def _failure(archive: Path) -> Path:
    return archive.with_suffix(".failed")


def path_of(class_path: Sequence[Path], folder: Path | None = None) -> Path:
    java = jars.java().resolve()
    spark = Path(pyspark.__file__).parent
    about = [str(java), str(java.stat().st_mtime_ns), str(spark), jars.SPARK_VERSION, *map(str, class_path)]
    name = hashlib.sha256("\n".join(about).encode()).hexdigest()[:12]
    return (folder or jars.cache_dir() / "classes") / f"spark-{name}.jsa"


def _load_classes(folder: Path, option: str) -> None:
    """A session in which consumers warm up and nothing else happens."""
    from headgate.config.loader import load_pipeline
    from headgate.consumer.files import Warehouse
    from headgate.consumer.job import TableJob
    from headgate.consumer.spark import start_session  # which asks for the options above

    file = folder / "pipeline.yaml"
    file.write_text(_PIPELINE)
    pipeline = load_pipeline(file)
    spark = start_session("local[2]", folder, "class-archive", java_options=(option, *_QUIETLY))
    for table in pipeline.tables:
        TableJob(spark, pipeline, table, Warehouse(pipeline.lake)).warm_up("warm-up")
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_DEADLINE_S)


if __name__ == "__main__":
    os.nice(_NICE)
    print(make())
