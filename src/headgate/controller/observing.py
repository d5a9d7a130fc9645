"""From what arrives over the channel to the observation a policy decides on."""

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from headgate.controller.ports import APPLIED, Channel, Clock, Ledgers
from headgate.model import Abilities, Assignment, ConsumerLoad, Observation, PartitionLoad, TopicPartition
from headgate.model.columns import ByPartition, Column, Rows, in_order
from headgate.model.messages import ConsumerCapacity, ConsumerState, DecisionRecord, Measurement

log = logging.getLogger(__name__)

_CLOCK_SKEW_S = 5.0
_SLOTS_KEPT = 120
"""Longer than any policy looks back; also the longest gap between measurements that is filled."""
_CHANGES_KEPT = 50
PAUSE_FLOOR_S = 0.05
"""No move counts less (E-29): the published t_r, and less than commands take to travel."""

Slots = Mapping[TopicPartition, tuple[int, ...]]


class ArrivalSlots:
    """Records per slot and partition, from the end offsets of successive measurements.

    A slot is the time between two measurements. If one is late or missing, what arrived is spread over as many slots
    as passed; if one comes too early, as where two monitors are at work, what arrived counts with the next. An end
    offset that falls belongs to a topic made anew: counting begins again there. So it does for a partition that was
    missing from a measurement.
    """

    def __init__(self, slot_s: float) -> None:
        if not slot_s > 0:
            raise ValueError(f"slot_s must be above 0, not {slot_s:g}")
        self.slot_s = slot_s
        self._partitions: tuple[TopicPartition, ...] = ()
        """Of the newest measurement. What is counted comes in their order."""
        self._ends = np.empty(0, np.int64)
        self._at_s: float | None = None
        self._slots: deque[NDArray[np.int64]] = deque(maxlen=_SLOTS_KEPT)

    def add(self, measurement: Measurement) -> None:
        at_s = measurement.at_ms / 1000
        ends = np.array(measurement.columns.column("end_offset"), np.int64)
        self._arrange(measurement.partitions, ends)
        passed = 0 if self._at_s is None else round((at_s - self._at_s) / self.slot_s)
        if self._at_s is not None and passed == 0:
            return
        if passed > _SLOTS_KEPT:  # too long ago to say when within it anything came
            self._slots.clear()
            passed = 0
        came = np.maximum(0, ends - self._ends)
        self._slots.extend(came // passed + (n < came % passed) for n in range(passed))
        self._ends, self._at_s = ends, at_s

    def _arrange(self, partitions: tuple[TopicPartition, ...], ends: NDArray[np.int64]) -> None:
        """Makes room for partitions that came, which count from these ends on, and forgets those that went."""
        if partitions == self._partitions:
            return
        place = {p: n for n, p in enumerate(self._partitions)}
        places = np.array([place.get(p, -1) for p in partitions], np.int64)
        is_new = places < 0

        def arranged(values: NDArray[np.int64], of_new: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.where(is_new, of_new, np.append(values, 0)[places])

        self._ends = arranged(self._ends, ends)
        self._slots = deque((arranged(slot, np.zeros_like(ends)) for slot in self._slots), _SLOTS_KEPT)
        self._partitions = partitions

    def take(self) -> Slots:
        """Everything since the last call, for the partitions of the newest measurement."""
        slots = [slot.tolist() for slot in self._slots]
        self._slots.clear()
        counted = list(zip(*slots, strict=True)) if slots else [()] * len(self._partitions)
        return Column(self._partitions, counted)


@dataclass(frozen=True, slots=True)
class Recent:
    """What is known beyond the newest measurement: arrivals since the last look, and what changes cost lately."""

    slots: Slots
    slot_s: float = 0.0
    pause_s: float | None = None
    start_s: float | None = None


NOTHING_RECENT = Recent({})
AS_CONFIGURED = Abilities()


def cost_of_changes(decisions: Iterable[DecisionRecord]) -> tuple[float | None, float | None]:
    """(pause of a move, start of a consumer), each the 99th percentile of the newest changes; None if there were none.

    The pause is t_r (E-29): of each change the longest that one of its partitions had no owner.
    """
    applied = [d for d in decisions if d.outcome == APPLIED]
    pauses = [d.pause_s for d in applied if d.moved and d.pause_s > 0][-_CHANGES_KEPT:]
    starts = [d.ready_s for d in applied if d.created and d.ready_s > 0][-_CHANGES_KEPT:]
    pause_s = _p99(pauses)
    return None if pause_s is None else max(PAUSE_FLOOR_S, pause_s), _p99(starts)


def _p99(values: Sequence[float]) -> float | None:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1] if values else None


class Measurements:
    """The newest measurement worth believing: not older than the last one, not from the future."""

    def __init__(self, channel: Channel, clock: Clock, slot_s: float) -> None:
        self._channel = channel
        self._clock = clock
        self._arrivals = ArrivalSlots(slot_s)
        self.newest: Measurement | None = None
        self._looked_at: Measurement | None = None
        self._looked_s = 0.0

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self.newest.partitions if self.newest else ())

    def refresh(self) -> bool:
        """Whether there is a newer one now."""
        found = self._channel.latest_measurement()
        if found is None or (self.newest is not None and found.at_ms <= self.newest.at_ms):
            return False
        if found.at_ms / 1000 > self._clock.now_s() + _CLOCK_SKEW_S:
            log.warning("a measurement of %d ms is from the future; ignored, check the clocks", found.at_ms)
            return False
        self.newest = found
        self._arrivals.add(found)
        return True

    @property
    def is_look_due(self) -> bool:
        """Whether there is anything to decide on: something new was measured, or time alone may tell by now."""
        if self.newest is None:
            return False
        return self.newest is not self._looked_at or self._clock.now_s() - self._looked_s >= self._arrivals.slot_s

    def recent(self) -> Recent:
        """For one observation; the next one gets what comes after it."""
        self._looked_at, self._looked_s = self.newest, self._clock.now_s()
        pause_s, start_s = cost_of_changes(self._channel.decisions())
        return Recent(self._arrivals.take(), self._arrivals.slot_s, pause_s, start_s)


