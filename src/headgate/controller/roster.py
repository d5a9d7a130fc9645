"""The consumers a controller wants to exist: who lives, since when, and who has to be replaced.

Two lives of one id are told apart by their incarnation; only the newest is listened to. Silence is judged by the news
that arrives the same way, the controller's own heartbeat among it: as long as nothing arrives there, it is the channel
that is silent, or the controller that slept, and nobody is replaced for it.
"""

import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from headgate.controller.commands import ANY_LIFE, Commander
from headgate.controller.observing import load_of
from headgate.controller.ports import Channel, Clock, Event
from headgate.controller.settings import Settings
from headgate.errors import FleetError
from headgate.fleet import Fleet
from headgate.model import Alert, ConsumerLoad, TopicPartition
from headgate.model.messages import ConsumerLeft, ConsumerState

log = logging.getLogger(__name__)

_MOST_AVOIDED = 3
"""If more ids than this fail it is not the ids' fault, and passing over them would only make numbers grow."""
_CLOCK_SKEW_MS = 60_000
"""A life that claims to begin later than this from now is nobody's; believing it would shut out the real one."""
_LATER = "~"
"""Makes of a life's name one that sorts after it and before every later life's."""


@dataclass(slots=True)
class Member:
    """One consumer id and what is known of its present life."""

    consumer_id: int
    report_by_s: float
    """Until when its life must have reported."""
    life: str = ""
    """Incarnation; empty until it reported."""
    life_started_at_ms: int = 0
    retired: set[str] = field(default_factory=set)
    partitions: frozenset[TopicPartition] = frozenset()
    """As last reported."""
    ready_s: float = 0.0
    heard_s: float = 0.0
    cycle: tuple[int, int] = (0, 0)
    """Number and end of its last cycle."""
    cycle_seen_s: float = 0.0
    """When that was news to us."""
    load: ConsumerLoad = field(default_factory=ConsumerLoad)
    failures: int = 0
    """Lives in a row that ended before they proved themselves."""
    down_since_s: float | None = None
    """When its last life was lost; None while it lives, and for one that never lived yet."""
    start_at_s: float | None = None
    """When to ask the fleet again; None while it was asked."""

    @property
    def is_ready(self) -> bool:
        return self.life != ""

    @property
    def is_unborn(self) -> bool:
        """Asked for by us and never heard of: it will own nothing, so nobody has to ask it what it owns."""
        return not self.is_ready and self.down_since_s is None


