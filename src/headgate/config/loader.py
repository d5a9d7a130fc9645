"""Loads a pipeline file, or says everything that is wrong with it at once."""

import os
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headgate.config.document import Document, dotted, read_document
from headgate.config.pipeline import Pipeline
from headgate.config.problems import Loc, PipelineFileError, Problem, explain, nearest
from headgate.config.secrets import Redactor, looks_secret
from headgate.config.section import Section


def load_pipeline(path: Path, env: Mapping[str, str] = os.environ) -> Pipeline:
    """The pipeline that a file describes; a PipelineFileError (a ConfigError) lists each problem with its line."""
    document = read_document(path, env)
    problems = list(document.problems)
    try:
        pipeline = Pipeline.model_validate(document.values, context={"file": path.absolute()})
    except ValidationError as error:
        # A value whose variable is missing is wrong in other ways too; that is no second problem.
        reported = {(problem.line, problem.field) for problem in problems}
        problems += [found for found in _problems(error, document) if (found.line, found.field) not in reported]
    if problems:
        raise PipelineFileError(sorted(problems, key=lambda problem: (problem.line, problem.field))) from None
    pipeline.hide(document.hidden, document.texts)
    return pipeline


def _problems(error: ValidationError, document: Document) -> Iterator[Problem]:
    secrets = frozenset(document.texts | set(_secret_values(document.values)))
    for found in error.errors():
        # pydantic names a default that is wrong by its attribute, which for one field differs from the file's key.
        loc: Loc = tuple("schema" if part == "schema_" else part for part in found["loc"] if part != "[key]")
        if found["type"] == "extra_forbidden":
            message = _unknown_key(loc)
        else:
            secret = document.is_hidden(loc) or any(looks_secret(str(part)) for part in loc)
            message = Redactor(secrets)(explain(found, secret))
        yield Problem(document.file, document.line_of(loc), dotted(loc), message)


def _secret_values(values: Any) -> Iterator[str]:
    """Values under keys that look secret, wherever they are."""
    if isinstance(values, dict):
        for key, value in values.items():
            if looks_secret(key) and not isinstance(value, dict | list | None):
                yield str(value)
            yield from _secret_values(value)
    elif isinstance(values, list):
        for value in values:
            yield from _secret_values(value)


def _unknown_key(loc: Loc) -> str:
    key, valid = str(loc[-1]), _keys_at(loc[:-1])
    guess = nearest(key, valid)
    if guess is not None:
        return f"unknown key; did you mean {guess}?"
    elsewhere = [section for section, keys in _sections(Pipeline) if key in keys]
    if elsewhere:
        return f"unknown key here; it belongs under {' or '.join(elsewhere)}"
    return f"unknown key; valid here are {', '.join(valid)}"


def _keys_at(loc: Loc) -> list[str]:
    model: type[Section] = Pipeline
    for part in loc:
        if isinstance(part, str):
            model = _section_of(model, part) or model
    return list(_fields(model))


def _sections(model: type[Section], place: str = "") -> Iterator[tuple[str, list[str]]]:
    """Every section below, by its dotted place, with its keys."""
    yield place or "the top level", list(_fields(model))
    for key in _fields(model):
        inner = _section_of(model, key)
        if inner is not None:
            yield from _sections(inner, f"{place}.{key}" if place else key)


def _fields(model: type[Section]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _section_of(model: type[Section], key: str) -> type[Section] | None:
    annotation = _fields(model).get(key)
    for candidate in (annotation, *typing.get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, Section):
            return candidate
    return None
