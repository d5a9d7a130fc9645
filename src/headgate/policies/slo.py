"""Headgate's own policy: an SLO in seconds and a share of records that must meet it in, the cheapest assignment out.

Every option, the present assignment among them, is priced alike: its consumers, plus the records that will be late
under it, plus the records that getting there makes late. The option that pays for itself soonest is taken, if one does.
"""

from dataclasses import dataclass

import numpy as np

from headgate.model import Alert, Alternative, Assignment, Decision, Observation, Plan, TopicPartition
from headgate.policies.advice import advice
from headgate.policies.candidates import candidates, fewer
from headgate.policies.forecast import Floats, Forecast, Load
from headgate.policies.lateness import LateAccount, late_by_moving, late_per_s
from headgate.policies.seen import capacity, held, unowned


@dataclass(frozen=True, slots=True)
class _Option:
    """One assignment with its price, in consumer-seconds over the payback time."""

    assignment: Assignment
    gain: float
    """What it saves against keeping, all costs of the change paid."""
    now: float
    """What it saves per second once it is in effect."""
    late_per_s: float
    late_by_moves: float
    moves: int


def _words(option: _Option) -> str:
    count = len(option.assignment)
    return f"{count} consumer{'s' * (count != 1)} with {option.moves} move{'s' * (option.moves != 1)}"


def _objection(option: _Option) -> str:
    if option.gain <= 0:
        return f"would cost {-option.gain:.1f} consumer-seconds more than it saves"
    return "pays only later; waiting costs less than having it now"


def _direction(here: int, there: int) -> str:
    return "up" if there > here else "down" if there < here else "move"


EXCHANGE = 2.0
"""Budgets of late records that one consumer is worth while the budget is spent as it comes in. Tuned on W1."""
BY_MOVES = 0.13
"""How much dearer late records get by the share of the budget that moving everything once would take. Tuned on W1 with
rebalances of 2 s."""
RETURN = 2.0
"""How much of the moves' price a scale-down pays in advance for the way back."""
CALM = 0.01
"""Consumer-seconds of late records below which only fewer consumers are looked at."""
GRACE_S = 120.0
"""Budget granted in advance, in seconds of traffic: the first late record is not a crisis."""
CHEAPEST, DEAREST = 0.5, 10.0
"""Limits of the price relative to the one above, with nothing spent and with much overspent."""


