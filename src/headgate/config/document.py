"""A YAML file as plain values that remember their lines, with the environment's values filled in."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from headgate.config.problems import Loc, PipelineFileError, Problem

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}|\$\{")
_INSIDE = re.compile(r"([A-Za-z_]\w*)(?::-(.*))?", re.DOTALL)


class _Yaml(yaml.SafeLoader):
    """YAML 1.2's core types: `on` and `no` stay texts, `12:30` is not a number, dates are texts."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 — PyYAML's own attribute


_TYPES = (
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9][0-9_]*", list("-+0123456789")),
    ("tag:yaml.org,2002:float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("tag:yaml.org,2002:merge", r"<<", ["<"]),
)
for _tag, _pattern, _first in _TYPES:
    _Yaml.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), _first)


def pipeline_yaml() -> type[yaml.SafeLoader]:
    """How pipeline files are read, for who edits them."""
    return _Yaml


@dataclass(slots=True)
class Document:
    """A file's values, the line of each, and what of it came from the environment."""

    file: Path
    values: Any = None
    lines: dict[Loc, int] = field(default_factory=dict)
    hidden: dict[Loc, str] = field(default_factory=dict)
    """Places filled from the environment, with the whole value that stands there."""
    texts: set[str] = field(default_factory=set)
    """The environment's values themselves."""
    problems: list[Problem] = field(default_factory=list)

    def line_of(self, loc: Loc) -> int:
        """The line of a place, or of the nearest one around it that the file holds."""
        while loc and loc not in self.lines:
            loc = loc[:-1]
        return self.lines.get(loc, 1)

    def is_hidden(self, loc: Loc) -> bool:
        return any(loc[: len(place)] == place for place in self.hidden)

    def report(self, loc: Loc, message: str, line: int | None = None) -> None:
        self.problems.append(Problem(self.file, line or self.line_of(loc), dotted(loc), message))


def dotted(loc: Loc) -> str:
    return ".".join(str(part) for part in loc)


def read_document(file: Path, env: Mapping[str, str]) -> Document:
    """Reads a file. Wrong syntax raises at once; duplicate keys and missing variables are listed in `problems`."""
    document = Document(file)
    try:
        text = file.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=_Yaml)
    except FileNotFoundError:
        raise _unreadable(file, 0, "no such file") from None
    except OSError as error:
        raise _unreadable(file, 0, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = file.read_bytes()[: error.start].count(b"\n") + 1
        raise _unreadable(file, line, "is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.context, error.problem) if part)
        raise _unreadable(file, mark.line + 1 if mark else 0, f"is not YAML: {said}") from None
    except yaml.YAMLError as error:
        raise _unreadable(file, 0, f"is not YAML: {str(error).splitlines()[0]}") from None
    if node is None:
        raise _unreadable(file, 0, "is empty; a pipeline needs at least name, kafka, topics and tables")
    if not isinstance(node, yaml.MappingNode):
        raise _unreadable(file, node.start_mark.line + 1, "must be a mapping: name: ..., kafka: ..., tables: ...")
    _Reader(document, env).read(node)
    return document


def _unreadable(file: Path, line: int, message: str) -> PipelineFileError:
    return PipelineFileError([Problem(file, line, "", message)])


@dataclass(slots=True)
class _Reader:
    document: Document
    env: Mapping[str, str]

    def read(self, top: yaml.MappingNode) -> None:
        self.document.lines[()] = top.start_mark.line + 1
        self.document.values = self._value(top, (), ())

    def _value(self, node: yaml.Node, loc: Loc, around: tuple[yaml.Node, ...]) -> Any:
        if any(node is outer for outer in around):
            self.document.report(loc, "refers to itself")
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, loc, (*around, node))
        if isinstance(node, yaml.SequenceNode):
            return self._sequence(node, loc, (*around, node))
        return self._scalar(node, loc)

    def _sequence(self, node: yaml.SequenceNode, loc: Loc, around: tuple[yaml.Node, ...]) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            self.document.lines[(*loc, index)] = item.start_mark.line + 1
            items.append(self._value(item, (*loc, index), around))
        return items

    def _mapping(self, node: yaml.MappingNode, loc: Loc, around: tuple[yaml.Node, ...]) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.document.report(loc, "has a key that is not a plain word", line)
                continue
            key = key_node.value
            if key_node.tag == "tag:yaml.org,2002:merge":
                self.document.report(loc, "merge keys (<<) are not supported; write the settings out", line)
                continue
            if key in mapping:
                first = self.document.lines[(*loc, key)]
                self.document.report((*loc, key), f"is given twice; the first is on line {first}", line)
                continue
            self.document.lines[(*loc, key)] = line
            mapping[key] = self._value(value_node, (*loc, key), around)
        return mapping

    def _scalar(self, node: yaml.Node, loc: Loc) -> Any:
        text: str = node.value
        match node.tag.removeprefix("tag:yaml.org,2002:"):
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                return int(text.replace("_", ""))
            case "float":
                return float(text)
            case "str" | "merge":
                return self._filled_in(text, loc)
            case tag:
                self.document.report(loc, f"has the tag {tag}; only plain values are read")
                return None

    def _filled_in(self, text: str, loc: Loc) -> str:
        """The text with ${VAR} and ${VAR:-default} replaced; $${ stands for a plain ${."""

        def replaced(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            inside = _INSIDE.fullmatch(match[1]) if match[1] is not None else None
            if inside is None:
                self.document.report(loc, "has a ${ that is not ${NAME} or ${NAME:-default}; write $${ for a plain one")
                return match[0]
            name, default = inside.groups()
            if name in self.env and (self.env[name] != "" or default is None):
                found.append(self.env[name])
                return self.env[name]
            if default is None:
                self.document.report(
                    loc, f"the environment variable {name} is not set; set it or write ${{{name}:-default}}"
                )
                return match[0]
            return str(default)

        found: list[str] = []
        filled = _REFERENCE.sub(replaced, text)
        if found:
            self.document.hidden[loc] = filled
            self.document.texts.update(found)
        return filled
