import pytest
from typer.testing import CliRunner

from headgate.cli.flowing import flowing
from headgate.cli.main import app


def test_paragraphs_flow_and_examples_keep_their_lines() -> None:
    text = """First.

    One sentence that goes on
    here. And another.

    [bold]headgate kafka start[/]
    [bold]headgate kafka stop[/]   in order

      indented
    as it is
    """
    one, prose, examples, indented = flowing(text).split("\n\n")
    assert (one, prose) == ("First.", "One sentence that goes on here. And another.")
    assert examples == "[bold]headgate kafka start[/]\n[bold]headgate kafka stop[/]   in order"
    assert indented == "  indented\nas it is"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("maintain", "the one with the ledger); joins small files to ones of lake.target_file_bytes,"),
        ("kafka stop", "headgate kafka stop --home ./three --deadline 60"),
    ],
)
def test_help_fills_a_narrow_terminal(command: str, shown: str) -> None:
    said = CliRunner().invoke(app, [*command.split(), "--help"], env={"TERMINAL_WIDTH": "80", "COLUMNS": "80"})
    assert shown in [line.strip() for line in said.output.splitlines()]
