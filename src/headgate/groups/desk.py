"""Where the controller keeps the plan and members come to ask: answers assignment requests and beats (E-24, E-26).

Members ask from the server's threads while the controller decides in its own, so every method takes the lock.
"""

import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from headgate.groups.placement import fitted, held_by, settled
from headgate.groups.wire import AssignmentAnswer, AssignmentRequest, Beat, BeatAnswer, by_topic, partitions_of
from headgate.model import Assignment, ConsumerLoad, TopicPartition
from headgate.packing.least_loaded import Item, Room

_SILENT_AFTER_S = 5.0
"""A member not heard of for this long cannot be asked for anything."""
_PAUSES_KEPT = 200
_BATCHES_KEPT = 20
_ENOUGH_RECORDS = 20
"""Fewer say little about what a member can do."""


class Work:
    """What a member can do, by its largest batches (E-3): small ones mostly show what polling and committing cost.

    A batch is forgotten for one at least as telling, never for its age: a quiet night does not make a member slow.
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[int, float]] = deque(maxlen=_BATCHES_KEPT)

    def add(self, records: int, busy_s: float) -> None:
        if not busy_s > 0 or not records > 0 or 2 * records < max((n for n, _ in self._batches), default=0):
            return
        telling = [batch for batch in self._batches if 2 * batch[0] >= records]
        self._batches = deque([*telling, (records, busy_s)], maxlen=_BATCHES_KEPT)

    @property
    def records_per_s(self) -> float | None:
        records = sum(n for n, _ in self._batches)
        return records / sum(s for _, s in self._batches) if records >= _ENOUGH_RECORDS else None


@dataclass(frozen=True, slots=True)
class _Known:
    """What one member told of itself."""

    beat: Beat
    heard_s: float
    work: Work


class Desk:
    def __init__(self, group: str, floor_s: float, clock: Callable[[], float]) -> None:
        self.group = group
        self._floor_s, self._clock = floor_s, clock
        self._lock = threading.RLock()
        self._plan, self._version = Assignment(), 0
        self._loads: Mapping[TopicPartition, Item] = {}
        self._room: Room | None = None
        self._numbers: dict[str, int] = {}
        self._taken: frozenset[int] = frozenset()
        self._known: dict[str, _Known] = {}
        self._pauses_s: deque[float] = deque(maxlen=_PAUSES_KEPT)
        self._asked: tuple[str, int] | None = None
        """Whom a rejoin was asked of, and the generation that it must exceed."""

    # --- what members call ---------------------------------------------------------------------------------------

    def assignment(self, request: AssignmentRequest) -> AssignmentAnswer:
        """E-24, E-25: the plan for exactly the members of this rebalance."""
        with self._lock:
            self._check(request.group)
            members = {m: of.data.joining(of.topics) for m, of in request.members.items()}
            numbers = self.numbers({m: j.handle for m, j in members.items()})
            partitions = partitions_of(request.partitions)
            loads = {p: self._loads.get(p, Item(0.0)) for p in partitions}
            chosen = fitted(self._plan, held_by(members, numbers), loads, self._room)
            placement, _ = settled({m: chosen[n] for m, n in numbers.items()}, members, partitions, loads)
            told: dict[str, dict[int, tuple[float, float]]] = {}
            for p, item in loads.items():
                told.setdefault(p.topic, {})[p.partition] = (item.rate, item.lag)
            return AssignmentAnswer(self._version, {m: by_topic(held) for m, held in placement.items()}, told)

    def beat(self, beat: Beat) -> BeatAnswer:
        with self._lock:
            self._check(beat.group)
            known = self._known.get(beat.member)
            work = known.work if known else Work()
            work.add(beat.records, beat.busy_s)
            self._known[beat.member] = _Known(beat, self._clock(), work)
            self._pauses_s += [s for s in beat.pauses_s if math.isfinite(s) and s >= 0]
            asked = self._asked
            return BeatAnswer(asked is not None and asked[0] == beat.member and beat.generation <= asked[1])

    def _check(self, group: str) -> None:
        if group != self.group:
            raise ValueError(f"this controller plans the group {self.group!r}, not {group!r}")

    # --- what the controller calls -------------------------------------------------------------------------------

    def publish(self, plan: Assignment) -> int:
        with self._lock:
            self._plan, self._version, self._asked = plan, self._version + 1, None
            return self._version

    def measured(self, loads: Mapping[TopicPartition, Item], room: Room | None, taken: Collection[int]) -> None:
        """The newest loads, for repacking; and numbers that belong to the fleet, whether or not they joined yet."""
        with self._lock:
            self._loads, self._room, self._taken = dict(loads), room, frozenset(taken)

    def numbers(self, handles: Mapping[str, int | None]) -> dict[str, int]:
        """A consumer number for each member: its handle, or one that nobody else has; the same as last time."""
        with self._lock:
            found: dict[str, int] = {}
            for member in sorted(handles, key=self._heard_last):
                handle = handles[member]
                if handle is not None and handle > 0 and handle not in found.values():
                    found[member] = handle
            for member in sorted(handles.keys() - found.keys(), key=lambda m: (self._numbers.get(m, math.inf), m)):
                used = {*found.values(), *self._taken}
                before = self._numbers.get(member)
                free = before if before and before not in used else min(set(range(1, len(used) + 2)) - used)
                found[member] = free
            self._numbers = found
            return dict(found)

    def _heard_last(self, member: str) -> tuple[float, str]:
        known = self._known.get(member)
        return (-known.heard_s if known else 0.0, member)

    def ask_to_rejoin(self, members: Collection[str], tried: Collection[str]) -> str | None:
        """Asks one member that listens, one not tried before if there is any; None if nobody listens."""
        with self._lock:
            able = sorted(m for m in members if m in self._known and self._listens(m))
            if not able:
                return None
            chosen = min(able, key=lambda m: (m in tried, m))
            generation = self.generation if self._asked is None else self._asked[1]
            self._asked = (chosen, generation)
            return chosen

    def forget_rejoin(self) -> None:
        with self._lock:
            self._asked = None

    def forget_others(self, members: Collection[str]) -> None:
        """Members that left are not remembered."""
        with self._lock:
            gone = [m for m, known in self._known.items() if m not in members and not self._recent(known)]
            for member in gone:
                del self._known[member]

    def _listens(self, member: str) -> bool:
        return self._recent(self._known[member])

    def _recent(self, known: _Known) -> bool:
        return self._clock() - known.heard_s <= _SILENT_AFTER_S

    @property
    def generation(self) -> int:
        """The newest that any member reported; -1 before."""
        with self._lock:
            return max((k.beat.generation for k in self._known.values()), default=-1)

    @property
    def pause_s(self) -> float | None:
        """t_r: the 99th percentile of members' newest pauses, at least the floor; None before the first (E-29)."""
        with self._lock:
            if not self._pauses_s:
                return None
            ordered = sorted(self._pauses_s)
            return max(self._floor_s, ordered[math.ceil(0.99 * len(ordered)) - 1])

    def beats(self) -> dict[str, Beat]:
        with self._lock:
            return {member: known.beat for member, known in self._known.items()}

    def abilities(self, numbers: Mapping[str, int]) -> dict[int, ConsumerLoad]:
        """What each member measured of itself (E-3)."""
        with self._lock:
            return {
                n: ConsumerLoad(capacity_records_per_s=known.work.records_per_s)
                for member, n in numbers.items()
                if (known := self._known.get(member)) is not None
            }
