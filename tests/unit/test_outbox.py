import pytest

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
