"""Who owns what, and the difference between two such states."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headgate.model.partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Assignment:
    """consumer id → partitions. A partition has at most one owner; ids are positive and stable."""

    owners: Mapping[int, frozenset[TopicPartition]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seen: set[TopicPartition] = set()
        for consumer, partitions in self.owners.items():
            if consumer < 1:
                raise ValueError(f"consumer ids start at 1, not {consumer}")
            if seen & partitions:
                raise ValueError(f"{min(seen & partitions)} has two owners")
            seen |= partitions

    def __getitem__(self, consumer: int) -> frozenset[TopicPartition]:
        return self.owners.get(consumer, frozenset())

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self.owners))

    def __len__(self) -> int:
        return len(self.owners)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset().union(*self.owners.values())

    def by_partition(self) -> dict[TopicPartition, int]:
        return {p: consumer for consumer, partitions in self.owners.items() for p in partitions}


@dataclass(frozen=True, slots=True)
class Move:
    """What happens to one partition: start (no old), stop (no new) or rebalance (both)."""

    partition: TopicPartition
    old: int | None
    new: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The difference between two assignments (L-44). Partitions not named here never pause."""

    create: frozenset[int]
    delete: frozenset[int]
    moves: tuple[Move, ...]

    @classmethod
    def between(cls, current: Assignment, following: Assignment) -> "Plan":
        before, after = current.by_partition(), following.by_partition()
        changed = {p for p, _ in before.items() ^ after.items()}
        moves = tuple(Move(p, before.get(p), after.get(p)) for p in sorted(changed))
        return cls(
            frozenset(following.owners.keys() - current.owners.keys()),
            frozenset(current.owners.keys() - following.owners.keys()),
            moves,
        )

    @property
    def is_empty(self) -> bool:
        return not (self.create or self.delete or self.moves)

    @property
    def rebalanced(self) -> tuple[TopicPartition, ...]:
        """Partitions that change hands; their rates make up the Rscore (L-41)."""
        return tuple(m.partition for m in self.moves if m.old is not None and m.new is not None)
