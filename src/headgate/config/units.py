"""Quantities as people write them: "5 MB", "200 ms", "2 MB/s" to and from plain numbers in one unit each.

MB is 10^6 bytes and MiB 2^20, as everywhere in Headgate. Arithmetic is decimal, so that "1.1 MB" is exactly 1100000.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from headgate.config.problems import nearest, wrong

_BYTES = {
    "B": Decimal(1),
    "kB": Decimal(10**3),
    "KB": Decimal(10**3),
    "MB": Decimal(10**6),
    "GB": Decimal(10**9),
    "TB": Decimal(10**12),
    "KiB": Decimal(2**10),
    "MiB": Decimal(2**20),
    "GiB": Decimal(2**30),
    "TiB": Decimal(2**40),
}
_SECONDS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_QUANTITY = re.compile(r"\s*([+-]?(?:\d[\d_]*)?\.?\d*(?:[eE][+-]?\d+)?)\s*(.*?)\s*")


@dataclass(frozen=True, slots=True)
class Unit:
    """One kind of quantity: the unit its plain numbers are in, and every unit that may be written."""

    name: str
    factors: Mapping[str, Decimal]
    shown: tuple[str, ...]
    """Units used when writing, largest first."""

    def parse(self, value: object) -> float:
        """The number of `name` in a plain number or a text such as "5 MB"."""
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise self._refuse("must be a number or a text with a unit")
        match = _QUANTITY.fullmatch(str(value))
        if match is None:
            raise self._refuse("must be a number or a text with a unit")
        digits, unit = match.groups()
        try:
            number = Decimal(digits.replace("_", ""))
        except InvalidOperation:
            raise self._refuse("must start with a number") from None
        factor = self.factors[self.name] if unit == "" else self.factors.get(unit)
        if factor is None:
            guess = nearest(unit, self.factors)
            raise self._refuse("has a unit that does not fit here", f"; did you mean {guess}?" if guess else "")
        parsed = float(number * factor)
        if parsed == float("inf"):
            raise self._refuse("is too large")
        return parsed

    def format(self, amount: float) -> str:
        """The shortest text that `parse` reads back as exactly this amount."""
        exact = Decimal(repr(amount))
        choices = [f"{_plain(exact / self.factors[unit])} {unit}" for unit in self.shown]
        # min() keeps the first of equals, so the largest unit wins: "5 MB" rather than "5e6 B", "1 s" not "1000 ms".
        return min((text for text in choices if self.parse(text) == amount), key=len)

    def _refuse(self, what: str, hint: str = "") -> PydanticCustomError:
        allowed = ", ".join(self.factors)
        return wrong(f"{what}; a plain number counts {self.name}, and the units allowed are {allowed}", hint)


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


BYTES = Unit("B", _BYTES, ("TB", "GB", "GiB", "MB", "MiB", "kB", "KiB", "B"))
SECONDS = Unit("s", _SECONDS, ("d", "h", "min", "s", "ms"))
BYTES_PER_S = Unit("B/s", {f"{unit}/s": factor for unit, factor in _BYTES.items()}, ("GB/s", "MB/s", "kB/s", "B/s"))


def unit_of(field: str) -> Unit | None:
    """The unit that a setting's name ends in; None for settings that are not quantities."""
    suffixes = (("bytes_per_s", BYTES_PER_S), ("_bytes", BYTES), ("_s", SECONDS))
    return next((unit for suffix, unit in suffixes if field.endswith(suffix)), None)


def _whole_bytes(value: object) -> int:
    parsed = BYTES.parse(value)
    if not parsed.is_integer():
        raise wrong("must be a whole number of bytes")
    return int(parsed)


_seconds: Callable[[object], float] = SECONDS.parse
_rate: Callable[[object], float] = BYTES_PER_S.parse

Bytes = Annotated[int, BeforeValidator(_whole_bytes), Field(gt=0)]
Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0)]
SecondsOrZero = Annotated[float, BeforeValidator(_seconds), Field(ge=0)]
BytesPerS = Annotated[float, BeforeValidator(_rate), Field(gt=0)]
