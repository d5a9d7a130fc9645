"""How the bytes of a workload become whole records of exact sizes, and what is in them."""

import json
import random
from io import BytesIO

import fastavro
import pytest

from headgate.errors import ConfigError
from headgate.kafka.load_pace import NoWaiting
from headgate.kafka.load_records import AVRO_SCHEMA, FORMATS, FixedSize, UniformSize
from headgate.kafka.load_stream import Carry, split_count
from headgate.model import TopicPartition
from headgate.simulation.workload import volumes
from headgate.simulation.workload_random import RandomWaits
from headgate.simulation.workload_shapes import Steady

A, B, C = (TopicPartition("orders", number) for number in range(3))


def test_what_is_left_of_a_record_waits_for_the_next_slice() -> None:
    carry = Carry(FixedSize(100), random.Random(0))
    assert [carry.complete(due) for due in (250, 249, 0, 1)] == [[100, 100], [100, 100], [], [100]]


def test_many_small_slices_lose_no_record_to_rounding() -> None:
    # Ten times 0.1 is 0.9999999999999999 in floats.
    carry = Carry(FixedSize(1), random.Random(0))
    assert sum(len(carry.complete(0.1)) for _ in range(10)) == 1
    assert sum(len(carry.complete(0.1)) for _ in range(1_000_000)) == 100_000


def test_records_of_drawn_sizes_never_add_up_to_more_than_is_due() -> None:
    carry = Carry(UniformSize(50, 150), random.Random(1))
    sizes: list[int] = []
    for number in range(1, 5000):
        sizes += carry.complete(333)
        assert 0 <= number * 333 - sum(sizes) < 150
    assert set(sizes) == set(range(50, 151))


def test_random_waits_become_one_record_each() -> None:
    waits = RandomWaits(A, record_bytes=123, shortest_s=0.01, longest_s=2, seed=4)
    carry = Carry(FixedSize(123), random.Random(0))
    sent = 0
    for number in range(20_000):
        sent += len(carry.complete(volumes(waits, number * 0.02, (number + 1) * 0.02).get(A, 0.0)))
    assert sent == len(list(waits.edges(0, 400)))


def test_sizes_are_given_the_smaller_one_first() -> None:
    with pytest.raises(ValueError, match="smaller one first"):
        UniformSize(9, 8)


def test_a_count_is_split_exactly_and_in_proportion() -> None:
    assert split_count(10, {A: 1, B: 1, C: 1}) == {A: 4, B: 3, C: 3}
    assert split_count(10, {A: 7.5, B: 0, C: 2.5}) == {A: 8, B: 0, C: 2}
    assert split_count(1, {A: 1, B: 2, C: 1}) == {A: 0, B: 1, C: 0}


def test_without_waiting_a_load_needs_an_end() -> None:
    with pytest.raises(ValueError, match="a duration or a count"):
        NoWaiting().slice_s(Steady({A: 1}), float("inf"))


@pytest.mark.parametrize("record_format", sorted(FORMATS))
def test_key_and_value_have_exactly_the_bytes_asked_for(record_format: str) -> None:
    maker = FORMATS[record_format](A, 20_000, random.Random(0))
    maker.moment(1_750_000_000_123)
    sizes = (*range(maker.smallest_bytes, 400), *range(8_100, 8_400), 20_000)
    for record_id in (0, 9, 63, 64, 999, 1000, 8191, 8192, 999_999_999):
        for size in sizes:
            key, value = maker.make(record_id, size)
            assert len(key) + len(value) == size
            assert int(key) == record_id % 1000


def test_a_json_record_holds_its_fields() -> None:
    maker = FORMATS["json"](TopicPartition('odd"name', 7), 500, random.Random(0))
    maker.moment(1_750_000_000_123)
    record = json.loads(maker.make(42, 500)[1])
    assert record["id"] == 42
    assert (record["topic"], record["partition"]) == ('odd"name', 7)
    assert record["at"] == "2025-06-15T15:06:40.123Z"
    assert 0 <= record["amount"] <= 1000
    assert set(record) == {"id", "topic", "partition", "at", "amount", "padding"}


def test_an_avro_record_holds_the_same_fields() -> None:
    maker = FORMATS["avro"](B, 500, random.Random(0))
    maker.moment(1_750_000_000_123)
    encoded = BytesIO(maker.make(42, 500)[1])
    record = fastavro.schemaless_reader(encoded, AVRO_SCHEMA, None)
    assert encoded.read() == b""
    assert isinstance(record, dict)
    assert (record["id"], record["topic"], record["partition"]) == (42, "orders", 1)
    assert record["at"].isoformat() == "2025-06-15T15:06:40.123000+00:00"


def test_bad_records_cannot_be_decoded_and_keep_their_size() -> None:
    good = FORMATS["json"](A, 300, random.Random(0)).make(1, 300)[1]
    bad = FORMATS["json"](A, 300, random.Random(0)).spoil(good)
    assert len(bad) == len(good)
    with pytest.raises(json.JSONDecodeError):
        json.loads(bad)
    avro = FORMATS["avro"](A, 300, random.Random(0))
    with pytest.raises((EOFError, ValueError, IndexError)):
        fastavro.schemaless_reader(BytesIO(avro.spoil(avro.make(1, 300)[1])), AVRO_SCHEMA, None)


def test_an_id_that_outgrows_the_smallest_record_is_refused() -> None:
    maker = FORMATS["json"](A, 200, random.Random(0))
    with pytest.raises(ConfigError, match="bytes larger"):
        maker.make(10**12, maker.smallest_bytes)
