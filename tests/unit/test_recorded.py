"""Recorded traffic: from CSV, from measurements, from profiles; and what is refused, by line."""

import csv
import io

import numpy as np
import pytest

from headgate.errors import ConfigError
from headgate.model import TopicPartition
from headgate.model.messages import Measurement, PartitionRate
from headgate.simulation.profiles import PROFILES, profile
from headgate.simulation.recorded import Trace, of_measurements
from headgate.simulation.trace_csv import read_trace, written

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def read(text: str, record_bytes: float | None = None) -> Trace:
    return read_trace(io.StringIO(text), "trace.csv", record_bytes)


def measured(at_s: float, *rates: tuple[int, int, float, float], topic: str = "a") -> Measurement:
    """(partition, end offset, bytes per second, records per second)."""
    return Measurement(
        round(at_s * 1000),
        30.0,
        "test",
        tuple(PartitionRate(topic, p, size, records, end, 30.0) for p, end, size, records in rates),
    )


def test_rows_in_any_order_become_intervals_and_missing_ones_are_zero() -> None:
    trace = read("time,partition,records,bytes\n20,a-0,3,300\n0,a-1,5,1000\n10,a-0,1,100\n0,a-0,2,200\n")
    assert trace.partitions == (A0, A1)
    assert trace.edges_s.tolist() == [0, 10, 20, 30]  # the last lasts as long as the usual step
    assert trace.records.tolist() == [[2, 5], [1, 0], [3, 0]]
    assert trace.bytes.tolist() == [[200, 1000], [100, 0], [300, 0]]
    assert trace.record_bytes.tolist() == [100, 200]
    assert trace.bytes_per_s.tolist() == [120, 10, 30]
    assert trace.notes == ()


def test_topic_may_be_a_column_of_its_own_and_time_iso_8601() -> None:
    trace = read(
        "Time, topic, Partition, records, bytes\n"
        "2025-11-15T10:00:00Z,with-dash,7,1,10\n"
        "2025-11-15T11:01:00+01:00,with-dash,7,2,20\n"  # 10:01 UTC
        "2025-11-15T10:02:00,with-dash,7,3,30\n"  # no zone: UTC
    )
    assert trace.partitions == (TopicPartition("with-dash", 7),)
    assert trace.edges_s.tolist() == [0, 60, 120, 180]
    assert trace.started_at_s == 1_763_200_800  # date -u -d 2025-11-15T10:00:00Z +%s


def test_the_number_after_the_last_dash_is_the_partition() -> None:
    assert read("time,partition,records,bytes\n0,x-y-12,1,1\n1,x-y-12,1,1\n").partitions == (TopicPartition("x-y", 12),)


def test_without_bytes_the_given_size_counts() -> None:
    assert read("time,partition,records\n0,a-0,2\n1,a-0,0\n", record_bytes=50).bytes.tolist() == [[100], [0]]


def test_a_gap_is_quiet_and_noted() -> None:
    trace = read("time,partition,records,bytes\n0,a-0,1,10\n10,a-0,1,10\n20,a-0,1,10\n100,a-0,1,10\n")
    assert trace.edges_s.tolist() == [0, 10, 20, 30, 100, 110]
    assert trace.records[:, 0].tolist() == [1, 1, 1, 0, 1]
    assert trace.notes == ("1 gaps, 70 s in all: nothing arrives in them",)


