"""`headgate simulate`: what other policies would have made of a pipeline's traffic."""

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from headgate.cli.logs import log_to
from headgate.cli.output import Output
from headgate.cli.policy_choice import ALL, POLICY_HELP, chosen
from headgate.cli.quantities import positive_bytes, positive_s, seconds, start_time
from headgate.cli.status import check_it_ran
from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.config.units import BYTES_PER_S
from headgate.controller.recording import Recording, read_recording
from headgate.errors import ConfigError
from headgate.experiments.what_if import Comparison, compare
from headgate.experiments.what_if_circumstances import Circumstances
from headgate.experiments.what_if_scores import Score
from headgate.experiments.what_if_world import Resolution
from headgate.kafka.channel import Topics
from headgate.simulation.packets import MOST_PACKETS
from headgate.simulation.profiles import PROFILES, profile
from headgate.simulation.recorded import Trace
from headgate.simulation.trace_csv import read_trace, written

_COARSE = 0.02
"""Share of the goal that one packet may take before results depend on it (docs/simulate.md)."""


class SpacingOption(StrEnum):
    even = "even"
    random = "random"
    burst = "burst"


def simulate(
    file: Annotated[Path, typer.Argument(help="The pipeline file.", metavar="FILE")],
    trace: Annotated[
        Path | None, typer.Option(help="Traffic as CSV: time, partition (or topic and partition), records, bytes.")
    ] = None,
    from_journal: Annotated[
        bool, typer.Option("--from-journal", help="Traffic as this pipeline's own monitor recorded it.")
    ] = False,
    profile_name: Annotated[
        str | None, typer.Option("--profile", help=f"Built-in traffic: {', '.join(PROFILES)}.", show_default=False)
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help=f"{POLICY_HELP} Default: all; none if --save is given.", show_default=False)
    ] = None,
    slo: Annotated[
        float | None, typer.Option(help="Goal for latency. Default: the file's slo.latency_s.", parser=positive_s)
    ] = None,
    price: Annotated[float, typer.Option(help="Money for one consumer for one hour.", min=0.0)] = 0.20,
    seeds: Annotated[int, typer.Option(help="Runs per policy; what a recording leaves open varies.", min=1)] = 1,
    last: Annotated[
        float | None,
        typer.Option(help="Only the newest part of the traffic. Default: a day of the journal.", parser=positive_s),
    ] = None,
    record_bytes: Annotated[
        float | None,
        typer.Option(help="Mean size of a record, where the CSV has no bytes (profiles: 1 kB).", parser=positive_bytes),
    ] = None,
    scale: Annotated[
        float, typer.Option(help="--profile: 1 means peaks near two consumers' capacity.", min=1e-6)
    ] = 1.0,
    partitions: Annotated[int | None, typer.Option(help="--profile: how many partitions.", min=1)] = None,
    spacing: Annotated[
        SpacingOption, typer.Option(help="When records arrive within a recorded interval, which it does not say.")
    ] = SpacingOption.even,
    start: Annotated[
        str | None,
        typer.Option(
            help="Time a new consumer needs; published: drawn from the group paper's t3, 10 to 500 s. Default: as "
            "recorded, or by fleet.kind."
        ),
    ] = None,
    pause: Annotated[
        float | None,
        typer.Option(help="Standstill of a partition that moves. Default: as recorded, or a cycle.", parser=seconds),
    ] = None,
    consumers: Annotated[int | None, typer.Option(help="Consumers at the beginning.", min=1)] = None,
    eager: Annotated[
        bool, typer.Option("--eager", help="Move as Kafka's classic groups do: everybody stops at every change.")
    ] = False,
    packets: Annotated[
        int, typer.Option(help="Most events per run: more is finer and slower.", min=1000, max=5_000_000)
    ] = MOST_PACKETS,
    fluid: Annotated[
        bool,
        typer.Option(
            "--fluid", help="For days or weeks: load flows, in steps of a second, instead of arriving in packets."
        ),
    ] = False,
    controller: Annotated[
        bool,
        typer.Option(
            "--controller",
            help="For minutes: the live controller with its commands, acknowledgements and spares, on virtual time.",
        ),
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw load, consumers and latency into this file.")] = None,
    save: Annotated[Path | None, typer.Option(help="Keep the traffic as CSV for --trace.")] = None,
    output: Annotated[Output, typer.Option(help="text for people, json for programs.")] = Output.text,
) -> None:
    """Replays traffic through policies: who meets the goal, at what cost, and why records were late.

    The policies are the very objects that `run` would use, built from the same file. Nothing is started and nothing
    is changed.
    """
    pipeline = load_pipeline(file)
    log_to(None)
    if sum((trace is not None, from_journal, profile_name is not None)) != 1:
        raise ConfigError("say which traffic: one of --trace FILE, --from-journal and --profile NAME")
    if fluid and controller:
        raise ConfigError("--fluid and --controller are two ways to simulate: choose one")
    choices = chosen(policy or ALL)
    start_s = None if start is None else start_time(start)
    recording = None
    if from_journal:
        recording = _from_journal(pipeline, last or 86_400.0)
        trace_of = _always(recording.trace)
    elif trace is not None:
        recorded = _from_file(trace, record_bytes)
        trace_of = _always(recorded.newest(last) if last else recorded)
    else:
        trace_of = _profile(pipeline, str(profile_name), scale, record_bytes or 1000.0, partitions, last)
    if save is not None:
        _save(trace_of(0), save)
        if policy is None:
            typer.echo(f"saved to {save}; try policies on it with: headgate simulate {file} --trace {save}")
            return
    circumstances = Circumstances.of(
        pipeline,
        slo,
        recording.start_s if recording and start_s is None else start_s,
        recording.pause_s if recording and pause is None else pause,
        protocol="eager" if eager else "cooperative",
        spacing=spacing.value,
        price_per_hour=price,
        consumers=consumers,
        most_packets=packets,
        engine="fluid" if fluid else "controller" if controller else "group",
    )
    with _progress() as told:
        comparison = compare(pipeline, trace_of, choices, circumstances, seeds, told)
    if plot is not None:
        from headgate.experiments.what_if_plot import draw

        _writing(plot, lambda: draw(comparison, plot))
    if output is Output.json:
        typer.echo(json.dumps(as_json(comparison), indent=2))
    else:
        _print(comparison, plot)


