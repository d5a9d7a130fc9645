"""When the committer has its turns, and which tables are committed to then."""

import math
from collections.abc import Collection

from headgate.lake.table_state import TableState

IDLE_S = 1.0
"""Longest time between turns: heartbeats and new partitions have theirs as well."""


class Pacing:
    """Announcements are committed on a beat that all tables share, so that the brokers are asked about topics once for
    all of them. The first after a quiet interval begins it anew, at once. A table whose commit outlasted the interval
    has its next one as soon as that ends, off the beat, until it is quicker again; so has one whose commit failed,
    after a rest.

    Times are those at which turns begin; what a turn does before it commits puts nothing off.
    """

    def __init__(self) -> None:
        self.turn_s = -math.inf
        self._beat_s = -math.inf

    def begin_turn(self, now_s: float) -> None:
        self.turn_s = now_s

    def due(self, tables: Collection[TableState], every_s: float) -> list[TableState]:
        """Which are to be committed to in this turn."""
        due = [table for table in tables if self._due_s(table, every_s) <= self.turn_s]
        if due and self.turn_s >= self._beat_s + every_s:
            self._beat_s = self.turn_s
        return due

    def next_turn_s(self, tables: Collection[TableState], every_s: float) -> float:
        soonest_s = min((self._due_s(table, every_s) for table in tables), default=math.inf)
        return min(self.turn_s + IDLE_S, soonest_s)

    def _due_s(self, table: TableState, every_s: float) -> float:
        due_s = table.due_s(every_s)
        return due_s if table.failures or table.took_s >= every_s else max(due_s, self._beat_s + every_s)
