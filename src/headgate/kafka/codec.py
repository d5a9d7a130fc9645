"""Messages as Avro: schemas derived from the dataclasses, so that a message is described in one place only.

A Kafka record carries the Avro body (no container) and headers: `event_type`, the class name (L-31); `schema`, a
fingerprint of the writer's schema; `version`, the number of the whole set of schemas; `release` and `sender`, for
people to read. What another version of Headgate wrote is refused with that version named: `AnotherVersion`.
"""

import dataclasses
import hashlib
import io
import json
import types
import typing
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import Any

import fastavro

from headgate.errors import HeadgateError
from headgate.model import Announcement, messages

VERSION = 2
"""Of all messages together; 1 did not say so. Goes up by one with a release that changes any (kafka/messages.json)."""

MESSAGES: tuple[type[Any], ...] = (
    Announcement,
    messages.StartConsuming,
    messages.StopConsuming,
    messages.StateQuery,
    messages.ConsumingStarted,
    messages.ConsumingStopped,
    messages.ConsumerState,
    messages.ConsumerLeft,
    messages.ControllerState,
    messages.Measurement,
    messages.LedgerState,
    messages.CommitRecord,
    messages.CycleRecord,
    messages.DecisionRecord,
)


class NotAMessage(HeadgateError):
    """A record on an internal topic that is not one of Headgate's messages; readers count it and go on."""


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """Who wrote a record, by its headers."""

    version: int = 0
    """0 if the record does not say."""
    release: str = ""
    sender: str = ""

    def __str__(self) -> str:
        return f"{self.sender or 'somebody'} of Headgate {self.release or '?'} (messages version {self.version})"


class AnotherVersion(NotAMessage):
    """One of Headgate's messages, of a version that is not ours."""

    def __init__(self, kind: str, origin: Origin) -> None:
        super().__init__(f"{kind} written by another version: {origin}; this one reads version {VERSION}")
        self.origin = origin


_PRIMITIVES: dict[type[Any], str] = {str: "string", int: "long", float: "double", bool: "boolean", bytes: "bytes"}


def _avro_type(hint: Any, named: set[str]) -> Any:
    if hint in _PRIMITIVES:
        return _PRIMITIVES[hint]
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ in named:
            return hint.__name__
        named.add(hint.__name__)
        hints = typing.get_type_hints(hint)
        fields = [{"name": f.name, "type": _avro_type(hints[f.name], named)} for f in dataclasses.fields(hint)]
        return {"type": "record", "name": hint.__name__, "fields": fields}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return {"type": "array", "items": _avro_type(arguments[0], named)}
    if origin is dict and arguments[0] is str:
        return {"type": "map", "values": _avro_type(arguments[1], named)}
    if origin in (typing.Union, types.UnionType) and type(None) in arguments and len(arguments) == 2:
        inner = next(a for a in arguments if a is not type(None))
        return ["null", _avro_type(inner, named)]
    raise TypeError(f"no Avro type for {hint!r}")


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    """Looking these up costs more than decoding; a ledger holds thousands of positions."""
    return typing.get_type_hints(kind)


def _build(hint: Any, value: Any) -> Any:
    """The dataclass instance that `dataclasses.asdict` was made from."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = _hints(hint)
        return hint(**{f.name: _build(hints[f.name], value[f.name]) for f in dataclasses.fields(hint)})
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return tuple(_build(arguments[0], item) for item in value)
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _build(next(a for a in arguments if a is not type(None)), value)
    return value


def avro_schema(message: type[Any]) -> dict[str, Any]:
    schema: dict[str, Any] = _avro_type(message, set())
    return schema


def _fingerprint(schema: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(json.dumps(schema, sort_keys=True).encode()).hexdigest()[:16].encode()


@dataclasses.dataclass(frozen=True, slots=True)
class _Codec:
    message: type[Any]
    schema: Any
    fingerprint: bytes


def _codecs() -> dict[str, _Codec]:
    found = {}
    for message in MESSAGES:
        schema = avro_schema(message)
        found[message.__name__] = _Codec(message, fastavro.parse_schema(schema), _fingerprint(schema))
    return found


_CODECS = _codecs()


RELEASE = metadata.version("headgate")

Headers = list[tuple[str, str | bytes | None]]


def fingerprints() -> dict[str, str]:
    """Of every message's schema; equal as long as versions understand each other."""
    return {name: codec.fingerprint.decode() for name, codec in sorted(_CODECS.items())}


def encode(message: Any, sender: str = "") -> tuple[bytes, Headers]:
    """The record's value and headers."""
    codec = _CODECS[type(message).__name__]
    body = io.BytesIO()
    fastavro.schemaless_writer(body, codec.schema, dataclasses.asdict(message))
    return body.getvalue(), [
        ("event_type", codec.message.__name__.encode()),
        ("schema", codec.fingerprint),
        ("version", str(VERSION).encode()),
        ("release", RELEASE.encode()),
        ("sender", sender.encode()),
    ]


def origin_of(headers: Headers | None) -> Origin:
    named = {name: _text(value) for name, value in headers or []}
    version = named.get("version", "")
    return Origin(int(version) if version.isdecimal() else 0, named.get("release", ""), named.get("sender", ""))


def _text(header: str | bytes | None) -> str:
    return header.decode(errors="replace") if isinstance(header, bytes) else str(header)


def decode(value: bytes | None, headers: Headers | None) -> Any:
    """The message; AnotherVersion for one of another version, NotAMessage for anything else, whatever it is made of."""
    named = dict(headers or [])
    kind, origin = _text(named.get("event_type")), origin_of(headers)
    codec = _CODECS.get(kind)
    if origin.version not in (0, VERSION):
        raise AnotherVersion(kind, origin)
    if codec is None:
        raise NotAMessage(f"unknown message type {kind!r}")
    if named.get("schema") != codec.fingerprint:
        if origin.version == 0:
            raise NotAMessage(f"{kind} written by another version (schema {named.get('schema')!r})")
        raise AnotherVersion(kind, origin)
    body = io.BytesIO(value or b"")
    try:
        fields = fastavro.schemaless_reader(body, codec.schema, None)
        if body.read(1):
            raise NotAMessage(f"{codec.message.__name__} with bytes left over")
        return _build(codec.message, fields)
    except NotAMessage:
        raise
    except Exception as error:  # fastavro raises whatever the garbage happens to trip over
        raise NotAMessage(f"{codec.message.__name__} that does not decode: {error!r}") from error
