"""Repacking a large fleet after all rates changed a little: against plain Python, Kafka's assignor, and itself."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.ratio import Ratio, compare
from headgate import jars
from headgate.errors import SetupError
from headgate.model import Assignment, TopicPartition
from headgate.packing.protocol import Capacity
from headgate.packing.repair import Repair
from headgate.packing.repair_reference import RepairReference

TURNS, WARM_UP = 9, 2
PARTITIONS_PER_CONSUMER = 20
FILL = 0.9
CHANGE = 0.1
"""Between two packings every rate changes by up to this share."""


@dataclass(frozen=True, slots=True)
class Fleet:
    rates: list[dict[TopicPartition, float]]
    """Of every turn."""
    capacity: Capacity
    before: Assignment

    @classmethod
    def of(cls, partitions: int) -> "Fleet":
        draw = np.random.default_rng(partitions)
        names = [TopicPartition(f"topic-{n % 50}", n // 50) for n in range(partitions)]
        size = draw.lognormal(0.0, 1.0, partitions)
        capacity = float(size.sum()) / (partitions / PARTITIONS_PER_CONSUMER) / FILL
        size = np.minimum(size, FILL * capacity)
        turns = [
            dict(zip(names, (size * draw.uniform(1 - CHANGE, 1 + CHANGE, partitions)).tolist(), strict=True))
            for _ in range(TURNS + WARM_UP)
        ]
        before = Repair().pack(dict(zip(names, size.tolist(), strict=True)), Capacity(capacity), Assignment())
        return cls(turns, Capacity(capacity), before)

    def repaired(self, turn: int) -> Assignment:
        return Repair().pack(self.rates[turn], self.capacity, self.before)

    def repaired_plainly(self, turn: int) -> Assignment:
        return RepairReference().pack(self.rates[turn], self.capacity, self.before)

    def __str__(self) -> str:
        return f"{len(self.rates[0]):,} partitions on {len(self.before):,} consumers"


def run() -> list[Ratio]:
    small, middle, large = Fleet.of(1_000), Fleet.of(10_000), Fleet.of(100_000)
    results = [
        compare(f"repair of {small}", small.repaired, "the same in plain Python", small.repaired_plainly, 3, 1),
        compare(
            f"repair of {large}",
            large.repaired,
            f"ten repairs of {middle}",
            lambda turn: [middle.repaired(turn) for _ in range(10)],
            TURNS,
            WARM_UP,
        ),
    ]
    for fleet in (middle, large):
        with _sticky_assignor(fleet) as turn_of_kafka:
            results.append(
                compare(f"repair of {fleet}", fleet.repaired, "Kafka's sticky assignor", turn_of_kafka, TURNS, WARM_UP)
            )
    return results


@contextmanager
def _sticky_assignor(fleet: Fleet) -> Iterator["Sticky"]:
    """A Java process that answers every turn with one assignment of the same partitions, from the same owners."""
    if not Path(jars.java()).with_name("javac").exists():
        raise SetupError("the benchmark of packing compiles a Java file: install a JDK 17 or newer instead of a JRE")
    classpath = ":".join(map(str, jars.resolve(jars.KAFKA)))
    command = [str(jars.java()), "-cp", classpath, str(Path(__file__).with_name("StickyTurns.java"))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as java:
        try:
            sticky = Sticky(java)
            for consumer in fleet.before:
                sticky.say(f"{consumer} " + " ".join(f"{p.topic}:{p.partition}" for p in fleet.before[consumer]))
            sticky.say("go")
            if sticky.heard() != "ready":
                raise SetupError("Kafka's sticky assignor did not start: run the Java file by hand to see why")
            yield sticky
        finally:
            java.kill()


class Sticky:
    def __init__(self, java: "subprocess.Popen[str]") -> None:
        self._java = java

    def say(self, line: str) -> None:
        assert self._java.stdin
        self._java.stdin.write(line + "\n")
        self._java.stdin.flush()

    def heard(self) -> str:
        assert self._java.stdout
        return self._java.stdout.readline().strip()

    def __call__(self, turn: int) -> int:
        """How many partitions it moved."""
        self.say("turn")
        return int(self.heard())