HEAD = "time,partition,records,bytes\n"
GOOD = "0,a-0,1,10\n1,a-0,1,10\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has: nothing"),
        ("time;partition;records\n0;a-0;1\n", "it lacks time, partition, records"),
        ("time,partition,record,bytes\n0,a-0,1,10\n", "is one of them meant to be 'records'"),
        (HEAD + GOOD + "soon,a-0,1,10\n", "line 4: time is 'soon'; allowed are seconds"),
        (HEAD + GOOD + "nan,a-0,1,10\n", "line 4: time is 'nan'; it must be a finite number"),
        (HEAD + GOOD + "2025-11-15T10:00:00Z,a-0,1,10\n", "line 4: time is ISO 8601 here and in seconds in the rows"),
        (HEAD + GOOD + "2,a,1,10\n", "line 4: partition is 'a'; allowed is the topic, '-' and a number"),
        (HEAD + GOOD + "2,a-x,1,10\n", "line 4: partition is 'a-x'"),
        (HEAD + GOOD + "2,a--1,1\n", "line 4: has not as many fields"),
        (HEAD + GOOD + "2,a-0,1,10,9\n", "line 4: has not as many fields"),
        (HEAD + GOOD + "2,a-0,-1,10\n", "line 4: records is -1; it must be finite and not negative"),
        (HEAD + GOOD + "2,a-0,NaN,10\n", "line 4: records is NaN"),
        (HEAD + GOOD + "2,a-0,1,inf\n", "line 4: bytes is inf"),
        (HEAD + GOOD + "2,a-0,many,10\n", "line 4: records is 'many'; it must be a number"),
        (HEAD + GOOD + "2,a-0,0,10\n", "line 4: 0 records cannot have 10 bytes"),
        (HEAD + GOOD + "2,a-0,1,\n", "line 4: has no bytes, and capacity is in bytes"),
        (HEAD + GOOD + "1,a-0,2,20\n", "line 4: a-0 has a row for this time already, in line 3"),
        (
            "time,topic,partition,records,bytes\n0,a,-1,1,1\n",
            "line 2: partition is '-1'; allowed is a topic and a number",
        ),
        (HEAD + "0,a-0,1,10\n", "1 different times found; at least two are needed"),
        (HEAD, "0 different times found"),
        (
            HEAD + "1763200800000,a-0,1,10\n1763286000000,a-0,1,10\n",
            "line 2: time is 1763200800000, which",
        ),
        (HEAD + "1763200000000,a-0,5,50\n1763200001000,a-0,5,50\n", "looks like milliseconds; give seconds, or ISO"),
        (HEAD + "0,a-0,1,10\n40000000000,a-0,1,10\n", "are these milliseconds?"),
        (HEAD + GOOD + "2,a-0,1e300,1e300\n", "line 4: records is 1e300; more than 1e+15 in one row"),
        (HEAD + GOOD + "2,a-0,1,1e19\n", "line 4: bytes is 1e19; more than 1e+18 in one row"),
        (HEAD + "0,a-0,0,0\n1,a-0,0,0\n", "nothing arrived in this trace"),
    ],
)
def test_a_malformed_trace_is_refused_with_the_line_and_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text)
    assert said in str(refused.value)


def test_all_wrong_lines_are_named_up_to_ten() -> None:
    with pytest.raises(ConfigError) as refused:
        read(HEAD + "x,a-0,1,1\n" * 12)
    assert "12 wrong rows" in str(refused.value)
    assert "line 11:" in str(refused.value)
    assert "line 12:" not in str(refused.value)
    assert "and 2 more" in str(refused.value)


def test_a_saved_trace_reads_back_the_same() -> None:
    trace = Trace(
        (A0, A1),
        np.array([0.0, 0.5, 1.1, 1.6]),
        np.array([[0.0, 0], [7, 0], [0, 9]]),
        np.array([[0.0, 0], [70, 0], [0, 990]]),
        started_at_s=1_763_200_800.25,
    )
    text = io.StringIO()
    csv.writer(text).writerows(written(trace))
    again = read(text.getvalue())
    assert again.partitions == trace.partitions
    assert again.records.tolist() == trace.records.tolist()
    assert again.bytes.tolist() == trace.bytes.tolist()
    assert again.started_at_s == pytest.approx(trace.started_at_s)
    assert again.edges_s[:-1] == pytest.approx(trace.edges_s[:-1], abs=1e-3)


