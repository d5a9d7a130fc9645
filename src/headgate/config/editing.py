"""Changing settings in a pipeline file: only their values, with every other character as the user wrote it."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any

import yaml

from headgate.config.document import pipeline_yaml
from headgate.config.loader import load_pipeline
from headgate.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Edit:
    """A file as it is and as it is to be."""

    file: Path
    before: str
    after: str

    @property
    def diff(self) -> str:
        before, after = (text.splitlines(keepends=True) for text in (self.before, self.after))
        return "".join(unified_diff(before, after, str(self.file), f"{self.file} (new)", n=2))

    def write(self) -> None:
        """All or nothing: the new file is checked as a pipeline before it takes the old one's place."""
        target = self.file.resolve()  # what a link points to
        try:
            handle, name = tempfile.mkstemp(".yaml", f".{target.stem}-", target.parent)
        except OSError as error:
            raise self._refuse(f"its folder cannot be written to: {error.strerror}") from None
        new = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as out:
                out.write(self.after)
            load_pipeline(new)
            if _read(self.file) != self.before:
                raise self._refuse("it was changed by somebody else meanwhile")
            new.chmod(target.stat().st_mode)
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)

    def _refuse(self, why: str) -> ConfigError:
        return ConfigError(f"{self.file} was not changed: {why}")


def edited(file: Path, section: str, values: Mapping[str, str]) -> Edit:
    """The file with these keys of a section set to these plain values; ConfigError if that cannot be done safely."""
    text = _read(file)
    cannot = f"{file} was not changed: set {', '.join(f'{section}.{key}: {value}' for key, value in values.items())}"
    after = _after(text, section, values, cannot)
    wanted = _values(text)
    wanted[section] = {**(wanted.get(section) or {}), **values}
    if _values(after) != wanted:
        raise ConfigError(f"{cannot} by hand, something else in it would change")
    return Edit(file, text, after)


def _after(text: str, section: str, values: Mapping[str, str], cannot: str) -> str:
    top = yaml.compose(text, Loader=pipeline_yaml())
    if not isinstance(top, yaml.MappingNode) or top.flow_style:
        raise ConfigError(f"{cannot} by hand, the whole file is one {{...}}")
    newline = "\r\n" if "\r\n" in text else "\n"
    found = {key.value: value for key, value in top.value}.get(section)
    if found is None:
        return _appended(text, top, section, values, newline, cannot)
    if isinstance(found, yaml.ScalarNode) and found.value == "" and found.style is None:  # `policy:` and nothing more
        lines = "".join(f"{newline}  {key}: {value}" for key, value in values.items())
        return text[: found.start_mark.index] + lines + text[found.start_mark.index :]
    if not isinstance(found, yaml.MappingNode) or text[found.start_mark.index] in "&*!":
        raise ConfigError(f"{cannot} by hand, {section} is not written out where it stands")
    return _changed(text, found, values, newline, cannot)


def _values(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load(text, Loader=pipeline_yaml())
    return loaded


def _read(file: Path) -> str:
    with file.open(encoding="utf-8", newline="") as content:
        return content.read()


def _appended(
    text: str, top: yaml.MappingNode, section: str, values: Mapping[str, str], newline: str, cannot: str
) -> str:
    if text[top.end_mark.index :].strip() or top.start_mark.column:
        raise ConfigError(f"{cannot} by hand, something follows the settings")
    lines = "".join(f"  {key}: {value}{newline}" for key, value in values.items())
    between = "" if text.endswith("\n") else newline
    return f"{text}{between}{section}:{newline}{lines}"


def _changed(text: str, found: yaml.MappingNode, values: Mapping[str, str], newline: str, cannot: str) -> str:
    """From the back, so that places further up stay where they are."""
    there = {key.value: value for key, value in found.value}
    for key in sorted(values.keys() & there.keys(), key=lambda key: -there[key].start_mark.index):
        start, end = there[key].start_mark.index, there[key].end_mark.index
        old = text[start:end]
        if not isinstance(there[key], yaml.ScalarNode) or not old or old[0] in "&*!|>" or "${" in old:
            raise ConfigError(f"{cannot} by hand, {key} is {old or 'empty'} there and no plain value")
        text = text[:start] + values[key] + text[end:]
    missing = [key for key in values if key not in there]
    if found.flow_style:
        at = found.start_mark.index + 1
        added = ", ".join(f"{key}: {values[key]}" for key in missing)
        return text[:at] + added + (", " if added and there else "") + text[at:]
    first = found.value[0][0].start_mark
    added = "".join(f"{key}: {values[key]}{newline}{' ' * first.column}" for key in missing)
    return text[: first.index] + added + text[first.index :]
