"""Naming policies on the command line: `a,b,c`, each with parameters of its own as `name:param=value:param=value`."""

import math

import yaml
from pydantic_core import PydanticCustomError

from headgate.config.problems import nearest
from headgate.config.units import unit_of
from headgate.controller.policy_choices import Choice
from headgate.errors import ConfigError
from headgate.policies.registry import parameters_of, policy_names

ALL = "all"
_NUMBERS = (float, int, float | None, int | None)
POLICY_HELP = (
    "Policies to try, separated by commas; each may have parameters of its own, as in slo:thrift=2:quantile=0.999. "
    "all: everything that is installed."
)


def chosen(text: str) -> tuple[Choice, ...]:
    """ConfigError with the nearest name for a policy or a parameter that does not exist."""
    if text.strip() == ALL:
        return tuple(Choice(name, name, required=False) for name in policy_names())
    choices = [_choice(part.strip()) for part in text.split(",") if part.strip()]
    if not choices:
        raise ConfigError(f"--policy names no policy; known are {', '.join(policy_names())}, and all")
    return tuple({choice.label: choice for choice in choices}.values())


def _choice(text: str) -> Choice:
    name, *settings = text.split(":")
    allowed = parameters_of(name)
    params = {}
    for setting in settings:
        key, sign, value = setting.partition("=")
        if not sign or not value:
            raise ConfigError(f"--policy {text}: {setting!r} must be written as param=value")
        if key not in allowed:
            near = nearest(key, list(allowed))
            hint = f"did you mean {near!r}? " if near else ""
            raise ConfigError(f"--policy {text}: {name} has no parameter {key!r}: {hint}it has {', '.join(allowed)}")
        params[key] = _value(text, key, value, is_number=allowed[key].annotation in _NUMBERS)
    return Choice(text, name, params)


def _value(text: str, key: str, value: str, is_number: bool) -> object:
    """A number, a word, true or false; a quantity may have its unit."""
    try:
        plain = yaml.safe_load(value)
    except yaml.YAMLError:
        raise ConfigError(f"--policy {text}: {key} cannot be {value!r}") from None
    unit = unit_of(key)
    if isinstance(plain, str) and unit is not None:
        try:
            return unit.parse(plain)
        except PydanticCustomError as error:
            raise ConfigError(f"--policy {text}: {key} {error.message()}") from None
    return _number(text, key, plain) if is_number else plain


def _number(text: str, key: str, plain: object) -> object:
    """As it is, or as YAML does not know it (1e3); none is where a number belongs that may be left out."""
    if plain is None or (isinstance(plain, int) and not isinstance(plain, bool)):
        return plain
    try:
        number = math.nan if isinstance(plain, bool) else float(str(plain))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"--policy {text}: {key} must be a finite number, not {plain}")
    return number
