"""Why a decision was taken and what came of it, put together from the pipeline's own journals.

Everything is read from Kafka by time, so a pipeline can be asked about its past whether it runs or not, as far back as
its topics reach (a week of measurements and commits, thirty days of decisions).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.controller.ports import ALERT, APPLIED, DRY_RUN, STARTED
from headgate.kafka.channel import Last, Received, Tail
from headgate.kafka.internal_topics import Topics
from headgate.lake.latency import merge_quantiles
from headgate.model.messages import CommitRecord, DecisionRecord, Measurement

AFTERWARDS_S = (60.0, 300.0)
"""When the pipeline is looked at again after a decision was carried out."""

_LATENCY_OVER_S = 60.0
_NEWEST_WITHIN_S = 60.0
"""A measurement or a commit older than this says nothing about now."""
_COMMIT_WITHIN_S = 600.0
MOST = 1000
"""Decisions that are explained at once: each takes half a dozen looks into Kafka."""
_MS = 1000
_SPANS_MS = (3_600_000, 86_400_000, 30 * 86_400_000)
_LONGEST_MS = 600_000
"""From a trigger to the record of its decision: the deadlines of readiness and of acknowledgements, and some more."""


@dataclass(frozen=True, slots=True)
class Moment:
    """How the pipeline did at one instant; None is what nothing is known of."""

    at_ms: int
    bytes_per_s: float | None
    lag_records: int | None
    """Records written and not in the lake; of several tables of a topic, the slowest counts. Without those of silent
    tables, so it may be more."""
    latency_p50_s: float | None
    """Over the minute before."""
    latency_p99_s: float | None
    silent: tuple[str, ...] = ()
    """Tables to which nothing was committed in the ten minutes before: they have no records, or stand still."""


@dataclass(frozen=True, slots=True)
class Explanation:
    decision: DecisionRecord
    before: Moment
    """When the trigger fired."""
    afterwards: tuple[Moment, ...]
    """Only those instants that have come."""


@dataclass(frozen=True, slots=True)
class Answer:
    explained: tuple[Explanation, ...]
    unread: int
    """Records of the journal that another release wrote, with another version of the messages."""


def triggered_ms(decision: DecisionRecord) -> int:
    """A decision is written down when it is carried out, or has failed: this is when it was taken."""
    return decision.at_ms - round(_MS * (decision.decide_s + decision.ready_s + decision.handover_s))


@dataclass(frozen=True, slots=True)
class Question:
    """Which decisions are asked about."""

    count: int | None
    """The newest so many; None is the one in force, however much was looked at and kept since."""
    at_ms: float | None = None
    """As they were then; None is now."""
    rehearsed: bool = False
    """Those of dry runs, and not those of controllers in charge."""

    def chosen(self, decisions: Iterable[DecisionRecord]) -> tuple[DecisionRecord, ...]:
        """Oldest first. A controller that only started decided nothing."""
        of_interest = (d for d in decisions if d.outcome != STARTED and (d.outcome == DRY_RUN) is self.rehearsed)
        taken = (d for d in of_interest if self.at_ms is None or triggered_ms(d) <= self.at_ms)
        ordered = sorted(taken, key=lambda d: d.at_ms)
        if self.count is not None:
            return tuple(ordered[-self.count :])
        return tuple([d for d in ordered if d.outcome == APPLIED or (self.rehearsed and d.trigger != ALERT)][-1:])

    def is_answered(self, found: Sequence[DecisionRecord]) -> bool:
        return len(found) >= (self.count or 1)


def moment(
    at_ms: int, measurements: Sequence[Measurement], commits: Sequence[CommitRecord], tables: Iterable[str] = ()
) -> Moment:
    measured = max((m for m in measurements if m.at_ms <= at_ms), key=lambda m: m.at_ms, default=None)
    recent = [c for c in commits if 0 <= at_ms - c.at_ms < _MS * _LATENCY_OVER_S]
    weighted = [(c.latency_ms, c.rows + c.rejected) for c in recent if c.latency_ms]
    p50_ms, p99_ms = merge_quantiles(weighted, 0.5), merge_quantiles(weighted, 0.99)
    return Moment(
        at_ms,
        None if measured is None else sum(rate.bytes_per_s for rate in measured.rates),
        None if measured is None else _lag(measured, [c for c in commits if c.at_ms <= at_ms]),
        None if p50_ms is None else p50_ms / _MS,
        None if p99_ms is None else p99_ms / _MS,
        () if measured is None else tuple(sorted(set(tables) - {c.table for c in commits if c.at_ms <= at_ms})),
    )


def _lag(measured: Measurement, commits: Iterable[CommitRecord]) -> int | None:
    newest_of = {c.table: c for c in sorted(commits, key=lambda c: c.at_ms)}
    reached: dict[str, int] = {}
    for commit in newest_of.values():
        for topic, total in commit.reached.items():
            reached[topic] = min(total, reached.get(topic, total))
    ends: dict[str, int] = {}
    for rate in measured.rates:
        ends[rate.topic] = ends.get(rate.topic, 0) + rate.end_offset
    if not ends.keys() & reached.keys():
        return None
    return sum(max(0, end - reached[topic]) for topic, end in ends.items() if topic in reached)


def _decisions(received: Iterable[Received]) -> list[DecisionRecord]:
    return [r.message for r in received if isinstance(r.message, DecisionRecord)]


class Explainer:
    """Reads the journals of a pipeline with these tables. Its topics must exist."""

    def __init__(self, settings: Mapping[str, Any], topics: Topics, tables: Iterable[str]) -> None:
        self._settings = settings
        self._topics = topics
        self._tables = tuple(tables)

    def explain(self, question: Question, now_ms: float) -> Answer:
        tail = Tail(self._settings, {(self._topics.decisions, 0): Last(MOST)})
        try:
            received = tail.read_to_end()
            found, unread = question.chosen(_decisions(received)), tail.passed_over[self._topics.decisions]
            if not question.is_answered(found) and len(received) + unread >= MOST:  # the journal is longer than that
                found, unread = self._further_back(tail, question, now_ms)
            return Answer(tuple(self._explanation(tail, d, now_ms) for d in found), unread)
        finally:
            tail.close()

    def _further_back(self, tail: Tail, question: Question, now_ms: float) -> tuple[tuple[DecisionRecord, ...], int]:
        """Before the newest ones: looks around that time, ever wider. Also how much of it could not be read."""
        at_ms = now_ms if question.at_ms is None else question.at_ms
        found: tuple[DecisionRecord, ...] = ()
        topic, unread = self._topics.decisions, 0
        for span_ms in _SPANS_MS:
            before = tail.passed_over[topic]
            past = tail.read_between(topic, max(0.0, at_ms - span_ms), at_ms + _LONGEST_MS)
            found, unread = question.chosen(_decisions(past)), tail.passed_over[topic] - before
            if question.is_answered(found):
                break
        return found, unread

    def _explanation(self, tail: Tail, decision: DecisionRecord, now_ms: float) -> Explanation:
        later = [decision.at_ms + round(_MS * after_s) for after_s in AFTERWARDS_S]
        before = self._moment(tail, triggered_ms(decision))
        return Explanation(decision, before, tuple(self._moment(tail, at_ms) for at_ms in later if at_ms <= now_ms))

    def _moment(self, tail: Tail, at_ms: int) -> Moment:
        def read(topic: str, within_s: float) -> list[Any]:
            return [r.message for r in tail.read_between(topic, max(0.0, at_ms - _MS * within_s), at_ms + 1)]

        measurements = [m for m in read(self._topics.measurements, _NEWEST_WITHIN_S) if isinstance(m, Measurement)]
        commits = [c for c in read(self._topics.commits, _COMMIT_WITHIN_S) if isinstance(c, CommitRecord)]
        return moment(at_ms, measurements, commits, self._tables)
