"""What the sentinel could have done instead: one consumer fewer, one more, nothing moved; each with the load that its
busiest consumer would have. For people who ask why; a guess that costs little, not another packing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapreplace

from headgate.model import Alternative, Assignment, Plan, TopicPartition
from headgate.packing.any_fit import descending
from headgate.policies.folding import fold, loads


@dataclass(frozen=True, slots=True)
class Instead:
    rates: Mapping[TopicPartition, float]
    busiest: Callable[[Assignment], float]
    """The highest load of an assignment, for a consumer with all its capacity."""
    packing_bytes_per_s: float
    most: int
    """Consumers that are allowed."""
    rate: Callable[[float], str]

    def other_sizes(self, taken: Assignment) -> tuple[Alternative, ...]:
        return (*self._one_fewer(taken), *self._one_more(taken))

    def without_moves(self, current: Assignment, new: frozenset[TopicPartition]) -> tuple[Alternative, ...]:
        """Only what has no owner is given away, to whoever has least."""
        if not new or not current:
            return ()
        held = {c: set(current[c]) & self.rates.keys() for c in current}
        by_load = sorted((load, c) for c, load in loads(current, self.rates).items())
        for partition in descending(new, self.rates):
            load, least = by_load[0]
            held[least].add(partition)
            heapreplace(by_load, (load + self.rates[partition], least))
        busiest = self.busiest(_assignment(held))
        return (Alternative("the new partitions to the least loaded, and no moves", self._verdict(busiest)),)

    def _one_fewer(self, taken: Assignment) -> tuple[Alternative, ...]:
        fewer = len(taken) - 1
        if fewer < 1:
            return ()
        folded = fold(taken, self.rates, taken, fewer)
        busiest = self.busiest(folded)
        said = self._verdict(busiest)
        if busiest <= self.packing_bytes_per_s:
            said += f", for {len(Plan.between(taken, folded).rebalanced)} moves more"
        return (Alternative(f"one consumer fewer, {fewer}", said),)

    def _one_more(self, taken: Assignment) -> tuple[Alternative, ...]:
        if not taken:
            return ()
        more, before = len(taken) + 1, self.busiest(taken)
        after = self.busiest(_with_help(taken, self.rates))
        if more > self.most:
            why_not = f"fleet.max_consumers is {self.most}; the busiest would have {self.rate(after)}"
        elif after >= before:
            why_not = f"no relief: the busiest would still have {self.rate(before)}"
        else:
            why_not = f"not needed: the busiest would have {self.rate(after)} instead of {self.rate(before)}"
        return (Alternative(f"one consumer more, {more}", why_not),)

    def _verdict(self, busiest: float) -> str:
        packed = self.rate(self.packing_bytes_per_s)
        if busiest > self.packing_bytes_per_s:
            return f"the busiest would have {self.rate(busiest)}, more than the {packed} that is packed to"
        return f"the busiest would have {self.rate(busiest)}, within the {packed} that is packed to"


def _with_help(taken: Assignment, rates: Mapping[TopicPartition, float]) -> Assignment:
    """The busiest consumer shares with one more, fastest partitions first."""
    load = loads(taken, rates)
    busiest = max(load, key=lambda c: (load[c], -c))
    kept, given = set[TopicPartition](), set[TopicPartition]()
    kept_load = given_load = 0.0
    for partition in descending(taken[busiest], rates):
        if kept_load <= given_load:
            kept.add(partition)
            kept_load += rates[partition]
        else:
            given.add(partition)
            given_load += rates[partition]
    return _assignment({**{c: set(taken[c]) for c in taken}, busiest: kept, max(taken) + 1: given})


def _assignment(held: Mapping[int, set[TopicPartition]]) -> Assignment:
    return Assignment({c: frozenset(partitions) for c, partitions in held.items() if partitions})
