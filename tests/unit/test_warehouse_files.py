import logging
from pathlib import Path

import pytest

from headgate.config.pipeline import Lake
from headgate.consumer.files import Warehouse


def test_what_cannot_be_removed_is_left_to_upkeep(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    warehouse = Warehouse(Lake())
    here = tmp_path / "here.parquet"
    here.touch()
    with caplog.at_level(logging.WARNING):
        warehouse.remove((str(tmp_path / "gone.parquet"), str(here)))
        warehouse.remove_folder(str(tmp_path / "never was"))
    assert not here.exists()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
