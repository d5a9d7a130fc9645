"""The exchange (L-46): partitions change hands, each stopped at its old owner before it is started at its new one."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headgate.controller.commands import Commander
from headgate.controller.ports import Clock, Event
from headgate.controller.settings import Settings
from headgate.errors import OutOfSync
from headgate.failpoints import reach
from headgate.model import Move, TopicPartition
from headgate.model.messages import ConsumingStarted, ConsumingStopped, Position, StopConsuming

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Start:
    consumer_id: int
    missing: set[TopicPartition]
    answer_by_s: float


class Exchange:
    def __init__(
        self,
        moves: Iterable[Move],
        owners: Mapping[TopicPartition, int],
        lives: Mapping[int, str],
        commander: Commander,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._commanded: dict[TopicPartition, int] = dict(owners)
        """Who is told to own what, from the first stop sent to the last start; nobody between the two."""
        self._lives = lives
        self._commander = commander
        self._clock = clock
        self._settings = settings
        self._new_owner = {move.partition: move.new for move in moves}
        self._stops: dict[str, tuple[StopConsuming, float]] = {}
        self._starts: dict[str, _Start] = {}
        self._stopped_s: dict[TopicPartition, float] = {}
        self._reached: dict[TopicPartition, list[Position]] = defaultdict(list)
        self.pause_s = 0.0
        """The longest that a partition had no owner (t_r, E-29), from one acknowledgement to the other."""
        stops: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition in self._new_owner:
            if partition in self._commanded:
                stops[self._commanded[partition]].append(partition)
        for consumer_id in sorted(stops):
            stop = commander.stop(consumer_id, lives[consumer_id], stops[consumer_id])
            self._stops[stop.command_id] = (stop, clock.now_s() + settings.ack_deadline_s)
        if stops:
            reach("handover.stops-sent")
        self._start(p for p in self._new_owner if p not in self._commanded)

    @property
    def is_done(self) -> bool:
        return not (self._stops or self._starts)

    def step(self, events: list[Event]) -> None:
        stopped: list[TopicPartition] = []
        for event in events:
            if isinstance(event, ConsumingStopped) and event.command_id in self._stops:
                stopped += self._stopped(event)
            elif isinstance(event, ConsumingStarted) and event.command_id in self._starts:
                self._started(event)
        self._start(stopped)  # all at once: in a large fleet a new owner gets partitions from many
        self._check_deadlines()

    def _stopped(self, event: ConsumingStopped) -> Iterable[TopicPartition]:
        """The partitions that nobody owns now."""
        stop, _ = self._stops[event.command_id]
        if event.consumer_id != stop.consumer_id:
            return ()
        del self._stops[event.command_id]
        reach("handover.stopped")
        for at in event.announced:
            self._reached[TopicPartition(at.topic, at.partition)].append(at)
        # The answer covers the whole command: what it does not list the consumer did not own.
        for partition in stop.partitions:
            del self._commanded[partition]
            self._stopped_s[partition] = self._clock.now_s()
        return stop.partitions

    def _started(self, event: ConsumingStarted) -> None:
        start = self._starts[event.command_id]
        if event.consumer_id != start.consumer_id:
            return
        start.missing -= set(event.partitions)
        now = self._clock.now_s()
        stopped_s = [self._stopped_s.pop(p) for p in event.partitions if p in self._stopped_s]
        self.pause_s = max([self.pause_s, *(now - at_s for at_s in stopped_s)])
        if not start.missing:
            del self._starts[event.command_id]
            reach("handover.started")

    def _start(self, partitions: Iterable[TopicPartition]) -> None:
        """One message per new owner."""
        batches: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition in partitions:
            new = self._new_owner[partition]
            if new is not None:
                batches[new].append(partition)
        for consumer_id, batch in sorted(batches.items()):
            for partition in batch:
                if partition in self._commanded:
                    owner = self._commanded[partition]
                    raise AssertionError(f"{partition} would have two owners, {owner} and {consumer_id}")
                self._commanded[partition] = consumer_id
            reached = [at for partition in batch for at in self._reached[partition]]
            start = self._commander.start(consumer_id, self._lives[consumer_id], batch, reached)
            answer_by_s = self._clock.now_s() + self._settings.ack_deadline_s
            self._starts[start.command_id] = _Start(consumer_id, set(batch), answer_by_s)
        if batches:
            reach("handover.starts-sent")

    def _check_deadlines(self) -> None:
        now = self._clock.now_s()
        late = [f"consumer {stop.consumer_id} to stop {len(stop.partitions)} partitions"
                for stop, by_s in self._stops.values() if now > by_s]  # fmt: skip
        late += [f"consumer {start.consumer_id} to start {len(start.missing)} partitions"
                 for start in self._starts.values() if now > start.answer_by_s]  # fmt: skip
        if late:
            raise OutOfSync(f"waited {self._settings.ack_deadline_s:g} s for {', '.join(late)}")
