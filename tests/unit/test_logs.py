"""Log lines for programs: one JSON object each, with the fields that the line came with."""

import json
import logging
import os
from pathlib import Path

import pytest

from headgate import log_files
from headgate.cli.logs import LogFormat, log_to
from headgate.config.loader import load_pipeline
from headgate.config.settings import Slo
from headgate.controller.journal import _say
from headgate.controller.service import SharedSession
from headgate.lake.commit import CommitResult
from headgate.lake.commit_report import report
from headgate.log_files import BoundedLog, empty
from headgate.model.ledger import Ledger
from headgate.model.messages import DecisionRecord
from tests.announcements import announce


@pytest.fixture(autouse=True)
def _restore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_LOG_FORMAT", "text")


def test_a_kind_of_trouble_is_told_once_in_a_while_on_the_terminal_and_every_time_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("headgate.cli.logs.time.monotonic", lambda: now_s)
    file, log = tmp_path / "headgate.log", logging.getLogger("headgate.lake.committer")
    log_to(file, troubles=True)
    for table in ("a", "b", "c"):
        log.warning("cannot commit to %s\nand why", table)
    log.info("all is well")
    log.error("another")
    logging.getLogger("elsewhere").error("nobody's")
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("headgate.lake.committer: ")[2] for line in lines] == ["cannot commit to a", "another"]
    now_s += 301
    log.warning("cannot commit to %s\nand why", "d")
    assert capsys.readouterr().err.endswith("committer: cannot commit to d (2 more like this)\n")
    assert file.read_text().count("cannot commit to") == 4


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


def test_a_log_keeps_its_newest_lines_within_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "LARGEST_BYTES", 1000)
    file = tmp_path / "headgate.log"
    log_to(file)
    for number in range(400):
        logging.getLogger("headgate.test").info("line %03d", number)
    files = [file, *(tmp_path / f"headgate.log.{n}" for n in range(1, 4))]
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in files} | {"headgate.log.lock"}
    assert all(path.stat().st_size < 1100 for path in files)  # a line is shorter than 100 bytes
    kept = [line[-3:] for path in reversed(files) for line in path.read_text().splitlines()]
    assert kept == [f"{number:03d}" for number in range(400 - len(kept), 400)]
    assert len(kept) > 30


def test_of_two_processes_that_write_to_one_log_no_line_is_lost_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "LARGEST_BYTES", 1000)
    file = tmp_path / "headgate.log"
    both = [BoundedLog(file), BoundedLog(file)]  # each has opened it for itself, as processes do
    for number in range(300):
        both[number // 7 % 2].emit(logging.makeLogRecord({"msg": f"line {number:03d}"}))
    lines = [line for path in tmp_path.glob("headgate.log*") for line in path.read_text().splitlines()]
    assert sorted(lines) == [f"line {number:03d}" for number in range(300)]


def test_a_log_that_somebody_else_holds_open_is_copied_and_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "LARGEST_BYTES", 10)
    file = tmp_path / "log.txt"
    with file.open("ab", buffering=0) as held:
        for text in (b"short", b" and then long", b"again, as long", b"more"):
            empty(file)
            held.write(text)
    assert file.read_text() == "more"
    assert (tmp_path / "log.txt.1").read_text() == "again, as long"
    assert (tmp_path / "log.txt.2").read_text() == "short and then long"


def test_what_sparks_workers_print_is_bounded_where_consumers_are_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "LARGEST_BYTES", 10)
    file = tmp_path / "pipeline.yaml"
    file.write_text("name: p\nhome: .\nkafka: {brokers: 'b:1'}\ntopics: [a]\ntables: [{name: lake.t}]\n")
    printed = tmp_path / "spark" / log_files.JVM_ERRORS
    printed.parent.mkdir()
    printed.write_text("printed by a transform")
    SharedSession(load_pipeline(file)).shorten_log()
    assert printed.read_text() == ""
    assert printed.with_name(f"{printed.name}.1").read_text() == "printed by a transform"


def test_a_log_that_cannot_be_shortened_is_told_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_files, "LARGEST_BYTES", 10)
    file = tmp_path / "log.txt"
    file.write_text("long enough")
    file.with_name("log.txt.2").mkdir()
    file.with_name("log.txt.3").write_text("in the way of the folder")
    empty(file)
    assert file.read_text() == "long enough"
    assert f"{file} cannot be shortened" in caplog.text


def test_many_commits_are_one_line_at_once_and_then_one_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    result = CommitResult(Ledger(), 77, True, (announce(("t", 0, 0, 5)),))
    with caplog.at_level(logging.INFO, "headgate"):
        for _ in range(100):
            report("c", "lake.often", result, 0, Slo())
    assert [r.getMessage() for r in caplog.records] == ["lake.often: 1 commit with 5 rows, up to snapshot 77"]
