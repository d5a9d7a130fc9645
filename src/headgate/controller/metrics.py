"""What the controller shows to Prometheus; counted where decisions leave for Kafka, so simulations count nothing."""

from prometheus_client import Counter, Gauge, Histogram, Info

from headgate.kafka.codec import RELEASE, VERSION
from headgate.model.messages import ControllerState, DecisionRecord

_DECISIONS = Counter(
    "headgate_decisions_total",
    "Decisions written to the journal, by what triggered them and what became of them",
    ["trigger", "outcome"],
)
_MOVED = Counter("headgate_partitions_moved_total", "Partitions that changed from one consumer to another")
_STARTED = Counter("headgate_consumers_started_total", "Consumers started by decisions")
_ENDED = Counter("headgate_consumers_ended_total", "Consumers ended by decisions")
_STEP = Histogram(
    "headgate_decision_step_duration_seconds",
    "How long the steps of carrying out a decision took: decide (t2), ready (t3), handover (t4)",
    ["step"],
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160),
)
_CONSUMERS = Gauge("headgate_consumers", "Consumers that own partitions, as far as the controller knows")
_HEARTBEAT = Gauge("headgate_controller_heartbeat_timestamp_seconds", "When the controller last took a step")

_BUILD = Info("headgate_build", "Which release this process runs, and its version of the messages")

_APPLIED = "applied"


def show_build() -> None:
    _BUILD.info({"release": RELEASE, "messages": str(VERSION)})


def count_decision(record: DecisionRecord) -> None:
    outcome = record.outcome.partition(":")[0]  # what follows is a sentence, different each time
    _DECISIONS.labels(record.trigger or "none", outcome).inc()
    if outcome != _APPLIED:
        return
    _MOVED.inc(record.moved)
    _STARTED.inc(len(record.created))
    _ENDED.inc(len(record.deleted))
    for step, seconds in (("decide", record.decide_s), ("ready", record.ready_s), ("handover", record.handover_s)):
        _STEP.labels(step).observe(seconds)


def show_heartbeat(state: ControllerState) -> None:
    _CONSUMERS.set(state.consumers)
    _HEARTBEAT.set(state.at_ms / 1000)
