"""What a committer says on the pipeline's topics: where ledgers are, verdicts, problems, and what a commit was."""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from headgate.config.pipeline import Pipeline
from headgate.failpoints import reach
from headgate.kafka.channel import Outbox
from headgate.kafka.internal_topics import Topics
from headgate.lake.commit import CommitResult
from headgate.lake.commit_report import report, show_problems
from headgate.lake.table_state import TableState
from headgate.lake.words import HEARTBEAT_S
from headgate.model.messages import Landed, LedgerState, Verdict

log = logging.getLogger(__name__)


class Telling:
    def __init__(self, pipeline: Pipeline, settings: Mapping[str, str | int | float | bool], name: str) -> None:
        self._slo = pipeline.slo
        self._topics = Topics(pipeline.name)
        self._outbox = Outbox(settings, "the committer")
        self._name = name

    def result(self, state: TableState, result: CommitResult) -> None:
        """How a commit went. Verdicts that may not have reached the brokers are said again the next time."""
        verdicts = [Verdict(a.id, a.consumer_id, a.incarnation, True, "") for a in (*result.committed, *result.already)]
        for refused in result.refused:
            a = refused.announcement
            log.warning("refused %s of consumer %d for %s: %s", a.id, a.consumer_id, state.name, refused.reason)
            verdicts.append(Verdict(a.id, a.consumer_id, a.incarnation, False, refused.reason))
        state.unsaid += verdicts
        if result.committed or result.refused:
            record = report(self._name, state.name, result, _now_ms(), self._slo)
            self._outbox.send(self._topics.commits, record)
        self.ledger(state, result, (*map(_made_anew, sorted(result.made_anew)), *state.held_problems))
        self._outbox.flush()
        state.unsaid.clear()
        reach("commit.published")

    def complaint(self, state: TableState, problem: str, earlier: LedgerState | None) -> None:
        """Commits fail: says so, with the ledger as it was last known, for whoever looks at the status."""
        due = time.monotonic() - state.published_at > HEARTBEAT_S
        if state.last is not None:
            if due:
                self.ledger(state, state.last, (problem,))
            return
        show_problems(state.name, 1)
        if due and earlier is not None:
            repeated = replace(earlier, at_ms=_now_ms(), committer=self._name, verdicts=(), problems=(problem,))
            self._outbox.send(self._topics.ledger, repeated, key=earlier.table)
            state.published_at = time.monotonic()

    def ledger(self, state: TableState, result: CommitResult, problems: tuple[str, ...]) -> None:
        message = LedgerState(
            table=state.name,
            at_ms=_now_ms(),
            committer=self._name,
            sequence=result.ledger.sequence,
            snapshot_id=result.snapshot_id,
            exists=result.exists,
            positions=tuple(
                Landed(p.topic, p.partition, at)
                for p, at in sorted(result.ledger.next.items())
                if p.topic not in result.made_anew
            ),
            verdicts=tuple(state.unsaid),
            announcements_next=state.settled_to,
            problems=problems,
        )
        for problem in set(problems) - set(state.problems):
            log.error("%s: %s", state.name, problem)
        state.problems = problems
        show_problems(state.name, len(problems))
        self._outbox.send(self._topics.ledger, message, key=state.name)
        state.published_at = time.monotonic()


def _now_ms() -> int:
    return int(time.time() * 1000)


def _made_anew(topic: str) -> str:
    return (
        f"topic {topic} was deleted and made anew: its offsets began again, so its records cannot be told from those "
        f"the lake holds and are not read. Ingest it under another name or into another table; if it was moved with "
        f"its offsets, say so with: headgate maintain FILE --same-topic {topic}"
    )
