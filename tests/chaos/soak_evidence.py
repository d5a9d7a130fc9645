"""The evidence of a long run as a file: kept when the run is over, read to judge it again."""

import gzip
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.chaos.judgement import Command, Committed, Evidence, Fault, LagSample, LakeSample, ProcessSample
from tests.chaos.soak_report import Circumstances

_ROWS = {
    "faults": Fault,
    "lags": LagSample,
    "processes": ProcessSample,
    "lake": LakeSample,
    "commits": Committed,
    "upkeep": Command,
}
_ABOUT = "circumstances"


class Lacking(Exception):
    """The file does not say what the report has to; it was written before files did, and somebody has to tell."""


def keep(file: Path, seen: Evidence, about: Circumstances) -> None:
    """Every sample; a name that ends with .gz is packed."""
    _put(file, {_ABOUT: asdict(about), **asdict(seen)})


def keep_small(file: Path, seen: Evidence, about: Circumstances) -> None:
    """Every sample, with times and latencies in whole milliseconds: what is left out is noise, and a third of the
    bytes."""
    _put(file, _in_milliseconds({_ABOUT: asdict(about), **asdict(seen)}))


def load(file: Path, otherwise: dict[str, Any] | None = None) -> tuple[Evidence, Circumstances]:
    """`otherwise` are circumstances for a file that lacks them, and `disk_bytes` for one that lacks those."""
    kept = file.read_bytes()
    read: dict[str, Any] = json.loads(gzip.decompress(kept) if file.suffix == ".gz" else kept)
    told = {**(otherwise or {}), **read.pop(_ABOUT, {})}
    disk_bytes = told.pop("disk_bytes", None)
    if read.get("most_disk_bytes") is None:
        read["most_disk_bytes"] = disk_bytes
    for name, kind in _ROWS.items():
        read[name] = tuple(kind(**_with_tuples(row)) for row in read[name])
    try:
        about = Circumstances(**told)
    except TypeError as error:
        raise Lacking(f"{file} lacks circumstances: {error}") from None
    return Evidence(**_with_tuples(read)), about


def _with_tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


def _put(file: Path, what: Any) -> None:
    text = json.dumps(what, separators=(",", ":")).encode()
    file.write_bytes(gzip.compress(text, mtime=0) if file.suffix == ".gz" else text)


def _in_milliseconds(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {name: _in_milliseconds(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_in_milliseconds(inner) for inner in value]
    return value
