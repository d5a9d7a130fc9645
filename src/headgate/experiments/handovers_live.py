"""The live half of E4: an embedded broker, a real fleet, a load of steps and random walks, and what was journalled."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from confluent_kafka.admin import AdminClient

from headgate import jars
from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.config.pipeline import Pipeline
from headgate.controller.service import Service
from headgate.errors import HeadgateError
from headgate.experiments.handovers import LiveRun, LoadStep
from headgate.kafka.channel import BEGINNING, Tail
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.internal_topics import Topics
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_pace import RealTime
from headgate.kafka.load_records import FixedSize
from headgate.kafka.load_topics import prepare_topics
from headgate.model import TopicPartition
from headgate.model.messages import CycleRecord, DecisionRecord, Measurement
from headgate.simulation.workload_combined import Phases
from headgate.simulation.workload_random import RandomWalk
from headgate.simulation.workload_shapes import Step

_TOPIC = "events"
_RECORD_BYTES = 500
_CAPACITY_BYTES_PER_S = 100_000.0
_READY_S = 300.0
_READ_S = 120.0

# A small capacity with a cap to match: what is measured is the handover, and one machine runs the whole fleet.
# Sentinel, MWF and `always` are the published controller; packing at 75 % of capacity is the published ratio.
_PIPELINE = """\
name: handovers
home: .
kafka: {{brokers: "{bootstrap}"}}
topics: [{topic}]
tables: [{{name: lake.events, format: raw}}]
consumer: {{rate_cap_bytes_per_s: 150 kB/s}}
policy:
  name: sentinel
  packer: mwf
  consumer_capacity_bytes_per_s: 100 kB/s
  packing_capacity_bytes_per_s: 75 kB/s
  max_sentinel_s: 10 s
  timeout_policy: always
monitor: {{window_s: {window_s}, min_span_s: {window_s}}}
fleet: {{kind: {kind}, warm: {warm}, max_consumers: {most}}}
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long the load lasts and what it is made of."""

    window_s: float = 30.0
    """The monitor's, which t1 hangs on; 30 s is published."""
    steps: int = 6
    step_s: float = 45.0
    walk_s: float = 480.0
    walk_step_s: float = 10.0
    partitions: int = 8
    most_consumers: int = 4
    seed: int = 1

    @property
    def duration_s(self) -> float:
        return self.steps * self.step_s + self.walk_s

    def levels(self) -> tuple[float, ...]:
        """Of the whole topic, for each step: one consumer's worth and what three have to share, in turn."""
        return tuple((0.5 if n % 2 == 0 else 2.0) * _CAPACITY_BYTES_PER_S for n in range(self.steps))

    def load_steps(self) -> tuple[LoadStep, ...]:
        """The first one is no change: the pipeline has seen nothing before."""
        ends = [(n * self.step_s, (n + 1) * self.step_s) for n in range(self.steps)]
        both = list(zip(ends, self.levels(), strict=True))
        return tuple(LoadStep(*now[0], now[1]) for _, now in pairwise(both))

    def workload(self) -> Phases:
        """Steps of all partitions together, then E3's walk of each on its own, up to 60 % of a consumer."""
        partitions = tuple(TopicPartition(_TOPIC, n) for n in range(self.partitions))
        levels = tuple((n * self.step_s, level / self.partitions) for n, level in enumerate(self.levels()))
        walk = RandomWalk(partitions, 0.6 * _CAPACITY_BYTES_PER_S, 25.0, 50.0, self.walk_step_s, self.seed)
        return Phases(((self.steps * self.step_s, Step(partitions, levels)), (self.walk_s, walk)))


QUICK = Plan(window_s=5.0, steps=3, step_s=20.0, walk_s=40.0, walk_step_s=5.0)
Told = Callable[[str], None]


def run_live(home: Path, kind: str, warm: int, plan: Plan, told: Told = lambda _: None) -> LiveRun:
    """One fleet under the whole load; `home` must be empty, and keeps logs, broker and lake."""
    jars.resolve(jars.SPARK, told)
    with EmbeddedKafka(home / "kafka", 1) as kafka:
        file = home / "pipeline.yaml"
        file.write_text(
            _PIPELINE.format(
                bootstrap=kafka.bootstrap,
                topic=_TOPIC,
                window_s=plan.window_s,
                kind=kind,
                warm=warm,
                most=plan.most_consumers,
            )
        )
        pipeline = load_pipeline(file)
        prepare_topics(AdminClient(dict(librdkafka_settings(pipeline))), {_TOPIC: plan.partitions}, 1, _RECORD_BYTES)
        service = Service(pipeline)
        service.start()
        try:
            told("waiting for the first consumer")
            _wait_until_owned(pipeline, service.failed)
            began_s = _load(kafka.bootstrap, plan, service.failed, told)
            decisions, measurements, cycles = _journals(pipeline)
        finally:
            told("stopping")
            service.stop()
    name = f"{kind}, {warm} spare{'' if warm == 1 else 's'}"
    return LiveRun(name, began_s, plan.load_steps(), decisions, measurements, cycles)


class _Noted(RealTime):
    """Remembers when the first record was due, by the clock that measurements carry."""

    began_s = 0.0

    def begin(self) -> None:
        super().begin()
        self.began_s = time.time()


def _load(bootstrap: str, plan: Plan, failed: threading.Event, told: Told) -> float:
    """Writes the whole load; when it began."""
    pace, stop = _Noted(), threading.Event()
    generator = LoadGenerator(
        bootstrap,
        {},
        {_TOPIC: plan.partitions},
        plan.workload(),
        FixedSize(_RECORD_BYTES),
        record_format="raw",
        seed=plan.seed,
        pace=pace,
    )
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(generator.run, duration_s=plan.duration_s, stop=stop)
        try:
            while not written.done():
                if failed.is_set():
                    raise HeadgateError("the pipeline failed under the load; see its logs in --home")
                told(f"load, {time.time() - pace.began_s if pace.began_s else 0:.0f} of {plan.duration_s:.0f} s")
                time.sleep(1.0)
        finally:
            stop.set()
        written.result()
    return pace.began_s


def _wait_until_owned(pipeline: Pipeline, failed: threading.Event) -> None:
    tail = Tail(librdkafka_settings(pipeline), {(Topics(pipeline.name).decisions, 0): BEGINNING})
    until = time.monotonic() + _READY_S
    try:
        while not any(isinstance(m := r.message, DecisionRecord) and m.outcome == "applied" for r in tail.poll(0.5)):
            if failed.is_set() or time.monotonic() > until:
                raise HeadgateError(f"no consumer took the partitions within {_READY_S:g} s; see the logs in --home")
    finally:
        tail.close()


def _journals(
    pipeline: Pipeline,
) -> tuple[tuple[DecisionRecord, ...], tuple[Measurement, ...], tuple[CycleRecord, ...]]:
    names = Topics(pipeline.name)
    tail = Tail(
        librdkafka_settings(pipeline),
        {(topic, 0): BEGINNING for topic in (names.decisions, names.measurements, names.cycles)},
    )
    try:
        messages = [received.message for received in tail.read_to_end(_READ_S)]
    finally:
        tail.close()
    return (
        tuple(m for m in messages if isinstance(m, DecisionRecord)),
        tuple(m for m in messages if isinstance(m, Measurement)),
        tuple(m for m in messages if isinstance(m, CycleRecord)),
    )
