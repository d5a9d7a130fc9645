"""What `headgate load` shows: a line while it writes, and a table of what was acknowledged."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_report import LoadProgress, LoadReport

_PARTITIONS_SHOWN = 64


def run_with_progress(generator: LoadGenerator, duration_s: float | None, count: int | None) -> LoadReport:
    """Runs the generator in a thread of its own, so that Ctrl-C here never interrupts a record half-way."""
    stop = threading.Event()
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[now]}"), TimeElapsedColumn(),
        console=console, transient=True,
    )  # fmt: skip
    with _sigterm_as_ctrl_c(), bar, ThreadPoolExecutor(1, "load") as pool:
        running = pool.submit(
            generator.run, duration_s=duration_s, count=count, stop=stop, on_progress=_progress_line(bar)
        )
        while True:
            try:
                return running.result()
            except KeyboardInterrupt:
                if stop.is_set():
                    generator.give_up()
                    continue
                stop.set()
                console.print("Stopping: waiting for the brokers to acknowledge what is in flight …")


def _progress_line(bar: Progress) -> Callable[[LoadProgress], None]:
    task = bar.add_task("connecting", total=None, now="")
    seen_bytes, seen_s = 0, time.monotonic()

    def show(progress: LoadProgress) -> None:
        nonlocal seen_bytes, seen_s
        now_s = time.monotonic()
        sent = (progress.payload_bytes - seen_bytes) / max(now_s - seen_s, 1e-3)
        seen_bytes, seen_s = progress.payload_bytes, now_s
        texts = [f"{sent / 1e6:.2f} MB/s of {progress.target_bytes_per_s / 1e6:.2f}", f"{progress.records:,} records"]
        if progress.failed:
            texts.append(f"[red]{progress.failed:,} failed[/red]")
        if progress.behind_s > 1:
            texts.append(f"[yellow]{progress.behind_s:.0f} s behind[/yellow]")
        total = None if math.isinf(progress.end_s) else progress.end_s
        bar.update(task, description="writing", completed=progress.t_s, total=total, now="  ".join(texts))

    return show


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def show_report(report: LoadReport) -> None:
    console = Console()
    rate = report.payload_bytes / max(report.elapsed_s, 1e-9) / 1e6
    table = Table(title=f"Acknowledged in {report.elapsed_s:.1f} s: {rate:.2f} MB/s", title_justify="left")
    table.add_column("partition")
    for column in ("records", "bad", "bytes", "offsets", "failed"):
        table.add_column(column, justify="right")
    for partition, part in sorted(report.partitions.items())[:_PARTITIONS_SHOWN]:
        offsets = "" if part.first_offset is None else f"{part.first_offset} … {part.last_offset}"
        numbers = (f"{part.records:,}", f"{part.bad:,}", f"{part.payload_bytes:,}", offsets, f"{part.failed:,}")
        table.add_row(str(partition), *numbers)
    if len(report.partitions) > _PARTITIONS_SHOWN:
        table.add_row(f"… {len(report.partitions) - _PARTITIONS_SHOWN} more")
    table.add_section()
    totals = (f"{report.records:,}", f"{report.bad:,}", f"{report.payload_bytes:,}", "", f"{report.failed:,}")
    table.add_row("all", *totals, style="bold")
    console.print(table)
    for error, times in report.errors.items():
        console.print(f"[red]{times:,} × {error}[/red]")
