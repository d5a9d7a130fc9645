"""The optimum (L-58): fewest consumers, and among those the least moved weight. For small cases, as a yardstick.

Needs OR-tools: `pip install headgate[exact]`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headgate.errors import SetupError
from headgate.model import Assignment, TopicPartition
from headgate.packing.any_fit import Rates, descending, usable
from headgate.packing.bounds import least_consumers
from headgate.packing.classical import BestFitDecreasing
from headgate.packing.protocol import Capacity

UNITS = 1_000_000
"""The solver counts in whole parts of the default capacity: this many."""


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
        self._effort = effort

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        return self.solve(rates, capacity, previous).assignment

    def solve(
        self, rates: Rates, capacity: Capacity, previous: Assignment, consumers_allowed: int | None = None
    ) -> Solution:
        """With `consumers_allowed`, only the moved weight is minimised, with at most that many consumers."""
        sizes = usable(rates)
        largest = max([capacity.default_bytes_per_s, *capacity.of.values()])
        alone = _oversize(sizes, largest, previous)
        rest = {p: size for p, size in sizes.items() if size <= largest}
        if not rest:
            return Solution(_joined(alone, {}), True, True)
        # BFD's consumers are enough; L-39 makes it keep ids, so that with the present ones there is always a packing.
        bfd = BestFitDecreasing().pack(rest, capacity, previous)
        unused = (n for n in range(1, len(sizes) + len(previous) + 2) if n not in alone)
        consumers = sorted(({*previous} - alone.keys()) | {*bfd} | {n for n, _ in zip(unused, bfd, strict=False)})
        model = _Model(rest, capacity, consumers, previous, least_consumers(rest.values(), largest))
        if consumers_allowed is None:
            fewest = model.minimise_consumers(self._effort)
        else:
            fewest = True
            model.allow(consumers_allowed - len(alone))
        least_moved = model.minimise_moves(self._effort)
        return Solution(_joined(alone, model.owners()), fewest, fewest and least_moved)


def _oversize(sizes: Rates, largest: float, previous: Assignment) -> dict[int, TopicPartition]:
    """Partitions that fit no consumer get one each: their own if it is free, fastest first (L-35)."""
    home, alone = previous.by_partition(), dict[int, TopicPartition]()
    for partition in descending((p for p in sizes if sizes[p] > largest), sizes):
        own = home.get(partition)
        if own is None or own in alone:
            own = next(
                n for n in range(1, len(sizes) + len(previous) + 1) if n not in alone and n not in previous.owners
            )
        alone[own] = partition
    return alone


def _joined(alone: dict[int, TopicPartition], packed: dict[int, set[TopicPartition]]) -> Assignment:
    owners = {**{c: frozenset({p}) for c, p in alone.items()}, **{c: frozenset(ps) for c, ps in packed.items() if ps}}
    return Assignment(dict(sorted(owners.items())))


class _Model:
    """Equations 3.1 to 3.5, with the moved weight as a second goal."""

    def __init__(
        self, sizes: Rates, capacity: Capacity, consumers: list[int], previous: Assignment, at_least: int
    ) -> None:
        self._cp = _cp_sat()
        self._model: Any = self._cp.CpModel()
        self._answer: Any = None
        unit = capacity.default_bytes_per_s / UNITS
        # Sizes are rounded up and capacities down, so that a packing of the whole parts is one of the rates.
        units = {p: math.ceil(size / unit - 1e-6) for p, size in sizes.items()}
        self._used = {c: self._model.new_bool_var(f"used {c}") for c in consumers}
        self._holds = {(p, c): self._model.new_bool_var(f"{p} on {c}") for p in sorted(sizes) for c in consumers}
        for p in sizes:
            self._model.add_exactly_one(self._holds[p, c] for c in consumers)
        for c in consumers:
            load = sum(units[p] * self._holds[p, c] for p in sizes)
            self._model.add(load <= math.floor(capacity[c] / unit + 1e-6) * self._used[c])
            for p in sizes:
                self._model.add_implication(self._holds[p, c], self._used[c])
        self._count = sum(self._used.values())
        self._model.add(self._count >= at_least)
        home = previous.by_partition()
        kept = sum(units[p] * self._holds[p, home[p]] for p in sorted(sizes) if (p, home.get(p)) in self._holds)
        self._moved = sum(units[p] for p in sizes if (p, home.get(p)) in self._holds) - kept
        self._break_ties([c for c in consumers if not previous[c] and c not in capacity.of])

    def _break_ties(self, interchangeable: Iterable[int]) -> None:
        """New consumers are alike: the lower id is used first."""
        listed = list(interchangeable)
        for lower, higher in zip(listed, listed[1:], strict=False):
            self._model.add_implication(self._used[higher], self._used[lower])

    def minimise_consumers(self, effort: float) -> bool:
        proven = self._minimise(self._count, effort)
        self.allow(sum(self._answer.boolean_value(u) for u in self._used.values()))
        self._model.clear_hints()
        for variable in self._holds.values():
            self._model.add_hint(variable, self._answer.boolean_value(variable))
        return proven

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


def _cp_sat() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise SetupError("the exact packer needs OR-tools: install it with `pip install headgate[exact]`") from error
    return cp_model
