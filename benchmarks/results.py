"""The last committed ratios: `results.json` beside this file, and the page in docs made from it."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import psutil

from benchmarks.ratio import Ratio

FILE = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
_BEGIN, _END = "<!-- results begin -->", "<!-- results end -->"


def load(file: Path = FILE) -> dict[str, list[Ratio]]:
    return {name: [Ratio(**r) for r in entry["ratios"]] for name, entry in _read(file).items()}


def save(measured: Mapping[str, Sequence[Ratio]], code: str, file: Path = FILE, page: Path = PAGE) -> None:
    """Replaces what these benchmarks said before, and writes the page's table anew. `code` is what was measured."""
    entries = _read(file)
    for name, ratios in measured.items():
        entries[name] = {
            "machine": f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 1e9:.0f} GB",
            "measured": date.today().isoformat(),
            "commit": code,
            "python": platform.python_version(),
            "ratios": [asdict(r) for r in ratios],
        }
    file.write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n")
    if page.exists():
        text = page.read_text()
        before, _, rest = text.partition(_BEGIN)
        page.write_text(before + _BEGIN + "\n" + table(entries) + rest[rest.index(_END) :])


def table(entries: Mapping[str, Any]) -> str:
    lines = [
        "| benchmark | what | against | ratio | spread | ours | theirs | target | on |",
        "| --- | --- | --- | ---: | --- | ---: | ---: | --- | --- |",
    ]
    for name, entry in entries.items():
        on = ", ".join(entry[key] for key in ("measured", "machine", "commit") if key in entry)
        lines += [_row(name, on, Ratio(**r)) for r in entry["ratios"]]
    return "\n".join(lines) + "\n"


def _row(name: str, on: str, r: Ratio) -> str:
    return (
        f"| {name} | {r.what} | {r.peer} | {r.ratio:.2f} | {r.low:.2f} … {r.high:.2f} "
        f"| {r.ours:.3g} {r.unit} | {r.peers:.3g} {r.unit} | {verdict(r)} | {on} |"
    )


def verdict(ratio: Ratio) -> str:
    if ratio.target is None:
        return ""
    met = "met" if ratio.always_met else "met by the median"
    return f"{ratio.asked}: {met if ratio.met else 'missed'}"


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found
