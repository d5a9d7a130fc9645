"""`python -m benchmarks [NAME ...] [--save]`: measures, prints one table and compares it with the committed ratios."""

import argparse
import importlib
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks import results
from benchmarks.ratio import Ratio, regressions

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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones; all unless named: {', '.join(NAMES)}")
    parser.add_argument("--save", action="store_true", help="keep these ratios as the ones to compare with")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(NAMES):
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    console = Console()
    before = results.load()
    measured: dict[str, Sequence[Ratio]] = {}
    for name in chosen.names or NAMES:
        with console.status(f"measuring {name}"):
            measured[name] = importlib.import_module(f"benchmarks.{name}").run()
        if chosen.save:
            results.save({name: measured[name]})
    console.print(_table([ratio for ratios in measured.values() for ratio in ratios]))
    worse = regressions(measured, before)
    for now, last in worse:
        console.print(
            f"worse than committed: {now.what} against {now.peer}: {now.ratio:.2f}, "
            f"before {last.ratio:.2f} ({last.low:.2f} … {last.high:.2f})"
        )
    return 1 if worse else 0


def _table(ratios: Sequence[Ratio]) -> Table:
    table = Table(title="Ours over the peer's, measured in turns in one run", title_justify="left")
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
