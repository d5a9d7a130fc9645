"""Traffic cut into packets, and policies that see it in records."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import Assignment, ConsumerLoad, Decision, Observation, PartitionLoad, TopicPartition
from headgate.simulation.group import partition_of
from headgate.simulation.packets import InRecords, cut
from headgate.simulation.recorded import Trace

A, B = TopicPartition("a", 0), TopicPartition("b", 3)


def trace(size: list[list[float]], record_bytes: float = 10.0) -> Trace:
    table = np.array(size, dtype=np.float64)
    edges = np.arange(len(table) + 1, dtype=np.float64)
    return Trace((A, B)[: table.shape[1]], edges, table / record_bytes, table)


def test_light_traffic_keeps_a_packet_for_every_record_evenly_spaced() -> None:
    packets = cut(trace([[40.0], [0.0], [20.0]]))
    assert packets.packet_bytes == 10
    # Four in the first second, none in the next, two in the third; the only partition has phase one half.
    assert packets.arrivals.times_s[0].tolist() == pytest.approx([0.125, 0.375, 0.625, 0.875, 2.25, 2.75])


def test_bursts_come_at_the_beginning_of_their_interval() -> None:
    assert cut(trace([[40.0], [0.0], [20.0]]), spacing="burst").arrivals.times_s[0].tolist() == [0, 0, 0, 0, 2, 2]


def test_random_moments_stay_within_their_interval() -> None:
    times = cut(trace([[40.0], [0.0], [20.0]]), spacing="random", rng=np.random.default_rng(1)).arrivals.times_s[0]
    assert np.floor(times).tolist() == [0, 0, 0, 0, 2, 2]
    assert np.all(np.diff(times) >= 0)


def test_heavy_traffic_becomes_few_large_packets() -> None:
    packets = cut(trace([[6e6, 2e6]] * 10), most=1000)
    assert packets.packet_bytes == 80_000  # 80 MB in a thousand packets
    assert packets.arrivals.events == 1000
    assert packets.mean_records == pytest.approx(8000)
    assert packets.per_s(2e6) == 25


def test_a_topic_that_feeds_two_tables_is_paid_twice() -> None:
    packets = cut(trace([[1000.0, 1000.0]]), readings=lambda topic: 2 if topic == "a" else 1)
    assert packets.packet_bytes == 15  # 3000 bytes paid for 200 records
    assert [len(t) for t in packets.arrivals.times_s] == [134, 66]
    # 2000 and 1000 bytes are 133.3 and 66.7 packets; the first comes after a quarter of one, or three quarters
    assert packets.records_per_packet.tolist() == [15 / 20, 15 / 10]


@given(
    st.lists(st.lists(st.integers(0, 50_000), min_size=2, max_size=2), min_size=1, max_size=8),
    st.integers(1, 500),
    st.sampled_from(["even", "random", "burst"]),
)
def test_no_byte_is_lost_or_invented_beyond_a_packet(size: list[list[int]], most: int, spacing: str) -> None:
    if sum(map(sum, size)) == 0:
        return
    table = [[float(x) for x in row] for row in size]
    packets = cut(trace(table), most, spacing)  # type: ignore[arg-type]
    for n, times in enumerate(packets.arrivals.times_s):
        cut_bytes = len(times) * packets.packet_bytes
        assert abs(cut_bytes - sum(row[n] for row in table)) <= packets.packet_bytes
        assert np.all((times >= 0) & (times <= len(size)))
        assert np.all(np.diff(times) >= 0)
    assert packets.arrivals.events <= most + 2


class Recorder:
    """Remembers what it saw and gives everything to consumer 7."""

    def __init__(self) -> None:
        self.seen: list[Observation] = []

    def decide(self, seen: Observation) -> Decision:
        self.seen.append(seen)
        return Decision(Assignment({7: frozenset(seen.partitions)}), "all to 7")


def test_a_policy_sees_records_and_real_partitions_and_is_obeyed_in_packets() -> None:
    packets = cut(trace([[6000.0, 2000.0]] * 10, record_bytes=100.0), most=100)  # 800 bytes a packet: 8 records
    policy = Recorder()
    decision = InRecords(policy, packets).decide(
        Observation(
            at_s=5.0,
            measured_at_s=5.0,
            partitions={
                partition_of(0): PartitionLoad(6000.0, 7.5, 2, 37, (4, 3)),
                partition_of(1): PartitionLoad(2000.0, 2.5, 0, 12, (1, 1)),
            },
            assignment=Assignment({1: frozenset({partition_of(0), partition_of(1)})}),
            consumers={1: ConsumerLoad(capacity_records_per_s=5.0), 2: ConsumerLoad()},
            watching_since_s=0.0,
            slot_s=1.0,
        )
    )
    (seen,) = policy.seen
    assert seen.partitions[A] == PartitionLoad(6000.0, 60.0, 16, 296, (32, 24))
    assert seen.partitions[B] == PartitionLoad(2000.0, 20.0, 0, 96, (8, 8))
    assert seen.assignment == Assignment({1: frozenset({A, B})})
    assert seen.consumers[1].capacity_records_per_s == pytest.approx(40.0)
    assert seen.consumers[2].capacity_records_per_s is None
    assert decision.assignment == Assignment({7: frozenset({partition_of(0), partition_of(1)})})


def test_fractions_of_records_add_up_over_slots() -> None:
    packets = cut(trace([[1000.0, 1000.0]]), readings=lambda topic: 2 if topic == "a" else 1)  # 0.75 records a packet
    policy = Recorder()
    eye = InRecords(policy, packets)
    for at_s in range(4):
        loads = {partition_of(n): PartitionLoad(0.0, arrivals=(1,)) for n in (0, 1)}
        eye.decide(Observation(at_s, at_s, loads, Assignment(), {}, 0.0, 1.0))
    assert sum(seen.partitions[A].arrivals[0] for seen in policy.seen) == 3
