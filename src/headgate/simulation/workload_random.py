"""Workloads that are drawn, the same for the same seed: the random walk of E3 and the random waits of E1."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import floor

import numpy as np
import numpy.typing as npt

from headgate.model import TopicPartition
from headgate.simulation.workload import Partitions
from headgate.simulation.workload_checks import not_negative, positive, some
from headgate.simulation.workload_times import multiples

_BLOCK = 256
"""Steps drawn at once by the random shapes."""


@dataclass(frozen=True)
class RandomWalk:
    """E3: s_i = s_{i-1} + phi(delta)/100 · C, phi uniform on [-delta, delta], each partition on its own.

    The published equation lets rates leave [0, C]; they are clamped (A-4).
    """

    partitions: Partitions
    capacity_bytes_per_s: float
    """C: no partition's rate exceeds it."""
    delta_percent: float
    """Largest change in one step, in percent of C."""
    start_percent: float | None = None
    """s_0 of every partition in percent of C; None draws each uniformly from [0, C]."""
    step_s: float = 1.0
    seed: int = 0
    _blocks: dict[int, npt.NDArray[np.float64]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        some(self.partitions)
        not_negative("the capacity", self.capacity_bytes_per_s)
        not_negative("delta", self.delta_percent)
        positive("the length of a step", self.step_s)
        not_negative("the seed", self.seed)
        if self.start_percent is not None and not 0 <= self.start_percent <= 100:
            raise ValueError(f"a walk starts between 0 and 100 % of the capacity, not at {self.start_percent:g} %")

    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        i = max(0, floor(t_s / self.step_s + 1e-9))
        row = self._block(i // _BLOCK)[i % _BLOCK]
        return dict(zip(self.partitions, row.tolist(), strict=True))

    def edges(self, start_s: float, end_s: float) -> Iterable[float]:
        return multiples(self.step_s, start_s, end_s)

    def _block(self, number: int) -> npt.NDArray[np.float64]:
        # Each block has its own generator, so filling one twice (from two threads) gives the same values twice.
        for n in range(len(self._blocks), number + 1):
            draw = np.random.default_rng((self.seed, n))
            changes = draw.uniform(-self.delta_percent, self.delta_percent, (_BLOCK, len(self.partitions)))
            changes *= self.capacity_bytes_per_s / 100
            rows = np.empty_like(changes)
            for i, change in enumerate(changes):
                if i:
                    reached = rows[i - 1] + change
                elif n:
                    reached = self._blocks[n - 1][-1] + change
                else:
                    reached = self._initial(draw)
                rows[i] = np.clip(reached, 0.0, self.capacity_bytes_per_s)
            self._blocks[n] = rows
        return self._blocks[number]

    def _initial(self, draw: np.random.Generator) -> npt.NDArray[np.float64]:
        if self.start_percent is None:
            return draw.uniform(0.0, self.capacity_bytes_per_s, len(self.partitions))
        return np.full(len(self.partitions), self.start_percent / 100 * self.capacity_bytes_per_s)


@dataclass(frozen=True)
class RandomWaits:
    """E1 (b): one partition gets a record after each wait drawn uniformly from [shortest_s, longest_s].

    As a rate: `record_bytes` spread evenly over each wait, so that every wait's end completes exactly one record.
    """

    partition: TopicPartition
    record_bytes: int
    shortest_s: float
    longest_s: float
    seed: int = 0
    _ends: dict[int, npt.NDArray[np.float64]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        positive("the size of a record", self.record_bytes)
        positive("the shortest wait", self.shortest_s)
        not_negative("the seed", self.seed)
        if self.longest_s < self.shortest_s:
            raise ValueError(f"the longest wait, {self.longest_s:g} s, is below the shortest, {self.shortest_s:g} s")

    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        n, ends = self._block_at(t_s)
        i = int(np.searchsorted(ends, t_s, side="right"))
        begun_s = float(ends[i - 1]) if i else self._block_start_s(n)
        return {self.partition: self.record_bytes / (float(ends[i]) - begun_s)}

    def edges(self, start_s: float, end_s: float) -> Iterable[float]:
        first, _ = self._block_at(start_s)
        last, _ = self._block_at(end_s)
        for n in range(first, last + 1):
            ends = self._ends[n]
            yield from ends[(ends > start_s) & (ends < end_s)].tolist()

    def _block_at(self, t_s: float) -> tuple[int, npt.NDArray[np.float64]]:
        """The first block of waits that ends after `t_s`."""
        n = 0
        while True:
            if n not in self._ends:
                draw = np.random.default_rng((self.seed, n))
                waits = draw.uniform(self.shortest_s, self.longest_s, _BLOCK)
                self._ends[n] = self._block_start_s(n) + np.cumsum(waits)
            if self._ends[n][-1] > t_s:
                return n, self._ends[n]
            n += 1

    def _block_start_s(self, n: int) -> float:
        return float(self._ends[n - 1][-1]) if n else 0.0
