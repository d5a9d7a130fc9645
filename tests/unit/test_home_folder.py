"""A home that cannot be used is said in one line that says what to do, by whoever finds it out first."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.cli.logs import log_to
from headgate.cli.main import app
from headgate.config.loader import load_pipeline
from headgate.consumer.spark import start_session
from headgate.consumer.state import StateFile
from headgate.errors import HeadgateError, LakeError, SetupError
from headgate.lake.catalogs import open_catalog
from headgate.metrics_endpoint import serve

PIPELINE = """\
name: p
home: {home}
kafka: {{brokers: "127.0.0.1:1"}}
topics: [t]
tables: [{{name: lake.t}}]
"""


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    """Below a file, where no folder can be made; root may write wherever permissions forbid it."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "home"


def test_logs_state_sparks_files_and_the_address_of_metrics_say_which_folder_it_is(nowhere: Path) -> None:
    for use in (
        lambda: log_to(nowhere / "headgate.log"),
        lambda: StateFile(nowhere),
        lambda: start_session("local[1]", nowhere),
        lambda: serve(0, "127.0.0.1", nowhere.parent, "p", "run"),
    ):
        with pytest.raises(SetupError, match=r"cannot use the folder .*/file/\w+: Not a directory; .* set `home`"):
            use()


def test_a_log_that_cannot_be_opened_is_said_alike(tmp_path: Path) -> None:
    (tmp_path / "headgate.log").mkdir()
    with pytest.raises(SetupError, match=f"cannot use the folder {tmp_path}: Is a directory"):
        log_to(tmp_path / "headgate.log")


def test_a_catalog_whose_folder_cannot_be_made_is_the_lakes_trouble(nowhere: Path, tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(home=nowhere))
    with pytest.raises(LakeError, match=f"cannot make the catalog's folder {nowhere}: Not a directory; check home"):
        open_catalog(load_pipeline(tmp_path / "pipeline.yaml", {}).lake)


@pytest.mark.parametrize(
    ("command", "error"),
    [(["run"], SetupError), (["verify"], LakeError), (["maintain"], LakeError), (["maintain", "--apply"], LakeError)],
    ids=lambda given: str(given),
)
def test_commands_end_with_an_error_that_is_one_line(
    nowhere: Path, tmp_path: Path, command: list[str], error: type[HeadgateError]
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(home=nowhere))
    ended = CliRunner().invoke(app, [*command, str(file)]).exception
    assert isinstance(ended, error)
    assert len(str(ended).splitlines()) == 1
