"""The counting behind both sources, with numbers worked out by hand."""

import logging

import pytest

from headgate.kafka.log_counts import LeaderLog, LogCounts, PayloadShare
from headgate.kafka.log_dirs import shrinking
from headgate.kafka.offset_counts import OffsetCounts
from headgate.kafka.record_sizes import AT_ONCE, NEWEST_WEIGHT, PAUSE_S, SizeEstimates
from headgate.model import TopicPartition

P0, P1, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("clicks", 0)
GROWS = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete", "remote.storage.enable": "false"}


def test_offsets_count_from_where_they_were_first_seen() -> None:
    counts = OffsetCounts()
    assert counts.count(P0, 1_000, 123).payload_bytes == 0
    assert counts.count(P0, 1_010, 123).payload_bytes == 1_230


def test_a_corrected_record_size_does_not_rewrite_what_was_counted() -> None:
    counts = OffsetCounts()
    counts.count(P0, 1_000_000_000, 100)
    counts.count(P0, 1_000_000_010, 100)
    assert counts.count(P0, 1_000_000_020, 101).payload_bytes == 10 * 100 + 10 * 101


def test_records_of_unknown_size_are_counted_once_it_is_known() -> None:
    counts = OffsetCounts()
    counts.count(P0, 0, None)
    assert counts.count(P0, 7, None).payload_bytes == 0
    counter = counts.count(P0, 10, 50)
    assert (counter.payload_bytes, counter.end_offset, counter.life) == (500, 10, 0)


def test_a_topic_created_again_starts_another_life(caplog: pytest.LogCaptureFixture) -> None:
    counts = OffsetCounts()
    counts.count(P0, 5_000, 10)
    with caplog.at_level(logging.WARNING):
        assert counts.count(P0, 3, 10).life == 1
    assert "orders-0" in caplog.text
    counter = counts.count(P0, 13, 10)
    assert (counter.life, counter.payload_bytes) == (1, 100)


def test_log_growth_is_turned_into_payload_bytes() -> None:
    counts = LogCounts()
    # 1000 records of 100 payload bytes stand in 50 000 bytes of log: compressed, 2 payload bytes per log byte.
    counts.begin(P0, 1_000, LeaderLog(1, 50_000), 100)
    counts.count(P0, 1_000, LeaderLog(1, 50_000), 100)
    assert counts.count(P0, 1_020, LeaderLog(1, 51_000), 100).payload_bytes == pytest.approx(2_000)
    assert counts.payload_per_log_byte("orders") == pytest.approx(2)


def test_the_payload_share_is_learned_from_growth_when_there_was_no_history() -> None:
    counts = LogCounts()
    counts.begin(P0, 0, LeaderLog(1, 0), None)
    counts.count(P0, 0, LeaderLog(1, 0), None)
    # 10 records of 123 bytes that take 1640 bytes of log: three quarters are payload.
    assert counts.count(P0, 10, LeaderLog(1, 1_640), 123).payload_bytes == pytest.approx(1_230)
    assert counts.payload_per_log_byte("orders") == pytest.approx(0.75)
    assert counts.payload_per_log_byte("clicks") is None


def test_a_partition_of_unknown_payload_share_has_its_topics_and_never_another_topics() -> None:
    counts = LogCounts()
    for partition in (P0, P1, OTHER):
        counts.count(partition, 0, LeaderLog(1, 0), 100)
    counts.count(P0, 100, LeaderLog(1, 20_000), 100)
    counts.count(OTHER, 100, LeaderLog(1, 10_000), 100)
    assert counts.payload_per_log_byte("orders") == pytest.approx(0.5)
    assert counts.payload_per_log_byte("clicks") == pytest.approx(1.0)
    assert counts.count(P1, 0, LeaderLog(1, 400), 100).payload_bytes == pytest.approx(400 * 10_000 / 20_400)


def test_partitions_that_compress_differently_are_each_counted_right() -> None:
    counts = LogCounts()
    for partition in (P0, P1):
        counts.count(partition, 0, LeaderLog(1, 0), 100)
    # Large batches: 100 records of 100 bytes in 2000 bytes of log. Small ones: 10 such records in 800.
    assert counts.count(P0, 100, LeaderLog(1, 2_000), 100).payload_bytes == pytest.approx(10_000)
    assert counts.count(P1, 10, LeaderLog(1, 800), 100).payload_bytes == pytest.approx(1_000)
    assert counts.payload_per_log_byte("orders") == pytest.approx(11_000 / 2_800)


