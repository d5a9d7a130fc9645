"""The Horizontal Pod Autoscaler and KEDA's Kafka scaler on top of it, with their real formulas and defaults (L-59).

Both only say how many; Kafka's range assignor says where. HPA here: metric per replica against a target, 10 %
tolerance, a look every 15 s, at most the larger of 4 more or twice as many per 15 s, and on the way down the highest
recommendation of the last 5 minutes. KEDA feeds it the total lag over `lag_threshold`, capped at the partition count.
"""

import math
from abc import ABC, abstractmethod
from collections import deque

from headgate.model import Alternative, Decision, Observation
from headgate.policies.replica_capacity import PUBLISHED_PER_S, UNKNOWN, ReplicaCapacity
from headgate.policies.seen import blind, check_above_zero, check_not_negative, contiguous, held, number, rates, unowned

TOLERANCE = 0.1
SYNC_S = 15.0
STABILISATION_S = 300.0


class _Autoscaler(ABC):
    """The HPA control loop around a metric."""

    def __init__(
        self, min_replicas: int, max_replicas: int, sync_s: float, stabilisation_s: float, stale_after_s: float
    ) -> None:
        if not 1 <= min_replicas <= max_replicas:
            raise ValueError(f"1 <= min_replicas <= max_replicas is needed, not {min_replicas} and {max_replicas}")
        check_above_zero(sync_s=sync_s, stale_after_s=stale_after_s)
        check_not_negative(stabilisation_s=stabilisation_s)
        self._min, self._max = min_replicas, max_replicas
        self._sync_s = sync_s
        self._stabilisation_s = stabilisation_s
        self._stale_after_s = stale_after_s
        self._looked_s = float("-inf")
        self._recommended: deque[tuple[float, int]] = deque()

    @abstractmethod
    def _metric(self, seen: Observation) -> tuple[float, float, int]:
        """(total of the metric, target per replica, most replicas that make sense)."""

    def decide(self, seen: Observation) -> Decision:
        hold = held(seen, self._stale_after_s)
        if hold is not None:
            return hold
        if seen.at_s - self._looked_s < self._sync_s and not unowned(seen):
            return Decision(None, f"hold: looks every {self._sync_s:g} s")
        self._looked_s = seen.at_s
        here = max(1, len(seen.assignment))
        total, target, most = self._metric(seen)
        ratio = total / (target * here)
        wanted = here if abs(1 - ratio) <= TOLERANCE else math.ceil(total / target - 1e-9)
        wanted = max(self._min, min(wanted, self._max, most))
        self._recommended.append((seen.at_s, wanted))
        while self._recommended[0][0] < seen.at_s - self._stabilisation_s:
            self._recommended.popleft()
        inputs = {"metric": total, "target": target, "wanted": float(wanted), "consumers": float(here)}
        count = wanted
        if wanted > here:
            count = min(wanted, here + max(4, here))
        elif wanted < here:
            count = min(here, max(n for _, n in self._recommended))
        if count == here and not unowned(seen):
            why = f"metric {total:.0f} against {target:g} for each of {here}: keep"
            rejected = (
                () if wanted == here else (Alternative(f"{wanted} replicas", "the stabilisation window is not over"),)
            )
            return Decision(None, why, "", inputs, rejected)
        why = f"metric {total:.0f} against {target:g} each: {here} -> {count}"
        kept = Alternative(f"keep {here}", "outside the tolerance of 10 %")
        return Decision(contiguous(seen, count), why, "UP" if count > here else "DOWN", inputs, (kept,))


class Hpa(_Autoscaler):
    """HPA on a share of capacity, as on CPU: the busy share of a replica is its rate over its capacity."""

    def __init__(
        self,
        capacity_records_per_s: float | None = PUBLISHED_PER_S,
        target: float = 0.7,
        min_replicas: int = 1,
        max_replicas: int = 100,
        sync_s: float = SYNC_S,
        stabilisation_s: float = STABILISATION_S,
        stale_after_s: float = 10.0,
        consumer_capacity_bytes_per_s: float | None = None,
    ) -> None:
        super().__init__(min_replicas, max_replicas, sync_s, stabilisation_s, stale_after_s)
        if not 0 < target <= 1:
            raise ValueError(f"target is a share of capacity, above 0 and at most 1, not {target:g}")
        self._replica = ReplicaCapacity(capacity_records_per_s, consumer_capacity_bytes_per_s)
        self._target = target
        self._minute: deque[tuple[float, float]] = deque()

    def decide(self, seen: Observation) -> Decision:
        if held(seen, self._stale_after_s) is None:  # what is stale was counted when it was fresh
            self._minute.append((seen.at_s, sum(rates(seen).values())))
            while self._minute[0][0] < seen.at_s - 60.0:  # metrics are averages of a minute (L-59)
                self._minute.popleft()
            if not self._replica.look(seen):
                return blind(seen, UNKNOWN)
        return super().decide(seen)

    def _metric(self, seen: Observation) -> tuple[float, float, int]:
        mean = sum(rate for _, rate in self._minute) / len(self._minute)
        return 100 * mean / self._replica.per_s, 100 * self._target, len(seen.partitions)


class Keda(_Autoscaler):
    """KEDA's Kafka scaler: AverageValue of the total lag.

    Replicas never exceed the partitions, or those with lag, unless idle consumers are allowed. Zero replicas are not
    offered: `activation_lag_threshold` and the cooldown of 300 s only matter between zero and one.
    """

    def __init__(
        self,
        lag_threshold: float = 10.0,
        activation_lag_threshold: float = 0.0,
        limit_to_partitions_with_lag: bool = False,
        allow_idle_consumers: bool = False,
        min_replicas: int = 1,
        max_replicas: int = 100,
        sync_s: float = SYNC_S,
        stabilisation_s: float = STABILISATION_S,
        stale_after_s: float = 10.0,
    ) -> None:
        super().__init__(min_replicas, max_replicas, sync_s, stabilisation_s, stale_after_s)
        check_above_zero(lag_threshold=lag_threshold)
        check_not_negative(activation_lag_threshold=activation_lag_threshold)
        if allow_idle_consumers and limit_to_partitions_with_lag:
            raise ValueError("allow_idle_consumers and limit_to_partitions_with_lag exclude each other")
        self._threshold = lag_threshold
        self._activation = activation_lag_threshold
        self._limit = limit_to_partitions_with_lag
        self._idle = allow_idle_consumers

    def _metric(self, seen: Observation) -> tuple[float, float, int]:
        lags = [number(load.lag_records) for load in seen.partitions.values()]
        total = sum(lags)
        if total <= self._activation:
            total = 0.0
        most = sum(lag > 0 for lag in lags) if self._limit else len(lags)
        if not self._idle:
            total = min(total, self._threshold * max(1, most))
        return total, self._threshold, self._max if self._idle else max(1, most)
