"""What stands in the queues beyond the usual: how much, what becomes of it, and how many records it makes late."""

import numpy as np
import numpy.typing as npt

from headgate.model import Assignment, Observation
from headgate.policies.forecast import Floats, Load
from headgate.policies.lateness import highest_queue
from headgate.policies.seen import number

Ints = npt.NDArray[np.int64]

NOBODY = 0
"""Owner of a partition without one; consumer ids start at 1."""


def owners_of(assignment: Assignment, load: Load) -> Ints:
    """The owner of each of the load's partitions."""
    owner = assignment.by_partition()
    return np.array([owner.get(p, NOBODY) for p in load.partitions], dtype=np.int64)


def standing(
    seen: Observation, owners: Ints, load: Load, capacity_records_per_s: float, slo_s: float, waits_s: float
) -> Floats:
    """Records of each partition that wait beyond what their consumer does in time and beyond what is usual.

    Right after a burst much lag is usual (A-5): as much as the arrivals' own shape piles up, and its scatter. So is
    what came during `waits_s`, which every record waits anyway.
    """
    lags = np.array([number(seen.partitions[p].lag_records) for p in load.partitions])
    consumer, lag, shares = _per_consumer(owners, lags, load.shares)
    rates = shares * load.level
    usual = np.maximum(highest_queue(load, shares, load.level, capacity_records_per_s), capacity_records_per_s * slo_s)
    over = np.maximum(0.0, lag - usual - rates * waits_s)
    result: Floats = lags * (over / np.maximum(lag, 1.0))[consumer]
    return result


def grown(stands: Floats, owners: Ints, load: Load, capacity_records_per_s: float, wait_s: float) -> Floats:
    """What stands once `wait_s` have passed with owners as they are; who has no owner is not served."""
    came = load.shares * load.at(wait_s / 2) * wait_s
    consumer, waiting, owned = _per_consumer(owners, stands + came, np.where(owners == NOBODY, 0.0, 1.0))
    left = np.maximum(0.0, waiting - np.where(owned > 0, capacity_records_per_s * wait_s, 0.0))
    result: Floats = (stands + came) * (left / np.maximum(waiting, 1e-9))[consumer]
    return result


def _per_consumer(owners: Ints, first: Floats, second: Floats) -> tuple[Ints, Floats, Floats]:
    """For each partition the place of its consumer, and two values summed by consumer; nobody's stand alone."""
    alone = np.where(owners == NOBODY, -1 - np.arange(len(owners)), owners)
    _, consumer = np.unique(alone, return_inverse=True)
    return consumer, summed(consumer, first), summed(consumer, second)


def summed(belongs_to: Ints, values: Floats, count: int = 0) -> Floats:
    """Values added up by what they belong to."""
    return np.bincount(belongs_to, weights=values, minlength=count).astype(np.float64)


def late_by_backlog(rates: Floats, stands: Floats, capacity_records_per_s: float, step_s: float) -> Floats:
    """Late records of consumers because something stands in their queue, each column a consumer, each row a step.

    While something stands, all that comes is late. What a consumer cannot keep up with is late anyway and counted
    elsewhere. What still stands in the end must be worked off some day and makes others late meanwhile: one for each,
    as it is for a consumer that is then half busy, B/(mu-lambda)·lambda.
    """
    left, late = stands, np.zeros(len(stands))
    for came in rates:
        spare = capacity_records_per_s - came
        until_s = np.minimum(step_s, left / np.maximum(spare, 1e-9))
        late = late + np.where(spare > 0, came * until_s, 0.0)
        left = np.maximum(0.0, left - spare * step_s)
    return late + left
