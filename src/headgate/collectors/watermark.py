"""Up to where one source partition is acknowledged: what may be committed, whatever order acknowledgements come in."""

from collections import deque
from collections.abc import Collection, Sequence


class Watermark:
    """Offsets are sent in their order, with gaps where Kafka has no record, and acknowledged in any order.

    Every offset enters and leaves once, so a record costs the same however many are on their way.
    """

    def __init__(self, start: int | None = None) -> None:
        """`start` is where reading begins, if that is known."""
        self._expected = start
        self._on_the_way: deque[int] = deque()
        """From the oldest that is not acknowledged on, in order; later ones may be acknowledged."""
        self._early: set[int] = set()
        """Acknowledged before an older one was."""
        self._after_last: int | None = None

    def is_past(self, offset: int) -> bool:
        """Whether this offset, or a later one, was sent."""
        return self._after_last is not None and offset < self._after_last

    def sent(self, offset: int) -> int:
        """How many offsets before it hold no record: deleted by retention, compacted, or marks of transactions."""
        if self.is_past(offset):
            raise ValueError(f"offset {offset} was sent after a later one, or twice")
        self._on_the_way.append(offset)
        skipped = 0 if self._expected is None else max(0, offset - self._expected)
        self._expected = self._after_last = offset + 1
        return skipped

    def acknowledged(self, offset: int) -> None:
        """Of an offset that was sent."""
        self._early.add(offset)
        while self._on_the_way and self._on_the_way[0] in self._early:
            self._early.remove(self._on_the_way.popleft())

    @property
    def position(self) -> int | None:
        """Everything sent before this offset is acknowledged; None before anything was sent."""
        return self._on_the_way[0] if self._on_the_way else self._after_last

    @property
    def waiting(self) -> int:
        """Sent and not acknowledged."""
        return len(self._on_the_way) - len(self._early)


def position_by_looking(sent: Sequence[int], acknowledged: Collection[int]) -> int | None:
    """The same from everything that ever happened: slow, and plain to see. The reference for `Watermark.position`."""
    for offset in sent:
        if offset not in acknowledged:
            return offset
    return sent[-1] + 1 if sent else None
