"""Partitioners: whom they choose, what they look up, and how they take changes of the cluster."""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

import pytest

from headgate.errors import ConfigError
from headgate.producers.inflight import JoinShortestOf, LatencyWeighted, SqfInflight
from headgate.producers.murmur2 import murmur2, partition_of_key
from headgate.producers.node import NodeRoundRobin, NodeThenKey
from headgate.producers.nodes import Usage
from headgate.producers.protocol import ClusterView, Partitioner
from headgate.producers.registry import build_partitioner
from headgate.producers.round_robin import DefaultRoundRobin, Improved
from headgate.producers.sqf import ShortestQueueFirst, shrink
from headgate.topology.cluster import Topology
from headgate.topology.failures import failed, recovered
from tests.topologies import cluster

K = TypeVar("K")
T = TypeVar("T")

U = cluster({"A": [[1, 2], [2, 1], [2, 1]]}, nodes=2)
"""Node 1 leads one partition, node 2 the other two."""


def zero() -> int:
    return 0


def sent(partitioner: Partitioner, topic: str, view: ClusterView, records: int) -> Counter[int]:
    return Counter(partitioner.partition(topic, None, b"", view) for _ in range(records))


@pytest.mark.parametrize(("key", "hashed"), [(b"21", -973932308), (b"foobar", -790332482), (b"abc", 479470107)])
def test_keys_are_hashed_as_kafka_hashes_them(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed
    assert partition_of_key(key, 7) == (hashed & 0x7FFFFFFF) % 7


@pytest.mark.parametrize("kind", [DefaultRoundRobin, Improved])
def test_round_robin_gives_partitions_the_same_and_nodes_not(kind: type[DefaultRoundRobin | Improved]) -> None:
    counts = sent(kind(), "A", ClusterView.of(U), 301)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_improved_makes_the_choices_of_the_default() -> None:
    views = [ClusterView.of(U), ClusterView.of(failed(U, [1, 2])), ClusterView.of(failed(U, [1]))]
    default, improved = DefaultRoundRobin(zero), Improved(zero)
    for view in views * 5:
        assert default.partition("A", None, b"", view) == improved.partition("A", None, b"", view)
        assert default.partition("A", b"key", b"", view) == improved.partition("A", b"key", b"", view)


@pytest.mark.parametrize("kind", [DefaultRoundRobin, Improved])
def test_a_counter_that_reaches_its_end_goes_on_at_zero(kind: type[DefaultRoundRobin | Improved]) -> None:
    """B-28: 2^31 - 2 is divisible by 3; then 2^31 - 1, and after it 0, as the sign is dropped."""
    assert (2**31 - 2) % 3 == 0
    partitioner, view = kind(lambda: 2**31 - 2), ClusterView.of(U)
    assert [partitioner.partition("A", None, b"", view) for _ in range(5)] == [0, 1, 0, 1, 2]


def test_a_key_keeps_its_partition_while_its_leader_is_away() -> None:
    without = ClusterView.of(failed(cluster({"A": [[1], [2]]}, nodes=2), [1]))
    keys = [b"%d" % n for n in range(50)]
    assert {DefaultRoundRobin().partition("A", key, b"", without) for key in keys} == {0, 1}
    assert {DefaultRoundRobin().partition("A", None, b"", without) for _ in keys} == {1}


class AskedAtOnce(dict[K, T]):
    """Threads that ask for something the first time all get their answer before any of them goes on; after the deadline
    they go on all the same."""

    def __init__(self, threads: int, deadline_s: float = 30.0) -> None:
        super().__init__()
        self._barrier, self._deadline_s = threading.Barrier(threads), deadline_s
        self._asked: set[tuple[int, K]] = set()

    def get(self, key: K, default: T | None = None) -> T | None:  # type: ignore[override]
        found, first = super().get(key, default), (threading.get_ident(), key) not in self._asked
        if first:
            self._asked.add((threading.get_ident(), key))
            with suppress(threading.BrokenBarrierError):
                self._barrier.wait(self._deadline_s)
        return found


@pytest.mark.parametrize("kind", [DefaultRoundRobin, Improved])
def test_producers_that_race_for_a_new_topic_share_one_counter(kind: type[DefaultRoundRobin | Improved]) -> None:
    """B-29: eight threads find no counter, then each sends two records: with two counters the sixteen would not be
    spread evenly."""
    view = ClusterView.of(cluster({"A": [[1], [1], [1], [1]]}, nodes=1))
    partitioner = kind(zero)
    partitioner._counters[""] = AskedAtOnce[str, Any](8)

    def produce() -> list[int]:
        return [partitioner.partition("A", None, b"", view) for _ in range(2)]

    with ThreadPoolExecutor(8) as threads:
        chosen = [done.result() for done in [threads.submit(produce) for _ in range(8)]]
    assert Counter(chain(*chosen)) == dict.fromkeys(range(4), 4)


@pytest.mark.parametrize("kind", [NodeRoundRobin, ShortestQueueFirst, SqfInflight])
def test_balancing_nodes_levels_nodes_and_the_partitions_within(
    kind: type[NodeRoundRobin | ShortestQueueFirst | SqfInflight],
) -> None:
    """B-31, B-32: half for node 1's one partition, a quarter for each of node 2's."""
    counts = sent(kind(start=zero), "A", ClusterView.of(U), 400)
    assert counts == {0: 200, 1: 100, 2: 100}


def test_within_a_node_the_key_may_choose() -> None:
    """B-38: half of the records for each node, and of node 2's partitions always the one that the key hashes to."""
    by_key = NodeThenKey(allow_keys=True, start=zero)
    for key in (b"21", b"foobar", b"abc"):
        counts = Counter(by_key.partition("A", key, b"", ClusterView.of(U)) for _ in range(100))
        assert counts == {0: 50, 1 + partition_of_key(key, 2): 50}
    assert sent(by_key, "A", ClusterView.of(U), 400) == {0: 200, 1: 100, 2: 100}


def test_sqf_counts_nodes_over_all_topics_and_a_shared_instance_levels_an_overlap() -> None:
    """B-36, B-25: A on nodes 1 and 2 (twice), B on 2 and 3, one record each in turn: a third of all for each node."""
    view = ClusterView.of(cluster({"A": [[1], [2], [2]], "B": [[2], [3]]}))
    shared = ShortestQueueFirst(start=zero)
    a, b = Counter[int](), Counter[int]()
    for _ in range(3000):
        a[shared.partition("A", None, b"", view)] += 1
        b[shared.partition("B", None, b"", view)] += 1
    assert list(shared.usage(view).values()) == pytest.approx([2000] * 3, abs=2)
    assert abs(a[1] - a[2]) <= 1
    apart = {name: ShortestQueueFirst(start=zero) for name in "AB"}
    for name, instance in apart.items():
        sent(instance, name, view, 3000)
    loads = [sum(instance.usage(view)[node] for instance in apart.values()) for node in (1, 2, 3)]
    assert loads == [1500, 3000, 1500]


def test_sqf_may_count_bytes() -> None:
    sqf, view = ShortestQueueFirst(count_bytes=True, start=zero), ClusterView.of(cluster({"A": [[1], [2]]}, nodes=2))
    assert [sqf.partition("A", None, value, view) for value in (b"x" * 10, b"x", b"x", b"x")] == [0, 1, 1, 1]


def test_counters_that_reach_their_limit_change_no_choice() -> None:
    """B-33: the same records with a limit of 8 and with none in sight."""
    view = ClusterView.of(cluster({"A": [[1], [2], [2]], "B": [[2], [3]]}))
    topics = ["A", "A", "B", "A", "B", "B", "A"] * 40
    small, large = ShortestQueueFirst(limit=8, start=zero), ShortestQueueFirst(start=zero)
    chosen = [[sqf.partition(topic, None, b"", view) for topic in topics] for sqf in (small, large)]
    assert chosen[0] == chosen[1]
    assert max(small.usage(view).values()) < 8


def test_usage_far_apart_is_halved_and_keeps_its_order() -> None:
    """Node 4 leads nothing: it stays low and does not set the least, which is 10."""
    usages = {1: Usage(100.0), 2: Usage(90.0), 3: Usage(10.0), 4: Usage()}
    shrink(usages, frozenset({1, 2, 3}), limit=100)
    assert [usage.value for usage in usages.values()] == [45.0, 40.0, 0.0, 0.0]


def one_by_one(sqf: ShortestQueueFirst, view: ClusterView, records: int) -> Counter[int]:
    return sent(sqf, "A", view, records)


def bound(sqf: ShortestQueueFirst, view: ClusterView, records: int) -> Counter[int]:
    choose = sqf.bound("A", view)
    assert choose is not None
    return Counter(choose() for _ in range(records))


def ahead(sqf: ShortestQueueFirst, view: ClusterView, records: int) -> Counter[int]:
    return Counter(sqf.ahead("A", view, records))


@pytest.mark.parametrize("send", [one_by_one, bound, ahead])
def test_a_node_that_was_away_when_counters_came_down_gets_its_share(
    send: Callable[[ShortestQueueFirst, ClusterView, int], Counter[int]],
) -> None:
    """B-33, B-34: 90 for each of three nodes, then the limit of 100 is reached without node 3. Left at 90 it would get
    none of the next 90."""
    three = cluster({"A": [[1, 2], [2, 1], [3, 1]]})
    sqf = ShortestQueueFirst(limit=100, start=zero)
    assert send(sqf, ClusterView.of(three), 270) == {0: 90, 1: 90, 2: 90}
    send(sqf, ClusterView.of(failed(three, [3])), 40)
    assert send(sqf, ClusterView.of(three), 90) == {0: 30, 1: 30, 2: 30}


def test_a_node_that_comes_back_gets_its_share_and_not_everything() -> None:
    """B-34."""
    healthy, without = ClusterView.of(U), ClusterView.of(failed(U, [1]))
    back = ClusterView.of(recovered(failed(U, [1]), [1]))
    for keep, share in ((False, 50), (True, 100)):
        sqf = ShortestQueueFirst(keep_usage=keep, start=zero)
        sent(sqf, "A", healthy, 100)
        sent(sqf, "A", without, 1000)
        assert sent(sqf, "A", back, 100)[0] == share


def views_of_producers(topology: Topology) -> dict[str, ClusterView]:
    """Each producer sees the leaders of its own topic only, and all nodes."""
    return {topic.name: ClusterView.of(replace(topology, topics=(topic,))) for topic in topology.topics}


CHAIN = {"X": [[1], [2]], "Y": [[3], [4]], "Z": [[2], [3]]}


def shared_by_three(sqf: ShortestQueueFirst) -> None:
    """30,000 records in turn: 7,500 for each of the four nodes."""
    views = views_of_producers(cluster(CHAIN, nodes=4))
    for _ in range(10_000):
        for topic in ("X", "Z", "Y"):
            sqf.partition(topic, None, b"", views[topic])
    assert list(sqf.usage(views["X"]).values()) == pytest.approx([7_500] * 4, abs=2)


def test_counters_that_come_down_keep_the_order_of_nodes_that_another_producer_writes_to() -> None:
    """B-33, B-36: 99 each for X's nodes 1 and 2, 10 each for Y's 3 and 4. Node 1 reaches the limit of 100: 90, 89,
    0, 0, and halved 45, 44.5, 0, 0. So the next 44 of Z, on nodes 2 and 3, are node 3's."""
    sqf, views = ShortestQueueFirst(limit=100, start=zero), views_of_producers(cluster(CHAIN, nodes=4))
    sent(sqf, "Y", views["Y"], 20)
    sent(sqf, "X", views["X"], 198)
    sent(sqf, "X", views["X"], 1)
    assert list(sqf.usage(views["X"]).values()) == [45.0, 44.5, 0.0, 0.0]
    assert sent(sqf, "Z", views["Z"], 44) == {1: 44}


def test_first_views_of_producers_that_share_an_sqf_count_a_node_once() -> None:
    """B-36: both look for node 1's usage before either has made it, if nothing keeps one of them waiting."""
    topology, sqf = cluster({"A": [[1]], "B": [[1]]}, nodes=1), ShortestQueueFirst(start=zero)
    sqf._maps._usages[""] = AskedAtOnce[int, Usage](2, deadline_s=0.2)
    views = views_of_producers(topology)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda topic: sqf.partition(topic, None, b"", views[topic]), "AB"))
    assert [sqf.usage(view) for view in views.values()] == [{1: 2}, {1: 2}]


