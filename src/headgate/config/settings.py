"""The parts of a pipeline file that say how it runs: consumers, fleet, policy, monitor, controller, goal."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from headgate.config.kafka import Setting
from headgate.config.problems import wrong
from headgate.config.section import Section
from headgate.config.units import SECONDS, Bytes, BytesPerS, Seconds, SecondsOrZero
from headgate.model.capacity import Estimate

SPARK_ESSENTIALS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""What Spark must be set to for its files to fit Iceberg's timestamps."""


class Spark(Section):
    """Where the Spark work of a consumer runs."""

    master: str = Field(
        default="local[1]",
        min_length=1,
        description="Spark master. Default local[1]: a consumer is sized by its capacity, not by its cores, and many "
        "share a machine. Ignored when remote is set.",
    )
    remote: str | None = Field(
        default=None,
        min_length=1,
        description="Spark Connect address such as sc://host:15002. Default: none, use master.",
    )
    conf: dict[str, Setting] = Field(
        default={},
        description="Spark settings passed to the session, on top of Headgate's; with remote only spark.sql.* ones. "
        "Jars in spark.jars and spark.driver.extraClassPath and options in spark.driver.extraJavaOptions are added to "
        "Headgate's. The time zone stays UTC and timestamps microseconds, as Iceberg's are. Default: none.",
    )

    @field_validator("conf")
    @classmethod
    def _leaves_timestamps_alone(cls, conf: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        for key, value in SPARK_ESSENTIALS.items():
            if conf.get(key, value) != value:
                raise wrong(f"must leave {key} at {value}: tables hold microseconds in UTC")
        fixed = [key for key in conf if not key.startswith("spark.sql.")]
        if info.data.get("remote") is not None and fixed:
            raise wrong(f"must hold spark.sql.* settings only when remote is set; set {fixed[0]} on the server")
        return conf


class Consumer(Section):
    """One consumer's cycle (L-3, L-14): how much it reads at once and how far it may run ahead."""

    batch_bytes: Bytes = Field(
        default=5_000_000,
        description="A cycle ends its gathering once it has this many bytes of keys and values (L-3). Default 5 MB: "
        "about two seconds of a consumer's capacity, so commands are answered within a few seconds.",
    )
    wait_s: SecondsOrZero = Field(
        default=1.0,
        description="A cycle ends its gathering after this many seconds, however little came (L-3). Default 1 s: it "
        "bounds both latency on quiet topics and the answer time of commands.",
    )
    max_uncommitted_cycles: int = Field(
        default=10,
        ge=1,
        description="Cycles a consumer may be ahead of the committer before it waits. Default 10: with a commit a "
        "second, ten batches a second; and bounds what a crash makes its successor read again.",
    )
    cycles_at_once: int = Field(
        default=2,
        ge=1,
        le=8,
        description="Cycles a consumer works on at once while whole batches wait; otherwise one. Default 2: cores "
        "work on one while the other is planned or announced. A command waits for all of them. One at a time with a "
        "rate cap, or with inline SQL on Spark Connect.",
    )
    reader: Literal["auto", "connector"] = Field(
        default="auto",
        description="What reads the records inside Spark. Default auto: where its Python workers run on this machine, "
        "they read with librdkafka, with a query that is planned once; elsewhere Spark's Kafka connector reads, with a "
        "query for every cycle. connector: always that.",
    )
    rate_cap_bytes_per_s: BytesPerS | None = Field(
        default=None,
        description="Most bytes a consumer reads per second. Default: no cap. A cap near "
        "consumer_capacity_bytes_per_s makes scaling visible on a small machine and protects brokers from a catch-up.",
    )
    spark: Spark = Field(default_factory=Spark, description="Where this consumer's Spark work runs.")
    heartbeat_s: Seconds = Field(
        default=2.0,
        description="Time between heartbeats, in seconds. Default 2 s: several fit into "
        "controller.heartbeat_deadline_s, so that a lost one does not count as a death.",
    )
    commit_deadline_s: Seconds = Field(
        default=60.0,
        description="How long a consumer waits for the committer's answer to an announcement, in seconds and beyond "
        "lake.commit_interval_s, before it starts again from the ledger. Default 60 s: longer than a committer needs "
        "to restart.",
    )


class Fleet(Section):
    """Where consumers run and how many there may be."""

    kind: str = Field(
        default="threads",
        min_length=1,
        description="threads (one process, one Spark session, instant start) or processes (a Spark session each), or "
        "a fleet registered under the entry point headgate.fleets. Default threads: nothing to wait for.",
    )
    max_consumers: int = Field(
        default=10,
        ge=1,
        description="Most consumers that own partitions at once, whatever the policy asks for; warm ones come on top. "
        "Default 10: a bill has an end.",
    )
    warm: int = Field(
        default=0,
        ge=0,
        description="Spare consumers that are started but own nothing, so that scale-up does not wait for a JVM "
        "(L-55). Default 0: spares cost memory; 1 is right for processes that scale often.",
    )
    start_deadline_s: Seconds = Field(
        default=120.0,
        description="A consumer not ready after this many seconds is stopped and started anew. Default 120 s: the "
        "first Spark session of a machine downloads its jars.",
    )
    stop_deadline_s: Seconds = Field(
        default=60.0,
        description="A consumer that has not stopped by itself after this many seconds is killed. Default 60 s: "
        "enough to finish a cycle; killing is safe because of the ledger.",
    )


class Policy(Section):
    """When to act and how to place partitions (L-2, L-34, L-37)."""

    name: str = Field(
        default="sentinel",
        min_length=1,
        description="Policy registered under the entry point headgate.policies. Default sentinel: acts on overload, "
        "unassigned partitions and timeout.",
    )
    packer: str = Field(
        default="repair",
        min_length=1,
        description="Packer registered under the entry point headgate.packers. Default repair, which on the published "
        "experiment needs fewer consumers and fewer moves than any other (docs/packers.md); mwf moves the least of the "
        "published ones, bfd uses the fewest consumers.",
    )
    consumer_capacity_bytes_per_s: BytesPerS = Field(
        default=2_000_000.0,
        description="What a consumer can sustain, in bytes of keys and values per second; more than this triggers a "
        "decision (L-2). Default 2 MB/s, the published value: it holds for one environment, so measure yours.",
    )
    packing_capacity_bytes_per_s: BytesPerS = Field(
        default=1_500_000.0,
        description="How full a consumer is packed, in the same unit; at most consumer_capacity_bytes_per_s (L-2). "
        "Default 1.5 MB/s: the gap is head room that keeps a small rise from triggering again.",
    )
    capacity_estimate: Estimate = Field(
        default="mean",
        description="What consumers tell of their capacity, from their full cycles: mean (of the last 30, or since "
        "their speed changed), p99 (what 99 % of the last 300 reach), worst_case (the slowest of those), or fixed: "
        "nothing, so consumer_capacity_bytes_per_s counts (E-3). Default mean: a cold JVM or a garbage collection "
        "makes single cycles of Spark slow, and a worst case would go on paying for one with consumers.",
    )
    max_sentinel_s: Seconds = Field(
        default=10.0,
        description="Seconds without a trigger after which the packing is looked at anyway; the only way to scale "
        "down (L-34). Default 10 s. Longer means fewer moves and slower scale-down.",
    )
    timeout_policy: Literal["always", "only_if_fewer_consumers"] = Field(
        default="only_if_fewer_consumers",
        description="What such a look may change: anything, or only if consumers are saved (L-42). Default "
        "only_if_fewer_consumers: moving partitions costs, so it must buy something.",
    )
    params: dict[str, Any] = Field(
        default={},
        description="More parameters of the policy; docs/policy-parameters.md has them all. Default: none.",
    )
    packer_params: dict[str, Any] = Field(
        default={}, description="Parameters for the packer's constructor. Default: none."
    )

    @field_validator("packing_capacity_bytes_per_s")
    @classmethod
    def _packs_no_fuller_than_capacity(cls, packing: float, info: ValidationInfo) -> float:
        capacity = info.data.get("consumer_capacity_bytes_per_s")
        if capacity is not None and packing > capacity:
            raise wrong(
                "must not exceed consumer_capacity_bytes_per_s: a consumer packed fuller than it can sustain triggers "
                "again at once"
            )
        return packing


class Monitor(Section):
    """How write rates are measured (L-5 … L-11)."""

    source: Literal["offsets", "log_dirs"] = Field(
        default="offsets",
        description="offsets: end-offset differences times measured bytes per record; log_dirs: sizes of the leaders' "
        "log directories, the published way, right only without retention and compaction (L-9). Default offsets "
        "(L-10).",
    )
    poll_s: Seconds = Field(
        default=1.0,
        description="Time between samples, in seconds (L-5). Default 1 s. Shorter reacts no faster than window_s.",
    )
    window_s: Seconds = Field(
        default=30.0,
        description="Samples older than this many seconds are dropped; the rate is the mean over what is left (L-7). "
        "Default 30 s, the published value: longer is calmer, shorter reacts faster.",
    )
    min_span_s: Seconds = Field(
        default=30.0,
        description="A rate is trusted once samples span this many seconds (L-7); at most window_s. Until then a "
        "partition is published with what is known: that may raise its last trusted rate, never lower it. Default 30 "
        "s, the published value; about 3 s trusts sooner, on noisier rates.",
    )
    smoothing: Literal["box", "ewma"] = Field(
        default="box",
        description="box: plain mean over the window; ewma: recent samples weigh more (L-11). Default box, the "
        "published way; ewma follows a step sooner.",
    )
    ewma_half_life_s: Seconds = Field(
        default=5.0, description="After this many seconds a sample weighs half as much; ewma only. Default 5 s."
    )

    @field_validator("window_s")
    @classmethod
    def _window_holds_samples(cls, window: float, info: ValidationInfo) -> float:
        poll = info.data.get("poll_s")
        if poll is not None and window < 2 * poll:
            raise wrong(f"must be at least twice poll_s ({SECONDS.format(poll)}): a rate needs two samples")
        return window

    @field_validator("min_span_s")
    @classmethod
    def _span_fits_window(cls, span: float, info: ValidationInfo) -> float:
        window = info.data.get("window_s")
        if window is not None and span > window:
            raise wrong(f"must not exceed window_s ({SECONDS.format(window)}): nothing would ever be published")
        return span


class Controller(Section):
    """The deadlines of deciding and handing over (L-36, L-47); each has a behaviour."""

    stale_after_s: Seconds = Field(
        default=60.0,
        description="With measurements older than this many seconds the assignment is held (L-36). Default 60 s: two "
        "windows.",
    )
    ready_deadline_s: Seconds = Field(
        default=120.0,
        description="New consumers not ready after this many seconds put the controller out of sync: it synchronises "
        "and decides again (L-47). Default 120 s, as fleet.start_deadline_s.",
    )
    ack_deadline_s: Seconds = Field(
        default=60.0,
        description="A command not acknowledged after this many seconds puts the controller out of sync (L-47). "
        "Default 60 s: several cycles.",
    )
    heartbeat_deadline_s: Seconds = Field(
        default=15.0,
        description="A consumer silent for this many seconds is replaced; must exceed consumer.heartbeat_s. Default "
        "15 s: its partitions stand still that long, and the ledger makes a wrong guess harmless.",
    )
    down_deadline_s: Seconds = Field(
        default=120.0,
        description="A consumer that was replaced and does not come back within this many seconds is given up, and its "
        "partitions go to others; until then no other decision is taken. Default 120 s, as fleet.start_deadline_s: "
        "less would give up starts that only take their time. With warm spares a few seconds are enough.",
    )
    discover_s: Seconds = Field(
        default=5.0,
        description="Time between looks for new topics and partitions, in seconds. Default 5 s: cheap, and nobody "
        "waits long.",
    )


class Slo(Section):
    """The goal: how fresh the lake should be."""

    latency_s: Seconds = Field(
        default=30.0,
        description="Seconds from a record's Kafka timestamp to its commit in the lake. Default 30 s. Shown in status "
        "and metrics, and what policies such as slo aim at; the default policy, sentinel, goes by rates alone.",
    )
    quantile: float = Field(
        default=0.99,
        gt=0,
        lt=1,
        description="Share of records that must meet latency_s, between 0 and 1. Default 0.99: a handover may delay a "
        "few.",
    )
