"""Many rows of one kind, kept as a list per field: what is done to all of them at once needs no object for each.

With 10,000 partitions, making and letting go of a row for each takes longer than all the arithmetic on them. So rows
are made when somebody asks for one, and then all of them.
"""

from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from functools import cached_property, lru_cache
from typing import Any, Generic, TypeVar, overload

from headgate.model.partition import TopicPartition

Row = TypeVar("Row", bound=tuple[Any, ...])
Value = TypeVar("Value")


class Rows(Sequence[Row], Generic[Row]):
    """Equal to a tuple of the same rows."""

    def __init__(self, kind: type[Row], columns: Sequence[Sequence[Any]]) -> None:
        """A column for each field of `kind`, a named tuple."""
        self._kind, self.columns = kind, tuple(columns)
        if len({len(column) for column in self.columns}) > 1:
            raise ValueError(f"columns of {kind.__name__} of different lengths: {[len(c) for c in self.columns]}")

    @classmethod
    def of(cls, kind: type[Row], rows: "Sequence[Row]") -> "Rows[Row]":
        """These rows by columns; as they are if they are so already."""
        if isinstance(rows, Rows):
            return rows
        return cls(kind, list(zip(*rows, strict=True)) if rows else [()] * len(_fields(kind)))

    def column(self, name: str) -> Sequence[Any]:
        return self.columns[_fields(self._kind).index(name)]

    @cached_property
    def _made(self) -> tuple[Row, ...]:
        kind: Any = self._kind
        return tuple(map(kind._make, zip(*self.columns, strict=True)))

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, place: int | slice) -> Row | tuple[Row, ...]:
        return self._made[place]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self.columns[0])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Rows):
            return self.columns == other.columns or self._made == other._made
        return self._made == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._made)

    def __repr__(self) -> str:
        return repr(self._made)


def _fields(kind: Any) -> tuple[str, ...]:
    fields: tuple[str, ...] = kind._fields
    return fields


def partitions_of(topics: Sequence[str], numbers: Sequence[int]) -> tuple[TopicPartition, ...]:
    """The same tuple as long as the columns are equal: messages say the same names again and again."""
    return _partitions(tuple(topics), tuple(numbers))


@lru_cache(maxsize=8)
def _partitions(topics: tuple[str, ...], numbers: tuple[int, ...]) -> tuple[TopicPartition, ...]:
    return tuple(map(TopicPartition, topics, numbers))


class Column(Mapping[TopicPartition, Value], Generic[Value]):
    """A value for each partition; a dictionary of them is made when somebody looks one up."""

    def __init__(self, partitions: Sequence[TopicPartition], values: Sequence[Value]) -> None:
        self.partitions, self.values_in_order = partitions, values

    @cached_property
    def as_dict(self) -> dict[TopicPartition, Value]:
        return dict(zip(self.partitions, self.values_in_order, strict=True))

    def __getitem__(self, partition: TopicPartition) -> Value:
        return self.as_dict[partition]

    def __contains__(self, partition: object) -> bool:
        return partition in self.as_dict

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.partitions)

    def __len__(self) -> int:
        return len(self.partitions)

    def items(self) -> ItemsView[TopicPartition, Value]:
        return self.as_dict.items()

    def values(self) -> ValuesView[Value]:
        return self.as_dict.values()

    def __repr__(self) -> str:
        return repr(self.as_dict)


def in_order(
    of: Mapping[TopicPartition, Value], partitions: Sequence[TopicPartition], missing: Iterable[Value]
) -> Sequence[Value]:
    """The values of these partitions; where there is none, what stands in its place in `missing`."""
    if isinstance(of, Column):
        if of.partitions == partitions:
            return of.values_in_order
        of = of.as_dict
    return list(map(of.get, partitions, missing))


class ByPartition(Column[Row], Generic[Row]):
    """A row for each partition. Equal to any mapping with the same rows."""

    def __init__(self, partitions: Sequence[TopicPartition], rows: Rows[Row]) -> None:
        super().__init__(partitions, rows)
        self.rows = rows
        self._columns: dict[str, Column[Any]] = {}
        """Those asked for so far."""

    @classmethod
    def of(cls, kind: type[Row], rows: Mapping[TopicPartition, Row]) -> "ByPartition[Row]":
        """These rows by columns; as they are if they are so already."""
        if isinstance(rows, ByPartition):
            return rows
        return cls(tuple(rows), Rows.of(kind, tuple(rows.values())))

    def column(self, name: str) -> Column[Any]:
        """One field of every partition."""
        if name not in self._columns:
            self._columns[name] = Column(self.partitions, self.rows.column(name))
        return self._columns[name]
