"""The documentation's commands, run as written in an empty folder by a stranger with a shell; only numbers differ that
would take a port or minutes, and FILE is the pipeline file."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.controller.drain import is_drained
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_pace import NoWaiting
from headgate.kafka.load_records import FixedSize
from headgate.model import TopicPartition
from headgate.simulation.workload_shapes import Steady
from tests.eventually import eventually
from tests.integration.pipeline_harness import PipelineRun
from tests.pages import ROOT, Block, blocks, words
from tests.ports import free_port

DEADLINE_S = 300.0


class Stranger:
    """Types what pages say; what worked on one page, not again on the next. What ends with & goes on; so does
    `headgate run`, until Ctrl-C, and with --dry-run until it says that it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._instead = {"9092": str(free_port()), "2min": "5s", "20000": "2000", "FILE": "orders.yaml"}
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": programs, "TERM": "dumb", "COLUMNS": "120"}
        self._going: list[subprocess.Popen[str]] = []
        self._typed: set[tuple[str, ...]] = set()

    def reads(self, block: Block) -> None:
        if block.language == "python":
            self._does([sys.executable, "-c", block.text], block)
        for command in block.commands:
            for written, instead in self._instead.items():
                command = command.replace(written, instead)
            typed = tuple(words(command))
            if typed in self._typed:
                continue
            self._typed.add(typed)
            if "--dry-run" in typed:
                self._watches(typed)
            elif typed[:2] == ("headgate", "run"):
                self._going.append(self._starts(list(typed)))
            elif command.endswith("&"):
                self._going.append(self._starts(["bash", "-c", command.removesuffix("&")]))
            else:
                self._does(["bash", "-c", command], block)

    def presses_ctrl_c(self) -> str:
        """In the first terminal, after what was started in the second has ended."""
        run, *others = self._going
        for other in others:
            assert other.wait(DEADLINE_S) == 0
        self._going = []
        run.send_signal(signal.SIGINT)
        said, _ = run.communicate(timeout=DEADLINE_S)
        assert run.returncode == 0, said
        return said

    def leaves(self) -> None:
        for process in self._going:
            process.kill()
        EmbeddedKafka(self.folder / "my-kafka").stop()

    def _starts(self, command: list[str]) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self._environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def _watches(self, typed: tuple[str, ...]) -> None:
        going = self._starts(list(typed))
        assert going.stdout is not None
        assert any("dry run: decisions are printed" in line for line in going.stdout), "it ended"
        going.send_signal(signal.SIGINT)
        said, _ = going.communicate(timeout=DEADLINE_S)
        assert going.returncode == 0, said

    def _does(self, command: list[str], block: Block) -> None:
        done = self._starts(command)
        said, _ = done.communicate(timeout=DEADLINE_S)
        assert done.returncode == 0, f"{block.place}: {command[-1]}\n{said}"


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Stranger]:
    stranger = Stranger(tmp_path)
    yield stranger
    stranger.leaves()


def marked(page: str) -> list[Block]:
    return [block for block in blocks(ROOT / "docs" / page) if block.is_run]


@pytest.mark.timeout(1800)  # a dozen programs, each with its own start
def test_the_quick_start_and_the_operators_pages_work_as_written(stranger: Stranger) -> None:
    set_up, look, *afterwards = marked("quick-start.md")
    stranger.reads(set_up)
    pipeline = load_pipeline(stranger.folder / "orders.yaml")
    settings = librdkafka_settings(pipeline)

    eventually(lambda: is_drained(pipeline, settings), "the lake holds everything", DEADLINE_S)
    for block in (look, *marked("operate.md"), *marked("run-a-pipeline.md")):
        stranger.reads(block)
    assert stranger.presses_ctrl_c().splitlines()[-1] == "stopped"
    *count_and_read, end = afterwards
    for block in (*count_and_read, *marked("recover.md"), end):
        stranger.reads(block)
    assert [len(marked(page)) for page in ("quick-start.md", "run-a-pipeline.md", "recover.md")] == [5, 1, 3]


