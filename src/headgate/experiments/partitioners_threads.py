"""What `improved` was made for (B-30, B-61): threads that share a partitioner and meet new topics. Without brokers."""

import threading
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product

from headgate.experiments.partitioners_cases import SCENARIOS, Part, Scenario, cells, shuffled
from headgate.experiments.partitioners_results import Run, run_of
from headgate.producers.protocol import ClusterView, Partitioner
from headgate.producers.registry import build_partitioner
from headgate.topology.findings import counted

THREADS, TOPICS = (1, 8), (1, 20_000)
CALLS = 160_000
"""Of all threads together: with 20,000 topics, one of eight is the first for its topic."""
PHASES = {
    f"{counted(threads, 'thread')}, {counted(topics, 'topic')}": (threads, topics)
    for threads, topics in product(THREADS, TOPICS)
}


def measure_threads(number: int, seed: int, calls: int = CALLS) -> Iterator[Run]:
    """Times of single calls of `partition`, and of all of them."""
    views = {topics: _view(topics) for topics in TOPICS}
    for cell in shuffled(cells(Part.threads), seed, number):
        for phase, (threads, topics) in PHASES.items():
            partitioner = build_partitioner(cell.partitioner)
            seconds, latencies_s = _called(partitioner, views[topics], threads, calls)
            yield run_of(cell, number, 0, latencies_s, 0, seconds, {}, {}, phase)


def _view(topics: int) -> ClusterView:
    layout = SCENARIOS["U2"].topics["U2"]
    return ClusterView.of(Scenario("many", 2, {f"t{n}": layout for n in range(topics)}).topology)


def _called(partitioner: Partitioner, view: ClusterView, threads: int, calls: int) -> "tuple[float, array[float]]":
    topics, together = list(view.partitions), threading.Barrier(threads + 1)

    def call() -> "array[float]":
        found_s, clock = array("d"), time.perf_counter
        together.wait()
        for n in range(calls // threads):
            topic = topics[n % len(topics)]
            began_s = clock()
            partitioner.partition(topic, None, b"", view)
            found_s.append(clock() - began_s)
        return found_s

    with ThreadPoolExecutor(threads) as several:
        calling = [several.submit(call) for _ in range(threads)]
        together.wait()
        began_s = time.perf_counter()
        found = [one.result() for one in calling]
        seconds = time.perf_counter() - began_s
    return seconds, sum(found, array("d"))
