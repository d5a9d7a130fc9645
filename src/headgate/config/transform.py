"""Finds the user's transform: `package.module:function`, DataFrame in, DataFrame out."""

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headgate.config.problems import nearest
from headgate.errors import ConfigError


def import_transform(spec: str, folder: Path) -> Callable[[Any], Any]:
    """Imports it with the pipeline file's folder and the current one in front of Python's path, where they stay."""
    module_name, colon, function_name = spec.partition(":")
    if not (module_name and colon and function_name):
        raise ConfigError(f"transform {spec!r} must look like package.module:function")
    for place in (str(Path.cwd()), str(folder.absolute())):
        if place in sys.path:
            sys.path.remove(place)
        sys.path.insert(0, place)
    importlib.invalidate_caches()
    module = _imported(spec, module_name, folder)
    function = getattr(module, function_name, None)
    if function is None:
        functions = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        guess = nearest(function_name, functions)
        hint = f"; did you mean {guess}?" if guess else ""
        raise ConfigError(f"transform {spec!r}: {module.__file__} has no {function_name}{hint}")
    if not callable(function):
        kind = type(function).__name__
        raise ConfigError(f"transform {spec!r}: {function_name} is a {kind}, not a function")
    _check_parameters(spec, function)
    found: Callable[[Any], Any] = function
    return found


def _imported(spec: str, module_name: str, folder: Path) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            modules = [path.stem for path in folder.glob("*.py")]
            guess = nearest(module_name, modules)
            hint = f"; did you mean {guess}?" if guess else f"; it is looked for in {folder} and in Python's path"
            raise ConfigError(f"transform {spec!r}: there is no module {error.name}{hint}") from error
        raise ConfigError(f"transform {spec!r}: {module_name} needs the module {error.name}: install it") from error
    except Exception as error:
        # The user's module runs here and may fail in any way; each is the user's to mend.
        raise ConfigError(f"transform {spec!r}: importing {module_name} failed with {_said(error)}") from error


def _check_parameters(spec: str, function: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # written in C without a signature: it will be tried
    try:
        signature.bind(object())
    except TypeError:
        raise ConfigError(
            f"transform {spec!r} must take one DataFrame and nothing else that is required, not {signature}"
        ) from None


def _said(error: Exception) -> str:
    place = ""
    if isinstance(error, SyntaxError):
        place = f" ({error.filename}:{error.lineno})"
        return f"SyntaxError: {error.msg}{place}"
    return f"{type(error).__name__}: {error}{place}"