def test_calibrating_as_the_page_says_measures_and_then_writes(
    stranger: Stranger, broker: EmbeddedKafka, unique: str
) -> None:
    file = stranger.folder / "pipeline.yaml"
    as_written = (
        f"# ours\nname: {unique}\nhome: home\nkafka: {{brokers: '{broker.bootstrap}'}}\ntopics: [{unique}]\n"
        "tables: [{name: lake.t}]\nconsumer: {batch_bytes: 100 kB}\nfleet: {kind: processes}\n"
        "policy: {max_sentinel_s: 20 s}  # slow\n"
    )
    file.write_text(as_written)
    partitions = [TopicPartition(unique, n) for n in range(2)]
    load = LoadGenerator(
        broker.bootstrap, {}, {unique: 2}, Steady.spread(partitions, 1e6), FixedSize(1000), pace=NoWaiting()
    )
    load.run(count=6000)  # sixty batches
    measure, write = marked("tune-and-calibrate.md")
    stranger.reads(measure)
    assert file.read_text() == as_written
    stranger.reads(write)
    policy = load_pipeline(file).policy
    assert 0 < policy.packing_capacity_bytes_per_s < policy.consumer_capacity_bytes_per_s
    assert policy.consumer_capacity_bytes_per_s == float(f"{policy.consumer_capacity_bytes_per_s:.2g}")
    assert file.read_text().splitlines()[:-1] == as_written.splitlines()[:-1]
    assert "max_sentinel_s: 20 s" in file.read_text()
    assert not (stranger.folder / "home").exists()  # where the pipeline may be running


def test_the_transform_of_the_page_its_own_test_and_its_query_do_what_the_page_says(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = list(blocks(ROOT / "docs" / "write-a-transform.md"))
    module, test_of_it = (block.text for block in page if block.language == "python")
    (query,) = (block.text for block in page if block.language == "sql")
    (file,) = (yaml.safe_load(block.text) for block in page if block.language == "yaml")
    (records,) = (block.text for block in page if block.language == "json")
    (tmp_path / "shop.py").write_text(module)
    with PipelineRun(tmp_path, broker, spark, file["tables"], {"orders": 1}) as run:
        run.produce("orders", [line.encode() for line in records.splitlines()])
        run.run()
        run.wait_until_landed()
    rows = [(row["id"], row["country"], row["amount"]) for row in run.rows("lake.orders")]
    assert rows == [(1, "DE", Decimal("12.50")), (3, "FR", None)]
    assert [row["_offset"] for row in run.rejected("lake.orders")] == [3]
    assert run.assert_exactly_once("lake.orders").filtered == 1

    run.read("lake.orders__rejected").createOrReplaceTempView("rejected")
    ((reason, count),) = spark.sql(query.replace("lake.orders__rejected", "rejected")).collect()
    assert "schema" in reason
    assert count == 1

    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = {}
    exec(test_of_it, names)
    (its_test,) = (value for name, value in names.items() if name.startswith("test_"))
    its_test()


def test_a_lost_catalog_is_told_as_the_page_says_where_its_tables_are_and_the_pipeline_goes_on(
    broker: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    (register,) = (block.text for block in marked("recover.md") if "register_table" in block.text)
    table = {"name": "lake.orders", "format": "json", "schema": "n BIGINT"}
    with PipelineRun(tmp_path, broker, spark, [table], {"t": 1}) as run:
        for life in range(2):
            run.produce("t", [b'{"n": 1}', b"no JSON"] * 5)
            run.run()
            run.wait_until_landed()
            run.stop()
            if life == 0:
                (run.pipeline.home / "catalog.db").unlink()
                exec(register.replace("orders.yaml", str(tmp_path / "pipeline.yaml")), {})
        verdict = run.assert_exactly_once("lake.orders")
        assert (verdict.rows, verdict.rejected) == (10, 10)
