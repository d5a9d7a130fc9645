"""Commands to consumers, each with an id of its own so that acknowledgements can be told from stale ones."""

from collections.abc import Iterable

from headgate.controller.ports import Channel
from headgate.model import TopicPartition
from headgate.model.messages import Position, StartConsuming, StateQuery, StopConsuming

ANY_LIFE = ""


class Commander:
    """Speaks for one life of the controller: its epoch makes consumers deaf to earlier ones."""

    def __init__(self, channel: Channel, epoch: int) -> None:
        self._channel = channel
        self.epoch = epoch
        self._count = 0

    def _next_id(self) -> str:
        self._count += 1
        return f"{self.epoch}-{self._count}"

    def query(self, consumer_id: int) -> str:
        command = StateQuery(self._next_id(), self.epoch, consumer_id)
        self._channel.send(command)
        return command.command_id

    def start(
        self, consumer_id: int, life: str, partitions: Iterable[TopicPartition], reached: Iterable[Position] = ()
    ) -> StartConsuming:
        command = StartConsuming(
            self._next_id(), self.epoch, consumer_id, life, tuple(sorted(partitions)), tuple(reached)
        )
        self._channel.send(command)
        return command

    def stop(self, consumer_id: int, life: str, partitions: Iterable[TopicPartition]) -> StopConsuming:
        command = StopConsuming(self._next_id(), self.epoch, consumer_id, life, tuple(sorted(partitions)))
        self._channel.send(command)
        return command
