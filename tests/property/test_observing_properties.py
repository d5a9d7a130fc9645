"""Observations made of columns against the same made of one partition after the other."""

import math
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from headgate.controller.observing import ArrivalSlots, Recent, observe
from headgate.model import Assignment, PartitionLoad, TopicPartition
from headgate.model.messages import Measurement, PartitionRate

PARTITIONS = [TopicPartition(topic, n) for topic in ("orders", "clicks") for n in range(3)]
TABLES = {"orders": 1, "clicks": 2}
MOST_SLOTS = 120

numbers = st.floats(0, 1e9)
rates = st.dictionaries(st.sampled_from(PARTITIONS), st.tuples(numbers, numbers, st.integers(0, 2**40), numbers))
looks = st.lists(st.tuples(st.sampled_from([200, 1000, 1400, 3000, 500_000]), rates, st.booleans()), max_size=10)
"""How long after the last one, what was measured, and whether the arrivals are taken then."""


def measurement(at_ms: int, rates: Mapping[TopicPartition, tuple[float, float, int, float]]) -> Measurement:
    return Measurement(
        at_ms, 30.0, "test", tuple(PartitionRate(p.topic, p.partition, *rate) for p, rate in rates.items())
    )


class SlotsReference:
    """A dictionary per slot. A partition that is missing from a measurement is forgotten and counts anew."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, int] = {}
        self._at_ms: int | None = None
        self._slots: list[dict[TopicPartition, int]] = []

    def add(self, measured: Measurement) -> None:
        ends = {TopicPartition(r.topic, r.partition): r.end_offset for r in measured.rates}
        self._slots = [{p: came for p, came in slot.items() if p in ends} for slot in self._slots]
        passed = 0 if self._at_ms is None else round(measured.at_ms / 1000 - self._at_ms / 1000)
        if self._at_ms is not None and passed == 0:  # too early: it counts with the next, and what is new from here on
            self._ends = {p: self._ends.get(p, end) for p, end in ends.items()}
            return
        if passed > MOST_SLOTS:
            self._slots, passed = [], 0
        for n in range(passed):
            slot = {}
            for p, end in ends.items():
                came = max(0, end - self._ends.get(p, end))
                slot[p] = came // passed + (1 if n < came % passed else 0)
            self._slots.append(slot)
        self._ends, self._at_ms = ends, measured.at_ms

    def take(self) -> dict[TopicPartition, tuple[int, ...]]:
        slots, self._slots = self._slots[-MOST_SLOTS:], []
        return {p: tuple(slot.get(p, 0) for slot in slots) for p in self._ends}


@given(looks)
def test_arrivals_of_all_partitions_are_those_of_each_by_itself(
    looks: list[tuple[int, dict[TopicPartition, tuple[float, float, int, float]], bool]],
) -> None:
    fast, slow = ArrivalSlots(1.0), SlotsReference()
    at_ms = 0
    for passed_ms, measured, is_taken in looks:
        at_ms += passed_ms
        for slots in (fast, slow):
            slots.add(measurement(at_ms, measured))
        if is_taken:
            assert fast.take() == slow.take()
    assert fast.take() == slow.take()


@given(
    rates,
    st.dictionaries(st.sampled_from(["a", "b"]), st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 2**40))),
    st.dictionaries(st.sampled_from(PARTITIONS), st.tuples(st.integers(0, 9), st.integers(0, 9))),
)
def test_loads_of_all_partitions_are_those_of_each_by_itself(
    measured: dict[TopicPartition, tuple[float, float, int, float]],
    ledgers: dict[str, dict[TopicPartition, int]],
    slots: dict[TopicPartition, tuple[int, int]],
) -> None:
    seen = observe(
        measurement(0, measured), ledgers, Assignment(), {}, 0.0, 0.0, TABLES.__getitem__, Recent(slots, 1.0)
    )
    expected = {}
    for p, (bytes_per_s, records_per_s, end, _) in measured.items():
        reached = min((landed[p] for landed in ledgers.values() if p in landed), default=math.inf)
        lag = max(0, end - int(reached)) if reached < math.inf else 0
        expected[p] = PartitionLoad(bytes_per_s * TABLES[p.topic], records_per_s, lag, end, slots.get(p, ()))
    assert seen.partitions == expected
    assert seen.rates() == {p: load.bytes_per_s for p, load in expected.items()}
