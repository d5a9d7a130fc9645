"""Java is found or missed with a clear word, and so is a folder for the jars."""

from pathlib import Path

import pytest

from headgate import jars
from headgate.errors import SetupError
from headgate.jars import Dependency, JarSet

TINY = JarSet("tiny", (Dependency("org.example", "tiny", "1.0"),))


def put_java(folder: Path, version: str) -> Path:
    """A program called java that knows nothing but its version."""
    folder.mkdir(parents=True)
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-16' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def only_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


def test_missing_java_says_what_to_install(only_path: Path) -> None:
    with pytest.raises(SetupError, match="Java was not found: install Java 17 or 21"):
        jars.java()


@pytest.mark.parametrize(
    ("said", "meant", "wrong"),
    [
        ("1.8.0_392", "8", "too old"),
        ("11.0.21", "11", "too old"),
        ("16-ea", "16", "too old"),
        ("23.0.1", "23", "too new for Spark"),
        ("25-ea", "25", "too new for Spark"),
    ],
)
def test_java_that_does_not_fit_says_which_version_was_found(
    only_path: Path, said: str, meant: str, wrong: str
) -> None:
    program = put_java(only_path, said)
    with pytest.raises(SetupError) as refused:
        jars.java()
    message = str(refused.value)
    assert f"{program} is Java {meant}, {wrong}: install Java 17 or 21" in message
    assert "\n" not in message


@pytest.mark.parametrize("version", ["17.0.15", "21", "22.0.2"])
def test_java_that_fits_on_the_path_is_taken(only_path: Path, version: str) -> None:
    program = put_java(only_path, version)
    assert jars.java() == program


def test_java_home_comes_before_the_path(only_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_java(only_path, "11.0.21")
    program = put_java(tmp_path / "jdk" / "bin", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert jars.java() == program


def test_a_java_home_without_java_is_named(only_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_java(only_path, "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(SetupError, match=rf"no bin/java in JAVA_HOME \({tmp_path}/gone\)"):
        jars.java()


def test_the_cache_folder_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "own"))
    assert jars.cache_dir() == tmp_path / "own"
    monkeypatch.delenv("HEADGATE_CACHE")
    assert jars.cache_dir() == tmp_path / "xdg" / "headgate"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert jars.cache_dir() == tmp_path / "me" / ".cache" / "headgate"


def test_too_little_disk_is_noticed_before_downloading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "FREE_DISK_BYTES", 1 << 62)
    with pytest.raises(SetupError, match="free some space or set HEADGATE_CACHE"):
        jars.resolve(TINY)
    assert not (jars.cache_dir() / "ivy-tiny.log").exists()


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(SetupError, match="cannot be made"):
        jars.resolve(TINY)
