"""What `headgate calibrate` says: a table of what was measured, what speaks against it, and what to set."""

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from headgate.config.units import BYTES_PER_S

if TYPE_CHECKING:
    from headgate.controller.measured import Calibration, Measure, Measured


def suggested_texts(consumer_bytes_per_s: float, packing_bytes_per_s: float) -> dict[str, str]:
    """As they stand in a pipeline file, with two digits: no machine repeats the third."""
    return {
        "consumer_capacity_bytes_per_s": _rate(consumer_bytes_per_s, digits=2),
        "packing_capacity_bytes_per_s": _rate(packing_bytes_per_s, digits=2),
    }


def as_json(result: "Calibration") -> dict[str, Any]:
    return asdict(result) | {
        "consumer_capacity_bytes_per_s": result.consumer_capacity_bytes_per_s,
        "packing_capacity_bytes_per_s": result.packing_capacity_bytes_per_s,
        "capacity_records_per_s": result.capacity_records_per_s,
    }


def print_result(console: Console, result: "Calibration") -> None:
    table = Table(title="One consumer at full load", title_justify="left")
    table.add_column("")
    for one in result.measured:
        table.add_column(one.layout, justify="right")
    for name, say in _ROWS.items():
        table.add_row(name, *map(say, result.measured))
    console.print(table)
    console.print("Times of a cycle as mean ± standard deviation; Spark reads, transforms and writes.", style="dim")
    for text in doubts(result):
        console.print(text, style="yellow", highlight=False)
    console.print("Suggested for this machine, these formats and transforms:", style="bold")
    texts = suggested_texts(result.consumer_capacity_bytes_per_s, result.packing_capacity_bytes_per_s)
    console.print("policy:\n" + "\n".join(f"  {key}: {value}" for key, value in texts.items()), highlight=False)
    console.print(
        "That is 85 % of the slowest layout's mean, and 75 % of that to pack by. "
        f"The first is {result.capacity_records_per_s:,.0f} of these records a second.",
        style="dim",
    )


def doubts(result: "Calibration") -> list[str]:
    """What speaks against the numbers, for people."""
    found = [f"not measured, too little backlog or too few --seconds: {text}" for text in result.left_out]
    warm_up = result.warm_up
    if warm_up is not None and not warm_up.is_complete:
        found.append(
            f"measured before Spark was warm, so probably too slow: {warm_up.cycles} full cycles in "
            f"{warm_up.seconds:.0f} s were not enough. Calibrate with more backlog or more --seconds"
        )
    return found


def _time(measure: "Measure") -> str:
    return f"{measure.mean:.2f} ± {measure.deviation:.2f} s"


_ROWS: dict[str, Callable[["Measured"], str]] = {
    "partitions, tables": lambda one: f"{one.partitions}, {one.tables}",
    "full cycles": lambda one: f"{one.cycles} ({one.total_bytes / 1e6:.0f} MB)",
    "gather": lambda one: _time(one.gather_s),
    "Spark": lambda one: _time(one.process_s),
    "announce": lambda one: _time(one.announce_s),
    "cycle": lambda one: _time(one.cycle_s),
    "bytes per second": lambda one: _rate(one.bytes_per_s.mean),
    "  with 95 %": lambda one: f"{_rate(one.bytes_per_s.low)} … {_rate(one.bytes_per_s.high)}",
    "records per second": lambda one: f"{one.records_per_s.mean:,.0f}",
    "  with 95 % ": lambda one: f"{one.records_per_s.low:,.0f} … {one.records_per_s.high:,.0f}",
}


def _rate(bytes_per_s: float, digits: int = 3) -> str:
    return BYTES_PER_S.format(float(f"{bytes_per_s:.{digits}g}"))
