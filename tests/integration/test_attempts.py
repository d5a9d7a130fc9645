"""A table's change in one attempt: what it says of the table is what PyIceberg's own transaction says, worked out once
per change."""

from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.snapshot import ManageSnapshots

from headgate.config.pipeline import Lake
from headgate.lake.attempts import Attempt
from headgate.lake.catalogs import open_catalog
from headgate.lake.tables import create_table
from tests.announcements import announce, spark_schema, write_file


def _without_times(metadata: TableMetadata) -> dict[str, object]:
    return metadata.model_dump(exclude={"last_updated_ms"})


def test_an_attempt_says_of_the_table_what_pyiceberg_says(tmp_path: Path) -> None:
    lake = Lake(catalog={"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}, warehouse=str(tmp_path))
    catalog = open_catalog(lake)
    create_table(catalog, lake, "lake.t", spark_schema())
    for turn in range(3):
        table = catalog.load_table("lake.t")
        attempt = Attempt(table)
        theirs = Transaction(attempt._table)
        assert attempt.table_metadata == theirs.table_metadata

        path = write_file(tmp_path / f"{turn}.parquet", announce(("t", 0, turn, turn + 1)).ranges)
        attempt.add_files([path], check_duplicate_files=False)
        added = attempt.table_metadata
        assert added is attempt.table_metadata
        theirs._updates = attempt._updates
        assert _without_times(added) == _without_times(theirs.table_metadata)

        current = added.current_snapshot()
        assert current is not None
        ManageSnapshots(attempt).create_tag(current.snapshot_id, f"tag-{turn}").commit()
        assert f"tag-{turn}" not in added.refs
        assert f"tag-{turn}" in attempt.table_metadata.refs
        theirs._updates = attempt._updates
        expected, before = theirs.table_metadata, table.metadata.model_copy(deep=True)
        assert _without_times(attempt.table_metadata) == _without_times(expected)
        assert attempt.commit_transaction().metadata.snapshots == expected.snapshots
        assert table.metadata == before
    assert catalog.load_table("lake.t").scan().to_arrow().num_rows == 3


def test_an_attempt_that_met_another_is_refused_once_and_for_all(tmp_path: Path) -> None:
    lake = Lake(catalog={"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}, warehouse=str(tmp_path))
    catalog = open_catalog(lake)
    table = create_table(catalog, lake, "lake.t", spark_schema())
    attempt = Attempt(table)
    attempt.add_files([write_file(tmp_path / "late.parquet", announce(("t", 0, 0, 1)).ranges)])
    table.append(table.schema().as_arrow().empty_table())
    with pytest.raises(CommitFailedException):
        attempt.commit_transaction()
    assert catalog.load_table("lake.t").scan().to_arrow().num_rows == 0
