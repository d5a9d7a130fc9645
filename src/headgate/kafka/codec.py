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
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import metadata
from operator import attrgetter, itemgetter
from typing import Any

import fastavro

from headgate.errors import HeadgateError
from headgate.model import Announcement, messages
from headgate.model.columns import Rows

VERSION = 3
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


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"))


def _row(hint: Any) -> Any:
    """The named tuple of `tuple[that, ...]` or `Sequence[that]`, None for any other type.

    Of these a message may have thousands. They are written by columns: a list per field instead of a record per row
    takes a third of the time. A sequence stays in columns when it is read.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    return arguments[0] if origin in (tuple, Sequence) and hasattr(arguments[0], "_fields") else None


def _avro_type(hint: Any, named: set[str]) -> Any:
    if hint in _PRIMITIVES:
        return _PRIMITIVES[hint]
    if _is_record(hint):
        if hint.__name__ in named:
            return hint.__name__
        named.add(hint.__name__)
        hints = typing.get_type_hints(hint)
        fields = [{"name": name, "type": _avro_type(field, named)} for name, field in hints.items()]
        return {"type": "record", "name": hint.__name__, "fields": fields}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if (row := _row(hint)) is not None:
        name = f"{row.__name__}Columns"
        if name in named:
            return name
        named.add(name)
        columns = typing.get_type_hints(row).items()
        fields = [{"name": n, "type": {"type": "array", "items": _PRIMITIVES[kind]}} for n, kind in columns]
        return {"type": "record", "name": name, "fields": fields}
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return {"type": "array", "items": _avro_type(arguments[0], named)}
    if origin is dict and arguments[0] is str:
        return {"type": "map", "values": _avro_type(arguments[1], named)}
    if origin in (typing.Union, types.UnionType) and type(None) in arguments and len(arguments) == 2:
        inner = next(a for a in arguments if a is not type(None))
        return ["null", _avro_type(inner, named)]
    raise TypeError(f"no Avro type for {hint!r}")


Converter = Callable[[Any], Any]


@cache
def _flattener(hint: Any) -> Converter | None:
    """From a value of this type to what fastavro writes; None where they are the same. Made once per type: a
    measurement holds thousands of rates, and looking at types costs more than writing them."""
    if _is_record(hint):
        hints = typing.get_type_hints(hint)
        names = tuple(hints)
        values = _values(attrgetter, names)
        inner = [(n, convert) for n in names if (convert := _flattener(hints[n])) is not None]
        if not inner:
            return lambda value: dict(zip(names, values(value), strict=True))

        def flatten(value: Any) -> dict[str, Any]:
            fields = dict(zip(names, values(value), strict=True))
            for name, convert in inner:
                fields[name] = convert(fields[name])
            return fields

        return flatten
    if (row := _row(hint)) is not None:
        columns: tuple[str, ...] = row._fields
        return lambda rows: dict(zip(columns, Rows.of(row, rows).columns, strict=True))
    return _within(hint, _flattener)


@cache
def _builder(hint: Any) -> Converter | None:
    """The way back: from what fastavro read to a value of this type."""
    if _is_record(hint):
        hints = typing.get_type_hints(hint)
        names = tuple(hints)
        values = _values(itemgetter, names)
        inner = [(n, convert) for n in names if (convert := _builder(hints[n])) is not None]
        if not inner:
            return lambda fields: hint(*values(fields))

        def build(fields: dict[str, Any]) -> Any:
            for name, convert in inner:
                fields[name] = convert(fields[name])
            return hint(*values(fields))

        return build
    if (row := _row(hint)) is not None:
        if typing.get_origin(hint) is Sequence:
            return lambda columns: Rows(row, tuple(columns.values()))
        return lambda columns: tuple(map(row._make, zip(*columns.values(), strict=True)))
    return _within(hint, _builder)


def _values(getter: Callable[..., Converter], names: tuple[str, ...]) -> Converter:
    """Always a tuple, which `attrgetter` and `itemgetter` do not give for a single name."""
    get = getter(*names)
    return get if len(names) > 1 else lambda value: (get(value),)


def _within(hint: Any, convert: Callable[[Any], Converter | None]) -> Converter | None:
    """The same for the containers that messages have; items that need nothing are taken as they are."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        each = convert(arguments[0])
        return tuple if each is None else lambda items: tuple(map(each, items))
    if origin in (typing.Union, types.UnionType):
        some = convert(next(a for a in arguments if a is not type(None)))
        return None if some is None else lambda value: None if value is None else some(value)
    return None


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
    flatten: Converter
    build: Converter


def _codecs() -> dict[str, _Codec]:
    found = {}
    for message in MESSAGES:
        schema = avro_schema(message)
        kind: Any = message
        flatten, build = _flattener(kind), _builder(kind)
        assert flatten is not None
        assert build is not None
        parsed, fingerprint = fastavro.parse_schema(schema), _fingerprint(schema)
        found[message.__name__] = _Codec(message, parsed, fingerprint, flatten, build)
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
    fastavro.schemaless_writer(body, codec.schema, codec.flatten(message))
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
        return codec.build(fields)
    except NotAMessage:
        raise
    except Exception as error:  # fastavro raises whatever the garbage happens to trip over
        raise NotAMessage(f"{codec.message.__name__} that does not decode: {error!r}") from error