def _always(trace: Trace) -> Callable[[int], Trace]:
    return lambda seed: trace


def _from_journal(pipeline: Pipeline, last_s: float) -> Recording:
    check_it_ran(pipeline)
    return read_recording(librdkafka_settings(pipeline), Topics(pipeline.name), last_s, pipeline.monitor.poll_s)


def _from_file(file: Path, record_bytes: float | None) -> Trace:
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            return read_trace(lines, str(file), record_bytes)
    except OSError as error:
        raise ConfigError(f"cannot read --trace {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--trace {file} is not a text file: {error.reason} at byte {error.start}") from error


def _profile(
    pipeline: Pipeline, name: str, scale: float, record_bytes: float, partitions: int | None, last_s: float | None
) -> Callable[[int], Trace]:
    topic = pipeline.topics[0] if pipeline.topics else "profile"
    # Every table reads the topic for itself; the profile is meant as what consumers have to do.
    readings = max(1, len(pipeline.tables_of(topic)))
    capacity = pipeline.policy.consumer_capacity_bytes_per_s / readings

    def trace_of(seed: int) -> Trace:
        made = profile(name, capacity, scale, record_bytes, partitions, seed, topic)
        return made.newest(last_s) if last_s else made

    return trace_of


def _save(trace: Trace, file: Path) -> None:
    def write() -> None:
        with file.open("w", newline="") as out:
            csv.writer(out).writerows(written(trace))

    _writing(file, write)


