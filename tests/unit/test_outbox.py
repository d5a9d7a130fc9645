from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from headgate.errors import KafkaUnavailable
from headgate.kafka.channel import Outbox
from headgate.model.messages import Measurement
from tests.ports import free_port


@pytest.mark.parametrize(
    ("settings", "deadline_s", "told"),
    [
        ({}, 0.1, "1 messages not acknowledged within 0.1 s"),
        ({"message.timeout.ms": 200}, 20, "t[0]: Local: Message timed out"),
    ],
    ids=["still waits", "given up"],
)
def test_what_no_broker_took_is_told_as_it_was(settings: dict[str, object], deadline_s: float, told: str) -> None:
    outbox = Outbox({"bootstrap.servers": f"127.0.0.1:{free_port()}", "log_level": 0, **settings})
    outbox.send("t", Measurement(0, 30.0, "offsets", ()))
    with pytest.raises(KafkaUnavailable) as raised:
        outbox.flush(deadline_s)
    assert str(raised.value) == told


class LosesTrack(Producer):
    """A client that refuses everything after its first record, as one does that brokers lost records of."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self.is_lost = False

    def produce(self, *args: Any, **kwargs: Any) -> None:
        if self.is_lost:
            raise KafkaException(KafkaError(KafkaError._FATAL))
        self.is_lost = True
        super().produce(*args, **kwargs)


def test_a_client_that_cannot_go_on_is_replaced_and_what_it_still_held_is_told_as_failed() -> None:
    kinds = iter([LosesTrack, Producer])
    settings = {"bootstrap.servers": f"127.0.0.1:{free_port()}", "log_level": 0}
    outbox = Outbox(settings, client=lambda all_settings: next(kinds)(all_settings))
    message = Measurement(0, 30.0, "offsets", ())
    outbox.send("held", message)
    with pytest.raises(KafkaUnavailable, match="cannot send a Measurement"):
        outbox.send("refused", message)
    outbox.send("sent", message)
    with pytest.raises(KafkaUnavailable) as raised:
        outbox.flush(0.1)
    assert str(raised.value) == "1 messages not acknowledged within 0.1 s; held[0]: Local: Purged in queue"
    assert next(kinds, None) is None
