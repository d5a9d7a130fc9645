"""What assignments cost: the consumers they need, what they move, and which packers no other one beats in both."""

from collections.abc import Mapping, Sequence
from math import fsum

from headgate.model import Assignment, TopicPartition
from headgate.packing.any_fit import usable
from headgate.packing.eviction import lightest_cover


def rscore(
    previous: Assignment, following: Assignment, rates: Mapping[TopicPartition, float], capacity_bytes_per_s: float
) -> float:
    """L-41: write rate of the partitions that change hands, in consumers' worth of flow.

    Partitions that are new or that vanish do not count. Which capacity divides is the caller's choice (A-2): what one
    consumer is packed to, as in the published plots, or what one can sustain, as in the published text.
    """
    owner, moved = previous.by_partition(), []
    for consumer, partitions in following.owners.items():
        moved += [p for p in partitions - previous[consumer] if p in owner]
    return fsum(usable({p: rates.get(p, 0.0) for p in moved}).values()) / capacity_bytes_per_s


def forced_rscore(previous: Assignment, rates: Mapping[TopicPartition, float], capacity_bytes_per_s: float) -> float:
    """The part of any packer's Rscore that it cannot avoid: the least that the overloaded consumers must give away.

    Exact for up to nine partitions per consumer that are each too light alone, close beyond.
    """
    sizes = usable(rates)
    forced = 0.0
    for consumer in previous:
        ascending = sorted(sizes[p] for p in previous[consumer] if p in sizes)
        excess = fsum(ascending) - capacity_bytes_per_s
        if excess > 0 and len(ascending) > 1:
            forced += fsum(ascending[at] for at in lightest_cover(ascending, excess))
    return forced / capacity_bytes_per_s


def cardinal_bin_scores(counts: Mapping[str, Sequence[int]], among: Sequence[str] | None = None) -> dict[str, float]:
    """CBS: how many more consumers each packer used than the best of `among` (or of all), on average as a share.

    `counts` holds the number of consumers per iteration. A packer outside `among` may get a negative score.
    """
    best = [min(of_one) for of_one in zip(*(counts[name] for name in among or counts), strict=True)]
    return {
        name: sum((used - least) / least for used, least in zip(of_packer, best, strict=True)) / len(best)
        for name, of_packer in counts.items()
    }


def pareto_front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """The names whose point no other one beats in one value without losing in the other; by rising first value."""
    front: list[str] = []
    least = float("inf")
    for name in sorted(points, key=lambda name: (points[name], name)):
        first, second = points[name]
        if second < least or (front and points[front[-1]] == (first, second)):
            front.append(name)
            least = second
    return front
