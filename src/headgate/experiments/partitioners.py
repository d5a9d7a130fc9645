"""The producer benchmark of the partitioners on real brokers (B-57 to B-61): what runs, in which order, until when.

Rounds: every cell once, in an order drawn anew, so that whatever the machine does meanwhile hits all of them alike.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headgate.errors import ConfigError
from headgate.experiments.partitioners_cases import SCENARIOS, Cell, Part, cells, expected, shuffled
from headgate.experiments.partitioners_consumed import Pace, measure_consumed
from headgate.experiments.partitioners_faults import Faults, create_topics, measure_faults
from headgate.experiments.partitioners_live import BROKER_SETTINGS, FREE, Brokers, LeadIn, Size, measure
from headgate.experiments.partitioners_results import MIB, Results, Run
from headgate.experiments.partitioners_threads import measure_threads
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.java_programs import run_kafka_tool

Told = Callable[[str, int, int], None]
"""What runs, how many are done, of how many."""
UNLIMITED_MIB_PER_S = 100_000
FORGIVEN_S = 1.0
"""Kafka looks at its quotas over a second, and lets the first second's worth pass at any speed: as much as the busiest
node may take in that time is sent before the clock starts."""
STOP_S = 1.0
"""Nobody needs what the brokers hold in the end, so they are not waited for."""
SIZED = (Part.paper, Part.limited, Part.three, Part.several)
"""A run is so many records; elsewhere it is so much time."""
IN_TURN = (*SIZED, Part.consumed)
AT_ONCE = (Part.slow, Part.killed, Part.two_killed)


@dataclass(frozen=True, slots=True)
class Plan:
    size: Size = field(default_factory=Size)
    runs: int = 20
    """Of each cell of the paper; B-59 asks for 20."""
    more_runs: int = 5
    """Of each cell of what the paper left untested."""
    limit_mib_per_s: float = 5.0
    """What a node takes from a producer in the part with limits."""
    limited_records: int = 200_000
    """Enough to be limited for some seconds."""
    faults: Faults = field(default_factory=Faults)
    pace: Pace = field(default_factory=Pace)
    """Of the producers whose records are read."""
    seed: int = 1
    parts: tuple[Part, ...] = tuple(Part)

    def rounds(self, part: Part) -> int:
        return self.runs if part is Part.paper else self.more_runs

    def size_of(self, part: Part) -> Size:
        return Size(self.limited_records, self.size.record_bytes) if part is Part.limited else self.size

    def todo(self, results: Results, nodes: int) -> list[tuple[Part, int]]:
        """Rounds that are not whole yet, of the parts on so many nodes; rounds of several parts alternate."""
        return [
            (part, number)
            for number in range(max(self.runs, self.more_runs))
            for part in self.parts_on(nodes)
            if number < self.rounds(part) and not all(results.has(cell, number) for cell in cells(part))
        ]

    def parts_on(self, nodes: int) -> list[Part]:
        return [
            part
            for part in self.parts
            if SCENARIOS[cells(part)[0].scenario].nodes == nodes and part is not Part.threads
        ]

    @property
    def total(self) -> int:
        return sum(self.rounds(part) * (len(cells(part)) if part in IN_TURN else 1) for part in self.parts)

    def done(self, results: Results) -> int:
        return sum(
            results.has(cell, number)
            for part in self.parts
            for number in range(self.rounds(part))
            for cell in (cells(part) if part in IN_TURN else cells(part)[:1])
        )

    def check(self, results: Results) -> None:
        """Runs of another size cannot be compared with those to come."""
        for run in results.runs:
            wanted = self.size_of(Part(run.part))
            records = wanted.records if run.part in SIZED else run.records
            if (
                run.part in self.parts
                and run.part != Part.threads
                and (run.records, run.record_bytes) != (records, wanted.record_bytes)
            ):
                raise ConfigError(
                    f"there are runs of {run.records:,} records of {run.record_bytes} bytes ({run.part}), and now "
                    f"{wanted.records:,} of {wanted.record_bytes} are wanted: ask for the same, or leave out --resume"
                )


QUICK = Plan(
    Size(5_000),
    runs=2,
    more_runs=2,
    limited_records=300_000,
    faults=Faults(warming_s=1.0, healthy_s=1.0, slow_s=2.0, steady_s=1.0),
    pace=Pace(seconds=1.0),
)


def run_all(home: Path, plan: Plan, results: Results, told: Told) -> None:
    """Everything that is planned and not there yet. Every run is written down when it is done."""
    plan.check(results)

    def say(what: str) -> None:
        told(what, plan.done(results), plan.total)

    if Part.threads in plan.parts:
        for number in range(plan.more_runs):
            if not results.has(cells(Part.threads)[0], number):
                say(f"{Part.threads}, run {number + 1}")
                results.add(measure_threads(number, plan.seed))
    for nodes in (2, 3):
        if plan.todo(results, nodes):
            say(f"starting {nodes} brokers")
            kafka = EmbeddedKafka(home / f"{nodes}-nodes", nodes, settings=BROKER_SETTINGS)
            try:
                kafka.start()
                brokers = Brokers(kafka)
                say(f"warming up {nodes} brokers")
                _prepare(brokers, plan, nodes)
                _run_on(brokers, plan, results, nodes, say)
            finally:
                kafka.stop(STOP_S)
    say("done")


def _run_on(brokers: Brokers, plan: Plan, results: Results, nodes: int, say: Callable[[str], None]) -> None:
    for part, number in plan.todo(results, nodes):
        if part in AT_ONCE:
            say(f"{part}, run {number + 1}")
            results.add(measure_faults(part, number, brokers, plan.faults, plan.size.record_bytes, plan.seed))
        else:
            for cell in shuffled(cells(part), plan.seed, number):
                if not results.has(cell, number):
                    say(f"{part}, run {number + 1}: {cell.scenario}, acks {cell.acks}, {cell.partitioner}")
                    results.add(_measured(cell, number, brokers, plan))


def _measured(cell: Cell, number: int, brokers: Brokers, plan: Plan) -> list[Run]:
    size = plan.size_of(cell.part)
    if cell.part is Part.consumed:
        return measure_consumed(cell, number, brokers, plan.pace, size.record_bytes)
    if cell.part is not Part.limited:
        return [measure(cell, number, brokers, size)]
    # Kafka remembers for a while what a client sent too much, so every run with a limit is another client.
    client_id = f"{cell.scenario}-{cell.acks}-{cell.partitioner}-{number}"
    shares = expected(cell.partitioner, SCENARIOS[cell.scenario].topology)
    assert shares is not None
    forgiven = int(FORGIVEN_S * plan.limit_mib_per_s * MIB / size.record_bytes / max(shares.led.values()))
    return [measure(cell, number, brokers, size, client_id, LeadIn(forgiven, FORGIVEN_S))]


def _prepare(brokers: Brokers, plan: Plan, nodes: int) -> None:
    """Topics and quotas, and every cell once without writing it down."""
    for scenario in SCENARIOS.values():
        if scenario.nodes == nodes:
            brokers.create(scenario.topics)
    parts = plan.parts_on(nodes)
    if Part.limited in parts:
        _limit(brokers.bootstrap, plan.limit_mib_per_s)
    if any(part in AT_ONCE for part in parts):
        create_topics(brokers)
    for part in parts:
        if part in IN_TURN and part is not Part.limited:
            for cell in cells(part):
                measure(cell, 0, brokers, plan.size)


def _limit(bootstrap: str, mib_per_s: float) -> None:
    """Kafka's own quota: what each broker by itself takes from a client, unless it has the name of those without."""
    for client, limit in (("--entity-default",), mib_per_s), (("--entity-name", FREE), UNLIMITED_MIB_PER_S):
        run_kafka_tool(
            "kafka.admin.ConfigCommand",
            *("--bootstrap-server", bootstrap, "--alter", "--entity-type", "clients", *client),
            *("--add-config", f"producer_byte_rate={int(limit * MIB)}"),
        )
