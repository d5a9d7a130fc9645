"""What a controller is handed: a clock, a channel and a fleet. Live ones and virtual ones are the same to it."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from headgate.model import Alert, TopicPartition
from headgate.model.messages import (
    ConsumerLeft,
    ConsumerState,
    ConsumingStarted,
    ConsumingStopped,
    ControllerState,
    DecisionRecord,
    Measurement,
    StartConsuming,
    StateQuery,
    StopConsuming,
)

Command = StartConsuming | StopConsuming | StateQuery
Event = ConsumerState | ConsumingStarted | ConsumingStopped | ConsumerLeft
Ledgers = Mapping[str, Mapping[TopicPartition, int]]
"""Per table and partition, the next offset the lake does not hold yet."""

APPLIED = "applied"
DRY_RUN = "dry-run"
ALERT = "alert"
"""Trigger of records that only tell an alert."""
STARTED = "started"
"""Outcome of the record a controller opens its journal with; it tells older controllers of the pipeline to end."""


class Clock(Protocol):
    def now_s(self) -> float:
        """Seconds since the epoch (or since the start of a simulation); never goes back."""
        ...

    def wait(self, seconds: float) -> None: ...


class Channel(Protocol):
    def prepare(self, highest_consumer_id: int) -> int:
        """Makes room for commands to consumers up to this id (L-29); returns the highest one there is room for."""
        ...

    def send(self, command: Command) -> None:
        """Returns once the command cannot get lost any more; commands to one consumer keep their order (L-28)."""
        ...

    def events(self) -> list[Event]:
        """What consumers said since the last call."""
        ...

    def had_news(self) -> bool:
        """Whether anything came since the last call the way that events come: events, or a controller's heartbeat."""
        ...

    def latest_measurement(self) -> Measurement | None:
        """The newest one only, never the backlog (L-34); None until there is one."""
        ...

    def ledgers(self) -> Ledgers: ...

    def record(self, record: DecisionRecord) -> None:
        """Adds to the decision journal."""
        ...

    def decisions(self) -> Iterable[DecisionRecord]:
        """The newest ones in the journal, whoever wrote them, oldest first."""
        ...

    def newest_epoch(self) -> int:
        """The highest epoch of a controller that opened the journal; 0 if none did."""
        ...

    def beat(self, state: ControllerState) -> None:
        """Shows everyone that the controller lives, itself included; may get lost."""
        ...

    def refused(self) -> Iterable[Alert]:
        """Parts of another version of Headgate that are at work on this pipeline and not understood."""
        ...
