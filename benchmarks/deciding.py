"""One decision of our policy against one of KEDA's and of Algorithm 2's, on the same observations."""

from dataclasses import dataclass

import numpy as np

from benchmarks.ratio import Ratio, compare
from headgate.model import Assignment, ConsumerLoad, Observation, PartitionLoad, TopicPartition
from headgate.policies import Policy
from headgate.policies.binpack_lag import Algorithm2
from headgate.policies.kubernetes import Keda
from headgate.policies.slo import Slo

TURNS, WARM_UP = 9, 4
PARTITIONS_PER_CONSUMER = 20
RECORDS_PER_S = 1000.0
"""Of one consumer."""
SLO_S = 10.0
CALM, OVERLOADED = 0.6, 1.1
"""Load relative to capacity: nothing to do but to look for fewer consumers, or everything to look at."""


@dataclass(frozen=True)
class Watched:
    """A group that is never obeyed: every turn is a second of arrivals with its owners as they were."""

    seen: list[Observation]

    @classmethod
    def of(cls, partitions: int, fill: float) -> "Watched":
        draw = np.random.default_rng(partitions)
        names = [TopicPartition(f"topic-{n % 50}", n // 50) for n in range(partitions)]
        count = partitions // PARTITIONS_PER_CONSUMER
        weights = draw.lognormal(0.0, 1.0, partitions)
        means = weights / weights.sum() * fill * RECORDS_PER_S * count
        assignment = Assignment({c + 1: frozenset(names[c::count]) for c in range(count)})
        consumers = {c: ConsumerLoad(capacity_records_per_s=RECORDS_PER_S) for c in assignment}
        ends, seen = np.zeros(partitions, dtype=np.int64), []
        for second in range(TURNS + WARM_UP):
            came = draw.poisson(means)
            ends += came
            loads = {
                p: PartitionLoad(100.0 * n, float(n), 2 * n, end, (n,))
                for p, n, end in zip(names, came.tolist(), ends.tolist(), strict=True)
            }
            seen.append(Observation(float(second), float(second), loads, assignment, consumers, 0.0, 1.0, 2.0, 10.0))
        return cls(seen)

    def __str__(self) -> str:
        return f"{len(self.seen[0].partitions):,} partitions on {len(self.seen[0].assignment):,} consumers"


def run() -> list[Ratio]:
    results = []
    for partitions, fill, mood in (
        (100, OVERLOADED, "overloaded"),
        (1_000, OVERLOADED, "overloaded"),
        (10_000, OVERLOADED, "overloaded"),
        (10_000, CALM, "calm"),
    ):
        watched = Watched.of(partitions, fill)
        most = partitions // 10
        peers: dict[str, Policy] = {
            "KEDA": Keda(sync_s=1e-3, max_replicas=most),
            "Algorithm 2": Algorithm2(RECORDS_PER_S, slo_s=SLO_S, cooldown_s=0.0, max_consumers=most),
        }
        for name, peer in peers.items():
            ours = Slo(SLO_S, 0.99, max_consumers=most)
            results.append(
                compare(
                    f"slo decides for {watched}, {mood}",
                    lambda turn, policy=ours, seen=watched.seen: policy.decide(seen[turn]),  # type: ignore[misc]
                    name,
                    lambda turn, policy=peer, seen=watched.seen: policy.decide(seen[turn]),  # type: ignore[misc]
                    TURNS,
                    WARM_UP,
                )
            )
    return results
