"""The reference page says what the models say."""

import typing
from collections.abc import Iterator

import pytest

from headgate.config import Pipeline
from headgate.config.reference import reference_page
from headgate.config.section import Section


def test_the_committed_page_is_the_generated_one(request: pytest.FixtureRequest) -> None:
    page = request.config.rootpath / "docs" / "pipeline-reference.md"
    assert page.read_text(encoding="utf-8") == reference_page(), (
        "run: python -m headgate.config.reference > docs/pipeline-reference.md"
    )


def sections(model: type[Section]) -> Iterator[type[Section]]:
    yield model
    for field in model.model_fields.values():
        for kind in (field.annotation, *typing.get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, Section):
                yield from sections(kind)


def test_every_setting_is_described_with_its_default() -> None:
    for section in sections(Pipeline):
        for name, field in section.model_fields.items():
            place = f"{section.__name__}.{name}"
            assert field.description, place
            assert f"| `{field.alias or name}` |" in reference_page() or section.__name__ == "PartitionField", place
            is_section = field.default_factory is not None
            if section.__name__ != "PartitionField" and not field.is_required() and not is_section:
                assert "Default" in field.description, place
