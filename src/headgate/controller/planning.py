"""What policies would do with a pipeline as it is now: its topics read once, one observation, one answer each.

Nothing is started, sent or changed. A pipeline that is stopped is looked at as of its last measurement.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.controller.dry_run import shown_owners
from headgate.controller.observing import ArrivalSlots, Recent, cost_of_changes, load_of, observe
from headgate.controller.ports import Ledgers
from headgate.controller.status import ALIVE_S
from headgate.errors import HeadgateError
from headgate.kafka.channel import BEGINNING, Last, Tail
from headgate.kafka.internal_topics import Topics
from headgate.model import Decision, Observation, Plan, TopicPartition
from headgate.model.messages import ConsumerLeft, ConsumerState, DecisionRecord, LedgerState, Measurement
from headgate.policies import Policy

_MEASUREMENTS = 120
_EVENTS = 1000
_DECISIONS = 200


@dataclass(frozen=True, slots=True)
class Heard:
    """What a pipeline's topics said, oldest first."""

    measurements: Sequence[Measurement]
    events: Sequence[ConsumerState | ConsumerLeft]
    ledgers: Sequence[LedgerState]
    decisions: Sequence[DecisionRecord]


@dataclass(frozen=True, slots=True)
class Situation:
    """One observation, and how it came about."""

    seen: Observation
    age_s: float
    """Of the newest measurement."""
    is_past: bool
    """The measurements are too old to decide on: this is how it was when the last one was taken."""
    peak_records_per_s: float
    """Highest measured rate of all partitions together, lately."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one policy would do."""

    policy: str
    action: str
    """keep, up, down or move."""
    consumers_before: int
    consumers_after: int
    moves: int
    decision: Decision

    @classmethod
    def of(cls, name: str, policy: Policy, seen: Observation) -> "Answer":
        decision = policy.decide(seen)
        following = seen.assignment if decision.assignment is None else decision.assignment
        plan = Plan.between(seen.assignment, following)
        before, after = (sum(1 for c in a if a[c]) for a in (seen.assignment, following))
        action = "up" if after > before else "down" if after < before else "move" if plan.moves else "keep"
        return cls(name, action, before, after, len(plan.rebalanced), decision)


def listen(settings: Mapping[str, Any], topics: Topics) -> Heard:
    tail = Tail(
        settings,
        {
            (topics.control, 0): Last(_EVENTS),
            (topics.measurements, 0): Last(_MEASUREMENTS),
            (topics.ledger, 0): BEGINNING,
            (topics.decisions, 0): Last(_DECISIONS),
        },
    )
    try:
        messages = [received.message for received in tail.read_to_end(newest_of=topics.ledger)]
    finally:
        tail.close()
    return Heard(
        sorted((m for m in messages if isinstance(m, Measurement)), key=lambda m: m.at_ms),
        [m for m in messages if isinstance(m, ConsumerState | ConsumerLeft)],
        [m for m in messages if isinstance(m, LedgerState)],
        [m for m in messages if isinstance(m, DecisionRecord)],
    )


def situation(
    heard: Heard,
    stale_after_s: float,
    slot_s: float,
    tables_of: Callable[[str], int],
    landed: Callable[[LedgerState], Mapping[TopicPartition, int]],
    now_s: float | None = None,
) -> Situation:
    if not heard.measurements:
        raise HeadgateError("nothing was measured yet: start the pipeline, or only its monitor, and look again")
    newest = heard.measurements[-1]
    now_s = time.time() if now_s is None else now_s
    age_s = now_s - newest.at_ms / 1000
    is_past = age_s > stale_after_s
    at_s = newest.at_ms / 1000 if is_past else now_s
    states = alive_at(heard.events, at_s)
    slots = ArrivalSlots(slot_s)
    for measurement in heard.measurements:
        slots.add(measurement)
    pause_s, start_s = cost_of_changes(heard.decisions)
    loads = {n: load_of(state) for n, state in states.items()}
    seen = observe(
        newest,
        _positions(heard.ledgers, landed),
        shown_owners(states),
        loads,
        at_s,
        max((d.at_ms / 1000 for d in heard.decisions if d.outcome != "dry-run"), default=at_s),
        tables_of,
        Recent(slots.take(), slot_s, pause_s, start_s),
    )
    peak = max(sum(rate.records_per_s for rate in m.rates) for m in heard.measurements)
    return Situation(seen, age_s, is_past, peak)


def alive_at(events: Sequence[ConsumerState | ConsumerLeft], at_s: float) -> dict[int, ConsumerState]:
    """The consumers that were there at this moment, as they reported themselves last before it or soon after."""
    found: dict[int, ConsumerState] = {}
    for event in events:
        known = found.get(event.consumer_id)
        if isinstance(event, ConsumerLeft):
            if known is not None and known.incarnation == event.incarnation and event.at_ms / 1000 <= at_s:
                del found[event.consumer_id]
        elif known is None or (event.at_ms / 1000 <= at_s and event.started_at_ms >= known.started_at_ms):
            found[event.consumer_id] = event
    return {n: s for n, s in found.items() if abs(at_s - s.at_ms / 1000) < ALIVE_S}


def _positions(
    ledgers: Sequence[LedgerState], landed: Callable[[LedgerState], Mapping[TopicPartition, int]]
) -> Ledgers:
    newest: dict[str, LedgerState] = {}
    for ledger in ledgers:
        if ledger.follows(newest.get(ledger.table)):
            newest[ledger.table] = ledger
    return {table: landed(word) for table, word in newest.items()}
