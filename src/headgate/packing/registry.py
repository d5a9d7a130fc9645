"""Packers by name: whatever is installed under the entry point group `headgate.packers`."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib.metadata import entry_points
from inspect import Parameter, signature
from typing import Any

from headgate.errors import ConfigError
from headgate.packing.protocol import Packer

GROUP = "headgate.packers"


def named(group: str, kind: str, name: str) -> Any:
    """What the entry point called `name` points at; ConfigError with the nearest name if there is none."""
    found = {entry.name: entry for entry in entry_points(group=group)}
    if name not in found:
        raise ConfigError(
            f"unknown {kind} {name!r}: {_hint(name, found)}known are {', '.join(sorted(found)) or 'none'}"
        )
    try:
        return found[name].load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{kind} {name!r} is registered as {found[name].value} but cannot be loaded: {error}"
        ) from error


def _hint(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}? " if near else ""


def constructed(kind: str, name: str, make: Any, arguments: Mapping[str, Any]) -> Any:
    """`make(**arguments)`; ConfigError when the arguments are not its own."""
    known = signature(make).parameters
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in known.values())
    for key in () if takes_any else sorted(arguments.keys() - known.keys()):
        taken = ", ".join(known) or "none"
        raise ConfigError(f"{kind} {name!r} has no parameter {key!r}: {_hint(key, known)}it takes {taken}")
    try:
        return make(**arguments)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{kind} {name!r} does not take these parameters: {error}") from error


def build_packer(name: str, params: Mapping[str, Any] | None = None) -> Packer:
    """The packer of that name, made with `params`."""
    packer: Packer = constructed("packer", name, named(GROUP, "packer", name), params or {})
    return packer
