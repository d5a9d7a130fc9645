"""A controller for a pipeline: its policy, its patience and its channel, put together from the pipeline file."""

import threading

from headgate.config.clients import librdkafka_settings
from headgate.config.pipeline import Pipeline
from headgate.controller.clock import SystemClock
from headgate.controller.dry_run import DryRun
from headgate.controller.kafka_channel import KafkaChannel
from headgate.controller.machine import Controller
from headgate.controller.settings import Settings
from headgate.fleet import Fleet
from headgate.kafka.channel import Topics
from headgate.policies import Policy
from headgate.policies.registry import build_policy


def policy_of(pipeline: Pipeline) -> Policy:
    policy = pipeline.policy
    return build_policy(
        policy.name,
        policy.packer,
        consumer_capacity_bytes_per_s=policy.consumer_capacity_bytes_per_s,
        packing_capacity_bytes_per_s=policy.packing_capacity_bytes_per_s,
        max_sentinel_s=policy.max_sentinel_s,
        timeout_policy=policy.timeout_policy,
        max_consumers=pipeline.fleet.max_consumers,
        stale_after_s=pipeline.controller.stale_after_s,
        slo_s=pipeline.slo.latency_s,
        quantile=pipeline.slo.quantile,
        params=policy.params,
        packer_params=policy.packer_params,
    )


def settings_of(pipeline: Pipeline) -> Settings:
    controller, fleet, policy = pipeline.controller, pipeline.fleet, pipeline.policy
    return Settings(
        consumer_capacity_bytes_per_s=policy.consumer_capacity_bytes_per_s,
        packing_capacity_bytes_per_s=policy.packing_capacity_bytes_per_s,
        warm=fleet.warm,
        start_deadline_s=fleet.start_deadline_s,
        ready_deadline_s=controller.ready_deadline_s,
        ack_deadline_s=controller.ack_deadline_s,
        heartbeat_deadline_s=controller.heartbeat_deadline_s,
        # A consumer gives its own lost announcements up first; only then is it the one that hangs.
        stuck_deadline_s=max(5 * controller.ack_deadline_s, 2 * pipeline.consumer.commit_deadline_s),
        commit_wait_s=min(30.0, pipeline.consumer.commit_deadline_s),
        stop_deadline_s=fleet.stop_deadline_s,
        tables_of=lambda topic: len(pipeline.tables_of(topic)),
    )


def channel_of(pipeline: Pipeline) -> KafkaChannel:
    """The internal topics must exist (`ensure_topics`)."""
    return KafkaChannel(librdkafka_settings(pipeline), Topics(pipeline.name))


def controller_of(pipeline: Pipeline, fleet: Fleet, channel: KafkaChannel, stop: threading.Event) -> Controller:
    return Controller(policy_of(pipeline), channel, fleet, SystemClock(stop), settings_of(pipeline))


def dry_run_of(pipeline: Pipeline, channel: KafkaChannel, stop: threading.Event) -> DryRun:
    return DryRun(policy_of(pipeline), channel, SystemClock(stop), settings_of(pipeline))