class Roster:
    def __init__(self, fleet: Fleet, commander: Commander, channel: Channel, clock: Clock, settings: Settings) -> None:
        self._fleet = fleet
        self._commander = commander
        self._channel = channel
        self._clock = clock
        self._settings = settings
        self._members: dict[int, Member] = {}
        self._leaving: dict[int, float] = {}
        """Consumers asked to stop, and until when their ids are better not used."""
        self._avoided: dict[int, float] = {}
        self._former: dict[int, Member] = {}
        """The last member of each id that is none any more: its lives must not pass for new ones."""
        self._dismiss_again_s: dict[str, float] = {}
        """Lives that were told to end, and when to say so again."""
        self._highest = channel.prepare(0)
        """The highest id a command can be sent to."""
        self._news_s = clock.now_s()
        self._silent_s = 0.0
        """For how long, all in all, nobody could be heard."""
        self.alerts: dict[str, Alert] = {}
        """Consumers that were given up, until their ids may be used again."""
        self.given_up: list[int] = []
        """The same, as news for whoever takes it from here."""

    def __contains__(self, consumer_id: int) -> bool:
        return consumer_id in self._members

    def __getitem__(self, consumer_id: int) -> Member:
        return self._members[consumer_id]

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(self._members)

    @property
    def ready(self) -> frozenset[int]:
        return frozenset(n for n, member in self._members.items() if member.is_ready)

    @property
    def listened_s(self) -> float:
        """A clock that stands still while nobody can be heard: deadlines of answers go by it."""
        return self._news_s - self._silent_s

    def lives(self) -> dict[int, str]:
        return {n: member.life for n, member in self._members.items()}

    def loads(self) -> dict[int, ConsumerLoad]:
        return {n: member.load for n, member in self._members.items() if member.is_ready}

    def strangers(self) -> frozenset[int]:
        """Consumers that run though this controller does not want them."""
        return self._fleet.running() - self._members.keys() - self._leaving.keys()

    def free_id(self, taken: Iterable[int] = ()) -> int:
        """L-49: the lowest id nobody has, passing over those that just failed or are still leaving."""
        used = {*taken, *self._members, *self._leaving, *self._avoided}
        return next(n for n in range(1, len(used) + 2) if n not in used)

    # What the controller wants

    def adopt(self, consumer_id: int) -> None:
        """Someone that runs already, started by an earlier controller."""
        self._prepare(consumer_id)
        self._leaving.pop(consumer_id, None)
        answer_by_s = self._clock.now_s() + self._settings.ack_deadline_s
        self._members[consumer_id] = Member(consumer_id, answer_by_s, down_since_s=answer_by_s)

    def start(self, consumer_id: int, forget: frozenset[TopicPartition]) -> None:
        """A consumer that is to own nothing at first: should its folder remember an earlier life, it finds a stop for
        all these partitions before it begins."""
        self._prepare(consumer_id)
        if forget:
            self._commander.stop(consumer_id, ANY_LIFE, forget)
        self._leaving.pop(consumer_id, None)
        self._members[consumer_id] = member = Member(consumer_id, 0.0)
        former = self._former.pop(consumer_id, None)
        if former is not None:
            member.retired = former.retired | {former.life}
            member.life_started_at_ms = former.life_started_at_ms
        self._ask(member)

    def _prepare(self, consumer_id: int) -> None:
        self._highest = self._channel.prepare(consumer_id)

    def stop(self, consumer_id: int) -> None:
        """Gracefully; it owns nothing any more (L-21)."""
        self._former[consumer_id] = self._members.pop(consumer_id)
        self._leaving[consumer_id] = self._clock.now_s() + self._settings.stop_deadline_s
        try:
            self._fleet.stop(consumer_id)
        except FleetError as error:
            log.warning("consumer %d: %s", consumer_id, error)

    def replace(self, consumer_id: int, why: str) -> None:
        """Ends this life at once and begins another, or gives the consumer up after too many in a row."""
        member, now = self._members[consumer_id], self._clock.now_s()
        member.failures += 1
        log.warning("consumer %d %s; replaced (%d in a row)", consumer_id, why, member.failures)
        if member.life:
            member.retired.add(member.life)
            member.down_since_s = now
        member.life, member.partitions, member.load = "", frozenset(), ConsumerLoad()
        try:
            self._fleet.stop(consumer_id, force=True)
        except FleetError as error:
            why = f"{why}; {error}"
        if member.failures > self._settings.start_attempts:
            self._give_up(member, f"was given up after {member.failures} lives in a row, the last one {why}")
            return
        pause_s = self._settings.start_backoff_s * 2 ** (member.failures - 2) if member.failures > 1 else 0.0
        member.start_at_s = now + pause_s
        if pause_s == 0.0:
            self._ask(member)

    def _ask(self, member: Member) -> None:
        now = self._clock.now_s()
        member.start_at_s = None
        member.report_by_s = now + self._settings.start_deadline_s
        try:
            self._fleet.start(member.consumer_id)
        except FleetError as error:
            log.warning("consumer %d could not be started: %s", member.consumer_id, error)
            member.report_by_s = -math.inf  # noticed as a failed start by the next `tend`

    def drop(self, consumer_id: int, why: str) -> None:
        """Gives up a new consumer that does not come up."""
        try:
            self._fleet.stop(consumer_id, force=True)
        except FleetError as error:
            why = f"{why}; {error}"
        self._give_up(self._members[consumer_id], why)

    def _give_up(self, member: Member, what: str) -> None:
        self._former[member.consumer_id] = self._members.pop(member.consumer_id)
        self.given_up.append(member.consumer_id)
        self._avoided.pop(member.consumer_id, None)
        self._avoided[member.consumer_id] = self._clock.now_s() + self._settings.avoid_s
        while len(self._avoided) > _MOST_AVOIDED:
            self._allow(next(iter(self._avoided)))
        about = f"consumer {member.consumer_id}"
        said = self._fleet.last_words(member.consumer_id)
        more = f"It said: {said}" if said else "Its log says more"
        self.alerts[about] = Alert(about, f"{about} {what}; its partitions go to others. {more}")

    # What happens

    def hear(self, events: list[Event]) -> list[Event]:
        """Takes note, and returns the events that count: those of the newest life of a consumer we want."""
        return [event for event in events if self._note(event)]

    def news(self) -> None:
        """Something arrived where consumers are heard. A long pause before it was not their fault."""
        now = self._clock.now_s()
        pause_s = now - self._news_s
        self._news_s = now
        if pause_s > self._settings.heartbeat_deadline_s / 2:
            log.info("no news for %.1f s; consumers get that much more time", pause_s)
            self._silent_s += pause_s
            for member in self._members.values():
                member.heard_s += pause_s
                member.cycle_seen_s += pause_s
                member.report_by_s += pause_s
                if member.down_since_s is not None:
                    member.down_since_s += pause_s

    def _note(self, event: Event) -> bool:
        now = self._clock.now_s()
        if isinstance(event, ConsumerLeft):
            self._leaving.pop(event.consumer_id, None)
        member = self._members.get(event.consumer_id)
        if member is None or event.incarnation in member.retired:
            self._dismiss(event)
            return False
        if isinstance(event, ConsumerState):
            if event.incarnation != member.life and not self._begin(member, event):
                return False
            self._describe(member, event)
        if event.incarnation != member.life:
            return False
        member.heard_s = now
        return True

    def _dismiss(self, event: Event) -> None:
        """A life that was replaced and still speaks is told so, and ends; its successor takes no notice of it.

        The lake would refuse what it announces, but it would read for nothing, and now and then win the race.
        """
        consumer_id, life, now = event.consumer_id, event.incarnation, self._clock.now_s()
        member = self._members.get(consumer_id)
        if not isinstance(event, ConsumerState) or now < self._dismiss_again_s.get(life, 0.0):
            return
        if member is None and (consumer_id in self._leaving or consumer_id in self._fleet.running()):
            return  # on its way out, or not adopted yet
        if consumer_id > self._highest:
            return  # nobody ever had this id, or it has no place for commands any more
        until = f"{life}{_LATER}"
        if member is not None and member.life and member.life <= until:
            return  # began earlier, came up later: what ends the one would end the other, too
        log.info("consumer %d: a life that was replaced (%s) still speaks; told to end", consumer_id, life)
        self._dismiss_again_s[life] = now + self._settings.heartbeat_deadline_s
        self._commander.stop(consumer_id, until, ())

    def _begin(self, member: Member, event: ConsumerState) -> bool:
        """Whether this first report of a life is one to believe."""
        now = self._clock.now_s()
        if event.started_at_ms > now * 1000 + _CLOCK_SKEW_MS:
            log.warning("consumer %d claims to start in the future; ignored, check the clocks", member.consumer_id)
            return False
        if event.started_at_ms < member.life_started_at_ms:
            self._dismiss(event)
            return False
        if member.life:
            member.retired.add(member.life)
        member.life, member.life_started_at_ms = event.incarnation, event.started_at_ms
        member.ready_s = member.cycle_seen_s = now
        member.start_at_s = member.down_since_s = None
        return True

    def _describe(self, member: Member, event: ConsumerState) -> None:
        now = self._clock.now_s()
        cycle = (event.cycle, event.cycle_finished_at_ms)
        if cycle != member.cycle or not member.partitions:
            member.cycle, member.cycle_seen_s = cycle, now
        member.partitions = frozenset(event.partitions)
        member.load = load_of(event)
        if member.failures and now - member.ready_s > self._settings.start_deadline_s:
            member.failures = 0

    def tend(self) -> None:
        """Replaces who is gone, silent or stuck, and starts again who did not come up."""
        now, running = self._clock.now_s(), self._fleet.running()
        self._leaving = {n: until for n, until in self._leaving.items() if until > now}
        for consumer_id in [n for n, until in self._avoided.items() if until <= now]:
            self._allow(consumer_id)
        for member in [self._members[n] for n in sorted(self._members)]:
            down_s = 0.0 if member.down_since_s is None else self._news_s - member.down_since_s
            if down_s > self._settings.down_deadline_s:
                self.drop(member.consumer_id, f"did not come back within {down_s:.0f} s")
                continue
            if member.start_at_s is not None:
                if now >= member.start_at_s:
                    self._ask(member)
                continue
            why = self._trouble(member, running)
            if why:
                self.replace(member.consumer_id, why)

    def _allow(self, consumer_id: int) -> None:
        del self._avoided[consumer_id]
        self.alerts.pop(f"consumer {consumer_id}", None)

    def _trouble(self, member: Member, running: frozenset[int]) -> str:
        settings = self._settings
        if not member.is_ready:
            if member.consumer_id not in running:
                return "ended before it was ready"
            return "was not ready in time" if self._news_s > member.report_by_s else ""
        if member.consumer_id not in running:
            return "is gone"
        if self._news_s - member.heard_s > settings.heartbeat_deadline_s:
            return f"was silent for {self._news_s - member.heard_s:.1f} s"
        if member.partitions and self._news_s - member.cycle_seen_s > settings.stuck_deadline_s:
            return f"finished no cycle for {self._news_s - member.cycle_seen_s:.0f} s"
        return ""
