"""Memory of one consumer process under a backlog: its Python, its JVM and Spark's Python workers together."""

import tempfile
import time
from pathlib import Path

import psutil

from benchmarks import live
from benchmarks.ratio import Ratio, of_limit
from headgate.controller.service import Service
from headgate.fleet.processes import MARK
from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.internal_topics import Topics
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_pace import NoWaiting
from headgate.kafka.load_records import FixedSize
from headgate.model.messages import CommitRecord

PARTITIONS = 8
BACKLOG_BYTES = 1_500_000_000
READ_BYTES = 400_000_000
"""At least, or what was seen is not the memory of a consumer at work."""
WATCHED_S = 90.0


def run() -> list[Ratio]:
    results = []
    for batch in ("5 MB", "20 MB"):
        by_parts, whole = _most_gigabytes(batch)
        what = f"most resident memory ({{}}) of a consumer process, batches of {batch}"
        results.append(of_limit(what.format("proportional set size"), "1 GB", 1.0, [by_parts], "GB"))
        added_up = what.format("resident sets of its processes added up")
        results.append(of_limit(added_up, "1 GB", 1.0, [whole], "GB", target=None))
    return results


def _most_gigabytes(batch: str) -> tuple[float, float]:
    """Proportional set size: of a page that several processes share each counts its part, so that one shared by two of
    the consumer's processes counts once, and one shared with the broker's JVM (parts of Java itself) by half. And
    resident set size, in which each counts all of it."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder) / "kafka", 1) as kafka:
        LoadGenerator(
            kafka.bootstrap,
            {},
            {live.TOPIC: PARTITIONS},
            live.spread(PARTITIONS, 1e7),
            FixedSize(live.RECORD_BYTES),
            pace=NoWaiting(),
        ).run(count=BACKLOG_BYTES // live.RECORD_BYTES)
        pipeline = live.make_pipeline(
            Path(folder),
            "memory",
            kafka.bootstrap,
            fleet="{kind: processes, max_consumers: 1}",
            consumer=f"{{batch_bytes: {batch}}}",
        )
        service = Service(pipeline)
        service.start()
        most, most_added_up = 0, 0
        until = time.monotonic() + WATCHED_S
        while time.monotonic() < until:
            time.sleep(0.5)
            sizes = [_resident(p) for p in psutil.process_iter() if _is_consumer(p, str(pipeline.home))]
            most = max(most, sum(by_parts for by_parts, _ in sizes))
            most_added_up = max(most_added_up, sum(whole for _, whole in sizes))
        service.stop()
        read = sum(c.payload_bytes for c in live.told(pipeline, Topics(pipeline.name).commits, CommitRecord))
    if read < READ_BYTES:
        raise RuntimeError(f"the consumer read {read / 1e6:.0f} MB only: its memory says nothing")
    return most / 1e9, most_added_up / 1e9


def _is_consumer(process: psutil.Process, home: str) -> bool:
    try:
        return process.environ().get(MARK, "").startswith(home)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _resident(process: psutil.Process) -> tuple[int, int]:
    try:
        used = process.memory_full_info()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0, 0
    return int(used.pss), int(used.rss)
