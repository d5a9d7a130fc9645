"""Jars are fetched whole and once, and the cache heals itself. Ivy is real; its repository is a folder."""

import os
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headgate import jars
from headgate.errors import SetupError
from headgate.jars import Dependency, JarSet

TINY = JarSet("tiny", (Dependency("org.example", "tiny", "1.0"),))


def publish(repository: Path, module: str, needs: tuple[str, ...] = (), content: bytes | None = None) -> None:
    """Puts org.example:module:1.0 into a Maven repository on disk."""
    folder = repository / "org" / "example" / module / "1.0"
    folder.mkdir(parents=True, exist_ok=True)
    dependencies = "".join(
        f"<dependency><groupId>org.example</groupId><artifactId>{need}</artifactId><version>1.0</version></dependency>"
        for need in needs
    )
    (folder / f"{module}-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>"
        f"<artifactId>{module}</artifactId><version>1.0</version><dependencies>{dependencies}</dependencies></project>"
    )
    jar = folder / f"{module}-1.0.jar"
    if content is not None:
        jar.write_bytes(content)
        return
    with zipfile.ZipFile(jar, "w") as entries:
        entries.writestr("who.txt", f"this is {module}")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven repository on disk, and an empty cache."""
    folder = tmp_path / "repository"
    publish(folder, "tiny")
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    use_settings(monkeypatch, tmp_path, folder.as_uri())
    return folder


def use_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, root: str) -> None:
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="only"/><resolvers>'
        f'<ibiblio name="only" m2compatible="true" root="{root}"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv("HEADGATE_IVY_SETTINGS", str(settings))


def test_jars_are_fetched_once_and_then_found_without_java(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    (jar,) = jars.resolve(TINY, told.append)
    assert zipfile.ZipFile(jar).read("who.txt") == b"this is tiny"
    assert told == ["looking up tiny jars: 1 found, tiny 1.0", "downloading tiny jars: 1 of 1, tiny.jar"]
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert jars.resolve(TINY, told.append) == (jar,)
    assert len(told) == 2


def test_dependencies_come_along_unless_excluded_or_not_wanted(repository: Path) -> None:
    publish(repository, "tiny", needs=("left", "right"))
    publish(repository, "left")
    publish(repository, "right")
    everything, without = jars.resolve(TINY), (("org.example", "right"),)
    assert [jar.name for jar in everything] == ["left-1.0.jar", "right-1.0.jar", "tiny-1.0.jar"]
    assert [jar.name for jar in jars.resolve(JarSet("fewer", TINY.dependencies, without))] == [
        "left-1.0.jar",
        "tiny-1.0.jar",
    ]
    alone = JarSet("alone", (Dependency("org.example", "tiny", "1.0", transitive=False),))
    assert [jar.name for jar in jars.resolve(alone)] == ["tiny-1.0.jar"]


def delete(jar: Path) -> None:
    jar.unlink()


def empty(jar: Path) -> None:
    os.truncate(jar, 0)


def cut_short(jar: Path) -> None:
    os.truncate(jar, jar.stat().st_size - 1)


def scribble_on_the_manifest(jar: Path) -> None:
    (jar.parent / "manifest.json").write_text('{"size_bytes": ["tiny')


def lose_the_manifest(jar: Path) -> None:
    (jar.parent / "manifest.json").unlink()


@pytest.mark.parametrize("damage", [delete, empty, cut_short, scribble_on_the_manifest, lose_the_manifest])
def test_a_damaged_cache_is_fetched_again(repository: Path, damage: Callable[[Path], None]) -> None:
    (jar,) = jars.resolve(TINY)
    damage(jar)
    assert jars.resolve(TINY) == (jar,)
    assert zipfile.ZipFile(jar).read("who.txt") == b"this is tiny"
    assert sorted(path.name for path in jar.parent.iterdir()) == ["manifest.json", "tiny-1.0.jar"]


def test_two_at_the_same_time_get_the_same_whole_set(repository: Path) -> None:
    told: list[str] = []
    with ThreadPoolExecutor(2) as both:
        first, second = both.map(lambda _: jars.resolve(TINY, told.append), range(2))
    assert first == second
    assert zipfile.is_zipfile(first[0])
    assert sum(line.startswith("looking up") for line in told) == 1, "both fetched"


def test_what_a_killed_fetch_left_behind_is_swept(repository: Path) -> None:
    left = jars.cache_dir() / "jars" / ".tiny-killed"
    left.mkdir(parents=True)
    jars.resolve(TINY)
    assert not left.exists()


def test_a_jar_that_is_none_is_refused_and_not_kept(repository: Path) -> None:
    publish(repository, "tiny", content=b"<html>please log in</html>")
    with pytest.raises(SetupError, match="damaged and were thrown away"):
        jars.resolve(TINY)
    publish(repository, "tiny")
    (jar,) = jars.resolve(TINY)
    assert zipfile.is_zipfile(jar)


def test_an_unknown_module_is_named_with_the_log(repository: Path) -> None:
    with pytest.raises(SetupError) as failed:
        jars.resolve(JarSet("wrong", (Dependency("org.example", "nothing", "9"),)))
    log = jars.cache_dir() / "ivy-wrong.log"
    assert f"org.example#nothing;9 was not found in the Maven repository; the log is {log}" in str(failed.value)
    assert "nothing" in log.read_text()


def test_an_unreachable_repository_is_not_called_a_missing_jar(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_settings(monkeypatch, tmp_path, "http://127.0.0.1:1/maven")  # port 1: nothing listens there
    with pytest.raises(SetupError, match="cannot be reached: check the network or proxy"):
        jars.resolve(TINY)
