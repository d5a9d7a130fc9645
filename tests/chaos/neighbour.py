"""A second pipeline on the same brokers, with one consumer. Nobody hurts its processes, and it has nothing to scale:
they grow as old as the run, with the JVM as users have it, so that their memory and files can be judged."""

from collections.abc import Callable
from pathlib import Path

from headgate.config.clients import librdkafka_settings
from headgate.config.loader import load_pipeline
from headgate.controller.drain import is_drained
from headgate.fleet.processes import ProcessFleet
from headgate.kafka.load import LoadGenerator
from headgate.model import TopicPartition
from headgate.simulation.workload import Workload
from headgate.simulation.workload_shapes import Steady
from tests.chaos.parts import Command, Load, Overdue, wait_until
from tests.chaos.reckoning import Outcome, count, verify
from tests.chaos.scene import CALM, NEIGHBOUR

BYTES_PER_S = 20_000.0


class Neighbour:
    """Runs from the beginning. `finish` counts what it landed; `clear_away` leaves nothing of it, finished or not."""

    def __init__(
        self,
        home: Path,
        bootstrap: str,
        prepare: Callable[[dict[str, int | None]], tuple[TopicPartition, ...]],
        generator: Callable[[str, Workload], LoadGenerator],
    ) -> None:
        self.home = home
        home.mkdir(parents=True)
        self._file = home / "pipeline.yaml"
        self._file.write_text(NEIGHBOUR.yaml(bootstrap))
        self._pipeline = load_pipeline(self._file)
        self._partitions = prepare(dict.fromkeys(NEIGHBOUR.tables, NEIGHBOUR.partitions))
        self._load = Load(generator(CALM, Steady.spread(self._partitions, BYTES_PER_S)))
        self._run = Command(["run", str(self._file)], home / "run.txt", failpoints=None, quick_jvm=False)

    @property
    def pid(self) -> int | None:
        return self._run.pid if self._run.runs else None

    def finish(self, deadline_s: float) -> Outcome:
        """Load off, drained, stopped, counted."""
        report, settings = self._load.stop(), librdkafka_settings(self._pipeline)
        violations = []
        try:
            wait_until(lambda: is_drained(self._pipeline, settings), "the neighbour's lag of 0", deadline_s)
            if code := self._run.end(90):
                violations.append(f"the neighbour ended with exit code {code}: {self._run.said()[-500:]}")
        except Overdue as error:
            violations.append(str(error))
        violations += verify(self._file)
        return count(NEIGHBOUR, self._pipeline, self._partitions, [report], violations)

    def clear_away(self) -> None:
        self._load.stop()
        if self._run.runs:
            self._run.kill()
        ProcessFleet(lambda _: [], self.home).close(force=True)
