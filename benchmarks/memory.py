"""Memory of one consumer process under a backlog: its Python, its JVM and Spark's Python workers together."""

import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
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
PAGE_BYTES = 4096
_PRESENT, _FRAME = np.uint64(1 << 63), np.uint64((1 << 55) - 1)
"""Of an entry in /proc/PID/pagemap."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of a consumer's processes together, in bytes."""

    once: int
    """Every page of memory that one of them has counts once. 0 where only root may know which they share."""
    proportional: int
    """Of a page that several processes share each counts its part; of one shared with others, as the broker's JVM, the
    rest is theirs."""
    added_up: int
    """Each process counts all of it."""


def run() -> list[Ratio]:
    results = []
    for batch in ("5 MB", "20 MB"):
        seen = _sizes(batch)

        def most(counted: str, sizes: Iterable[int], target: float | None, batch: str = batch) -> Ratio:
            what = f"most resident memory ({counted}) of a consumer process, batches of {batch}"
            return of_limit(what, "1 GB", 1.0, [max(sizes) / 1e9], "GB", target=target)

        once = [size.once for size in seen if size.once]
        results += [most("every page once", once, 1.0)] if once else []
        results.append(most("proportional set size", (size.proportional for size in seen), None if once else 1.0))
        results.append(most("resident sets of its processes added up", (size.added_up for size in seen), None))
    return results


def _sizes(batch: str) -> list[Size]:
    """Of one consumer under a backlog, many times."""
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
        sizes = []
        until = time.monotonic() + WATCHED_S
        while time.monotonic() < until:
            time.sleep(0.5)
            sizes.append(_size([p for p in psutil.process_iter() if _is_consumer(p, str(pipeline.home))]))
        service.stop()
        read = sum(c.payload_bytes for c in live.told(pipeline, Topics(pipeline.name).commits, CommitRecord))
    if read < READ_BYTES:
        raise RuntimeError(f"the consumer read {read / 1e6:.0f} MB only: its memory says nothing")
    return sizes


def _is_consumer(process: psutil.Process, home: str) -> bool:
    try:
        return process.environ().get(MARK, "").startswith(home)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _size(processes: Iterable[psutil.Process]) -> Size:
    frames, proportional, added_up = [np.empty(0, np.uint64)], 0, 0
    for process in processes:
        try:
            used = process.memory_full_info()
            frames.append(_frames(process.pid))
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue
        proportional, added_up = proportional + used.pss, added_up + used.rss
    different = np.unique(np.concatenate(frames))
    return Size(PAGE_BYTES * int(np.count_nonzero(different)), proportional, added_up)


def _frames(pid: int) -> npt.NDArray[np.uint64]:
    """The numbers of the pages that a process has; all 0 unless root asks."""
    found = [np.empty(0, np.uint64)]
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
        for line in maps:
            begin, end = (int(at, 16) // PAGE_BYTES for at in line.split(maxsplit=1)[0].split("-"))
            if begin >= 1 << 36:  # the kernel's own
                continue
            pagemap.seek(8 * begin)
            entries = np.frombuffer(pagemap.read(8 * (end - begin)), np.uint64)
            found.append(entries[(entries & _PRESENT) != 0] & _FRAME)
    return np.concatenate(found)
