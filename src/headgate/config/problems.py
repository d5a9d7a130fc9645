"""What is wrong with a pipeline file: where it is, in words that say what to write instead."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from headgate.config.secrets import MASK
from headgate.errors import ConfigError

Loc = tuple[str | int, ...]
"""Where a value stands in the file: keys and list positions from the top."""

_WRONG = "wrong"
_SHOWN = 80
"""Characters of a value that an error repeats."""


@dataclass(frozen=True, slots=True)
class Problem:
    file: Path
    line: int
    """Counted from 1; 0 when the whole file is meant."""
    field: str
    """Dotted path such as tables.0.schema; empty when no field is meant."""
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else f"{self.file}"
        return f"{place}: {self.field}: {self.message}" if self.field else f"{place}: {self.message}"


class PipelineFileError(ConfigError):
    """Everything that is wrong with one pipeline file, a line each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def nearest(word: str, valid: Iterable[str]) -> str | None:
    """The valid word somebody most likely meant, or None when nothing is close."""
    by_lower = {candidate.lower(): candidate for candidate in valid}
    close = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def wrong(message: str, detail: str = "") -> PydanticCustomError:
    """For validators. `message` never repeats the value: the loader adds it, unless it is secret.

    `detail` may hold parts of the value (a parser's complaint, a near miss); it is left out when the value is secret.
    """
    return PydanticCustomError(_WRONG, "{message}{detail}", {"message": message, "detail": detail})


@dataclass(frozen=True, slots=True)
class Wrong:
    """One problem somewhere below the value that a validator looks at."""

    loc: Loc
    value: object
    message: str
    detail: str = ""


def raise_all(found: Iterable[Wrong], also: ValidationError | None = None) -> None:
    """Raises everything found, and what `also` holds, as one error with a place for each; nothing if there is none."""
    details = [_again(error) for error in also.errors()] if also is not None else []
    details += [InitErrorDetails(type=wrong(w.message, w.detail), loc=w.loc, input=w.value) for w in found]
    if details:
        raise ValidationError.from_exception_data("pipeline", details, hide_input=True)


def _again(error: Mapping[str, Any]) -> InitErrorDetails:
    context = error.get("ctx", {})
    if error["type"] == _WRONG:
        return InitErrorDetails(
            type=wrong(context["message"], context["detail"]), loc=error["loc"], input=error["input"]
        )
    return InitErrorDetails(type=error["type"], loc=error["loc"], input=error["input"], ctx=context)


def explain(error: Mapping[str, Any], secret: bool) -> str:
    """One of pydantic's errors in our words. The value is shown unless it is secret or not a plain value."""
    kind, context, value = error["type"], error.get("ctx", {}), error["input"]
    message: str
    if kind == _WRONG:
        message = context["message"] + ("" if secret else context["detail"])
    elif kind == "literal_error":
        guess = nearest(value, context["expected"].replace("'", "").split(" or ")) if _tells(value, secret) else None
        message = f"must be {context['expected']}" + (f"; did you mean {guess}?" if guess else "")
    elif kind in _MESSAGES:
        message = _MESSAGES[kind].format(**context)
    else:
        message = error["msg"]
    if kind == "missing" or not isinstance(value, str | int | float | bool):
        return message
    return f"{message} (got {MASK if secret else _short(value)})"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _tells(value: object, secret: bool) -> bool:
    return isinstance(value, str) and not secret


_WHOLE, _NUMBER, _TRUTH = "must be a whole number", "must be a number", "must be true or false"
_MAPPING = "must be a mapping (key: value lines below it)"
_MESSAGES = {
    "missing": "is required",
    "string_type": "must be a text; put it in quotes",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "must be a finite number",
    "bool_type": _TRUTH,
    "bool_parsing": _TRUTH,
    "tuple_type": "must be a list",
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "path_type": "must be a path",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "needs at least {min_length}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
}
