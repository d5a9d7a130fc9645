"""What a forwarder may commit, and the delays it reports, against slow references."""

import math

from hypothesis import given
from hypothesis import strategies as st

from headgate.collectors.delays import SHORTEST_S, STEP, Delays
from headgate.collectors.watermark import Watermark, position_by_looking


@given(st.data(), st.lists(st.integers(1, 5), max_size=30), st.integers(0, 100))
def test_what_may_be_committed_is_what_looking_at_everything_says(
    data: st.DataObject, steps: list[int], first: int
) -> None:
    """Offsets with gaps; sent in order, acknowledged in any order, and the two interleaved in any way."""
    offsets = [first + sum(steps[:n]) for n in range(len(steps))]
    watermark, sent, acknowledged = Watermark(start=0), list[int](), set[int]()
    assert watermark.position is None
    skipped = 0
    while len(acknowledged) < len(offsets):
        on_the_way = sorted(set(sent) - acknowledged)
        if len(sent) < len(offsets) and (not on_the_way or data.draw(st.booleans())):
            offset = offsets[len(sent)]
            skipped += watermark.sent(offset)
            sent.append(offset)
        else:
            offset = data.draw(st.sampled_from(on_the_way))
            watermark.acknowledged(offset)
            acknowledged.add(offset)
        assert watermark.position == position_by_looking(sent, acknowledged)
        assert watermark.waiting == len(sent) - len(acknowledged)
        assert skipped == sent[-1] + 1 - len(sent)
        # The promise itself: nothing below it that was sent is without an acknowledgement, and it is none too small.
        position = watermark.position
        assert position is not None
        assert all(offset in acknowledged for offset in sent if offset < position)
        assert position > sent[-1] or position not in acknowledged


@given(st.lists(st.floats(-1, 1e5), min_size=1, max_size=100), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_quantiles_are_those_of_the_sorted_list_within_two_percent(delays: list[float], share: float) -> None:
    """Counted in two parts and put together."""
    counted, later = Delays(), Delays()
    for n, delay in enumerate(delays):
        (counted if n % 3 else later).add(delay)
    counted.include(later)
    exact = max(SHORTEST_S, sorted(delays)[max(0, math.ceil(share * len(delays) - 1e-9) - 1)])
    found = counted.quantile_s(share)
    assert found is not None
    assert exact * (1 - 1e-9) <= found <= exact * STEP * (1 + 1e-9)
