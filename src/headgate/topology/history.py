"""Which groups ever overlapped, and when (B-11)."""

from dataclasses import dataclass, replace

from headgate.topology.groups import NodeSet, Overlap
from headgate.topology.overlaps import Overlaps

MOST_PAIRS = 10_000


@dataclass(frozen=True, slots=True)
class Seen:
    overlap: Overlap
    """As it was last seen."""
    first_epoch: int
    last_epoch: int


@dataclass(frozen=True, slots=True)
class News:
    """What an epoch brought."""

    begun: tuple[Seen, ...]
    """Pairs that did not overlap in the epoch before it, for the first time or again."""
    over: tuple[Seen, ...]
    """Pairs that did, and do no more."""


class History:
    """Told of every epoch. A pair is known by its two node sets: topics come and go within a group.

    A large cluster has more pairs than anybody could read or memory should hold, so there is a limit and a count of
    what went past it.
    """

    def __init__(self, most_pairs: int = MOST_PAIRS) -> None:
        self._most_pairs = most_pairs
        self._seen: dict[frozenset[NodeSet], Seen] = {}
        self._epoch: int | None = None
        self.forgotten = 0
        """Pairs of the last epoch that were new and found no room."""

    def note(self, epoch: int, overlaps: Overlaps) -> News:
        last, self._epoch, self.forgotten = self._epoch, epoch, 0
        before = {key for key, seen in self._seen.items() if seen.last_epoch == last}
        # A pair more than fits is enough to know that something was left out; counting on shows how much.
        for overlap in overlaps.pairs(2 * self._most_pairs):
            key = frozenset((overlap.first.nodes, overlap.second.nodes))
            if key in self._seen:
                self._seen[key] = replace(self._seen[key], overlap=overlap, last_epoch=epoch)
            elif len(self._seen) < self._most_pairs:
                self._seen[key] = Seen(overlap, epoch, epoch)
            else:
                self.forgotten += 1
        now = {key for key, seen in self._seen.items() if seen.last_epoch == epoch}
        return News(self._in_order(now - before), self._in_order(before - now))

    def _in_order(self, keys: set[frozenset[NodeSet]]) -> tuple[Seen, ...]:
        return tuple(sorted((self._seen[key] for key in keys), key=_age))

    @property
    def pairs(self) -> list[Seen]:
        """Longest known first."""
        return sorted(self._seen.values(), key=_age)


def _age(seen: Seen) -> tuple[object, ...]:
    return seen.first_epoch, seen.overlap.first.topics, seen.overlap.second.topics
