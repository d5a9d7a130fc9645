"""Headgate's own policy: an SLO in seconds and a share of records that must meet it in, the cheapest assignment out.

Every option, the present assignment among them, is priced alike: its consumers, plus the records that will be late
under it, plus the records that getting there makes late. The option that pays for itself soonest is taken, if one does.
"""

import math
from dataclasses import dataclass

from headgate.model import Alert, Alternative, Assignment, Decision, Observation, TopicPartition
from headgate.policies.advice import advice
from headgate.policies.backlog import owners_of, standing
from headgate.policies.candidates import candidates, fewer
from headgate.policies.forecast import Forecast, Load
from headgate.policies.lateness import LateAccount, late_by_moving
from headgate.policies.pricing import Option, Prices
from headgate.policies.seen import adopted, capacity, held, unowned


def _words(option: Option) -> str:
    count = len(option.assignment)
    return f"{count} consumer{'s' * (count != 1)} with {option.moves} move{'s' * (option.moves != 1)}"


def _objection(option: Option) -> str:
    if option.gain <= 0:
        return f"would cost {-option.gain:.1f} consumer-seconds more than it saves"
    return "pays only later; waiting costs less than having it now"


def _direction(here: int, there: int) -> str:
    return "up" if there > here else "down" if there < here else "move"


EXCHANGE = 7.0
"""Budgets of late records that one consumer is worth while the budget is spent as it comes in. Tuned on W1."""
BY_MOVES = 0.7
"""How much dearer late records get by the share of the budget that moving everything once would take. Tuned on W1 with
rebalances of 2 s."""
AIM = 0.85
PATIENT_S = 120.0
GRACE_S = 120.0
"""Budget granted in advance, in seconds of traffic: the first late record is not a crisis."""
CHEAPEST, DEAREST = 0.5, 20.0
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
    waits_s: float = 0.0
    """What every record waits whatever the policy does, as for its commit: lag of that long is no backlog."""
    max_consumers: int = 32
    warm: int = 0
    """Consumers kept ready beyond those that own partitions."""
    beat_s: float = 1.0
    stale_after_s: float = 10.0

    def __post_init__(self) -> None:
        for name in ("slo_s", "thrift", "payback_s", "interval_s", "beat_s", "stale_after_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name):g}")
        for name in ("start_s", "pause_s", "waits_s", "warm"):
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
            return self._blind(seen, "no consumer has measured its capacity yet; or set capacity_records_per_s")
        if not self._forecast.is_ready:
            return self._blind(seen, "less than two beats of arrivals are known")
        start_s = self.start_s if seen.start_s is None else seen.start_s
        pause_s = self.pause_s if seen.pause_s is None else seen.pause_s
        self._account.add(seen, mu, pause_s, self.waits_s)
        load = self._forecast.load(start_s + self.interval_s)
        price = self._price(load, mu, pause_s)
        return self._choose(seen, load, mu, start_s, pause_s, price)

    def _blind(self, seen: Observation, lacking: str) -> Decision:
        """Without knowing what to pack by, only partitions without owner are given one: nothing is measured unread."""
        nobody = unowned(seen)
        if not nobody:
            return Decision(None, f"hold: {lacking}")
        given = adopted(seen)
        chosen = Assignment({**given.owners, **self._spares(given)})
        return Decision(chosen, f"{len(nobody)} partitions get an owner; otherwise hold: {lacking}", "unassigned")

    def _price(self, load: Load, mu: float, pause_s: float) -> float:
        """Consumer-seconds that one late record is worth, dearer the more of the budget is spent or moves will take."""
        share = 1 - self.quantile
        usual = max(load.mean_level, load.level, mu)  # a trace that starts from nothing is not judged by nothing
        allowed_per_s = share * usual * self.thrift * EXCHANGE
        everything = late_by_moving(usual * load.shares, pause_s, mu, self.slo_s)
        by_moves = everything / (share * usual * self._payback_s(pause_s))
        debt_s = (self._account.late / share - AIM * self._account.records) / usual
        factor = math.exp(min(max(debt_s / PATIENT_S, math.log(CHEAPEST)), math.log(DEAREST)))
        return (factor + BY_MOVES * by_moves) / allowed_per_s

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
        owners = owners_of(current, load)
        prices = Prices(
            load,
            owners,
            standing(seen, owners, load, mu, self.slo_s, self.waits_s),
            mu,
            self.slo_s,
            price,
            self.move_price,
            start_s,
            pause_s,
            self.interval_s,
            self._payback_s(pause_s),
            self.payback_s + self._waste_s,
        )
        calm = not nobody and prices.is_calm(current)
        offered = fewer(current, shares) if calm else candidates(current, prices.work(), largest)
        options = prices.options(current, offered)
        kept = options[0]
        # Keeping is no option with partitions that nobody owns, or beyond what is allowed.
        must = bool(nobody) or len(current) > largest
        if must:
            options = [o for o in options if len(o.assignment) <= largest and o.assignment.partitions == shares.keys()]
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
            "backlog_records": float(prices.stands.sum()),
            "consumers": float(len(current)),
            "budget_spent": self._account.late / max(1.0, (1 - self.quantile) * self._account.records),
            "gain": best.gain,
        }
        alerts = (*advice(seen, load, mu, self.slo_s, pause_s), *self._limit(kept, largest, len(shares)))
        if not must and (best.gain <= 0 or best.now <= 0 or best.assignment == current):
            kept_back = [] if best.assignment == current else [Alternative(_words(best), _objection(best))]
            why = f"keep {len(current)}: {kept.late_per_s:.2f} late records/s expected at {load.level:.0f} records/s"
            return Decision(None, why, "", inputs, tuple(kept_back), alerts)
        if seen.brokers_slow and len(best.assignment) > len(current) and not must:
            return Decision(None, "keep: the brokers are slow, not the consumers", "", inputs, alerts=alerts)
        self._waste_s = 0.0
        trigger = "unassigned" if nobody else _direction(len(current), len(best.assignment))
        why = (
            f"{load.level:.0f} records/s, {load.slope:+.1f} a second: {_words(best)} save {best.gain:.0f} "
            f"consumer-seconds, with late records at {price:.2g} each ({best.late_if_kept_per_s:.2f} -> "
            f"{best.late_per_s:.2f} a second) and the moves paid"
        )
        others = sorted((o for o in options if o is not best), key=lambda o: -o.gain)[:3]
        rejected = tuple(Alternative(_words(o), f"would save {o.gain:.0f}") for o in others)
        chosen = Assignment({**best.assignment.owners, **self._spares(best.assignment)})
        return Decision(chosen, why, trigger, inputs, rejected, alerts)

    def _spares(self, assignment: Assignment) -> dict[int, frozenset[TopicPartition]]:
        """Consumers kept warm own nothing, and are no more than still allowed."""
        count = min(self.warm, max(0, self.max_consumers - len(assignment)))
        free = (n for n in range(1, len(assignment) + count + 1) if n not in assignment.owners)
        return {next(free): frozenset() for _ in range(count)}

    def _limit(self, kept: Option, largest: int, partitions: int) -> tuple[Alert, ...]:
        if len(kept.assignment) < largest or largest == partitions or kept.late_per_s <= 0:
            return ()
        text = (
            f"all {largest} consumers allowed are in use, {kept.late_per_s:.1f} records/s are late: raise max_consumers"
        )
        return (Alert("max_consumers", text),) if kept.late_per_s > 1 else ()
