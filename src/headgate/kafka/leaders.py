"""Asking who leads topics before a client reads them for the first time.

A client that meets a topic by being told to read it looks for its leaders once a second, and the first read waits for
that.
"""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

_ANSWER_S = 2.0
"""Without an answer in this time, the client finds leaders by itself, later."""
_FEW_TOPICS = 10
"""Of more than these, everything is asked for at once."""


class Leaders:
    """Of the topics that one client has met."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._met: set[str] = set()

    def meet(self, topics: Iterable[str]) -> KafkaError | None:
        """Asks for those that are new; what stood in the way, if something did."""
        new = set(topics) - self._met
        try:
            for topic in sorted(new) if len(new) <= _FEW_TOPICS else (None,):
                self._consumer.list_topics(topic, timeout=_ANSWER_S)
        except KafkaException as error:
            refused: KafkaError = error.args[0]
            return refused
        self._met |= new
        return None
