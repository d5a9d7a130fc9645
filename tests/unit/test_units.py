"""Quantities as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from headgate.config.units import BYTES, BYTES_PER_S, SECONDS, Bytes, Seconds, Unit, unit_of


@pytest.mark.parametrize(
    ("unit", "text", "amount"),
    [
        (BYTES, "5 MB", 5_000_000),
        (BYTES, "5MB", 5_000_000),
        (BYTES, " 500 KiB ", 512_000),
        (BYTES, "1.1 MB", 1_100_000),
        (BYTES, "2 GiB", 2 * 1024**3),
        (BYTES, "1 kB", 1000),
        (BYTES, "5_000_000", 5_000_000),
        (BYTES, "1e6", 1_000_000),
        (BYTES, 900, 900),
        (SECONDS, "1.5 s", 1.5),
        (SECONDS, "200 ms", 0.2),
        (SECONDS, "2 min", 120),
        (SECONDS, "1 h", 3600),
        (SECONDS, "5 d", 432_000),
        (SECONDS, 0.25, 0.25),
        (BYTES_PER_S, "2 MB/s", 2_000_000),
        (BYTES_PER_S, "1 MiB/s", 1_048_576),
        (BYTES_PER_S, "1500000", 1_500_000),
    ],
)
def test_a_quantity_is_read_in_its_unit(unit: Unit, text: str | float, amount: float) -> None:
    assert unit.parse(text) == amount


@pytest.mark.parametrize(
    ("unit", "text", "says"),
    [
        (BYTES, "5 s", "units allowed are B, kB, KB, MB, GB, TB, KiB, MiB, GiB, TiB"),
        (BYTES, "5 mb", "did you mean MB?"),
        (SECONDS, "5 MB", "units allowed are ms, s, min, h, d"),
        (SECONDS, "3 mins", "did you mean min?"),
        (BYTES_PER_S, "2 MB", "did you mean MB/s?"),
        (BYTES_PER_S, "2 Mbit/s", "units allowed are B/s, kB/s"),
        (SECONDS, "soon", "must start with a number"),
        (SECONDS, "", "must start with a number"),
        (SECONDS, ".", "must start with a number"),
        (SECONDS, True, "must be a number or a text"),
        (SECONDS, None, "must be a number or a text"),
        (SECONDS, [1], "must be a number or a text"),
        (SECONDS, "1e999", "is too large"),
        (SECONDS, float("nan"), "must start with a number"),
        (SECONDS, float("inf"), "must start with a number"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_is_allowed(unit: Unit, text: object, says: str) -> None:
    with pytest.raises(PydanticCustomError) as refused:
        unit.parse(text)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("unit", "amount", "text"),
    [
        (BYTES, 5_000_000, "5 MB"),
        (BYTES, 52_428_800, "50 MiB"),
        (BYTES, 128_000_000, "128 MB"),
        (BYTES, 1, "1 B"),
        (SECONDS, 0.5, "0.5 s"),
        (SECONDS, 0.002, "2 ms"),
        (SECONDS, 86_400.0, "1 d"),
        (BYTES_PER_S, 1_500_000.0, "1.5 MB/s"),
    ],
)
def test_a_quantity_is_written_the_way_people_would(unit: Unit, amount: float, text: str) -> None:
    assert unit.format(amount) == text


@given(st.integers(1, 2**53))
def test_bytes_survive_being_written_and_read(amount: int) -> None:
    assert TypeAdapter(Bytes).validate_python(BYTES.format(amount)) == amount


@given(st.floats(min_value=1e-9, max_value=1e15))
def test_seconds_survive_being_written_and_read(amount: float) -> None:
    assert SECONDS.parse(SECONDS.format(amount)) == amount


@given(st.floats(min_value=1e-3, max_value=1e15))
def test_rates_survive_being_written_and_read(amount: float) -> None:
    assert BYTES_PER_S.parse(BYTES_PER_S.format(amount)) == amount


@given(st.integers(0, 10**9), st.sampled_from(sorted(BYTES.factors)))
def test_a_plain_number_and_its_unit_multiply_exactly(number: int, unit: str) -> None:
    powers = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
    binary = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
    assert BYTES.parse(f"{number} {unit}") == float(number * (powers | binary)[unit])


@given(st.text(max_size=12))
def test_any_text_is_either_read_or_refused_never_a_crash(text: str) -> None:
    try:
        amount = SECONDS.parse(text)
    except PydanticCustomError:
        return
    assert amount == amount  # a number, not NaN


@pytest.mark.parametrize("value", ["1.5 B", 0.5, "0.0001 kB"])
def test_parts_of_a_byte_are_refused(value: str | float) -> None:
    with pytest.raises(ValidationError, match="whole number of bytes"):
        TypeAdapter(Bytes).validate_python(value)


@pytest.mark.parametrize("value", [0, "0 s", -1, "-5 ms"])
def test_durations_are_positive(value: str | float) -> None:
    with pytest.raises(ValidationError, match="greater than 0"):
        TypeAdapter(Seconds).validate_python(value)


def test_a_setting_says_its_unit_by_its_name() -> None:
    assert unit_of("consumer_capacity_bytes_per_s") is BYTES_PER_S
    assert unit_of("rate_cap_bytes_per_s") is BYTES_PER_S
    assert unit_of("batch_bytes") is BYTES
    assert unit_of("wait_s") is SECONDS
    assert unit_of("topics") is None
