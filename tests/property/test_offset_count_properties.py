"""End offsets of all partitions counted at once against the same for one partition after the other."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.kafka.offset_counts import ManyOffsetCounts, OffsetCounts
from headgate.model import TopicPartition

PARTITIONS = [TopicPartition("orders", n) for n in range(4)]

looks = st.dictionaries(
    st.sampled_from(PARTITIONS),
    st.tuples(st.integers(0, 2**40) | st.integers(0, 10), st.none() | st.integers(1, 10**6).map(float)),
)
"""Of each partition that has a leader just now, its end and the size of its records as far as it is known."""


@given(st.lists(looks, max_size=12))
def test_all_partitions_at_once_are_counted_like_each_by_itself(
    looks: list[dict[TopicPartition, tuple[int, float | None]]],
) -> None:
    fast, slow = ManyOffsetCounts(), OffsetCounts()
    for look in looks:
        found = fast.count({p: end for p, (end, _) in look.items()}, [size for _, size in look.values()])
        assert found == {p: slow.count(p, end, size) for p, (end, size) in look.items()}
