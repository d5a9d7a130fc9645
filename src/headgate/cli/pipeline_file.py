"""Naming a pipeline on the command line: its file, or the home folder that a demo kept."""

from pathlib import Path
from typing import Annotated

import typer

from headgate.errors import ConfigError

PipelineArgument = Annotated[
    Path | None, typer.Argument(help="The pipeline file.", metavar="[FILE]", show_default=False)
]

PIPELINE_IN_HOME = "pipeline.yaml"


def find_pipeline(file: Path | None, home: Path | None) -> Path:
    if file is not None:
        return file
    if home is None:
        raise ConfigError("name a pipeline file, or --home DIR for the folder of a demo")
    found = home / PIPELINE_IN_HOME
    if not found.is_file():
        raise ConfigError(f"there is no {PIPELINE_IN_HOME} in {home}; is it the --home of a demo?")
    return found
