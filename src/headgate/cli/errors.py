"""What went wrong as one clear line, in the format of the logs, and as an exit code."""

import logging
import sys
from collections.abc import Callable

from headgate.cli.logs import writes_json
from headgate.errors import HeadgateError

log = logging.getLogger("headgate.cli")


def exit_with_one_line(program: Callable[[], object]) -> None:
    try:
        program()
    except HeadgateError as error:
        if writes_json():
            log.error("%s", error)
        else:
            from rich.console import Console

            text = str(error).replace("[", "\\[")
            Console(stderr=True, highlight=False, soft_wrap=True).print(f"[bold red]headgate:[/] {text}")
        sys.exit(error.exit_code)
