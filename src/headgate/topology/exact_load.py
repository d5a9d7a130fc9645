"""Traffic per node that topics can be added to and taken from for ever without a trace (B-21)."""

from collections.abc import Iterable, Iterator, Mapping

_SMALLEST_BITS = 1074
_ONE = 1 << _SMALLEST_BITS
"""Every float is a whole number of times 2**-1074, and whole numbers add up to the same in any order."""


def exact(value: float) -> int:
    """A float as that whole number."""
    numerator, denominator = value.as_integer_ratio()  # the denominator is a power of two
    return numerator << (_SMALLEST_BITS + 1 - denominator.bit_length())


class ExactLoad(Mapping[int, float]):
    """By node. Sums of floats would keep a little of what was taken away, and call idle nodes overloaded."""

    def __init__(self, nodes: Iterable[int] | Mapping[int, int]) -> None:
        self._exact = dict(nodes) if isinstance(nodes, Mapping) else dict.fromkeys(nodes, 0)

    def add(self, node: int, traffic: int) -> None:
        """`traffic` is what `exact` makes of it, or less than nothing to take it away."""
        self._exact[node] += traffic

    def copy(self) -> "ExactLoad":
        return ExactLoad(self._exact)

    def __getitem__(self, node: int) -> float:
        return self._exact[node] / _ONE

    def __iter__(self) -> Iterator[int]:
        return iter(self._exact)

    def __len__(self) -> int:
        return len(self._exact)