def _writing(file: Path, write: Callable[[], None]) -> None:
    try:
        write()
    except (OSError, ValueError) as error:  # matplotlib: a format it does not know
        raise ConfigError(f"cannot write {file}: {error}") from error


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    columns = (TextColumn("{task.description:<32}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda what, share: bar.update(task, description=escape(what[:32]), completed=share)


def as_json(comparison: Comparison) -> dict[str, Any]:
    trace, best = comparison.trace, comparison.cheapest
    return {
        "trace": {
            "duration_s": trace.duration_s,
            "interval_s": trace.step_s,
            "partitions": len(trace.partitions),
            "records": float(trace.records.sum()),
            "bytes": float(trace.bytes.sum()),
        },
        "circumstances": asdict(comparison.circumstances),
        "resolution": asdict(comparison.resolution) | {"latency_s": comparison.resolution.latency_s},
        "notes": list(comparison.notes),
        "policies": [asdict(score) for score in comparison.scores],
        "cheapest_that_meets_the_goal": best.policy if best else None,
    }


def _print(comparison: Comparison, plot: Path | None) -> None:
    console, trace, world, cut = Console(), comparison.trace, comparison.circumstances, comparison.resolution
    console.print(
        f"[bold]Traffic[/]: {_span(trace.duration_s)} in {len(trace.partitions)} partitions, "
        f"{_rate(float(trace.bytes.sum()) / trace.duration_s)} on average, "
        f"{_rate(float(trace.bytes_per_s.max()))} in the busiest {trace.step_s:.3g} s"
    )
    live = world.engine == "controller"
    moves = "handovers of the live controller, landing" if live else f"{world.protocol} moves of"
    starts = "starts as published, on average" if world.starts else "starts of"
    console.print(
        f"[bold]World[/]: {moves} {world.pause_s:.3g} s, {starts} {world.start_s:.3g} s; every "
        f"record waits {world.fixed_s:.3g} s for its cycle and commit; arrivals within an interval: {world.spacing}"
    )
    console.print(f"[bold]Resolution[/]: {_resolution(cut)}; a decision every {cut.period_s:.3g} s")
    if cut.step_s is None and cut.latency_s > _COARSE * (world.slo_s - world.fixed_s):
        console.print(
            "[yellow]That is coarse for this goal: raise --packets, or look at a shorter time with --last.[/]"
        )
    for note in comparison.notes:
        console.print(f"[yellow]Note[/]: {escape(note)}")
    console.print(_table(comparison))
    console.print("● on the front: no other policy is both cheaper and more often in time", style="dim")
    for score in comparison.scores:
        if why := _why(score):
            console.print(f"{escape(score.policy)}: {why}", highlight=False)
    console.print(_conclusion(comparison), highlight=False)
    if plot is not None:
        console.print(f"Plot: {plot}")


def _resolution(cut: Resolution) -> str:
    if cut.step_s is not None:
        return f"a flow in steps of {cut.step_s:.3g} s; latencies are exact to about 2 %"
    return (
        f"{cut.packets:,} packets of {cut.packet_bytes:,} bytes, {cut.records_per_packet:.3g} records each; a consumer "
        f"does {cut.packets_per_s:.4g} a second, so latencies are exact to about {1000 * cut.latency_s:.3g} ms"
    )


def _table(comparison: Comparison) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("policy", no_wrap=True)
    for name in ("in time", "repl-min", "cost", "moves", "up/down", "p50 s", "p99 s", "worst s"):
        table.add_column(name, justify="right", no_wrap=True)
    for score in comparison.scores:
        table.add_row(
            f"{'●' if score.on_front else ' '} {escape(score.policy)}",
            f"[{'green' if score.meets_goal else 'red'}]{score.sla_percent:.2f} %[/]",
            f"{score.replica_minutes:.1f}",
            f"{score.money:.2f}",
            f"{score.moves:.0f}",
            f"{score.ups:.0f}/{score.downs:.0f}",
            *(f"{value:.2f}" for value in (score.p50_s, score.p99_s, score.worst_s)),
        )
    return table


def _why(score: Score) -> str:
    """What made records late, and how much seeds differ."""
    seeds = score.sla_by_seed
    spread = f"{min(seeds):.2f} to {max(seeds):.2f} % over {len(seeds)} seeds" if len(seeds) > 1 else ""
    causes = _causes(score)
    return "; ".join(part for part in (f"late because of {causes}" if causes else "", spread) if part)


def _causes(score: Score) -> str:
    ordered = sorted(score.causes.items(), key=lambda item: -item[1])
    return ", ".join(f"{cause} {share:.2f} %" for cause, share in ordered if share >= 0.005)


def _conclusion(comparison: Comparison) -> str:
    best, goal = comparison.cheapest, 100 * comparison.circumstances.quantile
    wanted = f"{goal:g} % within {comparison.circumstances.slo_s:g} s"
    if best is not None:
        return f"[bold]Cheapest that meets the goal[/] of {wanted}: [bold]{escape(best.policy)}[/]"
    nearest = max(comparison.scores, key=lambda s: s.sla_percent)
    return (
        f"[bold]No policy meets the goal[/] of {wanted}; {escape(nearest.policy)} comes nearest with "
        f"{nearest.sla_percent:.2f} %. Look at what made records late, at fleet.max_consumers and at hot partitions."
    )


def _rate(bytes_per_s: float) -> str:
    return BYTES_PER_S.format(float(f"{bytes_per_s:.3g}"))


def _span(duration_s: float) -> str:
    for size, word in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if duration_s >= 2 * size:
            return f"{duration_s / size:.1f} {word}"
    return f"{duration_s:.0f} seconds"
