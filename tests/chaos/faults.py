"""What happens to a pipeline in a long run, one function each. A fault does its harm, says how long to leave it at
that, and undoes it, also when it is cut short; it waits for nobody's recovery, so that faults can overlap."""

import os
import random
import shutil
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from headgate import failpoints
from headgate.failpoints import STEPS
from headgate.model import TopicPartition
from tests.chaos.garbage import Old, litter
from tests.chaos.scene import BURSTS, STEADY
from tests.chaos.soak_run import NotNow, Pauses, SoakRun, WrongTypes, exchange, until_done
from tests.chaos.storms import Kind

Harm = Callable[[SoakRun, random.Random], Pauses]

_LEASE_S = 4.0
"""controller.heartbeat_deadline_s of the scene."""
_STEP_S = 30.0
"""How long to wait for somebody to come to an armed step."""
_MOST_PARTITIONS = 6


# ----------------------------------------------------------------------------------------------------- consumers


def kill_a_consumer(run: SoakRun, chance: random.Random) -> Pauses:
    _, pid = run.a_consumer(chance)
    _send(pid, signal.SIGKILL)
    yield 0.0


def freeze_a_consumer(run: SoakRun, chance: random.Random) -> Pauses:
    """Beyond its lease: the fleet ends it by force."""
    _, pid = run.a_consumer(chance)
    yield from _frozen(pid, chance.uniform(2 * _LEASE_S, 4 * _LEASE_S))


def freeze_a_consumer_briefly(run: SoakRun, chance: random.Random) -> Pauses:
    """Within its lease: nobody should mind."""
    _, pid = run.a_consumer(chance)
    yield from _frozen(pid, chance.uniform(0.5, _LEASE_S / 2))


def kill_the_jvm(run: SoakRun, chance: random.Random) -> Pauses:
    """The consumer lives on without its Spark."""
    _, pid = run.a_consumer(chance)
    jvms = [child for child in psutil.Process(pid).children(recursive=True) if child.name() == "java"]
    if not jvms:
        raise NotNow("its JVM is not there yet")
    _send(jvms[0].pid, signal.SIGKILL)
    yield 0.0


def delete_the_state(run: SoakRun, chance: random.Random) -> Pauses:
    """The machine of a consumer is lost with its disk."""
    number, pid = run.a_consumer(chance)
    _send(pid, signal.SIGKILL)
    shutil.rmtree(run.state_folder(number), ignore_errors=True)
    yield 0.0


def delete_the_state_of_the_living(run: SoakRun, chance: random.Random) -> Pauses:
    """Somebody tidies up a folder that is in use."""
    number, _ = run.a_consumer(chance)
    shutil.rmtree(run.state_folder(number), ignore_errors=True)
    yield 0.0


def a_second_life(run: SoakRun, chance: random.Random) -> Pauses:
    """Of a consumer, on a machine that was cut off: it freezes within a cycle and returns when the lake moved on."""
    number, _ = run.a_consumer(chance)
    folder = run.copy_of_state(number)
    points, step = run.home / f"failpoints-of-{folder.name}", chance.choice(_of("cycle."))
    failpoints.arm(points, step, "stop")
    zombie = run.by_hand(number, folder, points)
    try:
        yield from _while(lambda: zombie.runs and not failpoints.fired(points, step), 40.0)
        if not failpoints.fired(points, step):
            raise NotNow("the second life ended before it came to a cycle")
        yield chance.uniform(5, 10)
        _send(zombie.pid, signal.SIGCONT)
        yield from _while(lambda: zombie.runs, 20.0)
    finally:
        if zombie.runs:
            zombie.kill()


# --------------------------------------------------------------------------------------------------------- roles


def kill_a_role(role: str) -> Harm:
    def harm(run: SoakRun, chance: random.Random) -> Pauses:
        run.of_role(role).kill()
        yield 0.0

    return harm


def freeze_a_role(role: str) -> Harm:
    def harm(run: SoakRun, chance: random.Random) -> Pauses:
        yield from _frozen(run.of_role(role).pid, chance.uniform(3, 15))

    return harm


def second_controller(run: SoakRun, chance: random.Random) -> Pauses:
    """The newer one wins, the older one ends by itself."""
    older = run.of_role("controller")
    run.start("controller")
    yield from _while(lambda: older.runs, 40.0)


def second_committer(run: SoakRun, chance: random.Random) -> Pauses:
    """Side by side for a while; then the newcomer is killed."""
    run.of_role("committer")
    newcomer = run.start("committer")
    try:
        yield chance.uniform(8, 20)
    finally:
        newcomer.kill()


# ----------------------------------------------------------------------------------------- steps of the protocol


def kill_at(room: str) -> Harm:
    """Whoever comes first to some step of this room is killed there."""

    def harm(run: SoakRun, chance: random.Random) -> Pauses:
        yield from _armed(run, chance.choice(_of(room)), "kill", 0.0)

    return harm


