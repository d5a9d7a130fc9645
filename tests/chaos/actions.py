"""The things that happen to a pipeline, one function each. Every one returns once its harm is done and answered:
whoever was killed has a successor. That the pipeline then consumes again is for the caller to await."""

import os
import signal
import sqlite3
import time
from collections.abc import Callable

from headgate import failpoints
from headgate.consumer.state import StateFile
from tests.chaos.garbage import Old, litter
from tests.chaos.harness import RECOVERY_DEADLINE_S, TABLES, ChaosRun
from tests.chaos.parts import wait_until

Action = Callable[[ChaosRun], None]

CATALOG_AWAY_S = 8.0
ZOMBIE_STEPS = ("cycle.gathered", "cycle.files-written", "cycle.announced")


def kill_a_consumer(run: ChaosRun) -> None:
    victim = run.an_owner()
    life, pid = run.watch.lives()[victim], run.pid(victim)
    if pid is None:
        return  # it went by itself meanwhile
    run.say(f"kill -9 consumer {victim} ({life})")
    os.kill(pid, signal.SIGKILL)
    run.replaced(victim, life)


def freeze_a_consumer(run: ChaosRun) -> None:
    """Past its heartbeat deadline: the fleet ends it by force."""
    victim = run.an_owner()
    life, pid = run.watch.lives()[victim], run.pid(victim)
    if pid is None:
        return
    run.say(f"SIGSTOP consumer {victim} ({life})")
    os.kill(pid, signal.SIGSTOP)
    run.replaced(victim, life)


def zombie_elsewhere(run: ChaosRun) -> None:
    """A life the fleet cannot reach, with a disk of its own, as on a machine that was cut off."""
    _zombie(run, shares_its_folder=False)


def zombie_at_home(run: ChaosRun) -> None:
    """A life the fleet cannot see but whose successor writes to the same folder."""
    _zombie(run, shares_its_folder=True)


def _zombie(run: ChaosRun, shares_its_folder: bool) -> None:
    consumer_id = run.an_owner()
    folder = run.state_folder(consumer_id) if shares_its_folder else run.copy_of_state(consumer_id)
    points, step = run.home / f"failpoints-of-{folder.name}", run.chance.choice(ZOMBIE_STEPS)
    failpoints.arm(points, step, "stop")
    before = StateFile(folder).load()
    zombie = run.by_hand(consumer_id, folder, points)
    run.say(f"another consumer {consumer_id} begins, to freeze at {step}; its folder is {folder.name}")
    wait_until(
        lambda: bool(failpoints.fired(points, step)) or not zombie.runs,
        f"the second consumer {consumer_id} to freeze ({zombie.output})",
        RECOVERY_DEADLINE_S,
    )
    saved = StateFile(folder).load()
    if not zombie.runs or saved is None or saved == before:
        run.say(f"the second consumer {consumer_id} was ended before it got there; no zombie this time")
        failpoints.disarm(points, step)
        return
    life = saved.incarnation
    if shares_its_folder and not run.watch.heard(life):
        life = max(life, run.watch.lives().get(consumer_id, ""))
    run.say(f"{life} is frozen at {step}")
    run.replaced(consumer_id, life)
    run.consumes_again()
    zombie.signal(signal.SIGCONT)
    run.say(f"{life} returns as a zombie")
    wait_until(lambda: not zombie.runs, f"the zombie to stop by itself ({zombie.output})", 60)
    run.say(f"the zombie stopped by itself: {(zombie.said().strip().splitlines() or ['without a word'])[-1]}")


def kill_the_controller(run: ChaosRun) -> None:
    run.say("kill -9 the controller")
    for controller in run.role("controller"):
        controller.kill()
    run.start("controller")


def two_controllers(run: ChaosRun) -> None:
    """The newer one wins; the older one ends by itself and takes no consumer with it."""
    run.revive()
    older = run.role("controller")[-1]
    consumers = {n: run.pid(n) for n in run.watch.owners()}
    run.say("a second controller")
    run.start("controller")
    wait_until(lambda: not older.runs, "the older controller to end", RECOVERY_DEADLINE_S)
    left = {n for n, pid in consumers.items() if pid is not None and run.pid(n) != pid}
    if left == consumers.keys():
        raise AssertionError(f"the older controller took the consumers {sorted(left)} with it")
    run.say(f"the older controller ended: {older.said().strip().splitlines()[-1]}")


