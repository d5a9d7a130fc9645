"""Of everything that could be done the best, whether it is worth doing, and what to say about it."""

from dataclasses import dataclass

from headgate.model import Alternative, Assignment
from headgate.policies.candidates import candidates, fewer, relieved
from headgate.policies.forecast import Load
from headgate.policies.pricing import Option, Prices


@dataclass(frozen=True)
class Choice:
    kept: Option
    """The present assignment."""
    best: Option
    options: tuple[Option, ...]
    """All that were allowed."""
    is_forced: bool
    """Keeping is no option: partitions have no owner, or there are more consumers than allowed."""

    @property
    def keeps(self) -> bool:
        return not self.is_forced and (self.best.gain <= 0 or self.best.now <= 0)

    @property
    def fewer_would_do(self) -> bool:
        return any(len(o.assignment) < len(self.kept.assignment) and o.now > 0 for o in self.options)

    @property
    def direction(self) -> str:
        here, there = len(self.kept.assignment), len(self.best.assignment)
        return "up" if there > here else "down" if there < here else "move"

    @property
    def runner_up(self) -> Option | None:
        """The best of all that would change something."""
        here = len(self.kept.assignment)
        others = (o for o in self.options if o is not self.kept and (o.moves or len(o.assignment) != here))
        return max(others, key=lambda o: o.gain, default=None)

    def why(self, load: Load, late_price: float) -> str:
        best = self.best
        if self.keeps:
            late = f"{self.kept.late_per_s:.2f} late records/s expected at {load.level:.0f} records/s"
            return f"keep {len(self.kept.assignment)}: {late}"
        return (
            f"{load.level:.0f} records/s, {load.slope:+.1f} a second: {_words(best)} save {best.gain:.0f} "
            f"consumer-seconds, with late records at {late_price:.2g} each ({best.late_if_kept_per_s:.2f} -> "
            f"{best.late_per_s:.2f} a second) and the moves paid"
        )

    def rejected(self) -> tuple[Alternative, ...]:
        """What lost: without a change the best one that there was."""
        if not self.keeps:
            others = sorted((o for o in self.options if o is not self.best), key=lambda o: -o.gain)[:3]
            return tuple(Alternative(_words(o), f"would save {o.gain:.0f} consumer-seconds") for o in others)
        best = self.runner_up
        if best is None:
            return ()
        if best.gain <= 0:
            objection = f"would cost {-best.gain:.1f} consumer-seconds more than it saves"
        else:
            objection = "pays only later; waiting costs less than having it now"
        return (Alternative(_words(best), objection),)

    def put_off(self, why: str) -> tuple[Alternative, ...]:
        return (Alternative(_words(self.best), why),)


def choose(prices: Prices, current: Assignment, largest: int) -> Choice:
    """The option that saves most, among those with at most `largest` consumers that leave nothing unowned."""
    everything = frozenset(prices.load.partitions)
    is_whole = current.partitions == everything
    if is_whole and prices.is_calm(current):
        offered = fewer(current, prices.shares())
    else:
        offered = candidates(current, prices.work(), largest) + relieved(current, prices.work(), prices.speed, largest)
    kept, *others = prices.options(current, offered)
    is_forced = not is_whole or len(current) > largest
    allowed = [kept, *others]
    if is_forced:
        allowed = [o for o in others if len(o.assignment) <= largest and o.assignment.partitions == everything]
    return Choice(kept, max(allowed, key=lambda o: o.gain), tuple(allowed), is_forced)


def _words(option: Option) -> str:
    count = len(option.assignment)
    return f"{count} consumer{'s' * (count != 1)} with {option.moves} move{'s' * (option.moves != 1)}"
