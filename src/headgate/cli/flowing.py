"""Help that fits any terminal: typer keeps the line breaks of docstrings, which are as wide as our source."""

import inspect
import re

import typer


def flow(app: typer.Typer) -> None:
    """Lets the paragraphs of all commands' help flow, also those of commands within commands."""
    for command in app.registered_commands:
        if command.callback is not None and command.callback.__doc__:
            command.help = flowing(command.callback.__doc__)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            flow(group.typer_instance)


def flowing(text: str) -> str:
    return "\n\n".join(p if _is_listing(p) else " ".join(p.split("\n")) for p in inspect.cleandoc(text).split("\n\n"))


def _is_listing(paragraph: str) -> bool:
    """Examples, one a line."""
    return re.search(r"^(\s|(\[[a-z ]+\])?headgate )", paragraph, re.MULTILINE) is not None
