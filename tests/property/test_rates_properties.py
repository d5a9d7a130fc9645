"""Write rates of all partitions at once against the same for one partition after the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.kafka import rates_reference, smoothing
from headgate.kafka.rates import Counter, Rate, Sample, WriteRates
from headgate.kafka.rates_reference import WriteRatesReference
from headgate.model import TopicPartition

PARTITIONS = [TopicPartition("orders", n) for n in range(4)]

counters = st.builds(Counter, st.floats(0, 1e9), st.integers(0, 2**40), st.integers(0, 1))
looks = st.tuples(
    st.sampled_from([0.0, 0.5, 1.0, 4.0, 30.0]),
    st.dictionaries(st.sampled_from(PARTITIONS), counters),
    st.sets(st.sampled_from(PARTITIONS)),
)
"""How long after the last one, what was sampled, and what is watched."""
rates = st.builds(Rate, st.floats(0, 1e6), st.floats(0, 1e6), st.integers(0, 100), st.floats(0, 30))


@pytest.mark.parametrize("name", ["BoxMean", "Ewma"])
@given(st.lists(looks, max_size=12), st.dictionaries(st.sampled_from(PARTITIONS), rates))
def test_all_partitions_at_once_have_the_rates_of_each_by_itself(
    name: str,
    looks: list[tuple[float, dict[TopicPartition, Counter], set[TopicPartition]]],
    held: dict[TopicPartition, Rate],
) -> None:
    fast = WriteRates(getattr(smoothing, name)(5.0), 3.0, held)
    slow = WriteRatesReference(lambda: getattr(rates_reference, name)(5.0), 3.0, held)
    at_s = 0.0
    for passed_s, sampled, watched in looks:
        at_s += passed_s
        found, expected = (one.update(Sample(at_s, sampled), watched) for one in (fast, slow))
        assert list(found) == list(expected)
        for partition, rate in expected.items():
            assert found[partition] == pytest.approx(rate, rel=1e-12, abs=1e-6)
