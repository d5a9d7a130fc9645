"""The controller's channel in memory, on virtual time, with the delays and losses of a behaviour."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from headgate.controller.ports import Command, Event, Ledgers
from headgate.controller.virtual_behaviour import Behaviour
from headgate.controller.virtual_clock import VirtualClock
from headgate.model import Alert, TopicPartition
from headgate.model.messages import ControllerState, DecisionRecord, Measurement, PartitionRate

TABLE = "lake.virtual"


class MemoryChannel:
    def __init__(self, clock: VirtualClock, behaviour: Behaviour) -> None:
        self._clock = clock
        self._behaviour = behaviour
        self.commands: dict[int, list[Command]] = defaultdict(list)
        self.sent: list[tuple[float, Command]] = []
        self.records: list[DecisionRecord] = []
        self.heartbeat: ControllerState | None = None
        """The controller's newest."""
        self._events: list[Event] = []
        self.is_cut = False
        """Where events and heartbeats go nobody answers; measurements have another way."""
        self._has_news = False
        self._arrives_s: dict[int, float] = defaultdict(float)
        self._measurement: Measurement | None = None
        self._ledger: dict[TopicPartition, int] = {}
        self.prepared = 0

    # The controller's side

    def prepare(self, highest_consumer_id: int) -> int:
        self.prepared = max(self.prepared, highest_consumer_id)
        return self.prepared

    def send(self, command: Command) -> None:
        if command.consumer_id > self.prepared:
            raise LookupError(f"no partition for commands to consumer {command.consumer_id} (L-29)")
        self.sent.append((self._clock.now_s(), command))
        self.commands[command.consumer_id].append(command)

    def events(self) -> list[Event]:
        arrived, self._events = self._events, []
        self._has_news |= bool(arrived)
        return arrived

    def had_news(self) -> bool:
        had, self._has_news = self._has_news, False
        return had

    def latest_measurement(self) -> Measurement | None:
        return self._measurement

    def ledgers(self) -> Ledgers:
        return {TABLE: self._ledger}

    def record(self, record: DecisionRecord) -> None:
        self.records.append(record)

    def decisions(self) -> Iterable[DecisionRecord]:
        return self.records

    def newest_epoch(self) -> int:
        return max((r.epoch for r in self.records if r.outcome != "dry-run"), default=0)

    def beat(self, state: ControllerState) -> None:
        self.heartbeat = state
        self._has_news |= not self.is_cut

    def refused(self) -> Iterable[Alert]:
        return ()

    # The world's side

    def put(self, event: Event) -> None:
        """Straight onto the channel, whoever wrote it."""
        self._events.append(event)

    def say(self, event: Event) -> None:
        """A consumer's reply, with the delays and losses of its behaviour."""
        if self.is_cut or self._behaviour.loses(event):
            return
        now = self._clock.now_s()
        arrives_s = max(self._arrives_s[event.consumer_id], now + self._behaviour.reply_s())
        self._arrives_s[event.consumer_id] = arrives_s
        self._clock.after(arrives_s - now, lambda: self._events.append(event))

    def put_measurement(self, measurement: Measurement) -> None:
        """Straight onto the channel, as a monitor wrote it."""
        self._measurement = measurement

    def measure(self, rates: Mapping[TopicPartition, float], window_s: float = 30.0) -> None:
        """A measurement taken now, in bytes per second."""
        self._measurement = Measurement(
            self._clock.now_ms(),
            window_s,
            "virtual",
            tuple(PartitionRate(p.topic, p.partition, rate, rate / 100, 0, window_s) for p, rate in rates.items()),
        )

    def land(self, partition: TopicPartition, following: int) -> None:
        self._ledger[partition] = max(following, self._ledger.get(partition, 0))
