"""Times of the past, as they are typed and printed."""

from datetime import UTC, datetime

import typer

from headgate.cli.quantities import positive_s

_CLOCKS_APART_S = 60.0


def moment_s(text: str, now_s: float) -> float:
    """Seconds since the epoch of a time, or of so long ago; no time that can only be a mistake."""
    at_s = _parsed_s(text, now_s)
    if at_s < 0:
        raise typer.BadParameter(f"{text!r} lies before 1970")
    if at_s > now_s + _CLOCKS_APART_S:
        raise typer.BadParameter(f"{text!r} lies in the future (times are UTC)")
    return at_s


def _parsed_s(text: str, now_s: float) -> float:
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        pass
    try:
        return now_s - positive_s(text)
    except typer.BadParameter:
        raise typer.BadParameter(
            f"{text!r} is neither a time such as 2026-03-01T12:30 nor how long ago, such as 15min"
        ) from None


def clock(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
