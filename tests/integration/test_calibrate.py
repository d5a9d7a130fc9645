"""`headgate calibrate` as a stranger runs it: measured on generated records, and stopped in every phase."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.eventually import eventually


def calibrate(folder: Path, *words: str) -> "subprocess.Popen[str]":
    """With its temporary files in `folder`, in a group of processes as a terminal makes one."""
    return subprocess.Popen(
        [sys.executable, "-m", "headgate", "calibrate", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "COLUMNS": "200", "TERM": "dumb", "TMPDIR": str(folder)},
    )


def processes_in(folder: Path) -> list[int]:
    """Of brokers and of Spark, whose command lines name where their files are."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(folder) in word for word in process.cmdline()):
                found.append(process.pid)
        except psutil.Error:  # it has just ended
            continue
    return found


def some(folder: Path, pattern: str) -> Callable[[], bool]:
    return lambda: any(folder.glob(f"headgate-calibrate-*/{pattern}"))


def test_without_a_file_it_measures_on_generated_records_and_its_numbers_agree(tmp_path: Path) -> None:
    words = ("--megabytes", "80", "--partitions", "4", "--tables", "2", "--seconds", "30", "--output", "json")
    running = calibrate(tmp_path, *words)
    said, complaints = running.communicate(timeout=500)
    assert running.returncode == 0, complaints
    result = json.loads(said)
    layouts = {one["layout"]: one for one in result["measured"]}
    assert layouts["all tables"]["partitions"] == 4
    assert layouts["all tables"]["tables"] == 2
    for one in layouts.values():
        assert one["cycles"] >= 5
        assert one["total_bytes"] <= 80e6
        assert one["cycle_s"]["mean"] == pytest.approx(
            sum(one[phase]["mean"] for phase in ("gather_s", "process_s", "announce_s"))
        )
        rate = one["bytes_per_s"]
        assert rate["mean"] == pytest.approx(one["total_bytes"] / (one["cycles"] * one["cycle_s"]["mean"]))
        assert rate["mean"] == pytest.approx(1000 * one["records_per_s"]["mean"], rel=0.05)  # and keys, of a few bytes
        assert rate["low"] <= rate["mean"] <= rate["high"]
    slowest = min(one["bytes_per_s"]["mean"] for one in layouts.values())
    assert result["consumer_capacity_bytes_per_s"] == pytest.approx(0.85 * slowest)
    assert result["packing_capacity_bytes_per_s"] == pytest.approx(0.75 * 0.85 * slowest)
    assert result["warm_up"]["cycles"] > 0
    assert not list(tmp_path.glob("headgate-*"))
    eventually(lambda: not processes_in(tmp_path), "all processes have ended")


@pytest.mark.parametrize(
    ("seen", "what"),
    [
        ("kafka/cluster.json", "Kafka starts"),
        ("kafka/broker-1/data/calibration0-0", "records are written"),
        ("spark", "Spark starts"),
    ],
)
def test_ctrl_c_is_heard_in_every_phase_and_leaves_nothing_behind(tmp_path: Path, seen: str, what: str) -> None:
    megabytes = "40" if seen == "spark" else "20000"  # which would take long to write
    running = calibrate(tmp_path, "--megabytes", megabytes, "--partitions", "4", "--tables", "2")
    eventually(some(tmp_path, seen), what)
    os.killpg(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=120)
    assert (running.returncode, said) == (1, "headgate: stopped before anything was measured\n")
    assert not list(tmp_path.glob("headgate-*"))
    eventually(lambda: not processes_in(tmp_path), "all processes have ended")


def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    running = calibrate(tmp_path, "--megabytes", "40", "--partitions", "4", "--tables", "2")
    eventually(some(tmp_path, "spark"), "Spark starts")
    for _ in range(2):
        os.killpg(running.pid, signal.SIGINT)
        time.sleep(0.5)  # within a moment, two signals are one
    said, _ = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "ended at once" in said.splitlines()  # Spark's JVM may have a word to say when its files go
    eventually(lambda: not processes_in(tmp_path), "all processes have ended")
