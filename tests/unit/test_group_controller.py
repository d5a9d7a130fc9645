"""The group's controller on scripted looks: what it says and when, and since when a policy is told to have watched."""

from collections.abc import Callable

from prometheus_client import REGISTRY

from headgate.groups.assignor import NAME
from headgate.groups.carrying import Carrier
from headgate.groups.controller import GroupController, GroupSettings
from headgate.groups.desk import Desk
from headgate.groups.measuring import STABLE, GroupLook, GroupMeter, Load
from headgate.groups.placement import Joining
from headgate.groups.wire import Beat
from headgate.kafka.rates import Rate
from headgate.model import TopicPartition
from headgate.packing.repair import Repair
from headgate.policies.binpack_lag import Algorithm2
from headgate.policies.protocol import Policy
from headgate.policies.sentinel import Sentinel

P = [TopicPartition("t", n) for n in range(4)]


class SteadyGroup(GroupMeter):
    """Members that own these partitions, each of which gets so many records a second; no broker is asked."""

    def __init__(self, owned: dict[str, list[int]], records_per_s: float) -> None:
        self.owned, self._rate = owned, records_per_s

    def group(self) -> GroupLook:
        members = {m: Joining(frozenset({"t"})) for m in self.owned}
        return GroupLook(STABLE, NAME, members, {m: frozenset(P[n] for n in held) for m, held in self.owned.items()})

    def loads(self, topics: frozenset[str]) -> dict[TopicPartition, Load]:
        return {P[n]: Load(Rate(self._rate, self._rate, 1000, 1.0), 0) for held in self.owned.values() for n in held}


class Watched:
    def __init__(
        self, policy: Policy, owned: dict[str, list[int]], records_per_s: float = 20.0, group: str = "g"
    ) -> None:
        self.now_s, self.told = 1000.0, list[str]()
        clock: Callable[[], float] = lambda: self.now_s  # noqa: E731
        self.desk = Desk(group, floor_s=0.05, clock=clock)
        self.meter = SteadyGroup(owned, records_per_s)
        self.controller = GroupController(
            GroupSettings(group, slo_s=0.5, capacity_records_per_s=200.0, warm_up_s=0.0),
            self.meter,
            self.desk,
            lambda capacity, members: policy,
            Carrier(self.desk, None, self.told.append),
            self.told.append,
            clock,
        )

    def triggers(self, turns: int) -> list[str | None]:
        """Of one turn a second; None while a plan is carried out."""
        found: list[str | None] = []
        for _ in range(turns):
            decision = self.controller.turn()
            found.append(decision.trigger if decision else None)
            self.now_s += 1.0
        return found

    def paused(self, pause_s: float, times: int = 200) -> None:
        self.desk.beat(Beat("g", "a", 1, pauses_s=[pause_s] * times))
        self.controller.turn()


def test_a_timeout_counts_from_the_last_packing() -> None:
    watched = Watched(Sentinel(Repair(), 200.0, 180.0, max_sentinel_s=3.0), {"a": [0, 1, 2, 3]})
    fired = [n for n, trigger in enumerate(watched.triggers(12)) if trigger]
    assert fired == [4, 8]  # more than 3 s after the start, and after each


def test_a_timeout_counts_from_a_plan_that_was_carried_out() -> None:
    # Three partitions of 80 are more than the 200 of one member; two on each are not.
    watched = Watched(Sentinel(Repair(), 200.0, 180.0, max_sentinel_s=3.0), {"a": [0, 1, 2], "b": [3]}, 80.0)
    for member in ("a", "b"):
        watched.desk.beat(Beat("g", member, 1))
    assert watched.triggers(3) == ["overload", None, None]
    watched.meter.owned = {"a": [0, 1], "b": [2, 3]}
    watched.desk.beat(Beat("g", "a", 2))
    assert watched.triggers(5) == [None, "", "", "", "timeout"]


def test_slow_moves_are_told_again_when_their_class_changes() -> None:
    watched = Watched(Algorithm2(), {"a": [0]})
    for pause_s in (2.0, 2.1, 6.0, 6.5, 2.0, 0.1, 2.0):  # ratios 0.25, 0.24, 0.08, 0.08, 0.25, 5, 0.25
        watched.paused(pause_s)
    said = ["peak" if "provision for the peak" in t else "rarely" for t in watched.told if "moving a partition" in t]
    assert said == ["rarely", "peak", "rarely", "rarely"]


def test_deferred_scale_downs_are_counted_for_prometheus() -> None:
    # 40 records/s fit one member; with the 80 that wait after 2 s without service they do not (40 = 200 * 0.5 * 0.4).
    watched = Watched(Algorithm2(), {"a": [0], "b": [1]}, group="defers")
    watched.desk.beat(Beat("defers", "a", 1, pauses_s=[2.0]))
    assert watched.triggers(3) == ["DOWN"] * 3
    assert REGISTRY.get_sample_value("headgate_group_scale_downs_deferred_total", {"group": "defers"}) == 3
