"""Writes the reference page of the pipeline file from its models: `python -m headgate.config.reference > docs/...`."""

import re
import sys
import types
import typing
from pathlib import Path
from typing import Any, Literal

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from headgate.config.pipeline import Pipeline
from headgate.config.section import Section
from headgate.config.table import PartitionField
from headgate.config.units import BYTES, BYTES_PER_S, SECONDS, unit_of

_REQUIREMENT = re.compile(r" \([LE]-\d[^)]*\)")
_OPENING = f"""# The pipeline file

<!-- Written by headgate.config.reference from the models; change the descriptions there. -->

One YAML file describes one pipeline. `headgate check FILE` names every mistake in it with its line;
[examples/pipeline.yaml](../examples/pipeline.yaml) is a commented one to start from.

**Quantities.** Settings that end in `_bytes`, `_s` or `_bytes_per_s` take a plain number in that unit, or a text:

| name ends in | units | example |
| --- | --- | --- |
| `_bytes` | {", ".join(BYTES.factors)} | `5 MB` |
| `_s` | {", ".join(SECONDS.factors)} | `200 ms` |
| `_bytes_per_s` | {", ".join(BYTES_PER_S.factors)} | `2 MB/s` |

MB is 10^6 bytes, MiB is 2^20.

**The environment.** `${{VAR}}` in a text is replaced by the environment's value, and `${{VAR:-default}}` by the default
when there is none (unset or empty); `$${{` stands for a plain `${{`. A variable that is not set is an error. What came
from the environment, and every value whose key looks secret (password, secret, token, jaas, credential, key), is shown
as `***` wherever Headgate prints it.

**Paths** are relative to the pipeline file's folder.
"""


def reference_page() -> str:
    """The whole page, as Markdown."""
    return _OPENING + "".join(_section(Pipeline, ""))


def _section(model: type[Section], place: str) -> list[str]:
    title = f"`{place}`" if place else "Top level"
    text = [f"\n## {title}\n\n{cell(' '.join((model.__doc__ or '').split()))}\n\n"]
    text.append("| setting | takes | default | meaning |\n| --- | --- | --- | --- |\n")
    inner: list[str] = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        section, many = _section_in(field.annotation)
        text.append(f"| `{key}` | {_takes(key, field)} | {_default(key, field)} | {cell(field.description or '')} |\n")
        if section is not None:
            inner += _section(section, f"{place}.{key}".lstrip(".") + ("[]" if many else ""))
    return text + inner


def _section_in(annotation: Any) -> tuple[type[Section] | None, bool]:
    """The section a field holds, and whether it is a list of them. PartitionField is written as a text."""
    for candidate in (annotation, *typing.get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, Section) and candidate is not PartitionField:
            return candidate, candidate is not annotation
    return None, False


_WORDS: dict[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Path: "path",
    Any: "anything",
}


def _takes(key: str, field: FieldInfo) -> str:
    unit = unit_of(key)
    return f"quantity in {unit.name}" if unit is not None else _type_words(field.annotation)


def _type_words(annotation: Any) -> str:
    if annotation in _WORDS:
        return _WORDS[annotation]
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in inside)
    if origin is types.UnionType or origin is typing.Union:
        return _type_words(next(kind for kind in inside if kind is not type(None)))
    if origin is tuple:
        section, _ = _section_in(annotation)
        return "list of sections" if section is not None else "list of texts"
    if origin is dict:
        return "mapping"
    return "section"


def _default(key: str, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return "see below"
    value, unit = field.default, unit_of(key)
    assert value is not PydanticUndefined
    if value is None or value == () or value == {}:
        return "none"
    if unit is not None:
        return f"`{unit.format(value)}`"
    if isinstance(value, dict):
        return ", ".join(f"`{name}: {inner}`" for name, inner in value.items())
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def cell(text: str) -> str:
    """Without the requirements' numbers, which mean something only to those who write the code."""
    return _REQUIREMENT.sub("", text).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.stdout.write(reference_page())
