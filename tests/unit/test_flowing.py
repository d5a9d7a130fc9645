import itertools

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


def help_on_80_columns(command: str) -> list[str]:
    said = CliRunner().invoke(app, [*command.split(), "--help"], env={"TERMINAL_WIDTH": "80", "COLUMNS": "80"})
    return [line.strip() for line in said.output.splitlines()]


@pytest.mark.parametrize("command", ["maintain", "rollback", "doctor"])
def test_help_fills_a_narrow_terminal(command: str) -> None:
    lines = help_on_80_columns(command)
    options = next(n for n, line in enumerate(lines) if line.startswith("╭"))
    prose = lines[lines.index(next(line for line in lines if line.startswith("Usage:"))) + 1 : options]
    pairs = [(line, after) for line, after in itertools.pairwise(prose) if line and after and "headgate " not in after]
    assert pairs
    assert max(len(line) for line, _ in pairs) <= 80
    assert [line for line, after in pairs if len(f"{line} {after.split()[0]}") <= 78] == []


def test_examples_stand_on_lines_of_their_own() -> None:
    assert "headgate kafka stop --home ./three --deadline 60" in help_on_80_columns("kafka stop")
