"""`python -m benchmarks`: runs every benchmark and prints one table."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks import commit, cycle, deciding, packing, producers, sustained, topology
from benchmarks.ratio import Ratio


def main() -> None:
    console = Console()
    results: list[Ratio] = []
    modules = {
        "commit": commit,
        "cycle": cycle,
        "sustained": sustained,
        "packing": packing,
        "deciding": deciding,
        "topology": topology,
        "producers": producers,
    }
    for name, module in modules.items():
        with console.status(f"measuring {name}"):
            results += module.run()
    show(results)


def show(results: Sequence[Ratio]) -> None:
    table = Table(title="Median time against a peer, measured in turns in one run", title_justify="left")
    for column in ("what", "peer", "ratio", "spread of the ratio", "ours", "peer's"):
        table.add_column(column, justify="left" if column in ("what", "peer") else "right")
    for r in results:
        spread = f"{r.low:.2f} … {r.high:.2f}"
        table.add_row(r.what, r.peer, f"{r.ratio:.2f}", spread, f"{r.ours_s:.3f} s", f"{r.peer_s:.3f} s")
    Console().print(table)


if __name__ == "__main__":
    main()
