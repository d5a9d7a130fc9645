"""Log lines for programs: one JSON object each, with the fields that the line came with."""

import json
import logging
import os
from pathlib import Path

import pytest

from headgate.cli.logs import LogFormat, log_to
from headgate.controller.journal import _say
from headgate.model.messages import DecisionRecord


@pytest.fixture(autouse=True)
def _restore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_LOG_FORMAT", "text")


def test_a_decision_is_one_line_with_its_numbers_as_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log" / "headgate.log"
    log_to(file, log_format=LogFormat.json)
    _say(
        DecisionRecord(
            0, 7, 3, "overload", 'so "much"\nof it', "applied", 1, 2, 4, 0, 0, (), (2,), (), (), ("keep: no",)
        )
    )
    (line,) = file.read_text().splitlines()
    said = json.loads(line)
    assert (said["level"], said["logger"]) == ("info", "headgate.controller.journal")
    assert said["time"].endswith("+00:00")
    decision = said["decision"]
    assert (decision["number"], decision["trigger"], decision["moved"], decision["created"]) == (3, "overload", 4, [2])
    assert decision["rejected"] == ["keep: no"]
    assert capsys.readouterr().err.strip() == line  # and on standard error, for whoever collects that
    assert os.environ["HEADGATE_LOG_FORMAT"] == "json"  # consumers that are started from here do the same


def test_an_exception_is_part_of_its_line(tmp_path: Path) -> None:
    file = tmp_path / "headgate.log"
    log_to(file, log_format=LogFormat.json)
    try:
        raise ValueError("bad")
    except ValueError:
        logging.getLogger("headgate.test").exception("it failed")
    (line,) = file.read_text().splitlines()
    assert "ValueError: bad" in json.loads(line)["exception"]


def test_text_stays_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "headgate.log"
    log_to(file)
    logging.getLogger("headgate.test").info("hello %d", 5)
    assert file.read_text().endswith("INFO headgate.test: hello 5\n")
    assert capsys.readouterr().err == ""
