"""The traffic that `headgate simulate` replays: recorded by the pipeline itself, from a CSV file, or made up."""

from collections.abc import Callable
from pathlib import Path

from headgate.cli.status import check_it_ran
from headgate.config.clients import librdkafka_settings
from headgate.config.pipeline import Pipeline
from headgate.controller.recording import Recording, read_recording
from headgate.errors import ConfigError
from headgate.kafka.internal_topics import Topics
from headgate.simulation.profiles import profile
from headgate.simulation.recorded import Trace
from headgate.simulation.trace_csv import read_trace

TraceOf = Callable[[int], Trace]
"""The traffic of a seed."""


def always(trace: Trace) -> TraceOf:
    return lambda seed: trace


def from_journal(pipeline: Pipeline, last_s: float) -> Recording:
    check_it_ran(pipeline)
    return read_recording(librdkafka_settings(pipeline), Topics(pipeline.name), last_s, pipeline.monitor.poll_s)


def from_file(file: Path, record_bytes: float | None) -> Trace:
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            return read_trace(lines, str(file), record_bytes)
    except OSError as error:
        raise ConfigError(f"cannot read --trace {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--trace {file} is not a text file: {error.reason} at byte {error.start}") from error


def from_profile(
    pipeline: Pipeline, name: str, scale: float, record_bytes: float, partitions: int | None, last_s: float | None
) -> TraceOf:
    topic = pipeline.topics[0] if pipeline.topics else "profile"
    # Every table reads the topic for itself; the profile is meant as what consumers have to do.
    readings = max(1, len(pipeline.tables_of(topic)))
    capacity = pipeline.policy.consumer_capacity_bytes_per_s / readings

    def trace_of(seed: int) -> Trace:
        made = profile(name, capacity, scale, record_bytes, partitions, seed, topic)
        return made.newest(last_s) if last_s else made

    return trace_of
