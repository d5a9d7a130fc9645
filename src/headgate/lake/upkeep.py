"""One round of upkeep of a pipeline's tables, and rounds on a schedule while ingestion runs."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from prometheus_client import Counter, Gauge
from pyiceberg.catalog import Catalog

from headgate.config.pipeline import Lake, Pipeline
from headgate.config.table import REJECTED_SUFFIX, SKIPPED_SUFFIX
from headgate.lake.catalogs import open_catalog
from headgate.lake.compaction import NOBODY_ELSE, Compaction, compact, plan_compaction
from headgate.lake.file_pools import own_pool
from headgate.lake.maintenance import expirable, expire_snapshots, release_replaced
from headgate.lake.sweep import Sweep, sweep_orphans
from headgate.lake.tables import load_table
from headgate.lake.turns import Turns

log = logging.getLogger(__name__)

_COMPACTED = Counter("headgate_compacted_files_total", "Small files that compaction replaced by fewer ones", ["table"])
_EXPIRED = Counter("headgate_expired_snapshots_total", "Snapshots forgotten by upkeep", ["table"])
_SWEPT = Counter("headgate_swept_bytes_total", "Bytes of files that no table referred to, deleted", ["table"])
_DONE = Gauge(
    "headgate_maintenance_timestamp_seconds",
    "When the last scheduled round of upkeep ended in which no table failed; before the first, when the schedule "
    "began. At the start of a process no more than two intervals ago",
)
_EVERY = Gauge("headgate_maintenance_interval_seconds", "Time between rounds of upkeep; 0 without a schedule")

_SETTLE_S = 60.0
"""A pipeline that has just been started has other things to do first."""

Progress = Callable[[Compaction, Compaction], None]


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What a round did to one table, or would do."""

    table: str
    expired: int
    compaction: Compaction
    sweep: Sweep


def upkeep_tables(pipeline: Pipeline) -> tuple[str, ...]:
    return tuple(t.name + suffix for t in pipeline.tables for suffix in ("", REJECTED_SUFFIX, SKIPPED_SUFFIX))


def rehearse(catalog: Catalog, name: str, lake: Lake) -> Upkeep:
    """What `maintain` would do; changes nothing."""
    table = load_table(catalog, name)
    if table is None:
        return Upkeep(name, 0, Compaction(), Sweep((), 0, False))
    groups = plan_compaction(table, lake.target_file_bytes)
    orphans = sweep_orphans(catalog, name, lake, remove=False)
    return Upkeep(name, len(expirable(table, lake)), Compaction().plus(groups), orphans)


def maintain(
    catalog: Catalog,
    name: str,
    lake: Lake,
    turn: AbstractContextManager[object] = NOBODY_ELSE,
    progress: Progress = lambda done, planned: None,
    is_stopped: Callable[[], bool] = lambda: False,
    begins: Callable[[str], None] = lambda step: None,
) -> Upkeep:
    """Expires, compacts, sweeps. May be killed at any moment and run beside committers, readers and itself."""
    begins("expiring snapshots")
    release_replaced(catalog, name, lake)
    expired = expire_snapshots(catalog, name, lake)
    _EXPIRED.labels(name).inc(expired)
    begins("joining small files")
    compaction = compact(catalog, name, lake, turn, progress, is_stopped)
    _COMPACTED.labels(name).inc(compaction.files)
    begins("looking for orphan files")
    sweep = sweep_orphans(catalog, name, lake, remove=True)
    _SWEPT.labels(name).inc(sweep.bytes)
    return Upkeep(name, expired, compaction, sweep)


class Maintainer:
    """Rounds of upkeep every `lake.maintain_every_s`; failures wait for the next round.

    When the last one was is remembered in the pipeline's home: who starts anew every day has rounds every day, too.
    """

    def __init__(self, pipeline: Pipeline, turns: Turns | None = None) -> None:
        """`turns` are shared with the committer of the same process, if there is one."""
        self._pipeline = pipeline
        self._turns = turns
        self._catalog: Catalog | None = None
        """Opened when it is first needed: one that is down then is waited for."""
        self._mark = pipeline.home / "maintained"
        """Touched after each round in which no table failed, and before the first."""

    def run(self, stop: threading.Event) -> None:
        every_s = self._pipeline.lake.maintain_every_s
        if every_s is None:
            return
        _EVERY.set(every_s)
        now_s, last_s = time.time(), self._last_s()
        _DONE.set(max(last_s, now_s - 2 * every_s))  # that it was stopped for long is no failure
        wait_s = min(every_s, max(_SETTLE_S, last_s + every_s - now_s))
        while not stop.wait(wait_s):
            self.round(stop)
            wait_s = every_s

    def round(self, stop: threading.Event) -> None:
        lake, failed = self._pipeline.lake, False
        for name in upkeep_tables(self._pipeline):
            if stop.is_set():
                return
            try:
                self._catalog = self._catalog or open_catalog(lake)
                turn = NOBODY_ELSE if self._turns is None else self._turns.of(name)
                with own_pool():
                    done = maintain(self._catalog, name, lake, turn, is_stopped=stop.is_set)
            except Exception:  # catalogs and file systems fail in ways of their own; ingestion must not care
                log.exception("upkeep of %s failed; it is tried again in %g s", name, lake.maintain_every_s or 0)
                failed = True
                continue
            if done.expired or done.compaction.files or done.sweep.orphans:
                log.info(
                    "%s: expired %d snapshots, compacted %d files into %d, swept %d orphans", name, done.expired,
                    done.compaction.files, done.compaction.into, len(done.sweep.orphans),
                )  # fmt: skip
        if not failed:
            self._remember()
            _DONE.set(time.time())

    def _last_s(self) -> float:
        try:
            return self._mark.stat().st_mtime
        except FileNotFoundError:
            self._remember()
            return time.time()

    def _remember(self) -> None:
        try:
            self._mark.parent.mkdir(parents=True, exist_ok=True)
            self._mark.touch()
        except OSError as error:
            log.warning("cannot remember in %s when upkeep was done: %s", self._mark, error)
