"""The two Kafka clients of a forwarder, set up so that order and the promise of at least once hold."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from headgate.errors import ConfigError
from headgate.kafka.accepted import accepted
from headgate.producers.confluent import BalancedProducer
from headgate.producers.protocol import Partitioner

log = logging.getLogger(__name__)

SESSION_MS = 10_000
"""So long after its last word a forwarder counts as dead, and another takes over."""
TOLD_EVERY_S = 10.0
_OURS = {
    "bootstrap.servers": "the address is --from or --to",
    "group.id": "the group is --group",
    "enable.auto.commit": "offsets are committed once the main cluster has acknowledged",
    "enable.auto.offset.store": "offsets are committed once the main cluster has acknowledged",
    "delivery.report.only.error": "acknowledgements are what is waited for",
    "transactional.id": "one transaction cannot span two clusters",
}


def address(brokers: str, client: Mapping[str, str], option: str) -> dict[str, Any]:
    """How to reach a cluster: for admin clients, and the rest builds on it."""
    for key, why in _OURS.items():
        if key in client:
            raise ConfigError(f"{option} {key} cannot be set: {why}")
    return {"bootstrap.servers": brokers, "log_level": "2", **client}


def consumer_settings(source: Mapping[str, Any], group: str) -> dict[str, Any]:
    return {
        "auto.offset.reset": "earliest",
        "session.timeout.ms": SESSION_MS,
        "partition.assignment.strategy": "cooperative-sticky",  # who keeps a partition does not pause
        **source,
        "group.id": group,
        "enable.auto.commit": False,
        "error_cb": _told("collector cluster"),
    }


def open_producer(
    target: Mapping[str, Any], partitioner: str | Partitioner, in_flight_records: int
) -> BalancedProducer:
    """However long the main cluster is away, no record is given up: the client tries on, and the forwarder pauses."""
    settings = {
        "enable.idempotence": True,
        "linger.ms": 5,
        "message.timeout.ms": 0,
        "message.max.bytes": 100_000_000,  # how large a record may be is for the brokers to say
        **target,
        "queue.buffering.max.messages": 2 * in_flight_records,
        "queue.buffering.max.kbytes": 2_000_000,  # the forwarder's own limits are far below
        "error_cb": _told("main cluster"),
    }
    if "0" in (str(settings.get(name)) for name in ("acks", "request.required.acks")):
        raise ConfigError("--to-client acks=0 cannot be used: without acknowledgements records would be lost unseen")
    if str(settings["enable.idempotence"]).lower() != "true":
        settings.setdefault("max.in.flight.requests.per.connection", 1)  # a retry must not be overtaken
    with accepted("--to-client cannot be used"):
        return BalancedProducer(settings, partitioner=partitioner)


def _told(which: str) -> Callable[[Any], None]:
    """A client that cannot connect says so many times a second; it is passed on now and then."""
    again_s = 0.0

    def told(error: Any) -> None:
        nonlocal again_s
        heard_s = time.monotonic()
        if heard_s >= again_s:
            again_s = heard_s + TOLD_EVERY_S
            log.warning("the %s: %s", which, error.str())

    return told
