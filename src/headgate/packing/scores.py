"""What an assignment costs: the consumers it needs are its length, its moves are the Rscore."""

from collections.abc import Mapping

from headgate.model import Assignment, Plan, TopicPartition
from headgate.packing.any_fit import usable


def rscore(
    previous: Assignment, following: Assignment, rates: Mapping[TopicPartition, float], capacity_bytes_per_s: float
) -> float:
    """L-41: write rate of the partitions that change hands, in consumers' worth of flow.

    Partitions that are new or that vanish do not count. Which capacity divides is the caller's choice (A-2).
    """
    sizes = usable(rates)
    moved = Plan.between(previous, following).rebalanced
    return sum(sizes.get(p, 0.0) for p in moved) / capacity_bytes_per_s