@dataclass
class Slo:
    """Remembers arrivals, its late records and for how long fewer consumers would have done."""

    slo_s: float = 0.5
    quantile: float = 0.995
    """Share of records that must be done within the SLO."""
    thrift: float = 1.0
    """The knob: how many late records a consumer is worth, relative to the budget the quantile leaves. Below 1 buys
    fewer late records with more consumers, above 1 the other way round."""
    capacity_records_per_s: float | None = None
    """What one consumer does; None takes what consumers measure of themselves, else the bytes below."""
    consumer_capacity_bytes_per_s: float | None = None
    """The same in bytes, for when nothing is measured yet."""
    payback_s: float = 12.0
    """A change must pay for what it costs within this time."""
    patience: float = 40.0
    """Where moves hurt, changes must last: the payback time is at least this many pauses."""
    budget_s: float = 3600.0
    """Late records are budgeted over this long: what was saved may be spent, what was overspent is saved again."""
    start_s: float = 3.0
    """From asking for a consumer to its being ready, until that is measured."""
    pause_s: float = 0.05
    """How long a moved partition stands still, until that is measured."""
    move_price: float = 1.0
    """Consumer-seconds that moving a partition costs apart from its pause: connections, caches, attention."""
    interval_s: float = 1.0
    """Time between two looks; a forecast must reach that much further."""
    max_consumers: int = 32
    warm: int = 0
    """Consumers kept ready beyond those that own partitions."""
    beat_s: float = 1.0
    stale_after_s: float = 10.0

    def __post_init__(self) -> None:
        for name in ("slo_s", "thrift", "payback_s", "interval_s", "beat_s", "stale_after_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name):g}")
        for name in ("start_s", "pause_s", "warm"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, not {getattr(self, name):g}")
        if not 0 < self.quantile < 1:
            raise ValueError(f"quantile is a share between 0 and 1, such as 0.995, not {self.quantile:g}")
        if self.capacity_records_per_s is not None and not self.capacity_records_per_s > 0:
            raise ValueError(f"capacity_records_per_s must be above 0, not {self.capacity_records_per_s:g}")
        if self.max_consumers < 1:
            raise ValueError(f"max_consumers must be at least 1, not {self.max_consumers}")
        self._forecast = Forecast(self.beat_s)
        self._account = LateAccount(self.slo_s, self.budget_s)
        self._waste_s = 0.0
        """For how long fewer consumers would have done."""
        self._last_s = 0.0

    def decide(self, seen: Observation) -> Decision:
        hold = held(seen, self.stale_after_s)
        if hold is not None:
            return hold
        self._forecast.add(seen)
        mu = capacity(seen, self.capacity_records_per_s, self.consumer_capacity_bytes_per_s)
        if mu is None:
            return Decision(None, "hold: no consumer has measured its capacity yet; or set capacity_records_per_s")
        if not self._forecast.is_ready:
            return Decision(None, "hold: less than two beats of arrivals are known")
        start_s = self.start_s if seen.start_s is None else seen.start_s
        pause_s = self.pause_s if seen.pause_s is None else seen.pause_s
        self._account.add(seen, mu)
        load = self._forecast.load(start_s + self.interval_s)
        price = self._price(load, mu, pause_s)
        return self._choose(seen, load, mu, start_s, pause_s, price)

    def _price(self, load: Load, mu: float, pause_s: float) -> float:
        """Consumer-seconds that one late record is worth, dearer the more of the budget is spent or moves will take."""
        share = 1 - self.quantile
        spent = self._account.late / (share * (self._account.records + GRACE_S * max(load.mean_level, 1.0)))
        usual = max(load.mean_level, load.level, mu)  # a trace that starts from nothing is not judged by nothing
        allowed_per_s = share * usual * self.thrift * EXCHANGE
        everything = late_by_moving([usual * float(x) for x in load.shares], pause_s, mu, self.slo_s)
        by_moves = everything / (share * usual * self._payback_s(pause_s))
        return (min(max(spent**2, CHEAPEST), DEAREST) + BY_MOVES * by_moves) / allowed_per_s

    def _payback_s(self, pause_s: float) -> float:
        return max(self.payback_s, self.patience * pause_s)

    def _choose(
        self, seen: Observation, load: Load, mu: float, start_s: float, pause_s: float, price: float
    ) -> Decision:
        shares = dict(zip(load.partitions, map(float, load.shares), strict=True))
        # Warm spares own nothing and are not part of the choice.
        current = Assignment(
            {c: frozenset(seen.assignment[c] & shares.keys()) for c in seen.assignment if seen.assignment[c]}
        )
        largest = min(self.max_consumers, len(shares))
        nobody = unowned(seen)
        if not nobody and self._is_calm(current, shares, load, mu, start_s, pause_s, price):
            offered = fewer(current, shares)
        else:
            offered = candidates(current, shares, largest)
        options = self._priced([current, *offered], current, shares, load, mu, start_s, pause_s, price)
        kept = options[0]
        if nobody:
            options = [o for o in options if o.assignment.partitions == shares.keys()]
        best = max(options, key=lambda o: o.gain)
        smaller = any(len(o.assignment) < len(current) and o.now > 0 for o in options)
        self._waste_s = self._waste_s + (seen.at_s - self._last_s) if smaller else 0.0
        self._last_s = seen.at_s
        inputs = {
            "records_per_s": load.level,
            "slope_per_s": load.slope,
            "price": price,
            "late_per_s": kept.late_per_s,
            "dispersion": load.dispersion,
            "consumers": float(len(current)),
            "budget_spent": self._account.late / max(1.0, (1 - self.quantile) * self._account.records),
            "gain": best.gain,
        }
        alerts = (*advice(seen, load, mu, self.slo_s, pause_s), *self._limit(kept, largest, len(shares)))
        if not nobody and (best.gain <= 0 or best.now <= 0 or best.assignment == current):
            kept_back = [] if best.assignment == current else [Alternative(_words(best), _objection(best))]
            why = f"keep {len(current)}: {kept.late_per_s:.2f} late records/s expected at {load.level:.0f} records/s"
            return Decision(None, why, "", inputs, tuple(kept_back), alerts)
        if seen.brokers_slow and len(best.assignment) > len(current) and not nobody:
            return Decision(None, "keep: the brokers are slow, not the consumers", "", inputs, alerts=alerts)
        self._waste_s = 0.0
        trigger = "unassigned" if nobody else _direction(len(current), len(best.assignment))
        why = (
            f"{load.level:.0f} records/s, {load.slope:+.1f} a second: {_words(best)} save {best.gain:.0f} "
            f"consumer-seconds, with late records at {price:.2g} each ({kept.late_per_s:.2f} -> "
            f"{best.late_per_s:.2f} a second) and the moves paid"
        )
        others = sorted((o for o in options if o is not best), key=lambda o: -o.gain)[:3]
        rejected = tuple(Alternative(_words(o), f"would save {o.gain:.0f}") for o in others)
        chosen = Assignment({**best.assignment.owners, **self._spares(best.assignment)})
        return Decision(chosen, why, trigger, inputs, rejected, alerts)

    def _spares(self, assignment: Assignment) -> dict[int, frozenset[TopicPartition]]:
        """Consumers kept warm own nothing."""
        free = (n for n in range(1, len(assignment) + self.warm + 1) if n not in assignment.owners)
        return {next(free): frozenset() for _ in range(self.warm)}

    def _limit(self, kept: _Option, largest: int, partitions: int) -> tuple[Alert, ...]:
        if len(kept.assignment) < largest or largest == partitions or kept.late_per_s <= 0:
            return ()
        text = (
            f"all {largest} consumers allowed are in use, {kept.late_per_s:.1f} records/s are late: raise max_consumers"
        )
        return (Alert("max_consumers", text),) if kept.late_per_s > 1 else ()

    def _is_calm(
        self,
        current: Assignment,
        shares: dict[TopicPartition, float],
        load: Load,
        mu: float,
        start_s: float,
        pause_s: float,
        price: float,
    ) -> bool:
        """Whether nothing worth a consumer-second will be late as far as one looks ahead."""
        payback_s = self._payback_s(pause_s)
        highest = max(load.at(0.0), load.at(start_s + self.interval_s + payback_s))
        held_shares = np.array([sum(shares[p] for p in current[c]) for c in current])
        late = late_per_s(load, held_shares, highest, mu, self.slo_s)
        late = late + self._late_by_jumps(load, held_shares, mu, start_s)
        return bool(price * late.sum() * payback_s < CALM)

    def _priced(
        self,
        offered: list[Assignment],
        current: Assignment,
        shares: dict[TopicPartition, float],
        load: Load,
        mu: float,
        start_s: float,
        pause_s: float,
        price: float,
    ) -> list[_Option]:
        s = self
        sets = sorted({a[c] for a in (current, *offered) for c in a}, key=sorted)
        column = {members: n for n, members in enumerate(sets)}
        held_shares = np.array([sum(shares[p] for p in members) for members in sets])
        payback_s = self._payback_s(pause_s)
        moments = [s.interval_s + wait_s + m for wait_s in (0.0, start_s) for m in (0.0, payback_s / 2, payback_s)]
        levels = np.repeat([load.at(m) for m in moments], len(sets))
        late = late_per_s(load, np.tile(held_shares, len(moments)), levels, mu, s.slo_s).reshape(
            len(moments), len(sets)
        )
        late = late + self._late_by_jumps(load, held_shares, mu, start_s)
        soon, later = late[:3], late[3:]
        priced = []
        for option in offered:
            plan = Plan.between(current, option)
            lates = later if plan.create else soon
            kept = [sum(x[column[current[c]]] for c in current) for x in lates]
            then = [sum(x[column[option[c]]] for c in option) for x in lates]
            spared = len(current) - len(option)
            savings = [spared + price * (k - t) for k, t in zip(kept, then, strict=True)]
            effect_s = s.interval_s + (start_s if plan.create else 0.0)
            moved = [shares[p] for p in plan.rebalanced]
            by_moves, by_moves_later = (
                late_by_moving([load.at(effect_s + wait_s) * share for share in moved], pause_s, mu, s.slo_s)
                for wait_s in (0.0, 1.0)
            )
            change = price * by_moves + start_s * len(plan.create) + s.move_price * len(moved)
            if plan.delete:  # what is let go will be wanted again some day
                change += RETURN * price * by_moves + start_s * len(plan.delete)
            lasting_s = s.payback_s + self._waste_s if plan.delete and not plan.create else payback_s
            gain = lasting_s * (savings[0] + 2 * savings[1] + savings[2]) / 4 - change
            urgency = savings[0] + price * (by_moves_later - by_moves)  # moving later may cost more, or less
            priced.append(_Option(option, float(gain), float(urgency), float(then[0]), by_moves, len(moved)))
        return priced

    def _late_by_jumps(self, load: Load, held_shares: Floats, mu: float, start_s: float) -> Floats:
        """Late records per second to expect from jumps like those seen before, which give no time to start anybody."""
        late = np.zeros(len(held_shares))
        higher = [level for level in load.jumps if level > load.level]
        for level in higher:
            late += late_per_s(load, held_shares, level, mu, self.slo_s)
        exposed_s = start_s + 1.5 * self.interval_s
        return late * exposed_s * load.jumps_per_s / max(1, len(load.jumps))
