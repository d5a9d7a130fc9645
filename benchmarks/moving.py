"""How long a partition pauses when it moves to another consumer: from the order to the first commit that goes on with
it. The peer's way is to stop the two queries and start them on the new assignment, in a warm session."""

import json
import tempfile
import time
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks import live, streaming
from benchmarks.ratio import Ratio, of_rounds
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.load_records import FIELDS_DDL
from headgate.model import TopicPartition
from headgate.model.messages import LedgerState
from tests.integration.pipeline_harness import PipelineRun, RunningWorker

PARTITIONS = 8
BYTES_PER_S = 60_000.0
MOVES = 6
WARM_UP_S, BETWEEN_S = 20.0, 4.0
CONSUMER, LAKE = {"wait_s": "200 ms"}, {"commit_interval_s": "200 ms"}


def run() -> list[Ratio]:
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder) / "kafka", 1) as kafka:
        home = Path(folder)
        with (
            live.load(kafka.bootstrap, PARTITIONS, live.spread(PARTITIONS, BYTES_PER_S)),
            streaming.warm_session(home) as spark,
        ):
            ours, unmoved = _ours(home, kafka, spark)
            peers = _peers(home, kafka.bootstrap, spark)
    pairs = list(zip(ours, peers, strict=True))
    return [
        of_rounds("pause of a moved partition", "stopping and starting streaming queries", pairs, target=0.7),
        of_rounds(
            "longest gap between commits of an unmoved one around a move", "the same with no move", unmoved, target=1.2
        ),
    ]


def _ours(home: Path, kafka: EmbeddedKafka, spark: SparkSession) -> tuple[list[float], list[tuple[float, float]]]:
    """Pauses; and for every move the longest gap of unmoved partitions around it and in a quiet span as long."""
    tables = [{"name": live.TABLE, "format": "json", "schema": FIELDS_DDL}]
    with PipelineRun(
        home, kafka, spark, tables, topics_pattern=live.TOPIC, start_from="latest", consumer=CONSUMER, lake=LAKE
    ) as run:
        parts = run.partitions()
        run.committer()
        one, other = run.worker(1, own=parts[:4]), run.worker(2, own=parts[4:])
        time.sleep(WARM_UP_S)
        moved_at: list[tuple[float, int]] = []
        for _ in range(MOVES):
            moved_at.append(_move(run, parts[3], one, other))
            one, other = other, one
            time.sleep(2 * BETWEEN_S)
        states = run.messages(run.names.ledger, LedgerState)
        pauses = [_went_on_s(states, parts[3], end) - at_s for at_s, end in moved_at]
        unmoved = [p for p in parts if p != parts[3]]
        gaps = [
            (_longest_gap_s(states, unmoved, at_s), _longest_gap_s(states, unmoved, at_s + BETWEEN_S))
            for at_s, _ in moved_at
        ]
        run.stop()
    return pauses, gaps


def _move(run: PipelineRun, partition: TopicPartition, giver: RunningWorker, taker: RunningWorker) -> tuple[float, int]:
    """When it was ordered, and how far the giver came."""
    ordered_s = time.time()
    (reached,) = run.stop_consuming(giver, [partition]).announced
    run.start_consuming(taker, [partition], [reached])
    return ordered_s, reached.next


def _went_on_s(states: Iterable[LedgerState], partition: TopicPartition, reached: int) -> float:
    return next(s.at_ms for s in states if _position(s, partition) > reached) / 1000


def _longest_gap_s(states: Iterable[LedgerState], partitions: Iterable[TopicPartition], from_s: float) -> float:
    """Between commits that carry a partition forward, in the seconds after `from_s`."""
    longest = 0.0
    for partition in partitions:
        times, position = [from_s], -1
        for state in states:
            if from_s <= state.at_ms / 1000 < from_s + BETWEEN_S and _position(state, partition) > position:
                position = _position(state, partition)
                times.append(state.at_ms / 1000)
        longest = max(longest, *(later - earlier for earlier, later in pairwise(times)))
    return longest


def _position(state: LedgerState, partition: TopicPartition) -> int:
    return next((p.next for p in state.positions if TopicPartition(p.topic, p.partition) == partition), -1)


def _peers(home: Path, bootstrap: str, spark: SparkSession) -> list[float]:
    """Two queries; the moved partition changes sides."""
    sides: list[list[int]] = [[0, 1, 2, 3], [4, 5, 6, 7]]
    queries = [_start(home, bootstrap, spark, f"{n}x0", parts, None) for n, parts in enumerate(sides)]
    time.sleep(WARM_UP_S)
    pauses = []
    for move in range(1, MOVES + 1):
        ordered_s = time.time()
        ends: dict[int, int] = {}
        for query in queries:
            query.stop()
            ends |= _ends(query)
        giver = 0 if 3 in sides[0] else 1
        sides[giver].remove(3)
        sides[1 - giver].append(3)
        queries = [_start(home, bootstrap, spark, f"{n}x{move}", parts, ends) for n, parts in enumerate(sides)]
        while _ends(queries[1 - giver]).get(3, 0) <= ends[3]:
            time.sleep(0.01)
        pauses.append(time.time() - ordered_s)
        time.sleep(BETWEEN_S)
    for query in queries:
        query.stop()
    return pauses


def _start(
    home: Path, bootstrap: str, spark: SparkSession, name: str, parts: list[int], starts: Mapping[int, int] | None
) -> StreamingQuery:
    at = "latest" if starts is None else json.dumps({live.TOPIC: {str(p): starts[p] for p in parts}})
    source = {"assign": json.dumps({live.TOPIC: parts}), "startingOffsets": at}
    table = f"{streaming.CATALOG}.db.side{name[0]}"
    return streaming.start_query(spark, bootstrap, table, home / f"checkpoint-{name}", source)


def _ends(query: StreamingQuery) -> dict[int, int]:
    """Where the last micro-batch that had records ended."""
    done = [p for p in query.recentProgress if p["numInputRows"] > 0]
    if not done:
        return {}
    end = done[-1]["sources"][0]["endOffset"]
    offsets = json.loads(end) if isinstance(end, str) else end
    return {int(partition): offset for partition, offset in offsets[live.TOPIC].items()}
