"""In which ways one consumer is measured (E2): the three published layouts, made of the partitions a pipeline has."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headgate.config.pipeline import Pipeline
from headgate.config.table import Table
from headgate.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Shape:
    """One of the published tests."""

    name: str
    partitions: int
    one_table: bool = False
    most_bytes: float = float("inf")


PUBLISHED = (
    Shape("one table", 32, one_table=True),
    Shape("all tables, little in each partition", 116, most_bytes=100e6),
    Shape("all tables", 144),
)
"""648 MB in 32 partitions for one table; 100 MB in 116 and 678 MB in 144 for five."""


@dataclass(frozen=True, slots=True)
class Layout:
    name: str
    tables: tuple[Table, ...]
    partitions: tuple[TopicPartition, ...]
    most_bytes: float = float("inf")


def layouts(pipeline: Pipeline, backlog: Mapping[TopicPartition, int]) -> tuple[Layout, ...]:
    """The published shapes as far as this pipeline has them, each only once. Of each topic the partitions that hold
    most."""
    found: dict[tuple[tuple[str, ...], tuple[TopicPartition, ...]], Layout] = {}
    for shape in PUBLISHED:
        tables = (_deepest(pipeline, backlog),) if shape.one_table else pipeline.tables
        mine = [p for p, records in backlog.items() if records > 0 and any(t.matches(p.topic) for t in tables)]
        chosen = tuple(sorted(_deepest_in_turns(mine, backlog)[: shape.partitions]))
        layout = Layout(shape.name, tables, chosen, shape.most_bytes)
        found[tuple(t.name for t in tables), chosen] = layout  # of equal ones the last, which reads everything
    return tuple(found.values())


def _deepest_in_turns(
    partitions: Iterable[TopicPartition], backlog: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """The deepest of every topic, then the second of every topic, and so on: or a topic, and its table, could be
    missing only because all its partitions hold a little less than those of others."""
    seen = Counter[str]()
    ranked = []
    for partition in sorted(partitions, key=lambda p: (-backlog[p], p)):
        ranked.append((seen[partition.topic], -backlog[partition], partition))
        seen[partition.topic] += 1
    return [partition for *_, partition in sorted(ranked)]


def _deepest(pipeline: Pipeline, backlog: Mapping[TopicPartition, int]) -> Table:
    return max(pipeline.tables, key=lambda table: sum(n for p, n in backlog.items() if table.matches(p.topic)))
