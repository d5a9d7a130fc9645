"""A commit with the ledger against PyIceberg's bare `add_files` of the same files."""

import tempfile
from pathlib import Path

from benchmarks.ratio import Ratio, compare
from headgate.config.pipeline import Lake, Table
from headgate.lake.catalogs import open_catalog
from headgate.lake.commit import TableCommitter
from headgate.lake.tables import create_table
from headgate.model import TopicPartition
from tests.announcements import announce, spark_schema, write_file

FILES = 8
ROWS = 500


def run() -> list[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        lake = Lake(catalog={"type": "sql", "uri": f"sqlite:///{home}/catalog.db"}, warehouse=str(home))
        catalog = open_catalog(lake)
        committer = TableCommitter(catalog, lake, Table.model_validate({"name": "lake.t"}))
        origins = {TopicPartition("t", p): 0 for p in range(FILES)}
        create_table(catalog, lake, "lake.bare", spark_schema())

        def files(turn: int, kind: str) -> list[str]:
            start = turn * ROWS
            return [
                write_file(home / kind / f"{turn}-{p}.parquet", announce(("t", p, start, start + ROWS)).ranges)
                for p in range(FILES)
            ]

        made = {(turn, kind): files(turn, kind) for turn in range(40) for kind in ("ours", "bare")}

        def ours(turn: int) -> None:
            start = turn * ROWS
            announcements = [
                announce(("t", p, start, start + ROWS), files=(path,)) for p, path in enumerate(made[turn, "ours"])
            ]
            result = committer.commit(announcements, origins)
            assert len(result.committed) == FILES

        def bare(turn: int) -> None:
            catalog.load_table("lake.bare").add_files(made[turn, "bare"], check_duplicate_files=False)

        return [
            compare(
                f"commit of {FILES} announcements with ledger", ours, "PyIceberg add_files", bare, turns=35, warm_up=5
            )
        ]
