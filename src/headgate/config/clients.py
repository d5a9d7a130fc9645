"""Settings for each Kafka client that Headgate uses, from one pipeline: librdkafka, Java (Spark) and kafka-python."""

from collections.abc import Mapping
from typing import Any

from headgate.config.java_client import to_java
from headgate.config.pipeline import Pipeline


def librdkafka_settings(pipeline: Pipeline) -> dict[str, str]:
    """What every confluent-kafka client takes (admin, producer, consumer): the address and `kafka.client`."""
    # The client's own log goes past Python's to the terminal, a line for every refused connection; errors reach the
    # callers anyway. `log_level` in kafka.client brings it back.
    client = pipeline.kafka.client
    # By default a client waits up to ten seconds before it tries a broker again that was away; some have begun to count
    # as dead by then.
    patience = {} if "reconnect.backoff.ms" in client else {"reconnect.backoff.max.ms": "1000"}
    return {"bootstrap.servers": pipeline.kafka.brokers, "log_level": "2", **patience, **client}


def java_settings(pipeline: Pipeline) -> dict[str, str]:
    """What Spark's Kafka connector takes, each key still to be prefixed with `kafka.`; `kafka.java_client` wins."""
    kafka = pipeline.kafka
    return {
        "bootstrap.servers": kafka.brokers,
        "isolation.level": kafka.isolation,
        "fetch.max.bytes": str(kafka.fetch_max_bytes),
        "max.partition.fetch.bytes": str(kafka.max_partition_fetch_bytes),
        "fetch.max.wait.ms": _ms(kafka.fetch_wait_s),
        "session.timeout.ms": _ms(kafka.session_timeout_s),
        **to_java(kafka.client, kafka.java_client),
    }


def reader_settings(pipeline: Pipeline) -> dict[str, str]:
    """What librdkafka takes to read records in Spark's workers. What it does of its own accord is set beside it."""
    kafka = pipeline.kafka
    fetch_max_bytes = min(max(1_000, kafka.fetch_max_bytes), 2_000_000_000)
    return {
        "isolation.level": kafka.isolation,
        "fetch.max.bytes": str(fetch_max_bytes),
        "max.partition.fetch.bytes": str(min(kafka.max_partition_fetch_bytes, 1_000_000_000)),
        "message.max.bytes": str(min(1_000_000, fetch_max_bytes)),  # for producers, but must not be more
        "receive.message.max.bytes": str(max(100_000_000, fetch_max_bytes + 512)),
        "group.id": f"{pipeline.group}-reader",  # asked for; it neither joins nor commits
        **librdkafka_settings(pipeline),
    }


_KAFKA_PYTHON = {
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "client.id": "client_id",
}


def kafka_python_settings(pipeline: Pipeline) -> dict[str, Any]:
    """Keyword arguments for kafka-python's admin client, the only one that reads log directories (L-5)."""
    return as_kafka_python(pipeline.kafka.brokers, pipeline.kafka.client)


def as_kafka_python(brokers: str, client: Mapping[str, str]) -> dict[str, Any]:
    """librdkafka's settings as keyword arguments of kafka-python's clients."""
    settings: dict[str, Any] = {"bootstrap_servers": brokers.split(",")}
    settings |= {theirs: client[ours] for ours, theirs in _KAFKA_PYTHON.items() if ours in client}
    if "security.protocol" in client:
        settings["security_protocol"] = client["security.protocol"].upper()
    mechanism = client.get("sasl.mechanism", client.get("sasl.mechanisms"))
    if mechanism is not None:
        settings["sasl_mechanism"] = mechanism.upper()
    if client.get("ssl.endpoint.identification.algorithm", "").lower() == "none":
        settings["ssl_check_hostname"] = False
    return settings


def _ms(seconds: float) -> str:
    return str(round(seconds * 1000))