def test_producers_that_share_an_sqf_keep_each_others_weights_when_the_topology_changes() -> None:
    """B-36, B-34: a fifth node appears, and all three see it. Then Y, alone, sends the same to both of its nodes."""
    sqf = ShortestQueueFirst(start=zero)
    shared_by_three(sqf)
    after = views_of_producers(cluster(CHAIN, nodes=5))
    for topic in ("X", "Z", "Y"):
        sqf.bound(topic, after[topic])
    assert list(sqf.usage(after["Y"]).values()) == pytest.approx([7_500] * 5, abs=2)
    assert sent(sqf, "Y", after["Y"], 5_000)[0] == pytest.approx(2_500, abs=2)


def test_a_producer_that_takes_up_a_topic_changes_no_weights() -> None:
    """X's producer writes Y, too, whose nodes were sent 100 each, and 7,500 were sent to each of X's: Y's go on from
    there."""
    sqf, views = ShortestQueueFirst(start=zero), views_of_producers(cluster(CHAIN, nodes=4))
    sent(sqf, "Y", views["Y"], 200)
    sent(sqf, "X", views["X"], 15_000)
    both = ClusterView.of(cluster({topic: CHAIN[topic] for topic in "XY"}, nodes=4))
    assert list(sqf.usage(both).values()) == [7_500, 7_500, 100, 100]


