"""Following the internal topics with a real broker."""

from typing import ClassVar

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
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
    assert f"nothing came from {topic}[0] for" in caplog.text
    assert len(heard) == 6
    tail.close()


class HalfDeaf(Consumer):
    """Of a partition whose leader is moving nobody says where it ends."""

    moving: ClassVar[set[int]] = set()

    def get_watermark_offsets(
        self, partition: KafkaTopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        if partition.partition in self.moving:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return super().get_watermark_offsets(partition, timeout=timeout, cached=cached)


def test_what_has_come_meanwhile_does_not_come_again_with_a_new_client(
    broker: EmbeddedKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "Consumer", HalfDeaf)
    monkeypatch.setattr(channel, "LOOK_EVERY_S", 1000.0)  # it looks when it is told to
    monkeypatch.setattr(channel, "AGAIN_S", 1000.0)
    tail = Tail({"bootstrap.servers": broker.bootstrap}, {(topic, 0): BEGINNING, (topic, 1): BEGINNING})
    heard: list[int] = []

    def has_heard(*numbers: int) -> bool:
        heard.extend(r.message.consumer_id for r in tail.poll(0.1))
        return set(heard) == set(numbers)

    say(broker, topic, 0, 1)
    eventually(lambda: has_heard(0, 1), "both are followed")
    first = tail._consumer
    first.pause([KafkaTopicPartition(topic, n) for n in (0, 1)])
    say(broker, topic, 2, 3)
    tail._look()  # behind in both
    first.resume([KafkaTopicPartition(topic, 0)])
    eventually(lambda: has_heard(0, 1, 2), "the first goes on")
    monkeypatch.setattr(HalfDeaf, "moving", {0})
    tail._look()
    assert tail._consumer is not first
    eventually(lambda: has_heard(0, 1, 2, 3), "the second goes on with the new client")
    say(broker, topic, 4, 5)
    eventually(lambda: has_heard(0, 1, 2, 3, 4, 5), "both go on")
    assert sorted(heard) == [0, 1, 2, 3, 4, 5]
    tail.close()


def test_a_client_with_nothing_to_fetch_is_kept(
    broker: EmbeddedKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(broker, topic, 0)
    tail = Tail({"bootstrap.servers": broker.bootstrap}, {(topic, 0): BEGINNING, (topic, 1): BEGINNING})
    first = tail._consumer
    eventually(lambda: len(tail.poll(0.1)) == 1, "the message has come")
    monkeypatch.setattr(channel, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(channel, "AGAIN_S", 0.0)
    for _ in range(5):
        assert tail.poll(0.1) == []
    assert tail._consumer is first
    tail.close()
