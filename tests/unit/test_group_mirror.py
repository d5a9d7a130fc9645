"""The group's offsets are asked for and answered at different times, and nobody waits longer than they want to."""

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition as KafkaTopicPartition

from headgate.errors import KafkaUnavailable
from headgate.kafka import offsets
from headgate.kafka.offsets import GroupMirror
from headgate.model import TopicPartition
from tests.ports import free_port

ONE = TopicPartition("t", 1)


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[GroupMirror]:
    """Nobody answers it, so it is told here what they would."""
    made = GroupMirror({"bootstrap.servers": f"127.0.0.1:{free_port()}", "log_level": 0}, "g")
    yield made
    monkeypatch.setattr(offsets, "_ANSWER_S", 0.1)  # what its end may take
    made.close()


def test_what_nobody_answers_is_not_written_and_after_a_while_an_error(mirror: GroupMirror) -> None:
    mirror.ask({ONE: 5})
    assert mirror.is_written(0.0) is False
    mirror._answer_by_s -= 5
    with pytest.raises(KafkaUnavailable, match="cannot mirror offsets to group g: no answer within 5 s"):
        mirror.is_written(0.0)


def test_an_answer_to_an_earlier_question_is_none_to_the_last_one(mirror: GroupMirror) -> None:
    mirror.ask({ONE: 5})
    mirror.ask({ONE: 6})
    mirror._committed(None, [KafkaTopicPartition("t", 1, 5)])
    assert mirror.is_written(0.0) is False
    mirror._committed(None, [KafkaTopicPartition("t", 1, 6)])
    assert mirror.is_written(0.0) is True
