"""Messages as Avro: schemas derived from the dataclasses, so that a message is described in one place only.

A Kafka record carries the Avro body (no container) and two headers: `event_type`, the class name (L-31), and
`schema`, a fingerprint of the writer's schema. A record with another fingerprint comes from another version of
Headgate, or from nobody we know: `decode` refuses it and the reader goes on.
"""

import dataclasses
import hashlib
import io
import json
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

import fastavro

from headgate.errors import HeadgateError
from headgate.model import Announcement, messages

MESSAGES: tuple[type[Any], ...] = (
    Announcement,
    messages.StartConsuming,
    messages.StopConsuming,
    messages.StateQuery,
    messages.ConsumingStarted,
    messages.ConsumingStopped,
    messages.ConsumerState,
    messages.ConsumerLeft,
    messages.Measurement,
    messages.LedgerState,
    messages.CommitRecord,
    messages.CycleRecord,
    messages.DecisionRecord,
)


class NotAMessage(HeadgateError):
    """A record on an internal topic that is not one of Headgate's messages; readers count it and go on."""


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


def encode(message: Any) -> tuple[bytes, list[tuple[str, str | bytes | None]]]:
    """The record's value and headers."""
    codec = _CODECS[type(message).__name__]
    body = io.BytesIO()
    fastavro.schemaless_writer(body, codec.schema, dataclasses.asdict(message))
    return body.getvalue(), [("event_type", codec.message.__name__.encode()), ("schema", codec.fingerprint)]


def decode(value: bytes | None, headers: list[tuple[str, str | bytes | None]] | None) -> Any:
    """The message; NotAMessage for anything else, whatever it is made of."""
    named = dict(headers or [])
    kind = named.get("event_type")
    codec = _CODECS.get(kind.decode(errors="replace") if isinstance(kind, bytes) else str(kind))
    if codec is None:
        raise NotAMessage(f"unknown message type {kind!r}")
    if named.get("schema") != codec.fingerprint:
        raise NotAMessage(f"{codec.message.__name__} written by another version (schema {named.get('schema')!r})")
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
