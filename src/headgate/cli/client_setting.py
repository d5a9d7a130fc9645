"""Kafka client settings as options: `--client sasl.password=${KAFKA_PASSWORD}`."""

import os
import re

import typer
from typer.models import OptionInfo


def client_option(whose: str, panel: str | None = None) -> OptionInfo:
    option: OptionInfo = typer.Option(
        metavar="KEY=VALUE",
        help=f"{whose} in librdkafka's name, for example security.protocol=SASL_SSL; repeat it for several. "
        "${NAME} in a value is taken from the environment: keep passwords there.",
        rich_help_panel=panel,
    )
    return option


def client_setting(text: str, option: str = "--client") -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{option} {key!r} must be KEY=VALUE, for example security.protocol=SASL_SSL")

    def from_environment(reference: re.Match[str]) -> str:
        if reference[1] not in os.environ:
            raise typer.BadParameter(f"{option} {key}: the environment variable {reference[1]} is not set")
        return os.environ[reference[1]]

    return key, re.sub(r"\$\{(\w+)\}", from_environment, value)
