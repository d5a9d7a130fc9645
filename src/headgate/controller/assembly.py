"""A controller for a pipeline: its policy, its patience and its channel, put together from the pipeline file."""

import threading
from collections.abc import Mapping
from typing import Any

from headgate.config.clients import librdkafka_settings
from headgate.config.pipeline import Pipeline
from headgate.controller.clock import SystemClock
from headgate.controller.dry_run import DryRun
from headgate.controller.kafka_channel import KafkaChannel
from headgate.controller.machine import Controller
from headgate.controller.settings import Settings
from headgate.fleet import Fleet
from headgate.kafka.internal_topics import Topics
from headgate.policies import Policy
from headgate.policies.registry import build_policy


def policy_of(
    pipeline: Pipeline,
    name: str | None = None,
    params: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Policy:
    """The pipeline's policy, or another one in its place: with the same numbers, but without `policy.params`.

    `params` come on top; a `packer` among them replaces the pipeline's. `facts` are what else a policy may ask for.
    What one consumer does in records is measured, unless somebody says it.
    """
    policy, given = pipeline.policy, dict(params or {})
    packer = given.pop("packer", policy.packer)
    own = policy.params if name in (None, policy.name) else {}
    return build_policy(
        name or policy.name,
        packer,
        consumer_capacity_bytes_per_s=policy.consumer_capacity_bytes_per_s,
        packing_capacity_bytes_per_s=policy.packing_capacity_bytes_per_s,
        max_sentinel_s=policy.max_sentinel_s,
        timeout_policy=policy.timeout_policy,
        max_consumers=pipeline.fleet.max_consumers,
        stale_after_s=pipeline.controller.stale_after_s,
        params={**own, **given},
        packer_params=policy.packer_params if packer == policy.packer else {},
        facts={**goal_of(pipeline), "capacity_records_per_s": None, **(facts or {})},
    )


def goal_of(pipeline: Pipeline) -> dict[str, float]:
    """The goal as policies know it, and how often they hear of arrivals."""
    beat_s = max(1.0, pipeline.monitor.poll_s)
    return {
        "slo_s": queueing_s(pipeline.slo.latency_s, fixed_s(pipeline)),
        "quantile": pipeline.slo.quantile,
        "beat_s": beat_s,
        "interval_s": beat_s,
        "waits_s": fixed_s(pipeline),
    }


def fixed_s(pipeline: Pipeline) -> float:
    """What a record may wait whatever the policy does: for its cycle to be gathered and for the next commit."""
    return pipeline.consumer.wait_s + pipeline.lake.commit_interval_s


def queueing_s(latency_s: float, waits_s: float) -> float:
    """What the goal leaves for waiting behind other records; never nothing, or every record would be hopeless."""
    return max(latency_s - waits_s, 0.1 * latency_s)


def events_within(capacity_records_per_s: float, slo_s: float) -> float:
    """v = mu · w_sla, what one consumer does within the SLO (A-2); at most a second's, for batches are of a second."""
    return capacity_records_per_s * min(1.0, slo_s)


def settings_of(pipeline: Pipeline) -> Settings:
    controller, fleet, policy = pipeline.controller, pipeline.fleet, pipeline.policy
    return Settings(
        consumer_capacity_bytes_per_s=policy.consumer_capacity_bytes_per_s,
        packing_capacity_bytes_per_s=policy.packing_capacity_bytes_per_s,
        warm=fleet.warm,
        start_deadline_s=fleet.start_deadline_s,
        ready_deadline_s=controller.ready_deadline_s,
        ack_deadline_s=controller.ack_deadline_s,
        down_deadline_s=controller.down_deadline_s,
        heartbeat_deadline_s=controller.heartbeat_deadline_s,
        # A consumer gives its own lost announcements up first; only then is it the one that hangs.
        stuck_deadline_s=max(5 * controller.ack_deadline_s, 2 * pipeline.verdict_deadline_s),
        stop_deadline_s=fleet.stop_deadline_s,
        kept_quiet_s=policy.max_sentinel_s + 600.0,
        slot_s=pipeline.monitor.poll_s,
        tables_of=lambda topic: len(pipeline.tables_of(topic)),
    )


def channel_of(pipeline: Pipeline) -> KafkaChannel:
    """The internal topics must exist (`ensure_topics`)."""
    return KafkaChannel(librdkafka_settings(pipeline), Topics(pipeline.name), pipeline.landed)


def controller_of(pipeline: Pipeline, fleet: Fleet, channel: KafkaChannel, stop: threading.Event) -> Controller:
    return Controller(policy_of(pipeline), channel, fleet, SystemClock(stop), settings_of(pipeline))


def dry_run_of(pipeline: Pipeline, channel: KafkaChannel, stop: threading.Event) -> DryRun:
    return DryRun(policy_of(pipeline), channel, SystemClock(stop), settings_of(pipeline))
