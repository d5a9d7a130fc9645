"""How a command prints what it found."""

from enum import StrEnum


class Output(StrEnum):
    text = "text"
    json = "json"
