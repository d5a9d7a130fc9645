"""The simulator of one producer, on cases that can be computed by hand."""

from itertools import cycle

import pytest

from headgate.simulation.producing import Client, Costs, Produced, Producing

BATCH = 16_384
FREE = Costs(0.0, 0.0, 0.0, 0.0)


def produced(
    *replicas: tuple[int, ...],
    client_bytes_per_s: float = 1e9,
    costs: Costs = FREE,
    acks_all: bool = False,
    buffer_bytes: int = 1_048_576,
    grains: int = 8000,
) -> Produced:
    client = Client(client_bytes_per_s, BATCH, buffer_bytes)
    turns = cycle(range(len(replicas)))
    return Producing(replicas, client, costs, acks_all, lambda: next(turns)).run(grains)


def test_a_slow_program_gets_every_record_through_as_soon_as_its_request_is_done() -> None:
    """1024 bytes every millisecond, and a request takes a tenth of that."""
    found = produced((0,), client_bytes_per_s=1_024_000, costs=Costs(1e-4, 0.0, 0.0, 0.0))
    assert found.bytes_per_s == pytest.approx(1_024_000, rel=1e-3)
    assert found.latencies_s == pytest.approx(1e-4)
    assert found.batch_bytes == 1024
    assert found.busy[0] == pytest.approx(0.1, rel=1e-3)


def test_a_node_that_is_asked_too_much_gets_full_batches_and_the_buffer_is_what_records_wait_in() -> None:
    """A batch of 16,384 bytes takes 1 ms for the request and 1 ms for its bytes; by Little's law records wait for as
    long as the node needs for all that the buffer holds."""
    found = produced((0,), costs=Costs(1e-3, 1e-3 / BATCH, 0.0, 0.0))
    assert found.bytes_per_s == pytest.approx(BATCH / 2e-3, rel=0.01)
    assert found.mean_latency_s == pytest.approx(1_048_576 / (BATCH / 2e-3), rel=0.01)
    assert found.batch_bytes == pytest.approx(BATCH, rel=0.02)
    assert found.busy[0] == pytest.approx(1.0, rel=0.01)


def test_a_request_carries_a_batch_of_each_partition_that_its_node_leads() -> None:
    one, two = (produced(*replicas, costs=Costs(1e-3, 0.0, 0.0, 0.0)) for replicas in (((0,),), ((0,), (0,))))
    assert two.bytes_per_s == pytest.approx(2 * one.bytes_per_s, rel=0.02)


def test_the_node_with_the_larger_share_holds_up_everybody_else() -> None:
    """Bytes alone cost: two thirds go to node 1, so three halves of what it can do are done in all."""
    found = produced((0,), (1,), (1,), costs=Costs(0.0, 1e-6, 0.0, 0.0))
    assert found.bytes_per_s == pytest.approx(1.5e6, rel=0.02)
    assert found.busy == pytest.approx((0.5, 1.0), rel=0.02)


def test_copies_take_a_followers_time() -> None:
    """Each of two nodes leads half and copies half; a byte costs 1 µs to lead and 3 µs to copy."""
    found = produced((0, 1), (1, 0), costs=Costs(0.0, 1e-6, 0.0, 3e-6), acks_all=True, grains=20_000)
    assert found.bytes_per_s == pytest.approx(2e6 / 4, rel=0.02)


def test_with_acks_all_a_record_waits_for_its_copy_and_with_acks_1_it_does_not() -> None:
    """A fetch takes 5 ms and begins at once, for records come every 10 ms."""
    costs = Costs(1e-4, 0.0, 5e-3, 0.0)
    for acks_all, expected_s in ((False, 1e-4), (True, 5.1e-3)):
        found = produced((0, 1), client_bytes_per_s=102_400, costs=costs, acks_all=acks_all, grains=500)
        assert found.latencies_s == pytest.approx(expected_s)


def test_one_fetch_at_a_time_brings_what_came_meanwhile() -> None:
    """Fetches of 10 ms follow each other; records come every 5 ms, so each waits for the end of the fetch that is under
    way and then for its own: between 10 and 20 ms."""
    found = produced(
        (0, 1), client_bytes_per_s=1024 / 5e-3, costs=Costs(0.0, 0.0, 10e-3, 0.0), acks_all=True, grains=500
    )
    assert found.latencies_s.min() >= 10e-3 - 1e-9
    assert found.latencies_s.max() <= 20e-3 + 1e-9
    assert found.bytes_per_s == pytest.approx(1024 / 5e-3, rel=0.03)


def test_a_fetch_takes_longer_the_more_partitions_it_brings() -> None:
    """Rare enough that every fetch brings one record of each of the leader's two partitions, which come together."""
    turns = cycle((0, 1))
    client = Client(1024 / 50e-3, BATCH, 1_048_576, in_flight=5)
    found = Producing(((0, 1), (0, 1)), client, Costs(0.0, 0.0, 5e-3, 0.0), True, lambda: next(turns)).run(200)
    assert found.latencies_s == pytest.approx(5e-3)
