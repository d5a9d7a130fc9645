"""What the paper left untested (B-61): a node that is slow, and one that is killed, under all partitioners at once.

Every partitioner has a producer and a topic of its own, with the same layout and the same steady rate, so all of them
meet the very same fault.
"""

import threading
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from headgate.errors import KafkaUnavailable
from headgate.experiments.partitioners_cases import (
    KILLED_NODE,
    SCENARIOS,
    SLOW_NODE,
    TWO_KILLED,
    Cell,
    Part,
    cells,
    shuffled,
)
from headgate.experiments.partitioners_live import DEADLINE_S, Brokers, flush
from headgate.experiments.partitioners_results import Run, run_of
from headgate.producers.confluent import BalancedProducer
from headgate.producers.protocol import ClusterView
from headgate.topology.cluster import Topology
from headgate.topology.failures import failed

TICK_S = 0.002
ON_THE_WAY_S = 0.1
"""Records sent so shortly before the kill count for what follows it: many of them are not acknowledged by then."""
WARMING = "warming"
"""New producers find their pace; not reported."""
HEALTHY, SLOW = "healthy", "slow"
BEFORE, FAILING, AWAY, RETURNING, BACK = "before", "failing", "away", "returning", "back"


@dataclass(frozen=True, slots=True)
class Faults:
    """How long, and how hard."""

    records_per_s: int = 1_000
    """Of each producer."""
    linger_ms: int = 20
    """How long a producer gathers a batch: with the default of 5, requests of so many producers fill this machine."""
    warming_s: float = 2.0
    healthy_s: float = 3.0
    slow_s: float = 5.0
    frozen_s: float = 0.2
    """The slow node stands still so long, ..."""
    running_s: float = 0.2
    """... and then works so long, in turn."""
    steady_s: float = 3.0
    """Before the kill, while the node is away, and after it is back."""


def topic_of(cell: Cell) -> str:
    return f"{cell.scenario}-{cell.partitioner}"


def create_topics(brokers: Brokers) -> None:
    for part in (Part.slow, Part.killed, Part.two_killed):
        brokers.create({topic_of(cell): SCENARIOS[cell.scenario].topics[cell.scenario] for cell in cells(part)})


@dataclass
class Phase:
    """What became of the records that one producer sent during a phase."""

    latencies_s: "array[float]" = field(default_factory=lambda: array("d"))
    failed: int = 0
    partitions: Counter[int] = field(default_factory=Counter)

    def __call__(self, error: Any, message: Any) -> None:
        if error is None:
            self.latencies_s.append(message.latency())
            self.partitions[message.partition()] += 1
        else:
            self.failed += 1


class Lane:
    def __init__(self, cell: Cell, bootstrap: str, linger_ms: int) -> None:
        config = {"bootstrap.servers": bootstrap, "acks": cell.acks, "linger.ms": linger_ms, "log_level": 0}
        self.cell, self.topic = cell, topic_of(cell)
        self.producer = BalancedProducer(config, partitioner=cell.partitioner)
        self.phases: dict[str, Phase] = {}

    def send(self, phase: str, value: bytes) -> None:
        self.producer.produce(self.topic, value, on_delivery=self.phases.setdefault(phase, Phase()))

    def sees(self, topology: Topology) -> bool:
        """Whether the producer knows these leaders; its topic has another name than the scenario's."""
        wanted = ClusterView.of(topology).leaders[self.cell.scenario]
        return self.producer.view is not None and self.producer.view.leaders.get(self.topic) == wanted


