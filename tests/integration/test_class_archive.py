"""The archive of Spark's classes: made by one JVM, mapped by the next."""

import subprocess
import sys
from pathlib import Path

import pytest

from headgate import jars
from headgate.consumer import class_archive

MAKE = "from pathlib import Path; from headgate.consumer.class_archive import make; make(Path({folder!r}))"
USE = """
from pathlib import Path
from headgate.consumer.spark import start_session
start_session("local[1]", Path({folder!r}), java_options={options!r}).range(3).count()
"""


def python(program: str, **about: object) -> None:
    ran = subprocess.run([sys.executable, "-c", program.format(**about)], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_sparks_classes_come_from_an_archive_once_it_is_made(tmp_path: Path) -> None:
    tmp_path = tmp_path / "a folder"
    class_path = jars.resolve(jars.SPARK)
    assert class_archive.options(class_path, tmp_path) == ()
    python(MAKE, folder=str(tmp_path))
    options = class_archive.options(class_path, tmp_path)
    assert options
    log = tmp_path / "classes.log"
    python(USE, folder=str(tmp_path / "session"), options=(*options, f"-Xlog:class+load:file={log}"))
    loaded = [line for line in log.read_text().splitlines() if " org.apache.spark." in line]
    shared, from_jars = (sum(source in line for line in loaded) for source in ("shared objects file", "source: file:"))
    assert shared > 1000
    assert shared > 5 * from_jars  # what training did not meet; the rest is made while it runs


def test_what_cannot_be_made_is_not_tried_with_every_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--no-such-option pyspark-shell")  # Spark does not start
    ran = subprocess.run([sys.executable, "-c", MAKE.format(folder=str(tmp_path))], capture_output=True, text=True)
    assert "this Java did not write an archive" in ran.stderr
    assert list(tmp_path.glob("*.failed"))
    assert not list(tmp_path.glob("*.jsa"))


def test_an_archive_that_does_not_fit_is_no_error(tmp_path: Path) -> None:
    class_path = jars.resolve(jars.SPARK)
    archive = class_archive.path_of(class_path, tmp_path)
    archive.write_bytes(b"damaged")
    python(USE, folder=str(tmp_path / "session"), options=class_archive.options(class_path, tmp_path))
