"""Options with a unit: `--slo 5s`, `--rate 2MB/s`, `--record-bytes '1 kB'`."""

from collections.abc import Callable

import typer
from pydantic_core import PydanticCustomError
from typer.models import OptionInfo

from headgate.config.units import BYTES, BYTES_PER_S, SECONDS, Unit
from headgate.simulation.start_times import PUBLISHED_T3, StartTimes


def time_option(help: str, default: str | bool = True, panel: str | None = None) -> OptionInfo:
    """A time above 0, like `30s`. `default` is what the help says of it: a text, or True for the value itself."""
    return _quantity("TIME", positive_s, help, default, panel)


def time_or_0_option(help: str, default: str, panel: str | None = None) -> OptionInfo:
    return _quantity("TIME", seconds, help, default, panel)


def rate_option(help: str, default: str, panel: str | None = None) -> OptionInfo:
    """Bytes per second, like `2MB/s`, or 0."""
    return _quantity("BYTES/S", bytes_per_s, help, default, panel)


def percent_option(help: str, default: str, panel: str | None = None, most: float | None = 100) -> OptionInfo:
    option: OptionInfo = typer.Option(
        min=0, max=most, metavar="PERCENT", help=help, show_default=default, rich_help_panel=panel
    )
    return option


def _quantity(
    metavar: str, parser: Callable[[str | float], float], help: str, default: str | bool, panel: str | None
) -> OptionInfo:
    option: OptionInfo = typer.Option(
        metavar=metavar, parser=parser, help=help, show_default=default, rich_help_panel=panel
    )
    return option


def positive_s(text: str | float) -> float:
    return _above_0(_parsed(SECONDS, text), text)


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
