"""Cutting a batch into shares for tasks: nothing lost, nothing twice, about as much for each."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.consumer.standing import share
from headgate.model import Range, TopicPartition

lengths = st.lists(st.integers(0, 50), max_size=8)


@given(lengths, st.integers(1, 5))
def test_shares_are_the_batch_cut_into_pieces_of_about_one_length(offsets: list[int], tasks: int) -> None:
    ranges = [Range(TopicPartition("t", n), 7, 7 + length) for n, length in enumerate(offsets)]
    shares = share(ranges, tasks)
    assert len(shares) == tasks
    wanted = [(r.partition, offset) for r in ranges for offset in range(r.start, r.end)]
    assert [(r.partition, offset) for s in shares for r in s for offset in range(r.start, r.end)] == wanted
    sizes = [sum(r.offsets for r in s) for s in shares]
    assert max(sizes) - min(sizes) <= 1
    assert all(len({r.partition for r in s}) == len(s) for s in shares)
