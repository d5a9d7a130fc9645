"""Options with a unit: `--slo 5s`, `--last 24h`, `--record-bytes '1 kB'`."""

from collections.abc import Callable

import typer
from pydantic_core import PydanticCustomError

from headgate.config.units import BYTES, SECONDS, Unit


def _parser(unit: Unit, least: float, what: str) -> Callable[[str | float], float]:
    def parse(text: str | float) -> float:
        try:
            value = unit.parse(text)
        except PydanticCustomError as error:
            raise typer.BadParameter(f"{text!r} {error.message()}") from None
        if not value > least and not (least == 0 and value == 0 and what == "not negative"):
            raise typer.BadParameter(f"{text!r} must be {what}")
        return value

    parse.__name__ = "quantity"  # what the help shows as its kind
    return parse


positive_s = _parser(SECONDS, 0.0, "above 0")
seconds = _parser(SECONDS, 0.0, "not negative")
positive_bytes = _parser(BYTES, 0.0, "above 0")