def test_a_node_that_one_producer_saw_away_does_not_get_everything_of_one_that_comes_later() -> None:
    """B-34: W begins when node 2 is back; node 1 has 600 by then, and node 2 is put at that level, not left at 100."""
    topology = cluster({"V": [[1, 2], [2, 1]], "W": [[1, 2], [2, 1]]}, nodes=2)
    sqf, healthy = ShortestQueueFirst(start=zero), views_of_producers(topology)
    sent(sqf, "V", healthy["V"], 200)
    sent(sqf, "V", views_of_producers(failed(topology, [2]))["V"], 500)
    assert sent(sqf, "W", views_of_producers(topology)["W"], 100) == {0: 50, 1: 50}


def test_a_node_that_is_back_and_leads_nothing_for_a_while_does_not_get_everything_afterwards() -> None:
    """B-34: brokers are back some time before they lead again."""
    healthy, without = ClusterView.of(U), ClusterView.of(failed(U, [1]))
    there = replace(without, nodes=healthy.nodes)
    sqf = ShortestQueueFirst(start=zero)
    for view in (healthy, without, there):
        sent(sqf, "A", view, 1000)
    assert sent(sqf, "A", ClusterView.of(U), 100)[0] == 50


def test_without_any_leader_records_are_still_given_a_partition() -> None:
    """B-35."""
    nobody = ClusterView.of(failed(U, [1, 2]))
    for name in ("default-rr", "improved", "node", "sqf", "sqf-inflight", "jsq", "latency-weighted"):
        assert sent(build_partitioner(name), "A", nobody, 300) == {0: 100, 1: 100, 2: 100}


