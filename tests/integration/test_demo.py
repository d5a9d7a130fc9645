"""The demo as a stranger runs it, and what can be asked about it afterwards."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headgate.config.loader import load_pipeline
from headgate.errors import LakeError
from headgate.kafka.embedded import EmbeddedKafka
from headgate.lake.catalogs import open_catalog
from tests.eventually import eventually


def headgate(*words: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headgate", *words]
    environment = {**os.environ, "COLUMNS": "200", "TERM": "dumb"}
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=environment, check=False)


@pytest.fixture(scope="module")
def finished_demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    home = tmp_path_factory.mktemp("demo") / "home"
    return home, headgate("demo", "--minutes", "0.4", "--home", str(home))


Finished = tuple[Path, subprocess.CompletedProcess[str]]


def test_the_demo_ends_by_itself_with_proof_and_a_picture(finished_demo: Finished) -> None:
    home, done = finished_demo
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same as the" in done.stdout
    assert done.stdout.count(" ok") >= 3
    assert done.stderr == ""
    assert (home / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert len((home / "history.csv").read_text().splitlines()) > 10
    assert not EmbeddedKafka(home / "kafka").status().running


def test_verify_agrees_afterwards(finished_demo: Finished) -> None:
    counted = headgate("verify", "--home", str(finished_demo[0]), "--output", "json")
    assert counted.returncode == 0, counted.stderr
    verdicts = json.loads(counted.stdout)
    assert [v["table"] for v in verdicts] == ["lake.orders", "lake.payments", "lake.clicks"]
    assert all(v["ok"] and v["rows"] > 0 for v in verdicts)


def test_verify_names_what_somebody_deleted_and_fails(finished_demo: Finished) -> None:
    home = finished_demo[0]
    pipeline = load_pipeline(home / "pipeline.yaml")
    table = open_catalog(pipeline.lake).load_table("lake.clicks")
    table.delete("_kafka_partition = 1 and _offset >= 3 and _offset < 7")
    counted = headgate("verify", "--home", str(home))
    assert counted.returncode == 1
    assert "4 offsets are missing" in counted.stdout
    assert "missing clicks-1[3, 7)" in counted.stdout


def test_verify_says_in_one_line_that_a_data_file_is_gone(finished_demo: Finished) -> None:
    home = finished_demo[0]
    table = open_catalog(load_pipeline(home / "pipeline.yaml").lake).load_table("lake.clicks")
    gone = next(iter(table.scan().plan_files())).file.file_path
    Path(gone.removeprefix("file://")).unlink()
    counted = headgate("verify", "--home", str(home))
    assert counted.returncode == LakeError.exit_code
    (said,) = counted.stderr.splitlines()
    assert "lake.clicks cannot be counted: " in said
    assert Path(gone).name in said


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_it_with_proof_and_a_second_one_at_once(tmp_path: Path, times: int) -> None:
    home = tmp_path / "home"
    command = [sys.executable, "-m", "headgate", "demo", "--minutes", "9", "--home", str(home)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    log = home / "headgate.log"
    eventually(lambda: log.exists() and "snapshot" in log.read_text(), "something is committed")
    for _ in range(times):
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        time.sleep(0.2)
    said, _ = running.communicate(timeout=120)
    assert running.returncode == (0 if times == 1 else 130), said
    assert ("the same as the" if times == 1 else "Ended at once") in said
    assert not EmbeddedKafka(home / "kafka").status().running


def test_a_folder_that_is_not_a_demos_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    (tmp_path / "pipeline.yaml").write_text("name: mine")
    (tmp_path / "kafka").mkdir()
    refused = headgate("demo", "--home", str(tmp_path))
    assert refused.returncode == 3
    assert "choose another --home" in refused.stderr
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_errors_are_one_line(tmp_path: Path) -> None:
    missing = headgate("run", str(tmp_path / "nothing.yaml"))
    assert missing.returncode == 2
    assert len(missing.stderr.strip().splitlines()) == 1
    assert "nothing.yaml" in missing.stderr
