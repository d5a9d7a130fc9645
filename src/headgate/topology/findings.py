"""What is worth telling an operator: how bad, what was seen, what to do."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

MOST_EVIDENCE = 10


class Severity(IntEnum):
    note = 1
    warning = 2
    critical = 3


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    kind: str
    what: str
    """One line."""
    evidence: tuple[str, ...]
    do: str
    """One sentence: what to do about it."""


def listed(items: Iterable[str], most: int = MOST_EVIDENCE, of: int | None = None) -> tuple[str, ...]:
    """The first ones, and how many more there are; `of`: how many in all, where `items` are not."""
    everything = list(items)
    left = (len(everything) if of is None else of) - most
    return (*everything[:most], f"… and {left:,} more") if left > 0 else tuple(everything)


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 topic`, `2 topics`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def joined(values: Sequence[int] | frozenset[int] | set[int], most: int = 8) -> str:
    ordered = sorted(values)
    return ", ".join(map(str, ordered[:most])) + (f", … ({len(ordered)} in all)" if len(ordered) > most else "")
