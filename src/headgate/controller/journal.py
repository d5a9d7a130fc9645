"""The decision journal: every decision that was applied, failed or only rehearsed; and once for as long as they last,
every alert and every reason to keep what is though something fired."""

import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from headgate.controller.observing import capacities
from headgate.controller.ports import ALERT, STARTED, Channel, Clock
from headgate.controller.reassign import Change
from headgate.controller.settings import Settings
from headgate.model import Alert, Assignment
from headgate.model.messages import ConsumerPartitions, DecisionRecord, PartitionMove
from headgate.packing.scores import rscore

log = logging.getLogger(__name__)

KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Timings:
    """L-53, in seconds; what a decision did not get to is 0."""

    measure_s: float = 0.0
    decide_s: float = 0.0
    ready_s: float = 0.0
    handover_s: float = 0.0
    pause_s: float = 0.0


class Journal:
    def __init__(self, channel: Channel, clock: Clock, settings: Settings, epoch: int) -> None:
        self._channel = channel
        self._clock = clock
        self._settings = settings
        self._epoch = epoch
        self._number = 0
        self._told_s: dict[str, float] = {}
        """Per alert, when it last held."""
        self._kept_s: dict[tuple[object, ...], float] = {}
        """The same per reason to keep what is."""

    def open(self) -> None:
        """Says that this controller is in charge now."""
        self._write("", "the controller started", STARTED, Assignment())

    def kept(self, change: Change) -> None:
        """Something was weighed and nothing changes. Written down if that is news: timeouts fire again and again, and
        some policies weigh at every look."""
        decision, now = change.decision, self._clock.now_s()
        needed = decision.inputs.get("needed_consumers", decision.inputs.get("wanted"))
        about = (decision.trigger, len(change.current), needed)
        known = {a: at for a, at in self._kept_s.items() if now - at <= self._settings.kept_quiet_s}
        if about not in known:
            self.decided(change, KEPT, Timings(measure_s=change.seen.age_s + change.window_s))
        self._kept_s = known | {about: now}

    def decided(
        self,
        change: Change,
        outcome: str,
        timings: Timings,
        created: Iterable[int] = (),
        deleted: Iterable[int] = (),
    ) -> None:
        self._kept_s.clear()  # after a change, keeping is a new decision
        decision, current, following = change.decision, change.current, change.following
        rates, settings = change.seen.rates(), self._settings
        self._number += 1
        record = DecisionRecord(
            at_ms=self._now_ms(),
            epoch=self._epoch,
            number=self._number,
            trigger=decision.trigger,
            reason=decision.reason,
            outcome=outcome,
            consumers_before=len(current),
            consumers_after=len(following),
            moved=len(change.plan.rebalanced),
            rscore_packing=rscore(current, following, rates, settings.packing_capacity_bytes_per_s),
            rscore_consumer=rscore(current, following, rates, settings.consumer_capacity_bytes_per_s),
            assignment=_listed(following),
            created=tuple(sorted(created)),
            deleted=tuple(sorted(deleted)),
            alerts=tuple(alert.text for alert in decision.alerts),
            rejected=tuple(f"{other.what}: {other.why_not}" for other in decision.rejected),
            inputs=dict(decision.inputs),
            measure_s=timings.measure_s,
            decide_s=timings.decide_s,
            ready_s=timings.ready_s,
            handover_s=timings.handover_s,
            moves=tuple(
                PartitionMove(m.partition.topic, m.partition.partition, m.old or 0, m.new or 0)
                for m in change.plan.moves
            ),
            pause_s=timings.pause_s,
            expected_pause_s=change.seen.pause_s or 0.0,
            capacities=capacities(
                current, change.seen.consumers, change.seen.abilities, settings.consumer_capacity_bytes_per_s
            ),
        )
        _say(record)
        self._channel.record(record)

    def alert(self, alerts: Iterable[Alert], assignment: Assignment, outcome: str = ALERT) -> None:
        """Writes down those alerts that are news; called with all that hold now, again and again."""
        now = self._clock.now_s()
        self._told_s = {a: at for a, at in self._told_s.items() if now - at <= self._settings.alert_quiet_s}
        for alert in alerts:
            if alert.about not in self._told_s:
                log.warning("%s", alert.text)
                self._write(ALERT, alert.text, outcome, assignment, (alert.text,))
            self._told_s[alert.about] = now

    def _write(
        self, trigger: str, reason: str, outcome: str, assignment: Assignment, alerts: tuple[str, ...] = ()
    ) -> None:
        self._number += 1
        self._channel.record(
            DecisionRecord(
                at_ms=self._now_ms(),
                epoch=self._epoch,
                number=self._number,
                trigger=trigger,
                reason=reason,
                outcome=outcome,
                consumers_before=len(assignment),
                consumers_after=len(assignment),
                moved=0,
                rscore_packing=0.0,
                rscore_consumer=0.0,
                assignment=_listed(assignment),
                created=(),
                deleted=(),
                alerts=alerts,
                rejected=(),
            )
        )

    def _now_ms(self) -> int:
        return int(self._clock.now_s() * 1000)


def _listed(assignment: Assignment) -> tuple[ConsumerPartitions, ...]:
    return tuple(ConsumerPartitions(c, tuple(sorted(assignment[c]))) for c in assignment)


def _say(record: DecisionRecord) -> None:
    """One line per decision; with --log-format json its numbers are fields."""
    log.info(
        "decision %d (%s): %s; %s", record.number, record.trigger or "looked", record.reason, record.outcome,
        extra={
            "decision": {
                "number": record.number,
                "epoch": record.epoch,
                "trigger": record.trigger,
                "reason": record.reason,
                "outcome": record.outcome,
                "consumers_before": record.consumers_before,
                "consumers_after": record.consumers_after,
                "moved": record.moved,
                "created": record.created,
                "deleted": record.deleted,
                "rejected": record.rejected,
                "inputs": record.inputs,
                "measure_s": record.measure_s,
                "decide_s": record.decide_s,
                "ready_s": record.ready_s,
                "handover_s": record.handover_s,
                "pause_s": record.pause_s,
                "capacities": [asdict(one) for one in record.capacities],
            }
        },
    )  # fmt: skip
