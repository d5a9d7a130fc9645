"""The documentation as tests see it: its pages, their fenced blocks, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUN = "<!-- run -->"
"""Stands in the line before a block that `tests/integration/test_docs.py` runs."""
_FENCE = re.compile(r"^( *)```(\w*)\s*$")
_WORDS_END = frozenset(("&", "&&", "|", ">", ">>", "<<", "<", ";"))


@dataclass(frozen=True, slots=True)
class Block:
    """What stands between two fences."""

    page: Path
    line: int
    language: str
    text: str
    is_run: bool

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> tuple[str, ...]:
        """Each with its further lines (after a backslash, or a here-document); what is printed is left out."""
        found: list[str] = []
        until = ""
        for line in self.text.splitlines():
            if until or (found and found[-1].endswith("\\")):
                found[-1] += f"\n{line}"
                until = "" if line == until else until
            elif line.startswith("$ "):
                found.append(line.removeprefix("$ "))
                document = re.search(r"<<\s*'?(\w+)'?", line)
                until = document[1] if document else ""
        return tuple(found)


def pages() -> tuple[Path, ...]:
    return (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))


def blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text(encoding="utf-8").splitlines()
    opened: tuple[int, str] | None = None
    for number, line in enumerate(lines, 1):
        fence = _FENCE.match(line)
        if fence and opened is None:
            opened = (number, fence[2])
        elif fence and opened is not None:
            start, language = opened
            before = lines[start - 2] if start > 1 else ""
            yield Block(page, start, language, "\n".join(lines[start : number - 1]) + "\n", before.strip() == RUN)
            opened = None
    assert opened is None, f"{page}: a block is not closed"


def prose(page: Path) -> str:
    """Everything outside blocks."""
    kept, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def words(command: str) -> list[str]:
    """Of the first program of a command line, up to a pipe, a redirection or an ampersand."""
    lexer = shlex.shlex(command.splitlines()[0] if "<<" in command else command.replace("\\\n", " "), posix=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    found = []
    for word in lexer:
        if word in _WORDS_END:
            break
        found.append(word)
    return found