@pytest.mark.parametrize("name", ["node", "node-key", "sqf", "sqf-inflight", "jsq", "latency-weighted"])
def test_keyed_records_are_refused_unless_allowed(name: str) -> None:
    """B-39."""
    view = ClusterView.of(U)
    with pytest.raises(ConfigError, match="out of order"):
        build_partitioner(name).partition("A", b"key", b"", view)
    assert build_partitioner(name, {"allow_keys": True}).partition("A", b"key", b"", view) in (0, 1, 2)


@pytest.mark.parametrize("name", ["default-rr", "improved", "node", "sqf"])
def test_an_unknown_topic_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match="topic Z is not in"):
        build_partitioner(name).partition("Z", None, b"", ClusterView.of(U))


@pytest.mark.parametrize("name", ["default-rr", "improved", "node", "sqf"])
def test_one_instance_serves_several_clusters_apart(name: str) -> None:
    here, there = ClusterView.of(U, "here"), ClusterView.of(U, "there")
    both, alone = build_partitioner(name, {"start": zero}), build_partitioner(name, {"start": zero})
    mixed = [both.partition("A", None, b"", view) for _ in range(20) for view in (here, there)]
    assert mixed[::2] == mixed[1::2] == [alone.partition("A", None, b"", here) for _ in range(20)]


