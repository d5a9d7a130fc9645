"""Policies to try in place of a pipeline's own: which ones, and which of them can be built from what is known."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.config.pipeline import Pipeline
from headgate.controller.assembly import policy_of
from headgate.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Choice:
    """A policy to try: how it is shown, its name, and parameters on top of the pipeline's."""

    label: str
    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    required: bool = True
    """Otherwise it is left out, with a note, if it cannot be built from what is known."""


def buildable(
    pipeline: Pipeline, choices: Iterable[Choice], facts: Mapping[str, Any]
) -> tuple[list[Choice], list[str]]:
    """Those that can be built, and a note for each that cannot and need not; ConfigError for one that was asked for."""
    able, left_out = [], []
    for choice in choices:
        try:
            policy_of(pipeline, choice.name, choice.params, facts)
            able.append(choice)
        except ConfigError as error:
            if choice.required:
                raise
            left_out.append(f"left out: {error}")
    if not able:
        raise ConfigError("none of these policies can be built: " + "; ".join(left_out))
    return able, left_out