def test_arrivals_of_a_journal_are_differences_of_end_offsets_not_rates() -> None:
    trace = of_measurements(
        [
            measured(10, (0, 100, 500, 5), (1, 40, 80, 8)),
            measured(12, (0, 130, 300, 3), (1, 40, 0, 0)),  # 30 came, at 100 bytes each whatever the mean rate says
            measured(11, (0, 120, 500, 5), (1, 44, 80, 8)),  # out of order
            measured(11, (0, 120, 500, 5), (1, 44, 80, 8)),  # twice
        ]
    )
    assert trace.edges_s.tolist() == [0, 1, 2]
    assert trace.started_at_s == 10
    assert trace.records.tolist() == [[20, 4], [10, 0]]  # 44 to 40 is a topic made anew
    assert trace.bytes.tolist() == [[2000, 40], [1000, 0]]


def test_a_partition_that_appears_later_counts_from_there_and_one_without_rates_takes_the_mean_size() -> None:
    trace = of_measurements(
        [
            measured(0, (0, 5, 0, 0)),
            measured(1, (0, 6, 0, 0), (1, 900, 20, 1)),
            measured(2, (0, 8, float("nan"), 1), (1, 910, 20, 1)),
        ]
    )
    assert trace.records.tolist() == [[1, 0], [2, 10]]
    assert trace.bytes.tolist() == [[20, 0], [40, 200]]


def test_a_pause_of_the_monitor_is_spread_and_noted() -> None:
    ends = [0, 10, 20, 620, 630]
    trace = of_measurements([measured(at, (0, end, 100, 10)) for at, end in zip((0, 1, 2, 62, 63), ends, strict=True)])
    assert trace.bytes_per_s.tolist() == [100, 100, 100, 100]  # 600 records of 10 bytes in 60 s
    assert "paused 1 times, 60 s in all of 63 s" in trace.notes[0]


@pytest.mark.parametrize("found", [[], [measured(0, (0, 1, 10, 1))]])
def test_a_journal_without_two_measurements_is_refused(found: list[Measurement]) -> None:
    with pytest.raises(ConfigError, match="let the pipeline run"):
        of_measurements(found)


def test_a_journal_in_which_nothing_was_ever_sized_is_refused() -> None:
    with pytest.raises(ConfigError, match="no record size"):
        of_measurements([measured(0, (0, 0, 0, 0)), measured(1, (0, 5, 0, 0))])


def test_only_the_newest_part_can_be_taken() -> None:
    trace = read("time,partition,records,bytes\n0,a-0,1,10\n10,a-0,2,20\n20,a-0,3,30\n")
    assert trace.newest(20).records[:, 0].tolist() == [2, 3]
    assert trace.newest(20).edges_s.tolist() == [0, 10, 20]
    assert trace.newest(20).started_at_s == 10
    assert trace.newest(1e9) is trace
    assert trace.newest(1).records[:, 0].tolist() == [3]


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_is_scaled_to_the_capacity(name: str) -> None:
    small, large = profile(name, 2000.0), profile(name, 2000.0, scale=3.0, record_bytes=10.0)
    assert large.bytes == pytest.approx(3 * small.bytes)
    assert large.records == pytest.approx(large.bytes / 10)


def test_w1_peaks_at_175_percent_of_a_consumer() -> None:
    # W1 peaks at 350 records/s and was made for consumers that do 200.
    assert profile("w1", 2000.0).bytes_per_s.max() == pytest.approx(3500, rel=1e-3)
    assert profile("w1-skewed", 2000.0).bytes[475].tolist()[:2] == pytest.approx([875, 875], rel=1e-3)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("w3", {}, "did you mean 'w1'"),
        ("regime", {}, "did you mean 'regime-switch'"),
        ("w1", {"scale": 0.0}, "scale must be above 0"),
        ("w1", {"scale": float("nan")}, "scale must be above 0"),
        ("w1-skewed", {"partitions": 2}, "cannot have 2 partitions"),
    ],
)
def test_a_profile_that_cannot_be_is_refused(name: str, options: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        profile(name, 2000.0, **options)  # type: ignore[arg-type]