def freeze_at_a_step(run: SoakRun, chance: random.Random) -> Pauses:
    yield from _armed(run, chance.choice(_of("cycle.", "commit.")), "stop", chance.uniform(0.5, _LEASE_S / 2))


def _armed(run: SoakRun, step: str, action: str, for_s: float) -> Pauses:
    before = Counter(failpoints.fired(run.failpoints, step))

    def waits() -> bool:
        return Counter(failpoints.fired(run.failpoints, step)) == before

    failpoints.arm(run.failpoints, step, action)
    try:
        if step.startswith("command."):
            run.of_role("controller").kill()  # the next one asks everybody what they own
        for dial in run.dials.values():
            dial.pushed = step.startswith("handover.")  # somebody has to move
        yield from _while(waits, _STEP_S)
    finally:
        failpoints.disarm(run.failpoints, step)
        for dial in run.dials.values():
            dial.pushed = False
    suffered = Counter(failpoints.fired(run.failpoints, step)) - before
    if not suffered:
        raise NotNow(f"nobody came to {step}")
    if action == "stop":
        try:
            yield for_s
        finally:
            for pid in suffered:
                _send(pid, signal.SIGCONT)


# ------------------------------------------------------------------------------------------------------- brokers


def kill_a_broker(run: SoakRun, chance: random.Random) -> Pauses:
    run.kafka.kill(chance.randint(1, run.brokers))
    yield chance.uniform(0, 10)
    yield from _brokers_back(run)


def freeze_a_broker(run: SoakRun, chance: random.Random) -> Pauses:
    broker = chance.randint(1, run.brokers)
    run.kafka.freeze(broker)
    try:
        yield chance.uniform(2, 10)
    finally:
        run.kafka.thaw(broker)


def restart_the_brokers_in_turn(run: SoakRun, chance: random.Random) -> Pauses:
    for broker in range(1, run.brokers + 1):
        run.kafka.kill(broker)
        yield from _brokers_back(run)


def kill_all_brokers(run: SoakRun, chance: random.Random) -> Pauses:
    for broker in range(1, run.brokers + 1):
        run.kafka.kill(broker)
    yield from _brokers_back(run)


def _brokers_back(run: SoakRun) -> Pauses:
    """A start that took too long on a busy machine has cleared away after itself, and is tried again."""
    for _ in range(5):
        started = run.beside(run.start_brokers)
        yield from until_done(started)
        if started.exception() is None:
            return
    started.result()


# ------------------------------------------------------------------------------------------------------ what comes in


def undecodable_records(run: SoakRun, chance: random.Random) -> Pauses:
    yield from run.odd_records("json", chance.uniform(0.3, 1.0), chance.randint(500, 3000))


def records_of_another_schema(run: SoakRun, chance: random.Random) -> Pauses:
    yield from run.odd_records(WrongTypes, chance.uniform(0.3, 1.0), chance.randint(500, 3000))


def garbage_on_the_internal_topics(run: SoakRun, chance: random.Random) -> Pauses:
    owners = run.watch.owners()
    positions = {table: run.watch.positions(table) for table in run.scene.tables.values()}

    def put() -> int:
        return litter(run.settings, run.topics, Old(run.settings, run.topics, owners), positions, owners, chance)

    sent = run.beside(put)
    yield from until_done(sent)
    sent.result()


def load_times_three(run: SoakRun, chance: random.Random) -> Pauses:
    yield from _level(run, 3.0, chance.uniform(15, 30))


def load_falls_to_nothing(run: SoakRun, chance: random.Random) -> Pauses:
    yield from _level(run, 0.0, chance.uniform(10, 20))


def _level(run: SoakRun, level: float, for_s: float) -> Pauses:
    for dial in run.dials.values():
        dial.level = level
    try:
        yield for_s
    finally:
        for dial in run.dials.values():
            dial.level = 1.0


def skew_moves(run: SoakRun, chance: random.Random) -> Pauses:
    """Most of a topic's load goes to another partition, and stays there."""
    dial = run.dials[chance.choice((STEADY, BURSTS))]
    others: list[TopicPartition] = [p for p in dial.partitions if p != dial.favoured]
    dial.favoured = chance.choice(others)
    yield 0.0


def a_partition_more(run: SoakRun, chance: random.Random) -> Pauses:
    topic = chance.choice((STEADY, BURSTS))
    if sum(p.topic == topic for p in run.partitions) >= _MOST_PARTITIONS:
        raise NotNow(f"{topic} has partitions enough")
    yield from run.add_a_partition(topic)


# ------------------------------------------------------------------------------------------------------ the lake


