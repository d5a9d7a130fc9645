"""What every part of a pipeline file has in common: frozen, strict about keys, and never printing a secret."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    model_serializer,
)

from headgate.config.problems import Loc
from headgate.config.secrets import MASK, Redactor, looks_secret


class Section(BaseModel):
    """One mapping of the pipeline file. Its repr and dumps show *** for secrets; attributes hold the real values."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        # Cross-field checks look at defaults too, and no error repeats a value by itself.
        validate_default=True,
        hide_input_in_errors=True,
        populate_by_name=True,
        serialize_by_alias=True,
    )

    _hidden: frozenset[Loc] = PrivateAttr(default=frozenset())
    _redact: Redactor = PrivateAttr(default=Redactor())

    def hide(self, places: Iterable[Loc], texts: Iterable[str]) -> None:
        """Marks values, and texts wherever they occur below, as secret: they came from the environment."""
        self._hidden = frozenset(place for place in places if place)
        self._redact = self._redact.also(texts)
        for name, field in type(self).model_fields.items():
            key = field.alias or name
            inner = [place[1:] for place in self._hidden if place[0] == key]
            value = getattr(self, name)
            for index, part in [((), value)] if isinstance(value, Section) else _parts(value):
                part.hide((place[len(index) :] for place in inner if place[: len(index)] == index), self._redact.texts)

    def secret_texts(self) -> Iterator[str]:
        """Every text below that must not be printed."""
        yield from self._redact.texts
        for name in type(self).model_fields:
            value = getattr(self, name)
            yield from _secret_values(value)
            for _, part in [((), value)] if isinstance(value, Section) else _parts(value):
                yield from part.secret_texts()

    @model_serializer(mode="wrap")
    def _serialize_masked(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        shown: dict[str, Any] = handler(self)
        return {key: self._masked((key,), value) for key, value in shown.items()}

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, field in type(self).model_fields.items():
            yield name, self._masked((field.alias or name,), getattr(self, name))

    def __str__(self) -> str:
        return repr(self)

    def _masked(self, place: Loc, value: Any) -> Any:
        if place in self._hidden:
            return MASK
        if isinstance(value, Section):
            return value
        if isinstance(value, dict):
            return {
                key: MASK if looks_secret(str(key)) else self._masked((*place, key), inner)
                for key, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return type(value)(self._masked((*place, index), inner) for index, inner in enumerate(value))
        if isinstance(value, str):
            return self._redact(value)
        if isinstance(value, Path):
            return Path(self._redact(str(value)))
        return value


def folder_of(info: ValidationInfo) -> Path:
    """For validators: what relative paths are relative to, the pipeline file's folder."""
    file: Path | None = (info.context or {}).get("file")
    return file.parent if file is not None else Path.cwd()


def _parts(value: object) -> Iterator[tuple[Loc, Section]]:
    """The sections in a list, each with its position."""
    if isinstance(value, tuple):
        yield from (((index,), part) for index, part in enumerate(value) if isinstance(part, Section))


def _secret_values(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if looks_secret(str(key)):
                yield str(inner)
            yield from _secret_values(inner)
