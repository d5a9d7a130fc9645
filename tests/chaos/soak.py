"""`make soak`: an hour of changing load, random faults that overlap, and upkeep; then everything is counted and judged.

    python -m tests.chaos.soak --minutes 60 --seed 7 --report docs/soak.md
    python -m tests.chaos.soak --judge docs/soak-evidence.json.gz --report again.md

One line per fault and one per minute. Ctrl-C ends it early: faults under way end, what landed is verified, the report
says what there is. The exit code is 1 if a promise was broken. The second one runs nothing: it judges a run again.
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
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from tests.chaos.conductor import Conductor
from tests.chaos.faults import FAULTS
from tests.chaos.harness import RECOVERY_DEADLINE_S
from tests.chaos.judgement import Committed, Evidence
from tests.chaos.promises import Tolerances, broken, judge
from tests.chaos.reckoning import Outcome
from tests.chaos.sampling import Sampler
from tests.chaos.scene import SLO_S, SLO_SHARE
from tests.chaos.soak_evidence import Lacking, keep, keep_small, load
from tests.chaos.soak_report import Circumstances, evidence_beside, write
from tests.chaos.soak_run import SoakRun
from tests.chaos.storms import plan
from tests.revision import revision

_TURN_S = 0.1
_MAINTAIN_EVERY_S = 60.0
_ALLOWANCE_S = 30.0
"""What recovery from a fault may take before latency counts again."""
ALLOWED = Tolerances(SLO_S, SLO_SHARE, _ALLOWANCE_S, RECOVERY_DEADLINE_S)


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
        run.upkeep.turn(_MAINTAIN_EVERY_S)
        if run.now_s() // 60 > told:
            told = int(run.now_s() // 60)
            run.say(_minute(told, run, conductor, sampler))
        if sampler.most_disk_bytes > ALLOWED.disk_bytes:  # a promise is broken, and nobody interrupted anything
            run.say(f"more than {ALLOWED.disk_bytes / 1e9:g} GB of disk are taken: it ends here")
            break
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
    run: SoakRun,
    conductor: Conductor,
    sampler: Sampler,
    outcome: Outcome,
    lasted_s: float,
    unused: int | None,
    interrupted: bool,
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
        tuple(run.upkeep.rounds),
        sampler.most_disk_bytes or None,
        outcome.repeated,
        unused,
    )


def machine() -> str:
    memory = psutil.virtual_memory().total / 2**30
    python = f"Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {memory:.0f} GB of memory, {platform.system()}, {python}"


def report(file: Path, kept: Path, otherwise: dict[str, Any] | None = None) -> bool:
    """The report on the evidence kept in a file; True if no promise was broken. It is judged from the copy beside the
    report, so that whoever has that one comes to the same verdict."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = evidence_beside(file)
    keep_small(beside, *load(kept, otherwise))
    seen, about = load(beside)
    promises = judge(seen, ALLOWED)
    write(file, seen, ALLOWED, promises, about)
    for promise in promises:
        mark = {True: "kept", False: "BROKEN", None: "cannot tell"}[promise.kept]
        print(f"{mark:12}{promise.name}: {promise.evidence}")
    for violation in seen.violations:
        print(f"VIOLATION: {violation}")
    print(f"the report is {file}; SEED={about.seed} repeats the choices")
    for promise in broken(promises):
        print(f"broken: {promise.name}: {promise.evidence}")
    return not broken(promises)


def judge_again(options: argparse.Namespace) -> int:
    """What the file and the report's JSON do not tell is taken from the flags."""
    minutes = 60.0 if options.minutes is None else options.minutes
    otherwise: dict[str, Any] = {"minutes_asked": minutes, "machine": options.machine or machine(), "not_now": {}}
    if options.seed is not None:
        otherwise["seed"] = options.seed
    if options.disk_gb is not None:
        otherwise["disk_bytes"] = int(options.disk_gb * 1e9)
    if options.not_now is not None:
        otherwise["not_now"] = {"any": options.not_now}
    if options.circumstances is not None:
        otherwise |= json.loads(options.circumstances.read_text())["circumstances"]
    try:
        return 0 if report(options.report, options.judge, otherwise) else 1
    except Lacking as error:
        raise SystemExit(f"{error}; see --circumstances and --seed") from None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="repeats a run")
    parser.add_argument("--minutes", type=float, help="60 unless told")
    parser.add_argument(
        "--report", type=Path, default=Path("docs/soak.md"), help="picture, JSON and evidence come beside it"
    )
    parser.add_argument("--home", type=Path, default=None, help="where it happens; default a folder that is removed")
    again = parser.add_argument_group("judging a run again", "Nothing runs. The flags tell what the file does not.")
    again.add_argument("--judge", type=Path, metavar="EVIDENCE", help="evidence.json of a home, or that of a report")
    again.add_argument("--circumstances", type=Path, metavar="JSON", help="the JSON beside the run's first report")
    again.add_argument("--machine", help="this one unless told")
    again.add_argument("--disk-gb", type=float, help="most that the run took at any time")
    again.add_argument("--not-now", type=int, metavar="N", help="how many faults could not happen")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.judge is not None:
        return judge_again(options)
    seed = random.SystemRandom().randrange(1 << 30) if options.seed is None else options.seed
    minutes = 60.0 if options.minutes is None else options.minutes
    code, asked = revision(), Asked()
    logging.getLogger("headgate").setLevel(logging.ERROR)  # what the readers here pass over was put there on purpose
    home = options.home or Path(tempfile.mkdtemp(prefix="headgate-soak-"))
    print(f"seed {seed}, {minutes:g} minutes, three brokers, in {home}", flush=True)
    with SoakRun(home, seed, lambda text: print(text, flush=True)) as run:
        run.begin()
        asked.has_begun = True
        conductor = Conductor(run, plan([fault.kind for fault in FAULTS], minutes, seed))
        sampler = Sampler(run)
        try:
            lasted_s = soak(run, conductor, sampler, minutes, asked)
        finally:
            sampler.close()
        outcome = run.finish()
        unused = None if asked.to_stop else run.tidy_up()
        seen = evidence(run, conductor, sampler, outcome, lasted_s, unused, asked.to_stop)
    kept = home / "evidence.json"
    keep(kept, seen, Circumstances(seed, minutes, f"{machine()}, commit {code}", dict(conductor.not_now)))
    if not report(options.report, kept):
        print(f"everything is kept in {home}")
        return 1
    if options.home is None:
        shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped at once; nothing was judged")
