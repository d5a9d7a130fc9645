"""What a consumer knows of its own speed, and how it treats tables in trouble."""

import pytest

from headgate.consumer.pace import Pace, Patience


def test_only_full_batches_say_what_a_consumer_can_do_and_not_the_first() -> None:
    pace = Pace()
    pace.add(payload_bytes=1000, busy_s=0.1, total_s=1.0, peak=False)
    pace.add(payload_bytes=5000, busy_s=50.0, total_s=50.0, peak=True)  # a cold start
    assert pace.capacity_bytes_per_s == 0
    pace.add(payload_bytes=5000, busy_s=0.5, total_s=0.5, peak=True)
    assert pace.capacity_bytes_per_s == 10_000
    pace.add(payload_bytes=5000, busy_s=0.25, total_s=0.5, peak=True)
    assert pace.capacity_bytes_per_s == pytest.approx(10_000 / 0.75)  # all bytes over all working time (E-3)


def test_only_a_mean_is_compared_between_consumers() -> None:
    paces = Pace("mean"), Pace("worst_case"), Pace("fixed")
    for pace in paces:
        pace.add(payload_bytes=5000, busy_s=0.5, total_s=0.5, peak=False)
        for _ in range(4):
            pace.add(payload_bytes=5000, busy_s=0.5, total_s=0.5, peak=True)
    assert [pace.full_cycles for pace in paces] == [3, 0, 0]


def test_a_consumer_of_fixed_capacity_reports_none() -> None:
    pace = Pace("fixed")
    pace.add(payload_bytes=5000, busy_s=0.5, total_s=0.5, peak=True)
    assert pace.capacity_bytes_per_s == 0
    assert pace.throughput_bytes_per_s > 0


def test_a_capped_consumer_can_do_no_more_than_its_cap() -> None:
    pace = Pace(cap_bytes_per_s=4000.0)
    for _ in range(2):
        pace.add(payload_bytes=5000, busy_s=0.5, total_s=1.25, peak=True)
    assert pace.capacity_bytes_per_s == 4000


def test_a_steady_pace_is_learned_in_a_few_times_ten_seconds() -> None:
    pace = Pace()
    for _ in range(60):
        pace.add(payload_bytes=2000, busy_s=0.4, total_s=1.0, peak=False)
    assert pace.throughput_bytes_per_s == pytest.approx(2000, rel=0.01)
    assert pace.busy_share == pytest.approx(0.4, rel=0.01)


def test_a_table_in_trouble_waits_and_then_goes_on_one_at_a_time_until_it_is_fine() -> None:
    patience = Patience()
    assert patience.in_flight("t", 4) == 4
    patience.failed("t", "no disk", most_s=60)
    assert patience.in_flight("t", 4) == 0
    assert patience.in_flight("other", 4) == 4
    assert patience.errors == ["t: no disk"]
    patience.failed("t", "no disk", most_s=0.0)  # the wait is over at once
    assert patience.in_flight("t", 4) == 1
    patience.fine("t")
    assert (patience.in_flight("t", 4), patience.errors) == (4, [])
