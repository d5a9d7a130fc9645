"""The parts of a cycle's Spark work that need no Spark."""

import pytest

from headgate.consumer.job import file_count, first_records
from headgate.model import Range, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("payload_mb", "cores", "files"),
    [
        (0, 4, 1),  # nothing is known of record sizes yet
        (5, 4, 1),  # a usual batch
        (20, 1, 1),
        (20, 4, 3),  # more than 8 MB a task
        (100, 4, 4),  # no more tasks than cores
        (300, 1, 3),  # no file much larger than the target
    ],
)
def test_batches_become_files_of_the_target_size_or_tasks_for_the_cores_there_are(
    payload_mb: int, cores: int, files: int
) -> None:
    assert file_count(payload_mb * 1e6, 128_000_000, cores) == files


def test_fewer_records_are_taken_from_the_beginning_and_none_is_passed_over() -> None:
    ranges = (Range(A, 10, 20), Range(B, 0, 5))
    assert first_records(ranges, 4) == (Range(A, 10, 14),)
    assert first_records(ranges, 12) == (Range(A, 10, 20), Range(B, 0, 2))
    assert first_records(ranges, 100) == ranges
