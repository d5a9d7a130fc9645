"""Following the internal topics with a real broker."""

import pytest
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.kafka import channel
from headgate.kafka.channel import BEGINNING, Outbox, Received, Tail
from headgate.kafka.embedded import EmbeddedKafka
from headgate.model.messages import ConsumerLeft
from tests.eventually import eventually
from tests.integration.pipeline_harness import new_name


@pytest.fixture
def topic(broker: EmbeddedKafka) -> str:
    name, admin = new_name(), AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 2)])[name].result(30)
    return name


def say(broker: EmbeddedKafka, topic: str, *numbers: int) -> None:
    outbox = Outbox({"bootstrap.servers": broker.bootstrap})
    for number in numbers:
        outbox.send(topic, ConsumerLeft(number, "life", 0, ""), partition=number % 2)
    outbox.flush()


def test_a_client_that_does_not_fetch_any_more_is_replaced_and_every_message_comes_once(
    broker: EmbeddedKafka, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Paused, a client is like one that has stopped for good: it answers, and fetches nothing of that partition."""
    monkeypatch.setattr(channel, "LOOK_EVERY_S", 2.0)
    monkeypatch.setattr(channel, "AGAIN_S", 2.0)
    tail = Tail({"bootstrap.servers": broker.bootstrap}, {(topic, 0): BEGINNING, (topic, 1): BEGINNING})
    heard: list[Received] = []

    def has_heard(*numbers: int) -> bool:
        heard.extend(tail.poll(0.1))
        return {r.message.consumer_id for r in heard} == set(numbers)

    say(broker, topic, 0, 1)
    eventually(lambda: has_heard(0, 1), "both are followed")
    first = tail._consumer
    first.pause([KafkaTopicPartition(topic, 0)])
    say(broker, topic, 2, 3, 4, 5)
    eventually(lambda: has_heard(0, 1, 2, 3, 4, 5), "what the client did not fetch is read with another one")
    assert tail._consumer is not first
    assert f"nothing came from {topic}[0] for 2 s though there is more" in caplog.text
    assert len(heard) == 6
    tail.close()


def test_a_client_with_nothing_to_fetch_is_kept(
    broker: EmbeddedKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(broker, topic, 0)
    tail = Tail({"bootstrap.servers": broker.bootstrap}, {(topic, 0): BEGINNING, (topic, 1): BEGINNING})
    first = tail._consumer
    eventually(lambda: len(tail.poll(0.1)) == 1, "the message has come")
    monkeypatch.setattr(channel, "LOOK_EVERY_S", 0.0)
    for _ in range(5):
        assert tail.poll(0.1) == []
    assert tail._consumer is first
    tail.close()
