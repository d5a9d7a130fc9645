"""The optimum (L-58): fewest consumers, and among those the least moved weight. For small cases, as a yardstick.

Needs OR-tools: `pip install '.[exact]'` in Headgate's repository.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import count, islice, pairwise
from typing import Any

from headgate.errors import SetupError
from headgate.model import Assignment, TopicPartition
from headgate.packing.any_fit import Rates, descending, usable
from headgate.packing.bounds import least_consumers
from headgate.packing.classical import BestFitDecreasing
from headgate.packing.protocol import Capacity

UNITS = 1_000_000
"""The solver counts in whole numbers; what has no common unit is rounded to this many parts of the default capacity."""


@dataclass(frozen=True, slots=True)
class Solution:
    assignment: Assignment
    fewest: bool
    """Proven: no packing has fewer consumers."""
    least_moved: bool
    """Proven: none with as few consumers moves less."""


class Exact:
    """Takes seconds where a heuristic takes milliseconds; stops at `effort` with the best found so far.

    The effort is CP-SAT's deterministic time, about a second each: the same input gives the same answer.
    """

    def __init__(self, effort: float = 30.0) -> None:
        if not effort > 0:
            raise ValueError(f"effort is a positive number, not {effort}")
        _cp_sat()  # missing, it should be missed now and not at the first packing
        self._effort = effort

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        return self.solve(rates, capacity, previous).assignment

    def solve(
        self, rates: Rates, capacity: Capacity, previous: Assignment, improving: Assignment | None = None
    ) -> Solution:
        """With `improving`, only the moved weight is minimised, with at most as many consumers as that one has."""
        sizes = usable(rates)
        largest = max([capacity.default_bytes_per_s, *capacity.of.values()])
        alone = _consumers_for_oversize(sizes, capacity, largest, previous)
        # BFD's consumers are enough, and they may be the present ones, those with a capacity of their own, or new ones.
        fitting = {p: size for p, size in sizes.items() if size <= capacity.default_bytes_per_s}
        start = improving or BestFitDecreasing().pack(fitting, Capacity(capacity.default_bytes_per_s), previous)
        ids = {*previous, *start, *(n for n in capacity.of if n > 0)} - alone.keys()
        ids |= {*islice((n for n in count(1) if n not in ids and n not in alone), len(start))}
        model = _Model(sizes, capacity, sorted(ids), alone, largest, previous)
        model.begin_with(start.by_partition())
        if improving is None:
            fewest = model.minimise_consumers(self._effort)
        else:
            fewest = True
            model.allow(len(improving))
        least_moved = model.minimise_moves(self._effort)
        packed = {c: frozenset(partitions) for c, partitions in sorted(model.owners().items()) if partitions}
        return Solution(Assignment(packed), fewest, fewest and least_moved)


def _consumers_for_oversize(
    sizes: Rates, capacity: Capacity, largest: float, previous: Assignment
) -> dict[int, TopicPartition]:
    """A consumer that holds only one partition, however fast, for each that may fit no other one (L-35).

    It is their own if they are too fast for any consumer, the fastest first, and a new one otherwise.
    """
    home, alone = previous.by_partition(), dict[int, TopicPartition]()
    for partition in descending((p for p in sizes if sizes[p] > capacity.default_bytes_per_s), sizes):
        own = home.get(partition) if sizes[partition] > largest else None
        if own is None or own in alone:
            own = next(n for n in count(1) if n not in alone and n not in previous.owners and n not in capacity.of)
        alone[own] = partition
    return alone


class _Model:
    """Equations 3.1 to 3.5, with the moved weight as a second goal."""

    def __init__(
        self,
        sizes: Rates,
        capacity: Capacity,
        ids: list[int],
        alone: dict[int, TopicPartition],
        largest: float,
        previous: Assignment,
    ) -> None:
        self._cp = _cp_sat()
        self._model: Any = self._cp.CpModel()
        self._answer: Any = None
        unit = _common_unit([*sizes.values(), *(capacity[c] for c in ids)], capacity.default_bytes_per_s)
        # Sizes are rounded up and capacities down, so that a packing of the whole parts is one of the rates.
        units = {p: math.ceil(Fraction(min(size, 2 * largest)) / unit) for p, size in sizes.items()}
        self._used = {c: self._model.new_bool_var(f"used {c}") for c in (*ids, *alone)}
        self._holds = {(p, c): self._model.new_bool_var(f"{p} on {c}") for p in sorted(sizes) for c in ids}
        for c, p in alone.items():
            self._holds[p, c] = self._used[c]
        for p in sizes:
            self._model.add_exactly_one(held for (q, _), held in self._holds.items() if q == p)
        for c in ids:
            load = sum(units[p] * self._holds[p, c] for p in sizes)
            self._model.add(load <= math.floor(Fraction(capacity[c]) / unit) * self._used[c])
            for p in sizes:
                self._model.add_implication(self._holds[p, c], self._used[c])
        self._count = sum(self._used.values())
        self._avoidable = sum(self._used[c] for c, p in alone.items() if sizes[p] <= largest)
        self._dearest = len(self._used) + 1
        self._model.add(self._count >= least_consumers(sizes.values(), largest))
        home = previous.by_partition()
        present = [p for p in sorted(sizes) if (p, home.get(p)) in self._holds]
        self._moved = sum(units[p] * (1 - self._holds[p, home[p]]) for p in present)
        self._break_ties([c for c in ids if not previous[c] and c not in capacity.of])

    def _break_ties(self, interchangeable: Iterable[int]) -> None:
        """New consumers are alike: the lower id is used first."""
        for lower, higher in pairwise(interchangeable):
            self._model.add_implication(self._used[higher], self._used[lower])

    def minimise_consumers(self, effort: float) -> bool:
        """An overload that can be avoided is worse than any number of consumers."""
        proven = self._minimise(self._count + self._dearest * self._avoidable, effort)
        self.allow(self._answer.value(self._count))
        self._model.add(self._avoidable <= self._answer.value(self._avoidable))
        self.begin_with({p: c for c, partitions in self.owners().items() for p in partitions})
        return proven

    def begin_with(self, owner: Mapping[TopicPartition, int]) -> None:
        """A packing to search from."""
        self._model.clear_hints()
        for (partition, consumer), variable in self._holds.items():
            self._model.add_hint(variable, owner.get(partition) == consumer)

    def allow(self, consumers: int) -> None:
        self._model.add(self._count <= consumers)

    def minimise_moves(self, effort: float) -> bool:
        return self._minimise(self._moved, effort)

    def _minimise(self, goal: Any, effort: float) -> bool:
        solver = self._cp.CpSolver()
        solver.parameters.max_deterministic_time = effort
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        self._model.minimize(goal)
        status = solver.solve(self._model)
        if status in (self._cp.OPTIMAL, self._cp.FEASIBLE):
            self._answer = solver
        elif self._answer is None:
            raise ValueError("no packing was found in the effort given: raise `effort`, or use another packer")
        return bool(status == self._cp.OPTIMAL)

    def owners(self) -> dict[int, set[TopicPartition]]:
        packed: dict[int, set[TopicPartition]] = {c: set() for c in self._used}
        for (partition, consumer), variable in self._holds.items():
            if self._answer.boolean_value(variable):
                packed[consumer].add(partition)
        return packed


def _common_unit(values: Iterable[float], default: float) -> Fraction:
    """What all values are multiples of, if that is not too fine for the solver."""
    fractions = [Fraction(value) for value in values if math.isfinite(value)]
    unit = Fraction(1, math.lcm(*(f.denominator for f in fractions)))
    unit *= math.gcd(*((f / unit).numerator for f in fractions)) or 1
    return unit if max(fractions) / unit <= 10**9 else Fraction(default) / UNITS


def _cp_sat() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise SetupError(
            "the exact packer needs OR-tools: `pip install '.[exact]'` in Headgate's repository"
        ) from error
    return cp_model
