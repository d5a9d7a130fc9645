"""Where many partitions end, asked every second: one client and one list of questions for all the looks."""

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from headgate.kafka.offsets import end_offsets, in_requests
from headgate.model import TopicPartition

log = logging.getLogger(__name__)


class LogEnds:
    """End offsets, open transactions included.

    The admin client gives a future for every partition, which for thousands of them takes longer than the brokers do.
    A consumer that reads nothing answers a whole list at once, or fails as a whole: then the admin client is asked,
    as long as it takes until every partition has an end again.
    """

    def __init__(self, settings: Mapping[str, Any], admin: AdminClient) -> None:
        self._admin = admin
        self._consumer = Consumer(
            {
                **settings,
                "group.id": "headgate-no-group",
                "enable.auto.commit": False,
                "isolation.level": "read_uncommitted",  # what is written, whether or not it may be read yet
            }
        )
        self._partitions: list[TopicPartition] = []
        self._questions: list[list[KafkaTopicPartition]] = []
        self._is_whole = True
        """Whether every partition had an end at the last look."""

    def watch(self, partitions: Iterable[TopicPartition]) -> None:
        self._partitions = sorted(partitions)
        self._questions = [
            [KafkaTopicPartition(p.topic, p.partition, OFFSET_END) for p in some]
            for some in in_requests(self._partitions)
        ]

    def ask(self, deadline_s: float) -> dict[TopicPartition, int]:
        """Partitions without a leader right now are left out; KafkaUnavailable if no broker answers."""
        if self._is_whole:
            try:
                ends = self._all_at_once(deadline_s / 2)
                if len(ends) == len(self._partitions):
                    return ends
            except KafkaException as error:
                log.info("no end offsets at once, asking for each: %s", error.args[0].str())
        self._is_whole = False
        found = end_offsets(self._admin, self._partitions, read_committed=False, deadline_s=deadline_s)
        if len(found) == len(self._partitions):
            self._consumer.list_topics(timeout=deadline_s)  # it may still believe in the leaders of before
            self._is_whole = True
        return found

    def _all_at_once(self, deadline_s: float) -> dict[TopicPartition, int]:
        until = time.monotonic() + deadline_s
        answers = [
            answer
            for question in self._questions
            for answer in self._consumer.offsets_for_times(question, timeout=max(0.0, until - time.monotonic()))
        ]
        return {
            partition: answer.offset
            for partition, answer in zip(self._partitions, answers, strict=True)
            if answer.error is None and answer.offset >= 0
        }

    def close(self) -> None:
        self._consumer.close()
