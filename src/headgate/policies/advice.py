"""What scaling cannot mend, said so that a person can act on it (E-7, E-31, E-48)."""

import math

import numpy as np

from headgate.model import Alert, Observation
from headgate.policies.forecast import Load
from headgate.policies.lateness import late_per_s

HOT_SHARE = 0.02
"""A partition is hot if, alone on a consumer, more than this share of its records would be late."""
HOPELESS = 0.1
"""SLO relative to the pause of a move, below which changing size costs more than it saves."""


PERSISTS_BEATS = 5
"""Load must have been so long without a jump before a topic is worth repartitioning (E-48)."""
SLOW_MOVES, HOPELESS_MOVES = "slo below pause", "slo far below pause"
"""What an alert is about, by the class of the ratio of SLO to pause (E-31)."""


def advice(
    seen: Observation, load: Load, capacity_records_per_s: float, slo_s: float, pause_s: float
) -> tuple[Alert, ...]:
    return (*hot_partitions(load, capacity_records_per_s, slo_s), *slow_moves(slo_s, pause_s), *slow_brokers(seen))


def hot_partitions(load: Load, capacity_records_per_s: float, slo_s: float) -> tuple[Alert, ...]:
    """Partitions that one consumer cannot serve in time, with the partition count that would (E-7, E-48)."""
    if load.steady_beats < PERSISTS_BEATS:
        return ()
    late = late_per_s(load, load.shares, load.level, capacity_records_per_s, slo_s)
    found = []
    for n in np.flatnonzero(late > HOT_SHARE * np.maximum(load.shares * load.level, 1e-9)):
        name, rate = load.partitions[int(n)], float(load.shares[int(n)] * load.level)
        burst = rate * float(load.shape[0]) * load.slot_s
        pieces = max(2, math.ceil(max(rate / capacity_records_per_s, burst / (capacity_records_per_s * slo_s)) / 0.8))
        found.append(
            Alert(
                f"hot {name}",
                f"{name} gets {rate:.0f} records/s, up to {burst:.0f} at once; one consumer does "
                f"{capacity_records_per_s:.0f} a second and {capacity_records_per_s * slo_s:.0f} within the SLO, so "
                f"more consumers cannot help: with random keys {pieces * len(load.partitions)} partitions instead of "
                f"{len(load.partitions)} would; if one key is that hot, salt it",
            )
        )
    return tuple(found)


def slow_moves(slo_s: float, pause_s: float) -> tuple[Alert, ...]:
    """E-31: what the ratio of SLO to pause means."""
    if pause_s <= 0 or slo_s / pause_s > 1:
        return ()
    if slo_s / pause_s <= HOPELESS:
        about = HOPELESS_MOVES
        text = "every change of size breaks the SLO many times over: provision for the peak instead"
    else:
        about = SLOW_MOVES
        text = "every move makes records late: changes are made rarely and early, and cost more"
    return (Alert(about, f"moving a partition takes {pause_s:g} s, the SLO is {slo_s:g} s: {text}"),)


def slow_brokers(seen: Observation) -> tuple[Alert, ...]:
    if not seen.brokers_slow:
        return ()
    return (
        Alert("brokers", "reads are slow at the brokers: more consumers would not help; look at the brokers first"),
    )


def too_few_allowed(consumers: int, largest: int, partitions: int, late_per_s: float) -> tuple[Alert, ...]:
    """More consumers would help, if they were allowed."""
    if consumers < largest or largest == partitions or late_per_s <= 1:
        return ()
    text = f"all {largest} consumers allowed are in use, {late_per_s:.1f} records/s are late: raise max_consumers"
    return (Alert("max_consumers", text),)
