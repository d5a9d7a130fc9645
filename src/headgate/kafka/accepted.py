"""Clients look at their settings when they are made: what they refuse is a mistake of whoever wrote those."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headgate.errors import ConfigError


@contextmanager
def accepted(complaint: str) -> Iterator[None]:
    """Around the making of a client: if it refuses its settings, ConfigError with this complaint and the client's."""
    try:
        yield
    except KafkaException as error:
        raise ConfigError(f"{complaint}: {error.args[0].str()}") from error


def open_admin(settings: Mapping[str, Any], complaint: str) -> AdminClient:
    with accepted(complaint):
        return AdminClient(dict(settings))
