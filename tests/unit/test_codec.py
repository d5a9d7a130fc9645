import json
import typing
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.kafka import codec
from headgate.kafka.codec import (
    MESSAGES,
    RELEASE,
    VERSION,
    AnotherVersion,
    NotAMessage,
    Origin,
    decode,
    encode,
    fingerprints,
    origin_of,
)
from headgate.model import TopicPartition
from headgate.model.messages import StartConsuming, StateQuery
from tests.announcements import announce


@pytest.mark.parametrize("message_type", MESSAGES, ids=lambda t: t.__name__)
@given(data=st.data())
def test_every_message_reads_back_equal(message_type: Any, data: st.DataObject) -> None:
    message = data.draw(_strategy(message_type))
    value, headers = encode(message)
    assert decode(value, headers) == message


def _fields(kind: type[Any]) -> dict[str, Any]:
    return {name: _strategy(hint) for name, hint in typing.get_type_hints(kind).items()}


@cache  # strategies take longer to make than to draw from
def _strategy(hint: Any) -> Any:
    if hint is int:
        return st.integers(-(2**63), 2**63 - 1)
    if hint is float:
        return st.floats(allow_nan=False)
    if hint in (str, bool, bytes):
        return {str: st.text(st.characters(codec="utf-8")), bool: st.booleans(), bytes: st.binary()}[hint]
    if typing.get_origin(hint) in (tuple, Sequence):
        return st.lists(_strategy(typing.get_args(hint)[0]), max_size=3).map(tuple)
    if typing.get_origin(hint) is dict:
        return st.dictionaries(st.text(st.characters(codec="utf-8")), _strategy(typing.get_args(hint)[1]), max_size=3)
    if hint.__name__ == "Range":
        ends = st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)).map(sorted)
        return st.builds(lambda p, e: hint(p, *e), _strategy(TopicPartition), ends)
    return st.builds(hint, **_fields(hint))


@given(value=st.binary(max_size=200), name=st.sampled_from([m.__name__ for m in MESSAGES] + ["Nonsense", ""]))
def test_garbage_is_refused_and_never_trips_the_reader(value: bytes, name: str) -> None:
    schema = dict(encode(announce(("t", 0, 0, 1)))[1])["schema"]
    with pytest.raises(NotAMessage):
        decode(value, [("event_type", name.encode()), ("schema", schema if name == "Announcement" else b"?")])


@given(cut=st.integers(0, 200), extra=st.binary(min_size=1, max_size=5))
def test_a_truncated_or_lengthened_message_is_refused(cut: int, extra: bytes) -> None:
    value, headers = encode(StartConsuming("id", 1, 2, "life", (TopicPartition("topic", 3),)))
    with pytest.raises(NotAMessage):
        decode(value[: cut % len(value)], headers)
    with pytest.raises(NotAMessage):
        decode(value + extra, headers)


def test_a_record_without_headers_is_no_message() -> None:
    with pytest.raises(NotAMessage):
        decode(b"x", None)


def test_another_versions_schema_is_told_apart() -> None:
    value, headers = encode(StateQuery("id", 1, 2))
    changed = [(key, b"0" * 16 if key == "schema" else content) for key, content in headers]
    with pytest.raises(NotAMessage, match="another version"):
        decode(value, changed)


def test_a_message_says_which_version_wrote_it_and_another_version_is_named() -> None:
    value, headers = encode(StateQuery("id", 1, 2), "the controller")
    assert origin_of(headers) == Origin(VERSION, RELEASE, "the controller")
    newer = [(key, str(VERSION + 1).encode() if key == "version" else content) for key, content in headers]
    with pytest.raises(AnotherVersion, match=rf"the controller of Headgate .* \(messages version {VERSION + 1}\)"):
        decode(value, newer)
    unheard_of = [(key, b"Mystery" if key == "event_type" else content) for key, content in newer]
    with pytest.raises(AnotherVersion, match="Mystery"):
        decode(value, unheard_of)


def test_messages_do_not_change_without_a_new_version() -> None:
    """If this fails: since the last release, raise VERSION in kafka/codec.py once, and write the new fingerprints."""
    agreed = json.loads((Path(codec.__file__).parent / "messages.json").read_text())
    assert agreed == {"version": VERSION, "fingerprints": fingerprints()}
