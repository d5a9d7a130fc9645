"""`headgate load`: writes records to Kafka in a chosen shape, and says exactly how many."""

import json
import logging
from dataclasses import replace
from typing import Any

import typer
from confluent_kafka.admin import AdminClient

from headgate.cli import load_options as option
from headgate.cli.client_setting import client_setting
from headgate.cli.load_view import run_with_progress, show_report
from headgate.cli.logs import log_to
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_pace import NoWaiting, RealTime
from headgate.kafka.load_records import FixedSize
from headgate.kafka.load_topics import BROKER_DEFAULT, prepare_topics
from headgate.simulation.workload_named import Shape, ShapeParameters, workload_of_shape

log = logging.getLogger(__name__)

_CONNECT_DEADLINE_S = 10.0
_INTERRUPTED = 130


def load(
    brokers: option.Brokers,
    topic: option.Topics,
    replication: option.Replication = None,
    client: option.Client = None,
    rate: option.Rate = None,
    duration: option.Duration = None,
    count: option.Count = None,
    no_wait: option.NoWait = False,
    shape: option.ShapeName = Shape.steady,
    step: option.Step = None,
    ramp: option.Ramp = None,
    period: option.Period = None,
    amplitude: option.Amplitude = None,
    stagger: option.Stagger = False,
    peak: option.Peak = None,
    spike_at: option.SpikeAt = None,
    spike_width: option.SpikeWidth = None,
    spike_every: option.SpikeEvery = None,
    walk_delta: option.WalkDelta = None,
    walk_start: option.WalkStart = None,
    walk_step: option.WalkStep = None,
    wait: option.Wait = None,
    zipf: option.Zipf = None,
    weights: option.Weights = None,
    record_bytes: option.RecordBytes = None,
    record_format: option.RecordFormat = option.Format.json,
    bad_share: option.BadShare = 0.0,
    seed: option.Seed = 0,
    report: option.Report = None,
) -> None:
    """Write records to Kafka in a chosen shape, and say exactly how many.

    Records are written idempotently and counted when all in-sync replicas have acknowledged them.

    Ctrl-C stops, waits for what is in flight and reports; pressed again it waits no longer.

    [bold]Examples[/bold]

    A steady 2 MB/s over two topics, created if missing, for a minute:

      headgate load -b localhost:9092 -t orders:8 -t clicks:4 --rate "2 MB/s" --duration 60s

    A million records of 1 kB, as fast as possible:

      headgate load -b localhost:9092 -t orders:8 --count 1000000 --record-bytes 1kB

    Load that wanders through the partitions while its total stays:

      headgate load -b localhost:9092 -t orders:8 --shape cosine --stagger --period 2min

    A jump to four times the load after half a minute, most of it on few partitions:

      headgate load -b localhost:9092 -t orders:8 --shape step --step 0s=1MB/s --step 30s=4MB/s --skew 1.2

    The random walk of the published experiments, and one bad record in a hundred:

      headgate load -b localhost:9092 -t orders:8 --shape walk --walk-delta 15 --seed 7 --bad-share 0.01
    """
    log_to(None)
    if duration is not None and count is not None:
        raise typer.BadParameter("give --duration or --count, not both")
    if no_wait and duration is None and count is None:
        raise typer.BadParameter("--no-wait needs an end: give --duration or --count")
    own: dict[Shape, dict[str, object]] = {
        Shape.step: {"--step": step},
        Shape.ramp: {"--ramp": ramp},
        Shape.cosine: {"--period": period, "--amplitude": amplitude, "--stagger": stagger or None},
        Shape.spike: {
            "--peak": peak,
            "--spike-at": spike_at,
            "--spike-width": spike_width,
            "--spike-every": spike_every,
        },
        Shape.walk: {"--walk-delta": walk_delta, "--walk-start": walk_start, "--walk-step": walk_step},
        Shape.waits: {"--wait": wait},
    }
    _refuse_options_of_other_shapes(shape, own)
    if shape is Shape.step and not step:
        raise typer.BadParameter("--shape step needs levels, for example --step 0s=1MB/s --step 30s=4MB/s")
    if rate is not None and shape in (Shape.step, Shape.waits):
        raise typer.BadParameter(f"--shape {shape} sets the rate itself: leave out --rate")
    size = record_bytes or FixedSize(500)
    if shape is Shape.waits and size.smallest != size.largest:
        raise typer.BadParameter("--shape waits sends one record after each wait: give --record-bytes a single size")

    parameters = _parameters(
        total_bytes_per_s=rate,
        levels=tuple(step or ()),
        ramp_over_s=ramp,
        period_s=period,
        amplitude_percent=amplitude,
        stagger=stagger,
        peak_bytes_per_s=peak,
        spike_at_s=spike_at,
        spike_width_s=spike_width,
        spike_every_s=spike_every,
        walk_delta_percent=walk_delta,
        walk_start_percent=walk_start,
        walk_step_s=walk_step,
        wait_shortest_s=wait and wait.shortest_s,
        wait_longest_s=wait and wait.longest_s,
        record_bytes=size.largest,
        zipf_exponent=zipf,
        weights=None if weights is None else option.weights(weights),
        seed=seed,
    )
    topics = dict(option.topic(text) for text in topic)
    settings = dict(client_setting(text) for text in client or ())
    replicas = BROKER_DEFAULT if replication is None else replication
    unpaced = no_wait or (count is not None and rate is None and shape in (Shape.steady, Shape.skew))
    # The client is not kept: an idle one would only complain when a broker goes away.
    partitions = prepare_topics(
        AdminClient({**settings, "bootstrap.servers": brokers}, logger=log),
        topics,
        replicas,
        size.largest,
        deadline_s=_CONNECT_DEADLINE_S,
    )
    try:
        generator = LoadGenerator(
            brokers,
            settings,
            topics,
            workload_of_shape(shape, partitions, parameters),
            size,
            record_format=record_format.value,
            bad_share=bad_share,
            replication=replicas,
            seed=seed,
            pace=NoWaiting() if unpaced else RealTime(),
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    done = run_with_progress(generator, duration, count)
    if report is not None:
        report.write_text(json.dumps(done.as_json(), indent=2) + "\n", encoding="utf-8")
    show_report(done)
    if done.failed:
        raise typer.Exit(1)
    if done.interrupted and (duration is not None or count is not None):
        raise typer.Exit(_INTERRUPTED)


def _refuse_options_of_other_shapes(chosen: Shape, own: dict[Shape, dict[str, object]]) -> None:
    for shape, options in own.items():
        for name, value in options.items():
            if shape is not chosen and value is not None:
                raise typer.BadParameter(f"{name} belongs to --shape {shape}, not to {chosen}")


def _parameters(**given: Any) -> ShapeParameters:
    """What was given; the shapes' own defaults for the rest."""
    return replace(ShapeParameters(), **{name: value for name, value in given.items() if value is not None})
