"""Where a consumer stands: what it owns, what the ledger says, what it announced and nobody settled yet. Pure.

Positions are per table and partition: two tables fed by one topic may stand at different offsets after a crash.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headgate.model import Announcement, Range, TopicPartition
from headgate.model.messages import LedgerState, Position


@dataclass
class _TableBook:
    state: LedgerState | None = None
    """The newest word of the committer; None until it was heard of."""
    ledger: Mapping[TopicPartition, int] = field(default_factory=dict)
    next: dict[TopicPartition, int] = field(default_factory=dict)
    """Where the next announcement goes on, for owned partitions only."""
    taken: dict[TopicPartition, int] = field(default_factory=dict)
    """Where the cycles under way end, which are not announced yet."""
    unsettled: dict[str, tuple[Announcement, float]] = field(default_factory=dict)
    """Announcements without a verdict, oldest first, and when they were sent."""
    ahead: dict[TopicPartition, tuple[int, float]] = field(default_factory=dict)
    """Partitions of which more was announced than the ledger has, though nothing of ours is without a verdict: where
    the ledger is, and since when."""
    repositioning: bool = False
    """One was refused: nothing more is announced until all have their verdict, then positions restart at the ledger."""


class Positions:
    def __init__(self, tables: Iterable[str]) -> None:
        self._books = {table: _TableBook() for table in tables}
        self.refusals: list[str] = []
        """Reasons given since they were last taken; the worker logs them."""
        self.outcomes: dict[str, str] = {}
        """Tables whose announcements were settled since this was last taken: why they start again, or empty if fine."""

    # What others say

    def on_ledger(self, state: LedgerState, incarnation: str) -> None:
        book = self._books.get(state.table)
        if book is None:
            return
        mine = any(v.incarnation == incarnation and not v.accepted for v in state.verdicts)
        if mine or state.follows(book.state):  # who refuses says where to go on
            book.state = state
            book.ledger = state.following
        for verdict in state.verdicts:
            if verdict.incarnation == incarnation and verdict.announcement_id in book.unsettled:
                del book.unsettled[verdict.announcement_id]
                if not verdict.accepted:
                    book.repositioning = True
                    self.refusals.append(verdict.reason)
                    self.outcomes[state.table] = verdict.reason
                elif not book.repositioning:
                    self.outcomes[state.table] = ""
        for announcement, _ in list(book.unsettled.values()):  # a verdict may have been missed; the ledger is enough
            if announcement.ranges and all(book.ledger.get(r.partition, -1) >= r.end for r in announcement.ranges):
                del book.unsettled[announcement.id]
                self.outcomes.setdefault(state.table, "")
        if book.repositioning and not book.unsettled:
            self._restart(book)

    def give_up_waiting(self, table: str) -> None:
        """No verdict within the deadline: start again at the ledger. At worst the work is refused and repeated."""
        book = self._books[table]
        book.unsettled.clear()
        self._restart(book)

    def start_again(self, table: str, now_s: float, after_s: float) -> list[TopicPartition]:
        """Has partitions read again from a ledger that stands still behind what was announced of them, by whoever gave
        them to us, or before the table was rolled back; says which. Those announcements came to nothing, and if no
        record follows none of ours will be refused to tell us so."""
        book = self._books[table]
        waited_for = {read.partition for announcement, _ in book.unsettled.values() for read in announcement.ranges}
        ahead = {p: at for p, following in book.next.items() if (at := book.ledger.get(p, following)) < following}
        book.ahead = {
            p: book.ahead[p] if book.ahead.get(p, (-1, 0.0))[0] == at else (at, now_s)
            for p, at in ahead.items()
            if p not in waited_for
        }
        stranded = sorted(p for p, (_, since_s) in book.ahead.items() if now_s - since_s > after_s)
        for partition in stranded:
            book.next[partition] = book.ahead.pop(partition)[0]
            book.taken.pop(partition, None)
        return stranded

    def _restart(self, book: _TableBook) -> None:
        book.repositioning = False
        book.taken.clear()
        book.next = {p: book.ledger[p] for p in book.next if p in book.ledger}

    # What this consumer does

    def announced(self, announcement: Announcement, at_s: float) -> None:
        book = self._books[announcement.table]
        book.unsettled[announcement.id] = (announcement, at_s)
        for read in announcement.ranges:
            if read.partition in book.next:
                book.next[read.partition] = read.end
            if book.taken.get(read.partition) == read.end:
                del book.taken[read.partition]

    def go_on(self, reached: Iterable[Position]) -> None:
        """Where others left off: what they announced may not be in the ledger yet, and will be there first."""
        for at in reached:
            book, partition = self._books.get(at.table), TopicPartition(at.topic, at.partition)
            if book is not None:
                book.next.setdefault(partition, max(at.next, book.ledger.get(partition, 0)))

    def taken(self, table: str, ranges: Iterable[Range]) -> None:
        """A cycle reads these now; the next one goes on behind them."""
        self._books[table].taken |= {read.partition: read.end for read in ranges}

    def put_back(self, table: str) -> None:
        """A cycle came to nothing; the next one goes on where the last announcement ended."""
        self._books[table].taken.clear()

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        for book in self._books.values():
            for partition in partitions:
                book.next.pop(partition, None)
                book.taken.pop(partition, None)

    # What the worker asks

    def reading(self, table: str, owned: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where to read the owned partitions for this table; those the ledger does not know yet are left out."""
        book = self._books[table]
        if book.repositioning:
            return {}
        for partition in owned:
            if partition not in book.next and partition in book.ledger:
                book.next[partition] = book.ledger[partition]
        return {p: book.taken.get(p, book.next[p]) for p in owned if p in book.next and p in book.ledger}

    def fits(self, table: str, ranges: Iterable[Range]) -> bool:
        """Whether these ranges go on where the last announcement ended."""
        book = self._books[table]
        return not book.repositioning and all(book.next.get(r.partition) == r.start for r in ranges)

    def exists(self, table: str) -> bool | None:
        state = self._books[table].state
        return None if state is None else state.exists

    def unsettled(self, table: str) -> int:
        return len(self._books[table].unsettled)

    @property
    def most_unsettled(self) -> int:
        return max((len(book.unsettled) for book in self._books.values()), default=0)

    def oldest_unsettled_s(self, table: str) -> float | None:
        """When the oldest announcement without a verdict was sent."""
        return min((at_s for _, at_s in self._books[table].unsettled.values()), default=None)

    def reached(self, partitions: Iterable[TopicPartition]) -> tuple[Position, ...]:
        """How far the announcements of these partitions go, per table; nothing of a table that was just refused one."""
        return tuple(
            Position(table, p.topic, p.partition, book.next[p])
            for table, book in self._books.items()
            for p in sorted(partitions)
            if p in book.next and not book.repositioning
        )
