"""The options of `headgate load`: what each is called, what it may be, and how its text is read."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from headgate.cli.client_setting import client_option
from headgate.cli.quantities import bytes_per_s, percent_option, positive_bytes, rate_option, seconds, time_or_0_option
from headgate.kafka.load_records import FIELDS_DDL, FixedSize, RecordSize, UniformSize
from headgate.simulation.workload_named import Shape

_WHERE, _HOW_MUCH, _SHAPE, _RECORDS, _OUTPUT = "Where to", "How much", "Shape of the load", "Records", "Report"


class Format(StrEnum):
    json = "json"
    raw = "raw"
    avro = "avro"


def record_size(text: str) -> RecordSize:
    low, colon, high = text.partition(":")
    smallest = _whole_bytes(low)
    if not colon:
        return FixedSize(smallest)
    try:
        return UniformSize(smallest, _whole_bytes(high))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _whole_bytes(text: str) -> int:
    size = int(positive_bytes(text))
    if size < 1:
        raise typer.BadParameter(f"{text!r} must be at least one byte")
    return size


class Level(NamedTuple):
    """`30s=4MB/s`: from when, and how much in total."""

    from_s: float
    bytes_per_s: float

    @classmethod
    def parse(cls, text: str) -> "Level":
        at, equals, rate = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} must be a time and a rate, for example 30s=4MB/s")
        return cls(seconds(at), bytes_per_s(rate))


class Waits(NamedTuple):
    """`10ms:2s`; one time alone is both."""

    shortest_s: float
    longest_s: float

    @classmethod
    def parse(cls, text: str) -> "Waits":
        shortest, _, longest = text.partition(":")
        return cls(seconds(shortest), seconds(longest or shortest))


def weights(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(weight) for weight in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(
            f"--weights {text!r} must be numbers separated by commas, one per partition"
        ) from error


def topic(text: str) -> tuple[str, int | None]:
    """`orders:8`: a name, and how many partitions; None for all there are."""
    name, colon, partitions = text.partition(":")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) or (colon and not re.fullmatch(r"[1-9]\d*", partitions)):
        raise typer.BadParameter(f"--topic {text!r} must be a topic name, or name:partitions such as orders:8")
    return name, int(partitions) if colon else None


Brokers = Annotated[
    str, typer.Option("--brokers", "-b", metavar="HOST:PORT,…", help="Bootstrap servers.", rich_help_panel=_WHERE)
]
Topics = Annotated[
    list[str],
    typer.Option(
        "--topic",
        "-t",
        metavar="NAME[:PARTITIONS]",
        help="Topic to write to; repeat it for several. With a partition count it is created if missing, and "
        "only that many partitions are written; without, all partitions of an existing topic.",
        rich_help_panel=_WHERE,
    ),
]
Replication = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Replicas of topics that are created.",
        show_default="the brokers' own default",
        rich_help_panel=_WHERE,
    ),
]
Client = Annotated[list[str] | None, client_option("Client setting", _WHERE)]

Rate = Annotated[
    float | None,
    rate_option(
        "Keys and values of all partitions together: steady, skew and ramp reach it, cosine and walk have it "
        "as their mean, spike as its base.",
        "1 MB/s; as fast as possible with --count",
        _HOW_MUCH,
    ),
]
Duration = Annotated[float | None, time_or_0_option("Stop after this time.", "until Ctrl-C", _HOW_MUCH)]
Count = Annotated[
    int | None, typer.Option(min=1, help="Write exactly this many records in total.", rich_help_panel=_HOW_MUCH)
]
NoWait = Annotated[
    bool,
    typer.Option(
        "--no-wait",
        help="Write the records of --duration or --count at once, as fast as the brokers take them.",
        rich_help_panel=_HOW_MUCH,
    ),
]

ShapeName = Annotated[Shape, typer.Option(help="How the rate changes over time.", rich_help_panel=_SHAPE)]
Step = Annotated[
    list[Level] | None,
    typer.Option(
        metavar="TIME=BYTES/S",
        parser=Level.parse,
        help="step: a level of the total and when it begins; repeat it.",
        rich_help_panel=_SHAPE,
    ),
]
Ramp = Annotated[float | None, time_or_0_option("ramp: time from nothing to --rate.", "60 s", _SHAPE)]
Period = Annotated[float | None, time_or_0_option("cosine: one swing, from trough to trough.", "60 s", _SHAPE)]
Amplitude = Annotated[float | None, percent_option("cosine: of the mean.", "80", _SHAPE)]
Stagger = Annotated[
    bool,
    typer.Option(
        "--stagger",
        help="cosine: partitions peak one after the other, so that load wanders while the total stays.",
        rich_help_panel=_SHAPE,
    ),
]
Peak = Annotated[float | None, rate_option("spike: total at the peak.", "five times --rate", _SHAPE)]
SpikeAt = Annotated[float | None, time_or_0_option("spike: when the first one begins.", "10 s", _SHAPE)]
SpikeWidth = Annotated[float | None, time_or_0_option("spike: how long it lasts.", "10 s", _SHAPE)]
SpikeEvery = Annotated[float | None, time_or_0_option("spike: from one to the next.", "only one", _SHAPE)]
WalkDelta = Annotated[
    float | None,
    percent_option(
        "walk: largest change of a partition in one step, in percent of the most it can reach.", "10", _SHAPE, most=None
    ),
]
WalkStart = Annotated[
    float | None,
    percent_option("walk: where every partition starts.", "each somewhere between 0 and 100", _SHAPE),
]
WalkStep = Annotated[float | None, time_or_0_option("walk: time between two steps.", "1 s", _SHAPE)]
Wait = Annotated[
    Waits | None,
    typer.Option(
        metavar="MIN:MAX",
        parser=Waits.parse,
        help="waits: each partition gets one record after every wait, drawn uniformly.",
        show_default="10 ms:2 s",
        rich_help_panel=_SHAPE,
    ),
]
Zipf = Annotated[
    float | None,
    typer.Option(
        "--skew",
        min=0,
        metavar="EXPONENT",
        help="any shape: the k-th partition gets a share proportional to 1/k^EXPONENT of the total.",
        show_default="1 for --shape skew",
        rich_help_panel=_SHAPE,
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="W1,W2,…", help="any shape: one weight per partition instead of --skew.", rich_help_panel=_SHAPE
    ),
]

RecordBytes = Annotated[
    RecordSize | None,
    typer.Option(
        metavar="SIZE[:MAX]",
        parser=record_size,
        help="Key and value of a record together, exactly; SIZE:MAX draws each size uniformly.",
        show_default="500",
        rich_help_panel=_RECORDS,
    ),
]
RecordFormat = Annotated[
    Format,
    typer.Option(
        "--format", help=f"json and avro records hold {FIELDS_DDL}; raw ones hold noise.", rich_help_panel=_RECORDS
    ),
]
BadShare = Annotated[
    float,
    typer.Option(
        min=0, max=1, help="Share of records that cannot be decoded, counted apart.", rich_help_panel=_RECORDS
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0, help="Equal seeds write equal sizes, amounts, walks and bad records.", rich_help_panel=_RECORDS
    ),
]

Report = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help='Write {topic: {partition: {"records", "bytes", "bad", …}}} as JSON.',
        rich_help_panel=_OUTPUT,
    ),
]
