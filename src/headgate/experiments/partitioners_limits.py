"""Could nodes have limited in the published benchmark (E-5)? Arithmetic on two rows, and not a model that was tested.

Suppose a node's work for a record is 1 if it leads the partition and `copy` if it holds a copy of one that another
leads, and that the busiest node limits: throughput = capacity / most work of a node per record. The balanced and the
unbalanced default then give the two unknowns exactly, with nothing left to check them by, and Node and SQF follow.
Where no `copy` between 0 and 1 gives the two rows, the supposition is wrong.
"""

from dataclasses import dataclass

from headgate.experiments.partitioners_cases import BASELINE, SCENARIOS, expected
from headgate.experiments.partitioners_published import published


@dataclass(frozen=True, slots=True)
class Limits:
    capacity_mib_per_s: float
    copy: float

    def mib_per_s(self, scenario: str, partitioner: str) -> float:
        return self.capacity_mib_per_s / busiest(scenario, partitioner, self.copy)


def busiest(scenario: str, partitioner: str, copy: float) -> float:
    """Work per record of the node that has most."""
    shares = expected(partitioner, SCENARIOS[scenario].topology)
    assert shares is not None
    return max(led + copy * (shares.held[node] - led) for node, led in shares.led.items())


def fitted(balanced: str, unbalanced: str, acks: str) -> Limits | None:
    """None where no such limits give these rows: then something else limited.

    With a share 1/2 of each node in the balanced one and 1/3, 2/3 in the other, the ratio of the two throughputs is
    3 (1 + copy) / (2 (2 + copy)): 3/4 if copies cost nothing, 1 if a copy is as much work as leading.
    """
    even, uneven = published(balanced, acks, BASELINE), published(unbalanced, acks, BASELINE)
    assert even is not None
    assert uneven is not None
    ratio = uneven.mib_per_s.mean / even.mib_per_s.mean
    if not 3 / 4 <= ratio <= 1:
        return None
    copy = (4 * ratio - 3) / (3 - 2 * ratio)
    return Limits(even.mib_per_s.mean * busiest(balanced, BASELINE, copy), copy)
