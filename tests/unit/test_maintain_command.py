"""`headgate maintain`: what it refuses, and that looking changes nothing."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headgate.cli.main import app
from headgate.errors import ConfigError, KafkaUnavailable
from tests.ports import free_port


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"name: p\nhome: home\nkafka: {{brokers: '127.0.0.1:{free_port()}'}}\ntopics: [t]\ntables: [{{name: lake.t}}]\n"
    )
    return file


def maintain(*words: object) -> Result:
    return CliRunner().invoke(app, ["maintain", *map(str, words)])


@pytest.mark.parametrize(
    "together",
    [
        ("--same-topic", "t", "--apply"),
        ("--begin-anew", "lake.t", "--apply"),
        ("--forget-lost-rejects", "--apply"),
        ("--same-topic", "t", "--begin-anew", "lake.t"),
        ("--begin-anew", "lake.t", "--forget-lost-rejects"),
    ],
    ids=" ".join,
)
def test_what_acts_at_once_is_refused_beside_anything_else(file: Path, together: tuple[str, ...]) -> None:
    refused = maintain(file, *together).exception
    assert isinstance(refused, ConfigError)
    assert "act at once and alone" in str(refused)
    assert [path.name for path in file.parent.iterdir()] == ["pipeline.yaml"]


def test_without_apply_nothing_is_made_either(file: Path) -> None:
    said = maintain(file)
    assert (said.exit_code, said.output) == (0, "None of the pipeline's tables is there yet.\n")
    assert [path.name for path in file.parent.iterdir()] == ["pipeline.yaml"]


def test_the_home_of_a_demo_is_enough(file: Path) -> None:
    assert maintain("--home", file.parent).output == "None of the pipeline's tables is there yet.\n"


def test_brokers_that_do_not_answer_are_told_as_such(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.cli.maintain._BROKER_DEADLINE_S", 0.3)
    ended = maintain(file, "--same-topic", "t").exception
    assert isinstance(ended, KafkaUnavailable)
    assert ended.exit_code == 4