def warehouse_away(run: SoakRun, chance: random.Random) -> Pauses:
    """A plain file is where the folder of a table's data, or of its metadata, or of everything should be: nobody can
    read or write below it, root neither."""
    table = Path(run.pipeline.lake.warehouse, *chance.choice(list(run.scene.tables.values())).split("."))
    folder = chance.choice((Path(run.pipeline.lake.warehouse), table / "data", table / "metadata"))
    if not folder.is_dir():
        raise NotNow(f"{folder.name} is not there yet")
    kept = run.home / f"kept-{chance.randrange(1 << 30)}"
    kept.touch()
    exchange(folder, kept)
    try:
        yield chance.uniform(2, 8)
    finally:
        exchange(kept, folder)
        kept.unlink()


def catalog_locked(run: SoakRun, chance: random.Random) -> Pauses:
    uri = run.pipeline.lake.catalog["uri"]
    holder = sqlite3.connect(uri.removeprefix("sqlite:///"), timeout=2, isolation_level=None)
    try:
        try:
            holder.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            raise NotNow(f"the catalog could not be locked: {error}") from error
        yield chance.uniform(2, 12)
        holder.execute("ROLLBACK")
    finally:
        holder.close()


def kill_maintain(run: SoakRun, chance: random.Random) -> Pauses:
    """At a step of compaction, or at any moment of it."""
    points = run.home / f"failpoints-of-maintain-{chance.randrange(1 << 30)}"
    step = chance.choice((None, *_of("compact.", "expire.", "sweep.")))
    if step is not None:
        failpoints.arm(points, step, "kill")
    command = run.maintain(points)
    try:
        yield from _while(lambda: command.runs, 20.0 if step else chance.uniform(1.5, 6))
    finally:
        survived = not command.runs and command.exit_code == 0
        command.kill()
    if survived:
        raise NotNow("it had nothing to do")


# ------------------------------------------------------------------------------------------------------- in common


def _of(*rooms: str) -> list[str]:
    return [step for step in STEPS if step.startswith(rooms)]


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it went by itself meanwhile


def _frozen(pid: int, for_s: float) -> Pauses:
    _send(pid, signal.SIGSTOP)
    try:
        yield for_s
    finally:
        _send(pid, signal.SIGCONT)


def _while(condition: Callable[[], bool], most_s: float) -> Pauses:
    until = time.monotonic() + most_s
    while condition() and time.monotonic() < until:
        yield 0.2


@dataclass(frozen=True, slots=True)
class FaultKind:
    kind: Kind
    room: str
    """Two faults of one room never overlap."""
    harm: Harm


def _kind(name: str, room: str, harm: Harm, ends_a_role: bool = False, most: int | None = None) -> FaultKind:
    return FaultKind(Kind(name, ends_a_role, most), room, harm)


ENDS = True
FAULTS = (
    _kind("kill a consumer", "consumers", kill_a_consumer),
    _kind("freeze a consumer beyond its lease", "consumers", freeze_a_consumer),
    _kind("freeze a consumer briefly", "consumers", freeze_a_consumer_briefly),
    _kind("kill a consumer's JVM", "consumers", kill_the_jvm),
    _kind("lose a consumer with its folder", "consumers", delete_the_state),
    _kind("delete the folder of a living consumer", "consumers", delete_the_state_of_the_living),
    _kind("a second life of a consumer returns", "second life", a_second_life, most=4),
    _kind("kill the controller", "controller", kill_a_role("controller"), ENDS),
    _kind("freeze the controller", "controller", freeze_a_role("controller")),
    _kind("a second controller", "controller", second_controller, ENDS),
    _kind("kill the committer", "committer", kill_a_role("committer"), ENDS),
    _kind("freeze the committer", "committer", freeze_a_role("committer")),
    _kind("a second committer", "committer", second_committer),
    _kind("kill the monitor", "monitor", kill_a_role("monitor"), ENDS),
    _kind("kill at a step of the cycle", "steps", kill_at("cycle."), ENDS),
    _kind("kill at a step of a commit", "steps", kill_at("commit."), ENDS),
    _kind("kill at a step of a command", "steps", kill_at("command."), ENDS),
    _kind("kill at a step of a handover", "steps", kill_at("handover."), ENDS),
    _kind("freeze at a step", "steps", freeze_at_a_step),
    _kind("kill a broker", "brokers", kill_a_broker),
    _kind("freeze a broker", "brokers", freeze_a_broker),
    _kind("restart the brokers in turn", "brokers", restart_the_brokers_in_turn, most=6),
    _kind("kill all brokers", "brokers", kill_all_brokers, most=6),
    _kind("undecodable records", "odd", undecodable_records),
    _kind("records of another schema", "odd", records_of_another_schema),
    _kind("garbage and old news on the internal topics", "litter", garbage_on_the_internal_topics),
    _kind("load times three", "load", load_times_three),
    _kind("load falls to nothing", "load", load_falls_to_nothing),
    _kind("skew moves to another partition", "load", skew_moves),
    _kind("a partition more", "load", a_partition_more, most=4),
    _kind("warehouse away", "lake", warehouse_away),
    _kind("catalog locked", "lake", catalog_locked),
    _kind("kill headgate maintain", "maintain", kill_maintain),
)