class CountedMap(dict[str, object]):
    accesses = 0

    def __getitem__(self, key: str) -> object:
        CountedMap.accesses += 1
        return super().__getitem__(key)

    def get(self, key: str, default: object = None) -> object:
        CountedMap.accesses += 1
        return super().get(key, default)


@pytest.mark.parametrize(
    ("kind", "online", "accesses"),
    [
        (DefaultRoundRobin, True, 3),
        (Improved, True, 2),
        (Improved, False, 3),
        (NodeRoundRobin, True, 3),
        (ShortestQueueFirst, True, 2),
    ],
)
def test_look_ups_per_record_are_as_published(kind: type, online: bool, accesses: int) -> None:
    """B-37: maps keyed by topic that are asked for one record without a key, once everything is known."""
    view = ClusterView.of(U if online else failed(U, [1, 2]))
    counted = replace(
        view,
        partitions=CountedMap(view.partitions),  # type: ignore[arg-type]
        available=CountedMap(view.available),  # type: ignore[arg-type]
    )
    partitioner = kind()
    partitioner.partition("A", None, b"", counted)
    if hasattr(partitioner, "_counters"):
        partitioner._counters[""] = CountedMap(partitioner._counters[""])
    if hasattr(partitioner, "_maps"):
        maps = partitioner._maps.of(counted)
        for node in maps.nodes.values():
            node.led = CountedMap(node.led)
        partitioner._maps._last = (counted, replace(maps, nodes_of=CountedMap(maps.nodes_of)))
    CountedMap.accesses = 0
    partitioner.partition("A", None, b"", counted)
    assert CountedMap.accesses == accesses


def test_records_on_their_way_steer_away_from_a_slow_node() -> None:
    """B-40: node 1 never answers, so it gets one record and then the others do."""
    view = ClusterView.of(cluster({"A": [[1], [2], [3]]}))
    sqf = SqfInflight(start=zero)
    chosen = []
    for _ in range(31):
        partition = sqf.partition("A", None, b"", view)
        chosen.append(partition)
        if partition != 0:
            sqf.acknowledged("A", partition, 0.001, view)
    assert Counter(chosen)[0] == 1


def test_a_node_that_comes_back_has_nothing_on_its_way() -> None:
    """Node 2 holds ten records that it has not acknowledged; those that node 1 lost count for nobody."""
    sqf, healthy, without = SqfInflight(start=zero), ClusterView.of(U), ClusterView.of(failed(U, [1]))
    for partition in [sqf.partition("A", None, b"", healthy) for _ in range(10)]:
        if partition == 0:
            sqf.acknowledged("A", partition, None, healthy)
    sent(sqf, "A", without, 5)
    back = ClusterView.of(recovered(failed(U, [1]), [1]))
    assert sent(sqf, "A", back, 10) == {0: 10}
    assert sent(sqf, "A", back, 2)[0] == 1


def test_latency_counts_with_what_is_on_its_way() -> None:
    """Node 1 takes four times as long: with both kept equally pressed it gets a fifth."""
    view = ClusterView.of(cluster({"A": [[1], [2]]}, nodes=2))
    weighted = LatencyWeighted(half_life=1, start=zero)
    for partition, latency_s in ((0, 0.4), (1, 0.1)):
        assert weighted.partition("A", None, b"", view) == partition
        weighted.acknowledged("A", partition, latency_s, view)
    assert sent(weighted, "A", view, 100) == {0: 20, 1: 80}


