"""What the documentation tells people to type exists, what it tells them to copy loads, where it points is there."""

import re
from pathlib import Path

import pytest
import typer
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from headgate.cli.main import app
from headgate.config import load_pipeline
from tests.pages import ROOT, Block, blocks, pages, prose, words

COMMANDS = [(block, command) for page in pages() for block in blocks(page) for command in block.commands]
YAML = [block for page in pages() for block in blocks(page) if block.language == "yaml"]
SMALLEST = {"name": "p", "kafka": {"brokers": "localhost:9092"}, "topics": ["t"], "tables": [{"name": "lake.t"}]}
ENVIRONMENT = {"KAFKA_PASSWORD": "x", "KEY": "x", "SECRET": "x"}
_INLINE = re.compile(r"`((?:\.venv/bin/)?headgate [^`]+)`")
_LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def is_headgate(word: str) -> bool:
    return Path(word).name == "headgate"


def parse(arguments: list[str]) -> None:
    """As the program does, but without doing anything; a usage error is raised."""
    command = get_command(app)
    context = typer.Context(command, info_name="headgate")
    while isinstance(command, TyperGroup):
        name, found, arguments = command.resolve_command(context, arguments)
        assert found is not None
        command, context = found, typer.Context(found, parent=context, info_name=name)
    command.make_context(context.info_name, arguments, parent=context.parent)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, id=f"{block.place} {command.splitlines()[0][:60]}")
        for block, command in COMMANDS
        if is_headgate(next(iter(words(command)), ""))
    ],
)
def test_every_headgate_command_in_a_block_is_one(command: str) -> None:
    parse(words(command)[1:])


@pytest.mark.parametrize("wrong", ["rnu a.yaml", "run", "run a.yaml --rols x", "run a b", "topology repord"])
def test_a_command_that_does_not_exist_would_be_noticed(wrong: str) -> None:
    with pytest.raises(Exception, match=r"No such|Missing|unexpected"):
        parse(wrong.split())


def test_every_headgate_command_within_a_sentence_exists_with_its_options() -> None:
    for page in pages():
        for text in _INLINE.findall(prose(page)):
            place = f"{page.name}: {' '.join(text.split())}"
            _, *rest = text.replace("…", "").split()
            command = get_command(app)
            while isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
                assert rest[0] in command.commands, place
                command = command.commands[rest.pop(0)]
            known = {opt for parameter in command.params for opt in (*parameter.opts, *parameter.secondary_opts)}
            given = {word.split("=")[0] for word in rest if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word)}
            assert given <= known | {"--help"}, place


def test_every_make_target_in_a_block_is_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for block, command in COMMANDS:
        if words(command)[:1] == ["make"]:
            asked = {word for word in words(command)[1:] if not re.match(r"[A-Z]+=", word)}
            assert asked <= targets, f"{block.place}: {command}"


def test_how_long_the_demo_takes_is_said_alike_everywhere() -> None:
    """Three minutes of load, and the time to start and to count."""
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    said = (
        *re.findall(r"^\$ make demo .*$", readme, flags=re.MULTILINE),
        *re.findall(r"^demo: .*$", makefile, flags=re.MULTILINE),
        str(app.info.help),
    )
    assert len(said) == 3
    assert ["about four minutes" in text for text in said] == [True] * 3


def test_no_example_serves_metrics_on_the_port_of_another_exporter() -> None:
    ports = [port for page in pages() for port in re.findall(r"metrics_port: (?:\$\{\w+:-)?(\d+)", page.read_text())]
    assert set(ports) == {"9464"}, "9100 is node_exporter's"


def test_commands_stand_in_blocks_that_are_checked() -> None:
    for page in pages():
        assert not re.search(r"^ {4,}(\$ )?(\.venv/bin/)?headgate ", prose(page), flags=re.MULTILINE), page
        for block in blocks(page):
            shell = [line for line in block.text.splitlines() if re.match(r"(\.venv/bin/)?headgate ", line)]
            assert block.language != "console" or not shell, f"{block.place}: a command begins with $"
            assert block.language not in ("bash", "sh", "shell"), f"{block.place}: write it as console, with $"


@pytest.mark.parametrize("block", YAML, ids=lambda block: block.place)
def test_every_piece_of_a_pipeline_file_loads(block: Block, tmp_path: Path) -> None:
    content = yaml.safe_load(block.text)
    whole = "kafka" in content and "tables" in content
    file = tmp_path / "pipeline.yaml"
    file.write_text(block.text if whole else yaml.safe_dump(SMALLEST | content, allow_unicode=True))
    load_pipeline(file, ENVIRONMENT)


def test_every_python_block_is_python() -> None:
    for page in pages():
        for block in blocks(page):
            if block.language == "python":
                compile(block.text, block.place, "exec")


def slug(heading: str) -> str:
    """As GitHub makes the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower().replace("`", "")).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)}


def test_every_relative_link_leads_somewhere() -> None:
    broken = []
    for page in pages():
        for found in _LINK.findall(prose(page)):
            target = "".join(found)
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            if not there.exists() or (anchor and anchor not in anchors(there)):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / "".join(f).partition("#")[0]).resolve() for f in _LINK.findall(prose(index))}
    expected = {page for page in pages() if page.parent in (ROOT / "docs", ROOT / "docs" / "decisions")} - {index}
    assert expected - linked == set()
