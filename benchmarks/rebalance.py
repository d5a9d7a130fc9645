"""`python -m benchmarks.rebalance`: how long members of an eager group stand still, by heartbeat and cause (A-8).

Real members on a real broker. In each round one of three members is asked to join again, a fourth joins, or it leaves;
every member notes when its partitions were revoked and when it got new ones.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from rich.console import Console
from rich.table import Table

from headgate.groups import PlannedConsumer
from headgate.groups.desk import Desk
from headgate.groups.server import DeskServer
from headgate.kafka.embedded import EmbeddedKafka

ROUNDS = 8
HEARTBEATS_S = (3.0, 0.5)


class Member(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    def __init__(self, bootstrap: str, topic: str, controller: str, heartbeat_s: float) -> None:
        self.revoked_s = self.assigned_s = 0.0
        self._stop = threading.Event()
        self.consumer = PlannedConsumer(
            topic,
            controller=controller,
            listener=self,
            beat_s=0.05,
            group_id=topic,
            bootstrap_servers=bootstrap,
            heartbeat_interval_ms=round(heartbeat_s * 1000),
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.revoked_s = time.monotonic()

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.assigned_s = time.monotonic()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.consumer.poll(timeout_ms=50)
        self.consumer.close()

    @property
    def id(self) -> str:
        return str(self.consumer.group_metadata().member_id)

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(30)


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        if time.monotonic() > until:
            raise SystemExit("the group did not settle within 30 s")
        time.sleep(0.005)


@contextmanager
def three_members(bootstrap: str, heartbeat_s: float) -> Iterator[tuple[Desk, list[Member], Callable[[], Member]]]:
    topic, admin = f"beats-{heartbeat_s:g}", AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 6, 1)])[topic].result(20)
    desk = Desk(topic, 0.0, time.time)
    server = DeskServer(desk, "127.0.0.1", 0)
    server.start()
    members: list[Member] = []

    def join() -> Member:
        members.append(Member(bootstrap, topic, server.address, heartbeat_s))
        return members[-1]

    try:
        for _ in range(3):
            joined = join()
            wait_for(lambda member=joined: member.assigned_s > 0)  # type: ignore[misc]
        yield desk, members[:3], join
    finally:
        for member in members:
            member.leave()
        server.stop()


def one_round(desk: Desk, members: list[Member], act: Callable[[], Any]) -> tuple[float, float, float]:
    """(from the act to the first member that stops, its pause, the pause of the one that stops last)."""
    time.sleep(1.0 + time.monotonic() % 1)  # heartbeats must not be in step with the rounds
    began_s = time.monotonic()
    act()
    wait_for(lambda: all(m.revoked_s > began_s and m.assigned_s > m.revoked_s for m in members))
    desk.forget_rejoin()
    order = sorted(members, key=lambda m: m.revoked_s)
    first, last = order[0], order[-1]
    return first.revoked_s - began_s, first.assigned_s - first.revoked_s, last.assigned_s - last.revoked_s


def rounds(bootstrap: str, heartbeat_s: float) -> dict[str, list[tuple[float, float, float]]]:
    found: dict[str, list[tuple[float, float, float]]] = {"rejoin": [], "join": [], "leave": []}
    with three_members(bootstrap, heartbeat_s) as (desk, members, join):
        for n in range(ROUNDS):
            asked = members[n % 3].id
            wait_for(lambda name=asked: name in desk.beats())  # type: ignore[misc]
            found["rejoin"].append(one_round(desk, members, lambda name=asked: desk.ask_to_rejoin([name], [])))  # type: ignore[misc]
            extra: list[Member] = []
            found["join"].append(one_round(desk, members, lambda to=extra: to.append(join())))  # type: ignore[misc]
            wait_for(lambda newcomer=extra[0]: newcomer.assigned_s > 0)  # type: ignore[misc]
            found["leave"].append(one_round(desk, members, extra[0].leave))
    return found


def main() -> None:
    table = Table(
        title=f"Pauses of three members, mean and longest of {ROUNDS} rounds, in seconds", title_justify="left"
    )
    for column in ("heartbeat", "cause", "until the first stops", "pause of the first", "pause of the last"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory(prefix="headgate-rebalance-") as home, EmbeddedKafka(Path(home), 1) as kafka:
        for heartbeat_s in HEARTBEATS_S:
            for cause, seen in rounds(kafka.bootstrap, heartbeat_s).items():
                cells = [f"{mean(values):.2f} … {max(values):.2f}" for values in zip(*seen, strict=True)]
                table.add_row(f"{heartbeat_s:g}", cause, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
