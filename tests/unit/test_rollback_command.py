"""What `headgate rollback` says of what would be read again."""

from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.cli.rollback import _Held
from headgate.config.loader import load_pipeline
from headgate.errors import LakeError
from headgate.lake.catalogs import open_catalog
from headgate.model import Ledger, TopicPartition

OLD, LATER = TopicPartition("t", 0), TopicPartition("t", 1)
NOW = Ledger({OLD: 50, LATER: 30}, {OLD: 0, LATER: 10}, topic_ids={"t": "second"})
THEN = Ledger({OLD: 40}, {OLD: 0})


def test_a_partition_that_came_later_is_read_from_its_first_record() -> None:
    held = _Held(NOW, {OLD: 0, LATER: 10})
    assert held.again(THEN) == "30 offsets would be read again, all of them still in Kafka"


def test_what_kafka_deleted_of_either_is_counted() -> None:
    said = "30 offsets would be read again, of which Kafka does not hold 7 any more"
    assert _Held(NOW, {OLD: 42, LATER: 15}).again(THEN) == said


def test_what_the_table_never_held_is_not_counted_as_lost() -> None:
    beyond = _Held(NOW, {OLD: 60, LATER: 31})
    assert beyond.again(NOW) == "0 offsets would be read again, all of them still in Kafka"
    assert beyond.gone(THEN) == 10 + 20


def test_where_nothing_can_be_read_all_is_lost() -> None:
    assert "does not hold 30 any more" in _Held(NOW, NOW.next).again(THEN)


def test_topics_that_a_person_said_are_the_same_have_to_be_said_again() -> None:
    held = _Held(NOW, NOW.next)
    assert held.counted_as_another(Ledger({OLD: 40}, {OLD: 0}, topic_ids={"t": "first"})) == ["t"]
    assert held.counted_as_another(THEN) == []
    assert held.counted_as_another(NOW) == []


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ("gone", "lake.t: the metadata that the catalog names is not there: "),
        ("no metadata", "lake.t cannot be read: "),
    ],
)
def test_a_table_that_cannot_be_read_is_told_in_one_line(tmp_path: Path, files: str, said: str) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("name: p\nhome: home\nkafka: {brokers: 'b:1'}\ntopics: [t]\ntables: [{name: lake.t}]\n")
    pipeline = load_pipeline(file)
    pipeline.home.mkdir()
    catalog = open_catalog(pipeline.lake)
    catalog.create_namespace("lake")
    catalog.create_table("lake.t", pa.schema([("value", pa.string())]), location=f"{tmp_path}/t")
    for metadata in (tmp_path / "t" / "metadata").iterdir():
        metadata.unlink() if files == "gone" else metadata.write_text("{")
    ended = CliRunner().invoke(app, ["rollback", str(file)]).exception
    assert isinstance(ended, LakeError)
    assert str(ended).startswith(said)
    assert len(str(ended).splitlines()) == 1
