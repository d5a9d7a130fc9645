"""What every option costs: its consumers, the records late under it, and the records that getting there makes late."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

import numpy as np

from headgate.model import Assignment, TopicPartition
from headgate.policies.backlog import Ints, grown, late_by_backlog, summed
from headgate.policies.forecast import Floats, Load
from headgate.policies.lateness import late_by_moving, late_per_s

Held = tuple[frozenset[TopicPartition], float]
"""What a consumer owns, and its speed."""

RETURN = 2.0
"""How much of the moves' price a scale-down pays in advance for the way back."""
CALM = 0.01
"""Consumer-seconds of late records below which only fewer consumers are looked at."""
STEPS = 8
"""Steps in which a backlog is followed through the payback time."""


@dataclass(frozen=True, slots=True)
class Option:
    """One assignment with its price, in consumer-seconds over the payback time."""

    assignment: Assignment
    gain: float
    """What it saves against keeping, all costs of the change paid."""
    now: float
    """What it saves per second once it is in effect."""
    late_per_s: float
    """From then on, with those that what is left standing will make late."""
    late_if_kept_per_s: float
    moves: int


@dataclass(frozen=True)
class Prices:
    """The circumstances of one decision, by which all its options are priced."""

    load: Load
    owners: Ints
    """Of each of the load's partitions, now."""
    stands: Floats
    """Records of each partition that wait too long already."""
    spares: Set[int]
    """Consumers that run and own nothing: they need no start."""
    capacity_records_per_s: float
    slo_s: float
    late_price: float
    """Consumer-seconds that one late record is worth."""
    move_price: float
    start_s: float
    pause_s: float
    interval_s: float
    payback_s: float
    down_payback_s: float
    """The payback time of pure scale-downs, longer the longer one was possible."""
    speed: Mapping[int, float] = field(default_factory=dict)
    """Of each consumer that is slower than the others, its share of their capacity (L-26)."""

    def is_calm(self, current: Assignment) -> bool:
        """Whether nothing worth a consumer-second will be late as far as one looks ahead."""
        if self.stands.any():
            return False
        load = self.load
        highest = max(load.at(0.0), load.at(self.start_s + self.interval_s + self.payback_s))
        sets = _Sets.of([self._key(c, current[c]) for c in current], self._places())
        shares = sets.summed(load.shares)
        late = late_per_s(load, shares, highest, self.capacity_records_per_s, self.slo_s) + self._late_by_jumps(sets)
        return bool(self.late_price * late.sum() * self.payback_s < CALM)

    def shares(self) -> dict[TopicPartition, float]:
        return dict(zip(self.load.partitions, self.load.shares.tolist(), strict=True))

    def work(self) -> dict[TopicPartition, float]:
        """Each partition's share of all there is to do within the payback time, what stands included."""
        todo = self.load.shares + self.stands / max(1.0, self.load.level * self.payback_s)
        return dict(zip(self.load.partitions, (todo / todo.sum()).tolist(), strict=True))

    def options(self, current: Assignment, offered: Iterable[Assignment]) -> list[Option]:
        """The present assignment as the first option, then those offered. Equal sets of partitions are priced once."""
        found = [current, *offered]
        column: dict[Held, int] = {}
        for option in found:
            for c, held in option.owners.items():
                column.setdefault(self._key(c, held), len(column))
        place = self._places()
        sets = _Sets.of(list(column), place)
        by_jumps = self._late_by_jumps(sets)
        soon, later = (self._late(sets, wait_s) + by_jumps for wait_s in (0.0, self.start_s))
        return [self._option(current, option, column, soon, later, place) for option in found]

    def _option(
        self,
        current: Assignment,
        option: Assignment,
        column: dict[Held, int],
        soon: Floats,
        later: Floats,
        place: dict[TopicPartition, int],
    ) -> Option:
        load, price = self.load, self.late_price
        new = option.owners.keys() - current.owners.keys()
        created, deleted = len(new), len(current.owners.keys() - option.owners.keys())
        is_waited_for = bool(new - self.spares)
        late = later if is_waited_for else soon
        kept = late[:, [column[self._key(c, held)] for c, held in current.owners.items()]].sum(axis=1)
        then = late[:, [column[self._key(c, held)] for c, held in option.owners.items()]].sum(axis=1)
        savings = len(current) - len(option) + price * (kept - then)
        effect_s = self.interval_s + (self.start_s if is_waited_for else 0.0)
        changed = [(c, held) for c, held in option.owners.items() if held is not current.owners.get(c)]
        got = [place[p] for c, held in changed for p in held - current[c]]
        moved = load.shares[[n for n in got if self.owners[n]]]
        by_moves, by_moves_later = (
            late_by_moving(load.at(effect_s + wait_s) * moved, self.pause_s, self.capacity_records_per_s, self.slo_s)
            for wait_s in (0.0, 1.0)
        )
        change = price * by_moves + self.start_s * created + self.move_price * len(moved)
        if deleted:  # what is let go will be wanted again some day
            change += RETURN * price * by_moves + self.start_s * deleted
        lasting_s = self.down_payback_s if deleted and not created else self.payback_s
        gain = lasting_s * (savings[0] + 2 * savings[1] + savings[2]) / 4 - change
        urgency = savings[0] + price * (by_moves_later - by_moves)  # moving later may cost more, or less
        return Option(option, float(gain), float(urgency), float(then[0]), float(kept[0]), len(moved))

    def _key(self, consumer: int, held: frozenset[TopicPartition]) -> Held:
        """What one consumer is priced by."""
        return held, self.speed.get(consumer, 1.0)

    def _places(self) -> dict[TopicPartition, int]:
        return {p: n for n, p in enumerate(self.load.partitions)}

    def _late(self, sets: "_Sets", wait_s: float) -> Floats:
        """Late records per second of consumers with these partitions: at the start, middle and end of the payback time
        that begins `wait_s` from now.
        """
        load, capacity = self.load, self.capacity_records_per_s
        begin_s = self.interval_s + wait_s
        stands = grown(self.stands, self.owners, load, capacity, begin_s)
        shares, backlogs = sets.summed(load.shares), sets.summed(stands)
        levels = np.repeat([load.at(begin_s + m * self.payback_s) for m in (0.0, 0.5, 1.0)], sets.count)
        late = late_per_s(load, np.tile(shares, 3), levels, capacity, self.slo_s).reshape(3, sets.count)
        step_s = self.payback_s / STEPS
        ahead = np.array([load.at(begin_s + (n + 0.5) * step_s) for n in range(STEPS)])
        behind = late_by_backlog(np.outer(ahead, shares), backlogs, capacity, step_s) / self.payback_s
        result: Floats = late + behind
        return result

    def _late_by_jumps(self, sets: "_Sets") -> Floats:
        """Late records per second to expect from jumps like those seen before, which give no time to start anybody."""
        load, capacity = self.load, self.capacity_records_per_s
        late, now = np.zeros(sets.count), sets.summed(load.shares) * load.level
        for jump in load.jumps:
            added = jump.level - load.level
            if added > 0:
                rates = now + added * sets.summed(jump.pattern)
                late += late_per_s(load, rates / jump.level, jump.level, capacity, self.slo_s)
                late += np.maximum(0.0, rates - capacity)  # to be worked off afterwards
        exposed_s = self.start_s + 1.5 * self.interval_s
        return late * exposed_s * load.jumps_per_s / max(1, len(load.jumps))


@dataclass(frozen=True)
class _Sets:
    """Sets of partitions, as numbers, to sum over quickly."""

    count: int
    members: Ints
    """Places of all members, set after set."""
    belongs_to: Ints
    """For each member its set."""
    speed: Floats
    """Of each set's consumer."""

    @classmethod
    def of(cls, sets: list[Held], place: dict[TopicPartition, int]) -> "_Sets":
        members = np.array([place[p] for held, _ in sets for p in held], dtype=np.int64)
        belongs_to = np.repeat(np.arange(len(sets)), [len(held) for held, _ in sets])
        return cls(len(sets), members, belongs_to, np.array([speed for _, speed in sets], dtype=np.float64))

    def summed(self, values: Floats) -> Floats:
        """As what it is for a consumer with all its capacity: half a one carries everything twice."""
        result: Floats = summed(self.belongs_to, values[self.members], self.count) / self.speed
        return result
