"""What the controller shows to Prometheus; counted where decisions leave for Kafka, so simulations count nothing."""

from collections.abc import Mapping

from prometheus_client import Counter, Gauge, Histogram

from headgate.controller.ports import APPLIED
from headgate.model.messages import ControllerState, DecisionRecord
from headgate.part_gauge import PartGauge

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
_CONSUMERS = PartGauge("headgate_consumers", "Consumers that own partitions, as far as the controller knows")
_COUNTED = Gauge(
    "headgate_consumer_counted_capacity_bytes_per_second",
    "What a consumer counts for in decisions: the configured capacity, or less while it is measured to be slower",
    ["consumer"],
)
_CONFIGURED = PartGauge("headgate_configured_capacity_bytes_per_second", "A consumer's capacity by the pipeline file")
_SLOW = PartGauge("headgate_slow_consumers", "Consumers that count for less than the configured capacity")
_CROWDING = PartGauge(
    "headgate_crowding_factor", "How much more consumers would do if they shared no cores or disk; 1 if they do not"
)
_PAUSE = PartGauge(
    "headgate_move_pause_seconds",
    "How long a partition that moves has no owner, from one acknowledgement to the other; 99th percentile of the "
    "newest moves",
)
_LAG = Gauge(
    "headgate_lag_records", "Records in Kafka, by the newest measurement, that the table does not hold yet", ["table"]
)
_HEARTBEAT = PartGauge("headgate_controller_heartbeat_timestamp_seconds", "When the controller last took a step")


def count_decision(record: DecisionRecord) -> None:
    outcome = record.outcome.partition(":")[0]  # what follows is a sentence, different each time
    _DECISIONS.labels(record.trigger or "none", outcome).inc()
    if outcome != APPLIED:
        return
    _MOVED.inc(record.moved)
    _STARTED.inc(len(record.created))
    _ENDED.inc(len(record.deleted))
    for step, seconds in (("decide", record.decide_s), ("ready", record.ready_s), ("handover", record.handover_s)):
        _STEP.labels(step).observe(seconds)


def show_heartbeat(state: ControllerState) -> None:
    _CONSUMERS.set(state.consumers)
    _HEARTBEAT.set(state.at_ms / 1000)
    for one in state.capacities:
        _COUNTED.labels(one.consumer_id).set(one.counted_bytes_per_s)
    shown = {sample.labels["consumer"] for metric in _COUNTED.collect() for sample in metric.samples}
    for gone in shown - {str(one.consumer_id) for one in state.capacities}:
        _COUNTED.remove(gone)  # one by one: a scrape in between must not find none at all
    _CONFIGURED.set(state.configured_bytes_per_s)
    _SLOW.set(sum(one.counted_bytes_per_s < state.configured_bytes_per_s for one in state.capacities))
    _CROWDING.set(state.crowding)
    _PAUSE.set(state.pause_s)


def show_lags(of_tables: Mapping[str, int]) -> None:
    for table, records in of_tables.items():
        _LAG.labels(table).set(records)
