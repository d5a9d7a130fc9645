"""When the committer has its next turn."""

import math
from collections.abc import Collection

from headgate.lake.table_state import TableState

IDLE_S = 1.0
"""Longest time between turns: heartbeats and new partitions have theirs as well."""


def next_turn_s(tables: Collection[TableState], now_s: float, every_s: float, last_turn_s: float) -> float:
    """Announcements are committed `every_s` after those before them, of whatever table: so tables keep in step, and the
    brokers are asked about topics once for all of them. What comes after a quiet interval is committed at once.

    `last_turn_s` is when that began, and so is what `TableState.begins` is told. By a later time a turn that comes
    for its idleness would find nothing due yet, and what waits would wait for the next.
    """
    in_step_s = max((state.begun_s for state in tables), default=-math.inf) + every_s
    due = (max(in_step_s, state.held_until) for state in tables if state.pending and state.may_begin(now_s))
    return min(last_turn_s + IDLE_S, min(due, default=math.inf))
