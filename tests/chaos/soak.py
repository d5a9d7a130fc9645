"""`make soak`: an hour of changing load, random faults that overlap, and upkeep; then everything is counted and judged.

    python -m tests.chaos.soak --minutes 60 --seed 7 --report docs/soak.md

One line per fault and one per minute. Ctrl-C ends it early: faults under way end, what landed is verified, the report
says what there is. The exit code is 1 if a promise was broken.
"""

import argparse
import json
import logging
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from types import FrameType

import psutil

from tests.chaos.conductor import Conductor
from tests.chaos.faults import FAULTS
from tests.chaos.harness import RECOVERY_DEADLINE_S
from tests.chaos.judgement import Committed, Evidence, Tolerances, first_broken, judge
from tests.chaos.reckoning import Outcome
from tests.chaos.sampling import Sampler
from tests.chaos.soak_report import Circumstances, write
from tests.chaos.soak_run import SoakRun
from tests.chaos.storms import plan

_TURN_S = 0.1
_MAINTAIN_EVERY_S = 60.0
_MOST_DISK_BYTES = 10e9
_ALLOWANCE_S = 30.0
"""What recovery from a fault may take before latency counts again."""


class Asked:
    """Ctrl-C or SIGTERM, once: come to an end. Twice, or before anything was written: at once."""

    def __init__(self) -> None:
        self.to_stop = False
        self.has_begun = False
        signal.signal(signal.SIGINT, self._take)
        signal.signal(signal.SIGTERM, self._take)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.to_stop or not self.has_begun:
            raise KeyboardInterrupt
        self.to_stop = True


def soak(run: SoakRun, conductor: Conductor, sampler: Sampler, minutes: float, asked: Asked) -> float:
    """Until the time is over or it is asked to stop; returns how long that was."""
    told = 0
    while run.now_s() < 60 * minutes and not asked.to_stop:
        conductor.turn()
        run.revive()
        run.upkeep_turn(_MAINTAIN_EVERY_S)
        if run.now_s() // 60 > told:
            told = int(run.now_s() // 60)
            run.say(_minute(told, run, conductor, sampler))
        if sampler.most_disk_bytes > _MOST_DISK_BYTES:
            run.say(f"more than {_MOST_DISK_BYTES / 1e9:g} GB of disk are taken")
            asked.to_stop = True
        time.sleep(_TURN_S)
    if asked.to_stop:
        run.say("asked to stop: the faults under way end first")
    conductor.cut_short()
    until_s = run.now_s() + 120
    while not conductor.is_over and run.now_s() < until_s:
        conductor.turn()
        run.revive()
        time.sleep(_TURN_S)
    conductor.close()
    lasted_s = run.now_s()
    run.settle()
    return lasted_s


def _minute(minute: int, run: SoakRun, conductor: Conductor, sampler: Sampler) -> str:
    newest = sampler.lags[-1] if sampler.lags else None
    seen = "" if newest is None else f", lag {newest.lag_records:,}, {newest.consumers} consumers"
    happened = sum(fault.happened for fault in conductor.faults)
    return (
        f"minute {minute}: {happened} faults{seen}, {len(run.watch.commits()):,} commits, "
        f"{sampler.most_disk_bytes / 1e9:.2f} GB"
    )


def evidence(
    run: SoakRun, conductor: Conductor, sampler: Sampler, outcome: Outcome, lasted_s: float, interrupted: bool
) -> Evidence:
    commits = tuple(
        Committed(
            record.at_ms / 1000 - run.began_at_s,
            record.rows + record.rejected,
            tuple(latency_ms / 1000 for latency_ms in record.latency_ms),
        )
        for record in run.watch.commits()
        if record.at_ms / 1000 >= run.began_at_s
    )
    return Evidence(
        lasted_s,
        interrupted,
        outcome.violations,
        outcome.acknowledged,
        outcome.rows,
        outcome.rejected,
        tuple(sorted(conductor.faults, key=lambda fault: fault.start_s)),
        tuple(sampler.lags),
        tuple(sampler.processes),
        tuple(sampler.lake),
        commits,
        tuple(run.upkeep),
    )


def machine() -> str:
    memory = psutil.virtual_memory().total / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GB of memory, {platform.system()}, Python {platform.python_version()}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30), help="repeats a run")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--report", type=Path, default=Path("docs/soak.md"), help="a picture and JSON come beside it")
    parser.add_argument("--home", type=Path, default=None, help="where it happens; default a folder that is removed")
    options = parser.parse_args()
    asked = Asked()
    logging.getLogger("headgate").setLevel(logging.ERROR)  # what the readers here pass over was put there on purpose
    home = options.home or Path(tempfile.mkdtemp(prefix="headgate-soak-"))
    print(f"seed {options.seed}, {options.minutes:g} minutes, three brokers, in {home}", flush=True)
    with SoakRun(home, options.seed, lambda text: print(text, flush=True)) as run:
        run.begin()
        asked.has_begun = True
        conductor = Conductor(run, plan([fault.kind for fault in FAULTS], options.minutes, options.seed))
        sampler = Sampler(run)
        try:
            lasted_s = soak(run, conductor, sampler, options.minutes, asked)
        finally:
            sampler.close()
        outcome = run.finish()
        seen = evidence(run, conductor, sampler, outcome, lasted_s, asked.to_stop)
        slo = run.pipeline.slo
    allowed = Tolerances(slo.latency_s, slo.quantile, _ALLOWANCE_S, RECOVERY_DEADLINE_S)
    promises = judge(seen, allowed)
    about = Circumstances(options.seed, options.minutes, machine(), sampler.most_disk_bytes, dict(conductor.not_now))
    write(options.report, seen, allowed, promises, about)
    (home / "evidence.json").write_text(json.dumps(asdict(seen)))
    for promise in promises:
        mark = {True: "kept", False: "BROKEN", None: "cannot tell"}[promise.kept]
        print(f"{mark:12}{promise.name}: {promise.evidence}")
    for violation in outcome.violations:
        print(f"VIOLATION: {violation}")
    print(f"the report is {options.report}; SEED={options.seed} repeats the choices")
    broken = first_broken(promises)
    if broken is not None:
        print(f"broken first: {broken.name}: {broken.evidence}; everything is kept in {home}")
        return 1
    if options.home is None:
        shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped at once; nothing was judged")
