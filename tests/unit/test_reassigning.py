"""What a live reassignment does when some brokers do not answer; the rest is tested on a real cluster."""

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from headgate.errors import KafkaUnavailable
from headgate.kafka.reassign import settle


def test_everybody_is_waited_for_before_those_are_named_who_did_not_answer() -> None:
    deaf, late, done = (Future[None]() for _ in range(3))
    deaf.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    done.set_result(None)
    answers = {
        ConfigResource(ResourceType.BROKER, "1"): deaf,
        ConfigResource(ResourceType.BROKER, "2"): late,
        ConfigResource(ResourceType.TOPIC, "orders"): done,
    }
    with pytest.raises(KafkaUnavailable, match=r"not configured: broker 1, broker 2;.*headgate topology cancel"):
        settle(answers, within_s=-1)
    late.set_result(None)
    with pytest.raises(KafkaUnavailable, match=r"not configured: broker 1;"):
        settle(answers, within_s=-1)
    deaf_no_more = {**answers, ConfigResource(ResourceType.BROKER, "1"): done}
    settle(deaf_no_more, within_s=-1)
