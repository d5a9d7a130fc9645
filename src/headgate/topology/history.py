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
    forgotten: int = 0
    """Pairs that overlap now and found no room, so that nothing is said of them: at least so many."""


class History:
    """Told of every epoch. A pair is known by its two node sets: topics come and go within a group.

    A large cluster has more pairs than anybody could read or memory should hold, so there is a limit. New pairs take
    the place of those that have not been seen for longest; pairs that are there now keep theirs.
    """

    def __init__(self, most_pairs: int = MOST_PAIRS) -> None:
        self._most_pairs = most_pairs
        self._seen: dict[frozenset[NodeSet], Seen] = {}
        self._epoch: int | None = None

    def note(self, epoch: int, overlaps: Overlaps) -> News:
        last, self._epoch = self._epoch, epoch
        before = {key: seen for key, seen in self._seen.items() if seen.last_epoch == last}
        for key, seen in self._seen.items():  # each by itself: among very many pairs it might not be come across
            if (overlap := overlaps.between(*key)) is not None:
                self._seen[key] = replace(seen, overlap=overlap, last_epoch=epoch)
        unseen = [key for key, seen in self._seen.items() if seen.last_epoch < epoch]
        longest_unseen = iter(sorted(unseen, key=lambda key: self._seen[key].last_epoch))
        forgotten = 0
        # A pair more than fits is enough to know that something was left out; counting on shows how much.
        for overlap in overlaps.pairs(2 * self._most_pairs):
            key = frozenset((overlap.first.nodes, overlap.second.nodes))
            if key in self._seen:
                continue
            if len(self._seen) == self._most_pairs and (oldest := next(longest_unseen, None)) is not None:
                del self._seen[oldest]
            if len(self._seen) < self._most_pairs:
                self._seen[key] = Seen(overlap, epoch, epoch)
            else:
                forgotten += 1
        now = {key: seen for key, seen in self._seen.items() if seen.last_epoch == epoch}
        begun = (seen for key, seen in now.items() if key not in before)
        over = (seen for key, seen in before.items() if key not in now)
        return News(tuple(sorted(begun, key=_age)), tuple(sorted(over, key=_age)), forgotten)

    @property
    def pairs(self) -> list[Seen]:
        """Longest known first."""
        return sorted(self._seen.values(), key=_age)


def _age(seen: Seen) -> tuple[object, ...]:
    return seen.first_epoch, seen.overlap.first.topics, seen.overlap.second.topics
