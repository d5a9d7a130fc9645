"""The things that happen to a pipeline, one function each. Every one returns once its harm is done and answered:
whoever was killed has a successor. That the pipeline then consumes again is for the caller to await."""

import os
import signal
import sqlite3
import time
from collections.abc import Callable

from headgate import failpoints
from tests.chaos.garbage import Old, litter
from tests.chaos.harness import RECOVERY_DEADLINE_S, ChaosRun
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


class Zombie:
    """A second life of a consumer that the fleet cannot see: it freezes in the middle of a cycle, is replaced, and
    returns to a lake that has moved on. Either its folder is its own, as on a machine that was cut off, or its
    successor writes to the same one."""

    def __init__(self, run: ChaosRun, shares_its_folder: bool) -> None:
        self._run = run
        self._consumer_id = run.an_owner()
        number, self._step = self._consumer_id, run.chance.choice(ZOMBIE_STEPS)
        self._folder = run.state_folder(number) if shares_its_folder else run.copy_of_state(number)
        self._points = run.home / f"failpoints-of-{self._folder.name}"
        failpoints.arm(self._points, self._step, "stop")
        self._process = run.by_hand(number, self._folder, self._points)
        run.say(f"another consumer {number} begins, to freeze at {self._step}; its folder is {self._folder.name}")

    def freezes(self) -> bool:
        """Whether it got so far; if the controller or its successor ended it first, there is no zombie this time."""
        wait_until(
            lambda: bool(failpoints.fired(self._points, self._step)) or not self._process.runs,
            f"the second consumer {self._consumer_id} to freeze ({self._process.output})",
            RECOVERY_DEADLINE_S,
        )
        failpoints.disarm(self._points, self._step)
        if not self._process.runs:
            self._run.say(f"the second consumer {self._consumer_id} was ended before it got to {self._step}")
            return False
        self._run.say(f"the second consumer {self._consumer_id} is frozen at {self._step}")
        return True

    def returns(self) -> None:
        """Once the lake has moved on without it; it must end by itself."""
        self._run.consumes_again()
        self._process.signal(signal.SIGCONT)
        self._run.say(f"the second consumer {self._consumer_id} returns as a zombie")
        wait_until(lambda: not self._process.runs, f"the zombie to end by itself ({self._process.output})", 90)
        said = self._process.said().strip().splitlines() or ["without a word"]
        self._run.say(f"the zombie ended by itself: {said[-1]}")


def zombie_elsewhere(run: ChaosRun) -> None:
    zombie = Zombie(run, shares_its_folder=False)
    if zombie.freezes():
        zombie.returns()


def zombie_at_home(run: ChaosRun) -> None:
    zombie = Zombie(run, shares_its_folder=True)
    if zombie.freezes():
        zombie.returns()


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
    if left:
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
        return sum(count - before.get(name, 0) > 2 for name, count in now.items()) >= 2

    wait_until(both_work, "two committers at work", RECOVERY_DEADLINE_S)
    run.say("kill -9 the older committer")
    older.kill()


def zombie_committer(run: ChaosRun) -> None:
    """Frozen between looking at the ledger and committing, it wakes up when another one has moved the table on."""
    run.revive()
    step, before = "commit.checked", run.fired("commit.checked")
    with run.armed(step, "stop"):
        wait_until(lambda: run.fired(step) > before, f"a committer to freeze at {step}", RECOVERY_DEADLINE_S)
    frozen = run.frozen("committer")
    run.say(f"a committer is frozen at {step}; another one begins")
    run.start("committer")
    run.consumes_again()
    frozen.signal(signal.SIGCONT)
    run.say("the frozen committer returns")
    run.consumes_again()
    run.say("kill -9 the one that was frozen")
    frozen.kill()


def zombie_controller(run: ChaosRun) -> None:
    """Frozen anywhere, it wakes up to find another one in charge, and ends."""
    run.revive()
    older = run.role("controller")[-1]
    run.say("SIGSTOP the controller; another one begins")
    older.signal(signal.SIGSTOP)
    newer = run.start("controller")
    wait_until(lambda: "running" in newer.said(), "the second controller to begin", RECOVERY_DEADLINE_S)
    run.consumes_again()
    older.signal(signal.SIGCONT)
    run.say("the frozen controller returns")
    wait_until(lambda: not older.runs, "the older controller to end", RECOVERY_DEADLINE_S)


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
    positions = {table: run.watch.positions(table) for table in run.scene.tables.values()}
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


def change_the_load(run: ChaosRun) -> None:
    """No harm, only a handover."""
    if run.surging:
        run.ebb()
    else:
        run.surge()


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
