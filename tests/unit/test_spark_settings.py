"""What becomes of a user's Spark settings beside Headgate's own."""

from pathlib import Path

import pytest

from headgate.consumer.spark import _JAVA_OPTIONS, _class_path, _collector, _with_users

OURS = [Path("/ours/a.jar"), Path("/ours/b.jar")]


@pytest.mark.parametrize(
    ("master", "key", "theirs", "expected"),
    [
        ("local[2]", "spark.driver.extraClassPath", "/jars/*", "/ours/a.jar:/ours/b.jar:/jars/*"),
        ("local[2]", "spark.driver.extraClassPath", "", "/ours/a.jar:/ours/b.jar"),
        ("local[2]", "spark.jars", "/jars/c.jar", "/jars/c.jar"),  # ours are on the class path there
        (
            "spark://host:7077",
            "spark.jars",
            "/jars/c.jar,/jars/d.jar",
            "/ours/a.jar,/ours/b.jar,/jars/c.jar,/jars/d.jar",
        ),
        ("spark://host:7077", "spark.driver.extraClassPath", "/jars/*", "/jars/*"),
    ],
)
def test_a_users_jars_are_added_to_ours(master: str, key: str, theirs: str, expected: str) -> None:
    ours = _class_path(master, OURS)
    together = _with_users(ours, {key: theirs})
    assert together[key] == expected
    assert together.keys() == ours.keys() | {key}


def test_a_users_java_options_come_after_ours() -> None:
    together = _with_users({_JAVA_OPTIONS: '"-Xms128m" "-Dours"'}, {_JAVA_OPTIONS: "-Dkey=a -Xms1g"})
    assert together == {_JAVA_OPTIONS: '"-Xms128m" "-Dours" -Dkey=a -Xms1g'}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("", 1), ("-Dkey=a", 1), ("-Dkey=-XX:UseG1GC", 1), ("-Dkey=a -XX:+UseG1GC", 0), ("-XX:+UseZGC -Xmx2g", 0)],
)
def test_a_users_garbage_collector_takes_the_place_of_ours(theirs: str, ours: int) -> None:
    assert len(_collector(theirs)) == ours


def test_any_other_setting_of_a_user_wins() -> None:
    together = _with_users({"spark.driver.memory": "1g", "spark.ui.enabled": "false"}, {"spark.driver.memory": "2g"})
    assert together == {"spark.driver.memory": "2g", "spark.ui.enabled": "false"}