def load_of(state: ConsumerState) -> ConsumerLoad:
    capacity = state.capacity_bytes_per_s if state.capacity_bytes_per_s > 0 else None
    return ConsumerLoad(state.throughput_bytes_per_s, state.busy_share, capacity, full_cycles=state.full_cycles)


def observe(
    measurement: Measurement,
    ledgers: Ledgers,
    assignment: Assignment,
    consumers: Mapping[int, ConsumerLoad],
    now_s: float,
    watching_since_s: float,
    tables_of: Callable[[str], int],
    recent: Recent = NOTHING_RECENT,
    abilities: Abilities = AS_CONFIGURED,
) -> Observation:
    """Rates are what consumers pay: a topic that feeds two tables is read twice."""
    names = measurement.partitions
    topics, _, rates, records, ends, _ = measurement.columns.columns
    tables = {topic: tables_of(topic) for topic in set(topics)}
    loads = (
        rates
        if set(tables.values()) == {1}
        else [rate * tables[topic] for topic, rate in zip(topics, rates, strict=True)],
        records,
        _lags(names, ends, ledgers),
        ends,
        in_order(recent.slots, names, repeat(())),
    )
    partitions = ByPartition(names, Rows(PartitionLoad, loads))
    return Observation(
        now_s,
        measurement.at_ms / 1000,
        partitions,
        assignment,
        _with_records(consumers, assignment, partitions),
        watching_since_s,
        recent.slot_s,
        recent.pause_s,
        recent.start_s,
        abilities,
    )


def _lags(partitions: Sequence[TopicPartition], ends: Sequence[int], ledgers: Ledgers) -> Sequence[int]:
    """Behind the end for the table that is furthest behind.

    A partition no ledger knows yet has an unknown, not an infinite lag.
    """
    lags = np.zeros(len(partitions), np.int64)
    for landed in ledgers.values():
        lags = np.maximum(lags, _behind(partitions, ends, landed))
    found: list[int] = lags.tolist()
    return found


def _behind(
    partitions: Sequence[TopicPartition], ends: Sequence[int], landed: Mapping[TopicPartition, int]
) -> NDArray[np.int64]:
    return np.array(ends, np.int64) - np.array(in_order(landed, partitions, ends), np.int64)


def lags_of_tables(measurement: Measurement, ledgers: Ledgers) -> dict[str, int]:
    """How many records each table lacks, as far as its ledger knows the partitions."""
    partitions, ends = measurement.partitions, measurement.columns.column("end_offset")
    return {t: int(np.maximum(0, _behind(partitions, ends, at)).sum()) for t, at in ledgers.items()}


def _with_records(
    consumers: Mapping[int, ConsumerLoad], assignment: Assignment, partitions: Mapping[TopicPartition, PartitionLoad]
) -> dict[int, ConsumerLoad]:
    """Measured capacities in records too, of the mix each consumer reads; of everything's while its own is silent."""
    measured = {n: load.capacity_bytes_per_s for n, load in consumers.items()}
    records = {n: in_records(capacity, assignment[n], partitions) for n, capacity in measured.items()}
    silent = [n for n, capacity in measured.items() if capacity is not None and records[n] is None]
    of_all = in_records(1.0, partitions, partitions) if silent else None
    if of_all is not None:
        records |= {n: (measured[n] or 0.0) * of_all for n in silent}
    return {n: replace(load, capacity_records_per_s=records[n]) for n, load in consumers.items()}


def in_records(
    bytes_per_s: float | None, mix: Iterable[TopicPartition], partitions: Mapping[TopicPartition, PartitionLoad]
) -> float | None:
    """A rate in bytes as records of this mix; None while nothing is known of it."""
    if bytes_per_s is None:
        return None
    loads = ByPartition.of(PartitionLoad, partitions)
    costs, counts = (loads.column(name).as_dict for name in ("bytes_per_s", "records_per_s"))
    known = [p for p in mix if p in costs]
    cost, records = float(sum(map(costs.__getitem__, known))), float(sum(map(counts.__getitem__, known)))
    if not (cost > 0 and records > 0 and math.isfinite(cost) and math.isfinite(records)):
        return None
    return bytes_per_s * records / cost


def capacities(
    consumers: Iterable[int],
    loads: Mapping[int, ConsumerLoad],
    abilities: Abilities,
    configured_bytes_per_s: float,
) -> tuple[ConsumerCapacity, ...]:
    """What each can do: as it measured, and as it counts for decisions."""
    return tuple(
        ConsumerCapacity(
            c,
            loads.get(c, ConsumerLoad()).capacity_bytes_per_s or 0.0,
            configured_bytes_per_s * abilities.share(c, configured_bytes_per_s),
        )
        for c in sorted(consumers)
    )
