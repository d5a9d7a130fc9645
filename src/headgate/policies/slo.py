"""Headgate's own policy: an SLO in seconds and a share of records that must meet it in, the cheapest assignment out.

Every option, the present assignment among them, is priced alike: its consumers, plus the records that will be late
under it, plus the records that getting there makes late. The option that pays for itself soonest is taken, if one does.
"""

import math
from dataclasses import dataclass, replace

from headgate.model import Alert, Assignment, Decision, Observation, TopicPartition
from headgate.policies.advice import advice, too_few_allowed
from headgate.policies.backlog import owners_of, standing
from headgate.policies.choosing import Choice, choose
from headgate.policies.forecast import Forecast, Load
from headgate.policies.lateness import LateAccount, late_by_moving
from headgate.policies.pricing import Prices
from headgate.policies.replica_capacity import UNKNOWN, LastMeasured
from headgate.policies.seen import blind, held, unowned

EXCHANGE = 6.2
"""How many times the late records allowed in what one consumer does, that consumer is worth while nothing is owed.
Tuned on W1."""
DEBT_S = 300.0
"""Late records get e times dearer, or cheaper, for every so many seconds of budget overspent, or saved. A steady price
buys most; a quick one makes good sooner what a jump has cost."""
CHEAPEST, DEAREST = 0.5, 20.0
"""Limits of that."""
AIM = 0.88
"""The share of the budget that may be spent: one who aims at all of it misses every other time."""
BY_MOVES = 0.5
"""How much dearer late records get by the share of the budget that moving everything once would take. Tuned on W1 with
rebalances of 2 s."""


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
    """How long a moved partition stands still, until that is measured; never taken to be less (E-29)."""
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
        if self.max_consumers < 1:
            raise ValueError(f"max_consumers must be at least 1, not {self.max_consumers}")
        self._forecast = Forecast(self.beat_s)
        self._account = LateAccount(self.slo_s, self.budget_s)
        self._capacity = LastMeasured(self.capacity_records_per_s, self.consumer_capacity_bytes_per_s)
        self._waste_s = 0.0
        """For how long fewer consumers would have done."""
        self._last_s = 0.0

    def decide(self, seen: Observation) -> Decision:
        hold = held(seen, self.stale_after_s)
        if hold is not None:
            return hold
        self._forecast.add(seen)
        mu = self._capacity.look(seen)
        if mu is None:
            return self._blind(seen, UNKNOWN)
        if not self._forecast.is_ready:
            return self._blind(seen, "less than two beats of arrivals are known")
        start_s = self.start_s if seen.start_s is None else seen.start_s
        pause_s = max(self.pause_s, seen.pause_s or 0.0)
        self._account.add(seen, mu, pause_s, self.waits_s)
        load = self._forecast.load(start_s + self.interval_s)
        prices = self._prices(seen, load, mu, start_s, pause_s)
        largest = min(self.max_consumers, len(load.partitions))
        choice = choose(prices, _working(seen), largest)
        self._remember_waste(seen.at_s, choice)
        return self._decision(
            seen,
            prices,
            choice,
            (
                *advice(seen, load, mu, self.slo_s, pause_s),
                *too_few_allowed(len(choice.kept.assignment), largest, len(load.partitions), choice.kept.late_per_s),
            ),
        )

    def _blind(self, seen: Observation, lacking: str) -> Decision:
        decision = blind(seen, lacking)
        adopted = decision.assignment
        return decision if adopted is None else replace(decision, assignment=self._with_spares(adopted))

    def _prices(self, seen: Observation, load: Load, mu: float, start_s: float, pause_s: float) -> Prices:
        current = _working(seen)
        owners = owners_of(current, load)
        payback_s = max(self.payback_s, self.patience * pause_s)
        return Prices(
            load,
            owners,
            standing(seen, owners, load, mu, self.slo_s, self.waits_s),
            seen.assignment.owners.keys() - current.owners.keys(),
            mu,
            self.slo_s,
            self._late_price(load, mu, pause_s, payback_s),
            self.move_price,
            start_s,
            pause_s,
            self.interval_s,
            payback_s,
            self.payback_s + self._waste_s,
            seen.abilities.speed,
        )

    def _late_price(self, load: Load, mu: float, pause_s: float, payback_s: float) -> float:
        """Consumer-seconds that one late record is worth, dearer the more of the budget is owed or moves will take."""
        usual = max(load.mean_level, load.level, mu)  # a trace that starts from nothing is not judged by nothing
        allowed_per_s = (1 - self.quantile) * usual
        debt_s = (self._account.late - AIM * (1 - self.quantile) * self._account.records) / allowed_per_s
        by_debt = min(max(math.exp(min(debt_s / DEBT_S, 100.0)), CHEAPEST), DEAREST)
        everything = late_by_moving(usual * load.shares, pause_s, mu, self.slo_s)
        by_moves = BY_MOVES * everything / (allowed_per_s * payback_s)
        return (by_debt + by_moves) / ((1 - self.quantile) * mu * self.thrift * EXCHANGE)

    def _remember_waste(self, now_s: float, choice: Choice) -> None:
        wasting = choice.keeps and choice.fewer_would_do
        self._waste_s = self._waste_s + (now_s - self._last_s) if wasting else 0.0
        self._last_s = now_s

    def _decision(self, seen: Observation, prices: Prices, choice: Choice, alerts: tuple[Alert, ...]) -> Decision:
        load, here = prices.load, len(choice.kept.assignment)
        inputs = {
            "records_per_s": load.level,
            "slope_per_s": load.slope,
            "price": prices.late_price,
            "late_per_s": choice.kept.late_per_s,
            "dispersion": load.dispersion,
            "backlog_records": float(prices.stands.sum()),
            "consumers": float(here),
            "wanted": float(len(choice.best.assignment)),
            "budget_spent": self._account.late / max(1.0, (1 - self.quantile) * self._account.records),
            "gain": choice.best.gain,
        }
        why, rejected = choice.why(load, prices.late_price), choice.rejected()
        if choice.keeps:
            return Decision(None, why, "", inputs, rejected, alerts)
        if seen.brokers_slow and choice.direction == "up" and not choice.is_forced:
            why = "the brokers are slow, not the consumers"
            return Decision(None, f"keep: {why}", "", inputs, choice.put_off(why), alerts)
        trigger = "unassigned" if unowned(seen) else choice.direction
        return Decision(self._with_spares(choice.best.assignment), why, trigger, inputs, rejected, alerts)

    def _with_spares(self, assignment: Assignment) -> Assignment:
        """Consumers kept warm own nothing, and are no more than still allowed."""
        count = min(self.warm, max(0, self.max_consumers - len(assignment)))
        free = (n for n in range(1, len(assignment) + count + 1) if n not in assignment.owners)
        return Assignment({**assignment.owners, **{next(free): frozenset[TopicPartition]() for _ in range(count)}})


def _working(seen: Observation) -> Assignment:
    """Who owns what is there; warm spares own nothing and are not part of the choice."""
    owners = seen.assignment.owners
    return Assignment({c: frozenset(held & seen.partitions.keys()) for c, held in owners.items() if held})
