"""The published benchmark (E-5) in the simulator of one producer: fitted to the default's rows, asked about the others.

Five numbers are not published and are fitted: how fast the program made records, and what a request, a byte, a fetch
and a copied byte cost. Six rows of the default give their throughput. What then comes out for Node and SQF is a
prediction: nothing of their rows was used. Their order of partitions is that of the very classes producers use.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from headgate.experiments.partitioners_cases import BASELINE, SCENARIOS
from headgate.experiments.partitioners_published import Published, published
from headgate.producers.protocol import ClusterView
from headgate.producers.registry import build_partitioner
from headgate.simulation.producing import Client, Costs, Produced, Producing

MIB = 2**20
CELLS = (("B1", "1"), ("B2", "1"), ("B2", "all"), ("U1", "1"), ("U2", "1"), ("U2", "all"))
"""Without copies it makes no difference who acknowledges, and the paper has one row for both."""
PREDICTED = ("node", "sqf")
START: tuple[float, ...] = (60 * MIB, 4e-4, 1 / (150 * MIB), 4e-3, 1 / (50 * MIB))
"""A guess, in the order of `Costs` behind the client's speed: a small disk writes so much a second, and needs so long
to find a place."""
FITTING = {"buffer_bytes": 2 * MIB, "grain_bytes": 8192, "grains": 6000}
"""How long records wait in the buffer is not asked while fitting, so it need not be filled."""
FINELY = {"buffer_bytes": 32 * MIB, "grain_bytes": 4096, "grains": 32_000}
FINEST_STEP = 1.01


@dataclass(frozen=True, slots=True)
class Model:
    client_bytes_per_s: float
    costs: Costs

    @classmethod
    def of(cls, numbers: tuple[float, ...]) -> "Model":
        return cls(numbers[0], Costs(*numbers[1:]))

    def produced(
        self, scenario: str, acks: str, partitioner: str, buffer_bytes: int, grain_bytes: int, grains: int
    ) -> Produced:
        case = SCENARIOS[scenario]
        ((topic, layout),) = case.topics.items()
        chosen = build_partitioner(partitioner, {"start": lambda: 0})
        view = ClusterView.of(case.topology)
        producing = Producing(
            [[node - 1 for node in replicas] for replicas in layout],
            Client(self.client_bytes_per_s, buffer_bytes=buffer_bytes),
            self.costs,
            acks == "all",
            partial(chosen.partition, topic, None, None, view),
            grain_bytes,
        )
        return producing.run(grains)


@dataclass(frozen=True, slots=True)
class Predicted:
    """One published row beside the simulator's."""

    scenario: str
    acks: str
    partitioner: str
    mib_per_s: float
    avg_ms: float
    batch_kib: float
    published_mib_per_s: float
    published_avg_ms: float

    def changes(self, default: "Predicted") -> tuple[float, float, float, float]:
        """In percent, against the default in the same cell: throughput here and there, average latency here and
        there."""
        return (
            100 * (self.mib_per_s / default.mib_per_s - 1),
            100 * (self.published_mib_per_s / default.published_mib_per_s - 1),
            100 * (self.avg_ms / default.avg_ms - 1),
            100 * (self.published_avg_ms / default.published_avg_ms - 1),
        )


def fit(told: Callable[[str], None] = lambda _: None) -> Model:
    """Least squares of the logarithm of the default's throughput, each number in turn by ever smaller steps."""
    best, numbers = _error(START), START
    steps = [1.5] * len(START)
    while max(steps) > FINEST_STEP:
        for place, step in enumerate(steps):
            for factor in (step, 1 / step):
                tried = (*numbers[:place], numbers[place] * factor, *numbers[place + 1 :])
                error = _error(tried)
                if error < best:
                    best, numbers = error, tried
                    told(f"fitting the default's rows, {100 * math.sqrt(best / len(CELLS)):.1f} % off")
                    break
            else:
                steps[place] = math.sqrt(step)
    return Model.of(numbers)


def _error(numbers: tuple[float, ...]) -> float:
    model = Model.of(numbers)
    return math.fsum(
        math.log(
            model.produced(scenario, acks, BASELINE, **FITTING).bytes_per_s
            / MIB
            / row(scenario, acks, BASELINE).mib_per_s.mean
        )
        ** 2
        for scenario, acks in CELLS
    )


def predict(model: Model) -> list[Predicted]:
    found = []
    for scenario, acks in CELLS:
        for partitioner in (BASELINE, *PREDICTED):
            produced, there = model.produced(scenario, acks, partitioner, **FINELY), row(scenario, acks, partitioner)
            found.append(
                Predicted(
                    scenario,
                    acks,
                    partitioner,
                    produced.bytes_per_s / MIB,
                    1000 * produced.mean_latency_s,
                    produced.batch_bytes / 1024,
                    there.mib_per_s.mean,
                    there.avg_ms.mean,
                )
            )
    return found


def row(scenario: str, acks: str, partitioner: str) -> Published:
    found = published(scenario, acks, partitioner)
    assert found is not None
    return found
