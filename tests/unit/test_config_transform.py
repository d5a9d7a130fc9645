"""A transform is found beside the pipeline file, or the reason why not is plain."""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.config import import_transform
from headgate.errors import ConfigError

_numbers = itertools.count()


@pytest.fixture
def module(tmp_path: Path) -> Iterator[str]:
    """A module name of its own for each test, and Python's path as it was afterwards."""
    path = list(sys.path)
    name = f"clicks_{next(_numbers)}"
    yield name
    sys.path[:] = path
    sys.modules.pop(name, None)


def write(folder: Path, module: str, text: str) -> None:
    (folder / f"{module}.py").write_text(text)


def test_a_function_beside_the_pipeline_file_is_found(tmp_path: Path, module: str) -> None:
    write(tmp_path, module, "def clean(df, strict=False):\n    return [df, strict]\n")
    assert import_transform(f"{module}:clean", tmp_path)(1) == [1, False]


def test_a_function_in_the_current_folder_is_found(
    tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    write(tmp_path / "here", module, "def clean(df):\n    return df\n")
    monkeypatch.chdir(tmp_path / "here")
    assert import_transform(f"{module}:clean", tmp_path / "there")(2) == 2


def test_an_object_that_can_be_called_is_a_transform_too(tmp_path: Path, module: str) -> None:
    write(tmp_path, module, "class Clean:\n    def __call__(self, df):\n        return df\nclean = Clean()\n")
    assert import_transform(f"{module}:clean", tmp_path)(3) == 3


@pytest.mark.parametrize(
    ("text", "function", "says"),
    [
        ("def clean(df): return df\n", "claen", "did you mean clean?"),
        ("clean = 5\n", "clean", "clean is a int, not a function"),
        ("def clean(): pass\n", "clean", "must take one DataFrame"),
        ("def clean(df, other): pass\n", "clean", "must take one DataFrame and nothing else that is required, not"),
        ("def clean(*, df): pass\n", "clean", "must take one DataFrame"),
        ("def clean(df) return df\n", "clean", "SyntaxError"),
        ("import no_such_thing_at_all\n", "clean", "needs the module no_such_thing_at_all: install it"),
        ("1 / 0\n", "clean", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_function_that_cannot_be_used_is_refused_with_the_reason(
    text: str, function: str, says: str, tmp_path: Path, module: str
) -> None:
    write(tmp_path, module, text)
    with pytest.raises(ConfigError) as refused:
        import_transform(f"{module}:{function}", tmp_path)
    assert says in str(refused.value)


def test_a_module_that_is_not_there_is_named_with_the_nearest_one(tmp_path: Path, module: str) -> None:
    write(tmp_path, module, "")
    with pytest.raises(ConfigError, match=f"there is no module {module}x; did you mean {module}\\?"):
        import_transform(f"{module}x:clean", tmp_path)


def test_a_text_without_a_function_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"package\.module:function"):
        import_transform("just.a.module", tmp_path)
