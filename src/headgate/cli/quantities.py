"""Options with a unit: `--slo 5s`, `--rate 2MB/s`, `--record-bytes '1 kB'`."""

import typer
from pydantic_core import PydanticCustomError
from typer.models import OptionInfo

from headgate.config.units import BYTES, BYTES_PER_S, SECONDS, Unit
from headgate.simulation.start_times import PUBLISHED_T3, StartTimes


def positive_s(text: str | float) -> float:
    return _above_0(_parsed(SECONDS, text), text)


def time_option(help: str, default: str, panel: str | None = None) -> OptionInfo:
    """A time above 0, like `30s`."""
    option: OptionInfo = typer.Option(
        metavar="TIME", parser=positive_s, help=help, show_default=default, rich_help_panel=panel
    )
    return option


def seconds(text: str | float) -> float:
    return _not_negative(_parsed(SECONDS, text), text)


def start_time(text: str) -> float | StartTimes:
    """Seconds, or `published`: drawn from what the group paper measured on a cluster."""
    return PUBLISHED_T3 if text.strip() == "published" else seconds(text)


def bytes_per_s(text: str | float) -> float:
    return _not_negative(_parsed(BYTES_PER_S, text), text)


def positive_bytes(text: str | float) -> float:
    return _above_0(_parsed(BYTES, text), text)


def _parsed(unit: Unit, text: str | float) -> float:
    try:
        return unit.parse(text)
    except PydanticCustomError as error:
        raise typer.BadParameter(f"{text!r} {error.message()}") from None


def _above_0(value: float, text: str | float) -> float:
    if not value > 0:
        raise typer.BadParameter(f"{text!r} must be above 0")
    return value


def _not_negative(value: float, text: str | float) -> float:
    if not value >= 0:
        raise typer.BadParameter(f"{text!r} must not be negative")
    return value