def test_a_log_that_shrinks_counts_as_nothing_written_and_restarts_its_window(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counts = LogCounts()
    counts.begin(P0, 100, LeaderLog(1, 10_000), 100)
    before = counts.count(P0, 100, LeaderLog(1, 10_000), 100)
    with caplog.at_level(logging.WARNING):
        after = counts.count(P0, 150, LeaderLog(1, 4_000), 100)
    assert "shrank" in caplog.text
    assert after.life == before.life + 1
    assert after.payload_bytes == before.payload_bytes
    grown = counts.count(P0, 160, LeaderLog(1, 5_000), 100)
    assert grown.life == after.life
    assert grown.payload_bytes == pytest.approx(1_000)


def test_another_leader_restarts_the_window_even_if_its_log_is_larger() -> None:
    counts = LogCounts()
    counts.begin(P0, 100, LeaderLog(1, 10_000), 100)
    counts.count(P0, 100, LeaderLog(1, 10_000), 100)
    moved = counts.count(P0, 100, LeaderLog(2, 10_500), 100)
    assert (moved.life, moved.payload_bytes) == (1, 0)
    assert counts.count(P0, 110, LeaderLog(2, 11_500), 100).payload_bytes == pytest.approx(1_000)


def test_a_payload_share_forgets_by_records_and_history_does_not_outweigh_the_present() -> None:
    share = PayloadShare(half_life_records=100)
    share.add_history(1_000_000, 2_000_000, 1_000_000)
    assert share.payload_per_log_byte == pytest.approx(2)
    # History counts as 100 records: 200 payload bytes over 100 log bytes. 100 records later half of it is left.
    share.add(100, 100, 100)
    assert share.payload_per_log_byte == pytest.approx((100 + 100) / (50 + 100))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("retention.ms", "604800000"),
        ("retention.bytes", "1000000"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("remote.storage.enable", "true"),
    ],
)
def test_a_topic_whose_log_may_shrink_is_found_with_its_reason(setting: str, value: str) -> None:
    assert shrinking({"fine": GROWS, "orders": GROWS | {setting: value}}) == {"orders": f"{setting}={value}"}


def test_sizes_follow_the_newest_measurement_and_start_with_the_first() -> None:
    sizes = SizeEstimates()
    sizes.learn(P0, 100)
    assert sizes.bytes_per_record(P0) == 100
    sizes.learn(P0, 200)
    assert sizes.bytes_per_record(P0) == pytest.approx(100 + 100 * NEWEST_WEIGHT)


def test_a_partition_without_records_of_its_own_has_its_topics_mean_size() -> None:
    sizes = SizeEstimates()
    assert sizes.bytes_per_record(P0) is None
    sizes.learn(P0, 100)
    sizes.learn(P1, 300)
    assert sizes.bytes_per_record(TopicPartition("orders", 2)) == 200
    assert sizes.bytes_per_record(OTHER) is None


def test_records_are_weighed_when_unknown_or_long_ago_and_only_if_there_are_new_ones() -> None:
    sizes = SizeEstimates(refresh_s=60)
    assert sizes.due({P0: 0, P1: 5}, now_s=0) == {P1: 5}
    sizes.looked(P1, 0, 5)  # nothing came of it: its records were deleted
    assert sizes.due({P1: 5}, now_s=1) == {}
    assert sizes.due({P1: 6}, now_s=1) == {P1: 6}
    sizes.learn(P1, 123)
    sizes.looked(P1, 1, 6)
    assert sizes.due({P1: 99}, now_s=60) == {}
    assert sizes.due({P1: 99}, now_s=61) == {P1: 99}


def test_of_very_many_partitions_a_few_are_weighed_at_a_time_and_every_unknown_topic_at_once() -> None:
    sizes = SizeEstimates(refresh_s=60)
    ends = {TopicPartition(f"topic-{n % 50}", n // 50): 7 for n in range(50 * 20)}
    first = sizes.due(ends, now_s=0)
    assert len(first) == AT_ONCE == 4 * 50
    assert first.keys() == {p for p in ends if p.partition < 4}  # four of each topic
    for partition, end in first.items():
        sizes.looked(partition, 0, end)
        sizes.learn(partition, 100)
    assert sizes.due(ends, now_s=1) == {}
    second = sizes.due(ends, now_s=PAUSE_S)
    assert second.keys() == {p for p in ends if 4 <= p.partition < 8}
    new = TopicPartition("topic-new", 9)
    assert new in sizes.due(ends | {new: 1}, now_s=PAUSE_S + 1)  # nothing is known of its topic: no pause for that
