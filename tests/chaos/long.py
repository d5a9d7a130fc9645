"""`make chaos`: random harm for as long as asked, and every named step of the protocol at least once.

    python -m tests.chaos.long --seed 7 --minutes 30

Prints what it does with the time it does it, and at the end what was lost or doubled; the exit code is 1 if anything
was. The same seed makes the same choices; what the machine makes of them depends on its mood.
"""

import argparse
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import FrameType

from headgate.failpoints import STEPS
from tests.chaos import actions
from tests.chaos.harness import ChaosRun

_AT_RANDOM: tuple[actions.Action, ...] = (
    actions.kill_a_consumer,
    actions.freeze_a_consumer,
    actions.zombie_elsewhere,
    actions.zombie_at_home,
    actions.kill_the_controller,
    actions.two_controllers,
    actions.zombie_controller,
    actions.kill_the_committer,
    actions.two_committers,
    actions.zombie_committer,
    actions.restart_the_brokers,
    actions.kill_one_broker,
    actions.litter_the_topics,
    actions.take_the_catalog_away,
    actions.change_the_load,
)
_QUIET_MOST_S = 5.0
"""Harm comes at random moments: up to this long after the last one was got over."""


def _plan(chance: random.Random) -> list[actions.Action]:
    """Every kind of harm and every step once, mixed; a step of the consumer's is sometimes frozen instead of killed."""
    steps = [
        actions.kill_at(step, chance.choice(("kill", "stop")) if step.startswith(("cycle.", "command.")) else "kill")
        for step in STEPS
        if not step.startswith(("compact.", "expire.", "sweep.", "rollback."))  # no upkeep runs here
    ]
    plan = [*_AT_RANDOM, *steps]
    chance.shuffle(plan)
    return plan


def _hurt(run: ChaosRun, minutes: float) -> tuple[Counter[str], list[str]]:
    done: Counter[str] = Counter()
    until = time.monotonic() + 60 * minutes
    plan = _plan(run.chance)
    while plan or time.monotonic() < until:
        action = plan.pop() if plan else run.chance.choice(_AT_RANDOM)
        time.sleep(run.chance.uniform(0, _QUIET_MOST_S))
        began = time.monotonic()
        try:
            action(run)
            run.consumes_again()
        except AssertionError as error:
            run.say(f"{action.__name__} FAILED: {error}")
            return done, [f"{action.__name__}: {error}"]
        done[action.__name__] += 1
        run.say(f"{action.__name__}: got over after {time.monotonic() - began:.0f} s")
    return done, []


def _asked_to_stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.long", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30), help="repeats a run")
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="at least; every step once takes about half an hour"
    )
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=3, help="how many there are to be killed")
    parser.add_argument("--home", type=Path, default=None, help="where it happens; default a folder that is removed")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _asked_to_stop)
    logging.getLogger("headgate").setLevel(logging.ERROR)  # what the readers here pass over was put there on purpose
    home = options.home or Path(tempfile.mkdtemp(prefix="headgate-chaos-"))
    print(f"seed {options.seed}, {options.minutes:g} minutes, {options.brokers} brokers, in {home}", flush=True)
    with ChaosRun(home, options.seed, options.brokers, lambda text: print(text, flush=True)) as run:
        done, failures = _hurt(run, options.minutes)
        outcome = run.finish()
    violations = [*failures, *outcome.violations]
    print(
        f"\nseed {options.seed}: {done.total()} times harmed: "
        + ", ".join(f"{n} x {a}" for a, n in sorted(done.items()))
    )
    print(
        f"{outcome.acknowledged:,} records acknowledged; {outcome.rows:,} rows and {outcome.rejected:,} rejects landed"
    )
    for violation in violations:
        print(f"VIOLATION: {violation}")
    if violations:
        print(f"everything is kept in {home}")
        return 1
    print("nothing lost, nothing twice")
    if options.home is None:
        shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
