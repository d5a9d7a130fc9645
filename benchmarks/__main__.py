"""`python -m benchmarks [NAME ...] [--save [--accept]]`: measures, prints one table and checks it against the committed
ratios. The exit code is 1 if one got worse, misses its target or is gone."""

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import results
from benchmarks.check import Finding, findings
from benchmarks.ratio import Ratio
from tests.revision import revision

NAMES = (
    "sustained",
    "freshness",
    "moving",
    "load_step",
    "consumers",
    "watching",
    "memory",
    "growth",
    "commit",
    "cycle",
    "packing",
    "deciding",
    "topology",
    "producers",
    "collect",
)


def measure(name: str) -> Sequence[Ratio]:
    ratios: Sequence[Ratio] = importlib.import_module(f"benchmarks.{name}").run()
    return ratios


def main(
    arguments: Sequence[str] | None = None,
    measure: Callable[[str], Sequence[Ratio]] = measure,
    file: Path = results.FILE,
    page: Path = results.PAGE,
) -> int:
    chosen, code = _chosen(arguments), revision()
    console = Console()
    before = results.load(file)
    measured: list[Ratio] = []
    found: list[Finding] = []
    for name in chosen.names or NAMES:
        with console.status(f"measuring {name}"):
            ratios = measure(name)
        wrong = findings({name: ratios}, before)
        if chosen.save and (chosen.accept or not wrong):
            results.save({name: ratios}, code, file, page)  # at once: the next one may take an hour, or fail
        elif chosen.save:
            console.print(f"{name} is not kept; --accept (ACCEPT=1) keeps it as it is")
        measured += ratios
        found += wrong
    console.print(_table(measured))
    for finding in found:
        console.print(finding.sentence(), markup=False, soft_wrap=True)
    return 1 if found and not chosen.accept else 0


def _chosen(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones; all unless named: {', '.join(NAMES)}")
    parser.add_argument("--save", action="store_true", help="keep these ratios as the ones to compare with, if good")
    parser.add_argument("--accept", action="store_true", help="... or worse, or with targets missed, or with rows gone")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.names) - set(NAMES):
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    if chosen.accept and not chosen.save:
        parser.error("--accept says what --save may keep: say both")
    return chosen


def _table(ratios: Sequence[Ratio]) -> Table:
    table = Table(title="Ours over the peer's, measured in one run", title_justify="left")
    for column in ("what", "peer", "ratio", "spread", "ours", "peer's", "target"):
        table.add_column(column, justify="left" if column in ("what", "peer", "target") else "right")
    for r in ratios:
        table.add_row(
            r.what,
            r.peer,
            f"{r.ratio:.2f}",
            f"{r.low:.2f} … {r.high:.2f}",
            f"{r.ours:.3g} {r.unit}",
            f"{r.peers:.3g} {r.unit}",
            results.verdict(r),
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
