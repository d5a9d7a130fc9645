"""The controller's channel over Kafka: commands out, events, measurements and the ledger in, the journal beside."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import get_args

from confluent_kafka.admin import AdminClient

from headgate.controller.metrics import count_decision, show_heartbeat, show_lags
from headgate.controller.observing import lags_of_tables
from headgate.controller.ports import APPLIED, Command, Event, Ledgers
from headgate.kafka.channel import BEGINNING, END, Last, Outbox, Received, Tail
from headgate.kafka.internal_topics import Topics, grow_control
from headgate.model import Alert, TopicPartition
from headgate.model.messages import ControllerState, DecisionRecord, LedgerState, Measurement

log = logging.getLogger(__name__)

_EVENTS = get_args(Event)
_RECENT_DECISIONS = 200


class KafkaChannel:
    """Reads with one client, so that it costs one connection per broker whatever it follows."""

    def __init__(
        self,
        settings: Mapping[str, str],
        topics: Topics,
        landed: Callable[[LedgerState], Mapping[TopicPartition, int]],
        send_deadline_s: float = 30.0,
    ) -> None:
        """`landed` picks what counts of a ledger."""
        self._landed = landed
        self._topics = topics
        self._send_deadline_s = send_deadline_s
        self._admin = AdminClient(dict(settings))
        self._outbox = Outbox(settings, "the controller")
        self._events: list[Event] = []
        self._has_news = False
        self._measurement: Measurement | None = None
        self._ledgers: dict[str, LedgerState] = {}
        self._positions: dict[str, Mapping[TopicPartition, int]] = {}
        self._newest_epoch = 0
        self._decisions: deque[DecisionRecord] = deque(maxlen=_RECENT_DECISIONS)
        self._prepared = 0
        self._tail = Tail(
            settings,
            {
                (topics.control, 0): END,
                (topics.measurements, 0): END,
                (topics.ledger, 0): BEGINNING,
                (topics.decisions, 0): Last(_RECENT_DECISIONS),
            },
        )
        self._take(self._tail.read_to_end(newest_of=topics.ledger))

    def prepare(self, highest_consumer_id: int) -> int:
        if highest_consumer_id > self._prepared or self._prepared == 0:
            self._prepared = grow_control(self._admin, self._topics, highest_consumer_id)
        return self._prepared

    def send(self, command: Command) -> None:
        self._outbox.send(self._topics.control, command, partition=command.consumer_id)
        self._outbox.flush(self._send_deadline_s)

    def record(self, record: DecisionRecord) -> None:
        count_decision(record)
        self._outbox.send(self._topics.decisions, record)

    def events(self) -> list[Event]:
        self._read()
        events, self._events = self._events, []
        return events

    def had_news(self) -> bool:
        had, self._has_news = self._has_news, False
        return had

    def latest_measurement(self) -> Measurement | None:
        self._read()
        return self._measurement

    def ledgers(self) -> Ledgers:
        self._read()
        return self._positions

    def decisions(self) -> Iterable[DecisionRecord]:
        return self._decisions

    def newest_epoch(self) -> int:
        return self._newest_epoch

    def beat(self, state: ControllerState) -> None:
        show_heartbeat(state)
        if self._measurement is not None:
            show_lags(lags_of_tables(self._measurement, self._positions))
        self._outbox.send(self._topics.control, state)

    def refused(self) -> Iterable[Alert]:
        return [Alert(who, text) for who, text in self._tail.outdated.items()]

    def close(self) -> None:
        self._outbox.flush(self._send_deadline_s)
        self._tail.close()

    def _read(self) -> None:
        self._take(self._tail.poll())

    def _take(self, received: list[Received]) -> None:
        for each in received:
            message = each.message
            if each.topic == self._topics.control and isinstance(message, _EVENTS):
                self._events.append(message)
                self._has_news = True
            elif each.topic == self._topics.control and isinstance(message, ControllerState):
                self._has_news = True
            elif each.topic == self._topics.measurements and isinstance(message, Measurement):
                self._measurement = message
            elif each.topic == self._topics.ledger and isinstance(message, LedgerState):
                self._take_ledger(message)
            elif each.topic == self._topics.decisions and isinstance(message, DecisionRecord):
                if message.outcome == APPLIED:
                    self._decisions.append(message)
                if message.outcome != "dry-run":
                    self._newest_epoch = max(self._newest_epoch, message.epoch)
            else:
                log.warning("%s does not belong on %s; ignored", type(message).__name__, each.topic)

    def _take_ledger(self, state: LedgerState) -> None:
        if not state.follows(self._ledgers.get(state.table)):
            return
        self._ledgers[state.table] = state
        self._positions[state.table] = self._landed(state)