class Stage:
    """All producers at their steady rate while a story is told in another thread."""

    def __init__(self, part: Part, number: int, brokers: Brokers, faults: Faults, record_bytes: int, seed: int) -> None:
        self.number, self.brokers, self.faults = number, brokers, faults
        self._value = b"x" * record_bytes
        self._cells = shuffled(cells(part), seed, number)
        self._lanes: list[Lane] = []
        self._phase = ""
        self._lasted_s: defaultdict[str, float] = defaultdict(float)
        self._began_s = 0.0

    def play(self, story: Callable[["Stage"], None]) -> None:
        with ExitStack() as open_lanes, ThreadPoolExecutor(1) as telling:
            for cell in self._cells:
                lane = Lane(cell, self.brokers.bootstrap, self.faults.linger_ms)
                open_lanes.callback(lane.producer.close)
                lane.producer.produce(lane.topic, b"")
                flush(lane.producer)
                self._lanes.append(lane)
            told = telling.submit(self._tell, story)
            self._pace(told.done)
            told.result()
            for lane in self._lanes:
                flush(lane.producer)

    def _tell(self, story: Callable[["Stage"], None]) -> None:
        self.enter(WARMING)
        time.sleep(self.faults.warming_s)
        story(self)
        self.enter("")

    def _pace(self, over: Callable[[], bool]) -> None:
        began_s, sent = time.perf_counter(), 0
        while not over():
            due = int((time.perf_counter() - began_s) * self.faults.records_per_s)
            phase = self._phase
            for _ in range(due - sent if phase else 0):
                for lane in self._lanes:
                    lane.send(phase, self._value)
            sent = due
            for lane in self._lanes:
                lane.producer.poll(0)
            time.sleep(TICK_S)

    def enter(self, phase: str) -> None:
        now_s = time.perf_counter()
        self._lasted_s[self._phase] += now_s - self._began_s
        self._phase, self._began_s = phase, now_s

    def wait_until_all_see(self, topology: Topology) -> None:
        until_s = time.monotonic() + DEADLINE_S
        while not all(lane.sees(topology) for lane in self._lanes):
            if time.monotonic() > until_s:
                raise KafkaUnavailable(
                    f"not all producers saw the new leaders within {DEADLINE_S:g} s: the machine may be "
                    "overloaded, go on later with --resume"
                )
            time.sleep(0.05)

    def runs(self, leaders: dict[str, Topology]) -> Iterator[Run]:
        """A line for every partitioner and phase; who got the records only where `leaders` says who led."""
        for lane in self._lanes:
            for name, phase in lane.phases.items():
                if name == WARMING:
                    continue
                led: dict[int, float] = {}
                if name in leaders:
                    for node, partitions in ClusterView.of(leaders[name]).leaders[lane.cell.scenario].items():
                        led[node] = sum(phase.partitions[p] for p in partitions)
                yield run_of(
                    lane.cell,
                    self.number,
                    len(self._value),
                    phase.latencies_s,
                    phase.failed,
                    self._lasted_s[name],
                    led,
                    {},
                    name,
                )


def slow_node(stage: Stage) -> None:
    """One of three nodes stands still half of the time, as one that is starved of processor or disk."""
    faults, over = stage.faults, threading.Event()
    stage.enter(HEALTHY)
    time.sleep(faults.healthy_s)
    stage.enter(SLOW)
    with _stuttering(stage, over):
        time.sleep(faults.slow_s)


@contextmanager
def _stuttering(stage: Stage, over: threading.Event) -> Iterator[None]:
    kafka, faults = stage.brokers.kafka, stage.faults

    def stutter() -> None:
        try:
            while not over.is_set():
                kafka.freeze(SLOW_NODE)
                over.wait(faults.frozen_s)
                kafka.thaw(SLOW_NODE)
                over.wait(faults.running_s)
        finally:
            kafka.thaw(SLOW_NODE)

    thread = threading.Thread(target=stutter)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def killed_node(stage: Stage) -> None:
    """The node that leads two of four partitions is killed, others lead, it comes back and leads again."""
    kafka, faults, whole = stage.brokers.kafka, stage.faults, SCENARIOS["K"].topology
    stage.enter(BEFORE)
    time.sleep(faults.steady_s)
    stage.enter(FAILING)
    time.sleep(ON_THE_WAY_S)
    kafka.kill(KILLED_NODE)
    stage.wait_until_all_see(failed(whole, [KILLED_NODE]))
    stage.enter(AWAY)
    time.sleep(faults.steady_s)
    stage.enter(RETURNING)
    kafka.start()
    stage.brokers.bring_leaders_home()
    stage.wait_until_all_see(whole)
    stage.enter(BACK)
    time.sleep(faults.steady_s)


def two_killed_nodes(stage: Stage) -> None:
    """Both at once. Brokers are controllers here: one of three is no majority, so nobody leads in their place, and what
    was sent to them waits until they are back."""
    kafka, faults = stage.brokers.kafka, stage.faults
    stage.enter(BEFORE)
    time.sleep(faults.steady_s)
    stage.enter(FAILING)
    time.sleep(ON_THE_WAY_S)
    for node in TWO_KILLED:
        kafka.kill(node)
    time.sleep(faults.steady_s)
    stage.enter(RETURNING)
    kafka.start()
    stage.brokers.bring_leaders_home()
    stage.wait_until_all_see(SCENARIOS["K3"].topology)
    stage.enter(BACK)
    time.sleep(faults.steady_s)


def measure_faults(
    part: Part, number: int, brokers: Brokers, faults: Faults, record_bytes: int, seed: int
) -> list[Run]:
    stage = Stage(part, number, brokers, faults, record_bytes, seed)
    whole = SCENARIOS[cells(part)[0].scenario].topology
    if part is Part.slow:
        stage.play(slow_node)
        return list(stage.runs({HEALTHY: whole, SLOW: whole}))
    stage.play(killed_node if part is Part.killed else two_killed_nodes)
    brokers.find_processes()
    if part is Part.two_killed:
        return list(stage.runs({BEFORE: whole, FAILING: whole, BACK: whole}))
    return list(stage.runs({BEFORE: whole, AWAY: failed(whole, [KILLED_NODE]), BACK: whole}))
