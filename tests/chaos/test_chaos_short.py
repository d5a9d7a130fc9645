"""One pipeline, hurt in every way there is, one after another, under load. `make chaos` does the same at length."""

import os
import random
from pathlib import Path

import pytest

from headgate.failpoints import STEPS
from tests.chaos import actions
from tests.chaos.harness import ChaosRun


@pytest.mark.timeout(1500)
def test_nothing_is_lost_and_nothing_lands_twice_whatever_is_killed_meanwhile(tmp_path: Path) -> None:
    seed = int(os.environ.get("HEADGATE_CHAOS_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"HEADGATE_CHAOS_SEED={seed} repeats these choices")
    with ChaosRun(tmp_path, seed) as run:

        def one_of(room: str, action: str = "kill") -> actions.Action:
            return actions.kill_at(run.chance.choice([step for step in STEPS if step.startswith(room)]), action)

        zombie = actions.Zombie(run, shares_its_folder=False)
        actions.take_the_catalog_away(run)  # while the second life starts
        while not zombie.freezes():  # ended before it got so far: that is right, too, but is not the test
            zombie = actions.Zombie(run, shares_its_folder=False)
        actions.kill_a_consumer(run)
        actions.two_controllers(run)
        zombie.returns()
        for action in (
            actions.kill_the_committer,
            actions.two_committers,
            one_of("handover.s"),
            one_of("commit."),
            actions.litter_the_topics,
            actions.kill_the_controller,
            one_of("cycle."),
            one_of("command.", "stop"),
            actions.restart_the_brokers,
        ):
            action(run)
            run.consumes_again()
        outcome = run.finish()
    assert outcome.violations == (), outcome.sentence()
    assert outcome.acknowledged > 0
    assert outcome.rejected > 0
    assert outcome.rows + outcome.rejected == outcome.acknowledged + outcome.repeated
