"""How a command prints what it found."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any


class Output(StrEnum):
    text = "text"
    json = "json"


def as_document(value: Any) -> Any:
    """What JSON can hold: `dataclasses.asdict`, but named tuples keep their names as well."""
    if is_dataclass(value):
        return {field.name: as_document(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: as_document(part) for name, part in value._asdict().items()}
    if isinstance(value, Mapping):
        return {key: as_document(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_document(part) for part in value]
    return value
