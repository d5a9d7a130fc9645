"""Naming policies on the command line: `a,b,c`, each with parameters of its own as `name:param=value:param=value`."""

import yaml
from pydantic_core import PydanticCustomError

from headgate.config.problems import nearest
from headgate.config.units import unit_of
from headgate.errors import ConfigError
from headgate.experiments.what_if import Choice
from headgate.policies.registry import parameters_of, policy_names

ALL = "all"
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
        params[key] = _value(text, key, value)
    return Choice(text, name, params)


def _value(text: str, key: str, value: str) -> object:
    """A number, a word, true or false; a quantity may have its unit."""
    try:
        plain = yaml.safe_load(value)
    except yaml.YAMLError:
        raise ConfigError(f"--policy {text}: {key} cannot be {value!r}") from None
    unit = unit_of(key)
    if not isinstance(plain, str) or unit is None:
        return plain
    try:
        return unit.parse(plain)
    except PydanticCustomError as error:
        raise ConfigError(f"--policy {text}: {key} {error.message()}") from None