def test_a_node_that_was_slow_is_tried_again_and_one_answer_brings_it_back() -> None:
    """Node 1 took 0.4 s, node 2 takes 0.1 s and answers at once. A node of which nothing is known counts 0.05 s, and
    after n answers of node 2 node 1 counts 0.05 + 0.35 / 2^(n/10) s: less than 0.1 s when 2^(n/10) > 7, so n = 29.
    It answers within 0.1 s: 0.1 + 0.3 / 2 / 2^2.9 = 0.120 s; node 2, heard one answer earlier, counts
    0.05 + 0.05 / 2^0.1 = 0.0967 s. So node 1 gets 967 of 967 + 1201 of what is sent then."""
    view = ClusterView.of(cluster({"A": [[1], [2]]}, nodes=2))
    weighted = LatencyWeighted(half_life=1, forget_after=10, start=zero)
    weighted.partition("A", None, b"", view)
    weighted.acknowledged("A", 0, 0.4, view)
    chosen = []
    for _ in range(30):
        chosen.append(weighted.partition("A", None, b"", view))
        weighted.acknowledged("A", chosen[-1], 0.1, view)
    assert chosen == [1] * 29 + [0]
    assert sent(weighted, "A", view, 1000)[0] == pytest.approx(1000 * 967 / (967 + 1201), abs=1)


def test_a_node_that_is_still_slow_when_it_is_tried_again_is_left_after_that_record() -> None:
    """As above; but node 1 takes 0.4 s again, which is then expected of it: so it is left for another 29 records."""
    view = ClusterView.of(cluster({"A": [[1], [2]]}, nodes=2))
    weighted = LatencyWeighted(half_life=1, forget_after=10, start=zero)
    chosen = []
    for _ in range(91):
        chosen.append(weighted.partition("A", None, b"", view))
        weighted.acknowledged("A", chosen[-1], 0.1 if chosen[-1] else 0.4, view)
    assert chosen == ([0] + [1] * 29) * 3 + [0]


def test_a_node_whose_broker_was_away_begins_anew() -> None:
    """Node 1's last records took 30 s; nothing is known of it when it leads again, so it counts half of node 2's 0.1 s
    and gets two records of three, until it answers."""
    two = cluster({"A": [[1, 2], [2, 1]]}, nodes=2)
    healthy, without, back = (ClusterView.of(seen) for seen in (two, failed(two, [1]), two))
    weighted = LatencyWeighted(start=zero)

    def write(view: ClusterView, latency_s: float) -> int:
        partition = weighted.partition("A", None, b"", view)
        weighted.acknowledged("A", partition, latency_s, view)
        return partition

    assert write(healthy, 30.0) == 0
    assert [write(healthy, 0.1) for _ in range(100)] == [1] * 100
    write(without, 0.1)
    assert sent(weighted, "A", back, 99) == {0: 66, 1: 33}


def test_jsq_of_one_is_random_and_of_all_is_the_shortest() -> None:
    view = ClusterView.of(cluster({"A": [[1], [2], [3]]}))
    assert set(sent(JoinShortestOf(3, seed=1), "A", view, 300).values()) == {100}
    counts = sent(JoinShortestOf(1, seed=1), "A", view, 300)
    assert min(counts.values()) > 60
    assert len(set(counts.values())) > 1
    with pytest.raises(ConfigError, match="at least 1"):
        JoinShortestOf(0)


def test_node_is_exact_where_a_round_would_be_too_long_to_write_down() -> None:
    """Nodes that lead 16, 15, 13 and 11 partitions: only after lcm = 34,320 turns each do all of them begin anew."""
    leaders = [node for node, led in enumerate((16, 15, 13, 11), start=1) for _ in range(led)]
    view = ClusterView.of(cluster({"A": [[leader] for leader in leaders]}, nodes=4))
    choice = NodeRoundRobin(start=zero).bound("A", view)
    counts = Counter(choice() for _ in range(30_001))
    for led in view.leaders["A"].values():
        assert max(counts[p] for p in led) - min(counts[p] for p in led) <= 1
    nodes = [sum(counts[p] for p in led) for led in view.leaders["A"].values()]
    assert max(nodes) - min(nodes) <= 1


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_sqf_loses_no_count_of_threads_that_choose_ahead_and_one_by_one() -> None:
    partitioner, view = ShortestQueueFirst(), ClusterView.of(U)
    choose = partitioner.bound("A", view)
    assert choose is not None

    def one_by_one() -> None:
        for _ in range(100_000):
            choose()

    def ahead() -> None:
        for _ in range(10):
            partitioner.ahead("A", view, 10_000)

    threads = [threading.Thread(target=work) for work in (one_by_one, ahead, one_by_one, ahead)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(partitioner.usage(view).values()) == 400_000
