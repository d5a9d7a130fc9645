"""`headgate simulate`: what other policies would have made of a pipeline's traffic."""

import csv
import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli import simulate_traffic as traffic
from headgate.cli.logs import log_to
from headgate.cli.output import Output
from headgate.cli.policy_choice import ALL, POLICY_HELP, chosen
from headgate.cli.quantities import positive_bytes, positive_s, seconds, start_time
from headgate.cli.simulate_view import as_json, progress_bar, show
from headgate.config.loader import load_pipeline
from headgate.errors import ConfigError
from headgate.experiments.what_if import compare
from headgate.experiments.what_if_circumstances import Circumstances
from headgate.simulation.packets import MOST_PACKETS
from headgate.simulation.profiles import PROFILES
from headgate.simulation.recorded import Trace
from headgate.simulation.trace_csv import written


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
    if from_journal:
        recording = traffic.from_journal(pipeline, last or 86_400.0)
        trace_of = traffic.always(recording.trace)
        start_s = recording.start_s if start_s is None else start_s
        pause = recording.pause_s if pause is None else pause
    elif trace is not None:
        recorded = traffic.from_file(trace, record_bytes)
        trace_of = traffic.always(recorded.newest(last) if last else recorded)
    else:
        trace_of = traffic.from_profile(pipeline, str(profile_name), scale, record_bytes or 1000.0, partitions, last)
    if save is not None:
        _save(trace_of(0), save)
        if policy is None:
            typer.echo(f"saved to {save}; try policies on it with: headgate simulate {file} --trace {save}")
            return
    circumstances = Circumstances.of(
        pipeline,
        slo,
        start_s,
        pause,
        protocol="eager" if eager else "cooperative",
        spacing=spacing.value,
        price_per_hour=price,
        consumers=consumers,
        most_packets=packets,
        engine="fluid" if fluid else "controller" if controller else "group",
    )
    with progress_bar() as told:
        comparison = compare(pipeline, trace_of, choices, circumstances, seeds, told)
    if plot is not None:
        from headgate.experiments.what_if_plot import draw

        _writing(plot, lambda: draw(comparison, plot))
    if output is Output.json:
        typer.echo(json.dumps(as_json(comparison), indent=2))
    else:
        show(comparison, plot)


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
