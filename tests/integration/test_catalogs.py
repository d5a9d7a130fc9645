"""The lake with its catalog in a real PostgreSQL server, and in an Iceberg REST catalog."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.errors import LakeError
from headgate.kafka.embedded import EmbeddedKafka
from headgate.lake.catalogs import open_catalog
from headgate.lake.commit import TableCommitter
from headgate.lake.compaction import compact
from headgate.lake.ledger import read_ledger
from headgate.lake.maintenance import expire_snapshots
from headgate.lake.rollback import restore_points, roll_back
from headgate.lake.sweep import sweep_orphans
from headgate.lake.tables import table_location
from headgate.lake.verify import verify_table
from headgate.model import Range, TopicPartition
from headgate.model.messages import LedgerState
from tests.announcements import announce, write_file
from tests.eventually import eventually
from tests.integration import postgres, rest_catalog
from tests.integration.pipeline_harness import PipelineRun


@pytest.fixture(scope="module")
def database() -> Iterator[postgres.Server]:
    if postgres.binaries() is None:
        pytest.skip("no PostgreSQL server here (Debian: apt-get install postgresql)")
    with postgres.server() as running:
        yield running


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[str]:
    with rest_catalog.server(tmp_path) as address:
        yield address


@pytest.fixture(params=["postgresql", "rest"])
def catalog(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "rest":
        return {"type": "rest", "uri": request.getfixturevalue("rest")}
    return sql(request.getfixturevalue("database").uri())


def sql(uri: str) -> dict[str, str]:
    return {"type": "sql", "uri": uri}


def pipeline_with(folder: Path, catalog: dict[str, str]) -> Pipeline:
    file = folder / "pipeline.yaml"
    content = {
        "name": "p",
        "home": "home",
        "kafka": {"brokers": "127.0.0.1:1"},
        "topics": ["t"],
        "tables": [{"name": "lake.t"}],
        "lake": {"catalog": catalog},
    }
    file.write_text(yaml.safe_dump(content))
    return load_pipeline(file)


class Rival(TableCommitter):
    """Waits before its exchange until the other one has prepared its own on the same snapshot: one must fail."""

    meeting: threading.Barrier
    is_to_meet = True

    def _stage(self, table: Any, sorted_: Any) -> Any:
        staged = super()._stage(table, sorted_)
        if self.is_to_meet:
            self.is_to_meet = False
            self.meeting.wait(120)
        return staged


def test_committers_in_competition_create_commit_and_compact_and_every_record_is_there_once(
    tmp_path: Path, catalog: dict[str, str], spark: SparkSession
) -> None:
    meeting = threading.Barrier(2)
    pipeline = pipeline_with(tmp_path, catalog)
    origins = {TopicPartition("t", n): 0 for n in range(2)}
    conflicts, failures = list[int](), list[BaseException]()
    open_catalog(pipeline.lake)  # the first to open an empty database makes its tables

    def commit(partition: int) -> None:
        """As a committer in a process of its own: its own connection, its own look at the ledger."""
        try:
            committer = Rival(open_catalog(pipeline.lake), pipeline.lake, pipeline.tables[0])
            committer.meeting = meeting
            folder = Path(table_location(pipeline.lake, "lake.t")) / "data"
            for start in range(0, 50, 10):
                read = Range(TopicPartition("t", partition), start, start + 10)
                path = write_file(folder / f"{partition}-{start}.parquet", (read,))
                sent = announce(("t", partition, start, start + 10), files=(path,))
                committer.is_to_meet = True
                result = committer.commit([sent], origins)
                assert result.committed == (sent,)
                conflicts.append(result.conflicts)
        except BaseException as error:  # noqa: BLE001 (raised below)
            failures.append(error)

    threads = [threading.Thread(target=commit, args=(partition,)) for partition in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert failures == []
    assert len(conflicts) == 10
    assert sum(conflicts) >= 5, "of the two in each of five rounds one was refused"  # again if it looked too early

    opened = open_catalog(pipeline.lake)
    assert read_ledger(opened.load_table("lake.t")).next == {TopicPartition("t", n): 50 for n in range(2)}
    again = announce(("t", 0, 0, 10), files=())  # what the lake holds already is refused here as anywhere
    assert TableCommitter(opened, pipeline.lake, pipeline.tables[0]).commit([again], origins).refused
    assert compact(opened, "lake.t", pipeline.lake).files == 10
    verdict = verify_table(spark, opened, pipeline.tables[0])
    assert (verdict.problems, verdict.rows) == ((), 100)

    few = pipeline.lake.model_copy(update={"keep_snapshots": 4, "keep_hourly": 0, "orphan_age_s": 0.001})
    assert expire_snapshots(opened, "lake.t", few) > 0
    *_, oldest = restore_points(opened.load_table("lake.t"))
    roll_back(opened, few, "lake.t", oldest.snapshot_id)
    table = opened.load_table("lake.t")
    assert read_ledger(table).next == oldest.ledger.next != {}
    time.sleep(0.01)
    sweep_orphans(opened, "lake.t", few, remove=True)
    verdict = verify_table(spark, opened, pipeline.tables[0])
    assert (verdict.problems, verdict.rows) == ((), sum(oldest.ledger.next.values()))


def test_a_whole_pipeline_lands_through_each_catalog(
    broker: EmbeddedKafka, tmp_path: Path, catalog: dict[str, str], spark: SparkSession
) -> None:
    tables = [
        {"name": "lake.whole", "format": "json", "schema": "id BIGINT, part INT", "partition_by": ["identity(part)"]}
    ]
    with PipelineRun(tmp_path, broker, spark, tables, {"t": 2}, lake={"catalog": catalog}) as run:
        for partition in range(2):
            run.produce("t", [b'{"id": %d, "part": %d}' % (n, n % 2) for n in range(50)] + [b"not json"], partition)
        run.run()
        run.wait_until_landed()
        run.stop()
        verdict = run.assert_exactly_once("lake.whole")
        assert (verdict.rows, len(run.rejected("lake.whole"))) == (100, 2)


def test_a_pipeline_outlives_its_catalogs_server(
    broker: EmbeddedKafka, tmp_path: Path, database: postgres.Server, spark: SparkSession
) -> None:
    def problems() -> tuple[str, ...]:
        return tuple(run.messages(run.names.ledger, LedgerState)[-1].problems)

    lake = {"catalog": sql(database.uri())}
    with PipelineRun(tmp_path, broker, spark, [{"name": "lake.outlived"}], {"t": 1}, lake=lake) as run:
        run.produce("t", [b"x"] * 20)
        run.run()
        run.wait_until_landed()
        database.stop()
        try:
            run.produce("t", [b"y"] * 20)
            eventually(lambda: any("cannot commit" in text for text in problems()), "it is told")
            assert database.password not in str(problems())
        finally:
            database.start()
        run.wait_until_landed()
        eventually(lambda: not problems(), "it is over")
        run.stop()
        assert run.assert_exactly_once("lake.outlived").rows == 40


def test_no_command_prints_the_password(tmp_path: Path, database: postgres.Server) -> None:
    pipeline = pipeline_with(tmp_path, sql(database.uri()))
    file = str(tmp_path / "pipeline.yaml")
    assert database.password not in str(pipeline.describe())
    for command in (
        ["check", file, "--offline"],
        ["maintain", file],
        ["doctor", file],
        ["doctor", file, "--output", "json"],
    ):
        said = CliRunner().invoke(app, command)
        assert database.password not in said.output + str(said.exception)

    wrong = pipeline_with(tmp_path, sql(database.uri("not-the-password")))
    with pytest.raises(LakeError, match="password authentication failed") as refused:
        open_catalog(wrong.lake)
    assert "not-the-password" not in str(refused.value)
    shown = CliRunner().invoke(app, ["doctor", file])
    assert "password authentication failed" in " ".join(shown.output.split())
    assert "not-the-password" not in shown.output


def test_a_server_that_is_away_is_said_in_one_line(tmp_path: Path) -> None:
    away = pipeline_with(tmp_path, sql("postgresql+psycopg2://me:hushhush@127.0.0.1:1/lake"))
    with pytest.raises(LakeError, match=r"cannot open the catalog: .*127\.0\.0\.1.*check lake.catalog") as refused:
        open_catalog(away.lake)
    assert "hushhush" not in str(refused.value)


def test_a_rest_catalog_that_is_away_is_said_in_one_line_and_shows_no_token(tmp_path: Path) -> None:
    away = pipeline_with(tmp_path, {"type": "rest", "uri": "http://127.0.0.1:1", "token": "hushhush"})
    with pytest.raises(LakeError, match=r"cannot open the catalog: .*127\.0\.0\.1.*check lake.catalog") as refused:
        open_catalog(away.lake)
    assert "hushhush" not in str(refused.value) + str(away.describe())
    assert "\n" not in str(refused.value)