def kill_the_committer(run: ChaosRun) -> None:
    run.say("kill -9 the committer")
    for committer in run.role("committer"):
        committer.kill()
    run.start("committer")


def two_committers(run: ChaosRun) -> None:
    """Side by side until both have published several ledgers; then the older one is killed."""
    run.revive()
    older = run.role("committer")[-1]
    before = run.watch.committers()
    run.say("a second committer")
    run.start("committer")

    def both_work() -> bool:
        now = run.watch.committers()
        return sum(count - before.get(name, 0) >= 5 for name, count in now.items()) >= 2

    wait_until(both_work, "two committers at work", RECOVERY_DEADLINE_S)
    run.say("kill -9 the older committer")
    older.kill()


def restart_the_brokers(run: ChaosRun) -> None:
    run.say("kill -9 all brokers")
    for broker in range(1, run.brokers + 1):
        run.kafka.kill(broker)
    run.kafka.start()
    run.say("the brokers are back")


def kill_one_broker(run: ChaosRun) -> None:
    """Of three: the others go on, and are led by others."""
    broker = run.chance.randrange(1, run.brokers + 1)
    run.say(f"kill -9 broker {broker}")
    run.kafka.kill(broker)
    if run.brokers > 1:
        run.consumes_again()
    run.kafka.start()
    run.say(f"broker {broker} is back")


def litter_the_topics(run: ChaosRun) -> None:
    owners = run.watch.owners()
    old = Old(run.settings, run.topics, owners)
    positions = {table: run.watch.positions(table) for table in TABLES.values()}
    sent = litter(run.settings, run.topics, old, positions, owners, run.chance)
    run.say(f"put {sent} records of garbage and old news on the internal topics")


def take_the_catalog_away(run: ChaosRun) -> None:
    run.say(f"the catalog refuses everyone for {CATALOG_AWAY_S:g} s")
    uri = run.pipeline.lake.catalog["uri"]
    holder = sqlite3.connect(uri.removeprefix("sqlite:///"), timeout=30, isolation_level=None)
    try:
        holder.execute("BEGIN EXCLUSIVE")
        time.sleep(CATALOG_AWAY_S)  # the length of the outage, not a wait for anything
        holder.execute("ROLLBACK")
    finally:
        holder.close()


def kill_at(step: str, action: str = "kill") -> Action:
    """Whoever reaches this step first is killed there; what leads to it is provoked."""

    def act(run: ChaosRun) -> None:
        before = run.fired(step)
        run.say(f"armed: {action} at {step}")
        with run.armed(step, action):
            provoke = _PROVOCATIONS.get(step.partition(".")[0], _nothing)
            until = time.monotonic() + 2 * RECOVERY_DEADLINE_S
            while run.fired(step) == before:
                provoke(run, step)
                patience_s = min(60.0, max(1.0, until - time.monotonic()))
                try:
                    wait_until(lambda: run.fired(step) > before, f"{step} to be reached", patience_s)
                except AssertionError:
                    if time.monotonic() > until:
                        raise
        run.say(f"fired: {action} at {step}")
        run.revive()

    act.__name__ = f"{action}_at_{step}"
    return act


def _nothing(run: ChaosRun, step: str) -> None:
    """Cycles and commits happen all the time."""


def _move_something(run: ChaosRun, step: str) -> None:
    """A handover: the load rises, and a third consumer is needed; or it falls, and one too many is there."""
    if run.surging and step != "handover.consumers-created":
        run.ebb()
    elif not run.surging and step != "handover.consumers-deleted":
        run.surge()
    elif run.surging:
        run.ebb()
        wait_until(lambda: len(run.watch.owners()) <= 2, "the third consumer to go", RECOVERY_DEADLINE_S)
        run.surge()
    else:
        run.surge()
        wait_until(lambda: len(run.watch.owners()) >= 3, "a third consumer", RECOVERY_DEADLINE_S)
        run.ebb()


_PROVOCATIONS: dict[str, Callable[[ChaosRun, str], None]] = {"handover": _move_something, "command": _move_something}
