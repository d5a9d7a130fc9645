"""`headgate group run` refuses what cannot work, in words, before it talks to anybody."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.cli.group import app
from headgate.errors import ConfigError, KafkaUnavailable
from headgate.groups.assignor import PlannedAssignor
from headgate.groups.member import PlannedConsumer

RUN = ["run", "--brokers", "127.0.0.1:1", "--group", "g"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--dry-run"], "say what one does with --capacity"),
        (["--capacity", "0"], "--capacity must be above 0"),
        (["--capacity", "nan"], "--capacity must be above 0"),
        (["--policy", "algorithm3"], "did you mean 'algorithm2'"),
        (["--policy", "algorithm2:f_up=3"], "0 < f_down < f_up < 1"),
        (["--policy", "algorithm2,slo"], "one policy decides"),
        (["--policy", "all"], "one policy decides"),
        (["--listen", "8787"], "--listen must be HOST:PORT"),
        (["--listen", "localhost:99999"], "--listen must be HOST:PORT"),
        (["--command", "python 'app.py"], "cannot be read"),
        (["--command", " "], "--command is empty"),
    ],
)
def test_wrong_options_are_refused_with_words(more: list[str], words: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*RUN, "--home", str(tmp_path), *more])
    assert isinstance(result.exception, ConfigError)
    assert words in str(result.exception)


def test_without_a_broker_it_says_what_to_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.groups.measuring.ANSWER_S", 0.3)
    result = CliRunner().invoke(app, [*RUN, "--home", str(tmp_path)])
    assert isinstance(result.exception, KafkaUnavailable)
    said = str(result.exception)
    assert "is Kafka running, is --brokers 127.0.0.1:1 its address" in said
    assert "KafkaTimeoutError(" not in said


@pytest.mark.parametrize("address", ["", "ftp://host:1", "http://:80", "http://host:port"])
def test_an_address_that_is_none_is_refused_when_the_consumer_is_made(address: str) -> None:
    with pytest.raises(ConfigError, match="headgate group run"):
        PlannedAssignor(address, "g")


def test_a_planned_consumer_needs_a_group() -> None:
    with pytest.raises(ConfigError, match="needs group_id"):
        PlannedConsumer("t", controller="http://127.0.0.1:8787")
