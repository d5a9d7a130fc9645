"""A real consumer group of real kafka-python members, a desk for them to ask, and traffic at known rates."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.errors import KafkaUnavailable
from headgate.groups import PlannedConsumer
from headgate.groups.carrying import Carrier
from headgate.groups.controller import GroupController, GroupSettings
from headgate.groups.desk import Desk
from headgate.groups.measuring import STABLE, GroupLook, GroupMeter
from headgate.groups.server import DeskServer
from headgate.model import Assignment, Decision, TopicPartition
from headgate.policies.protocol import Policy
from tests.eventually import eventually

Found = TypeVar("Found")
NOWHERE = "http://127.0.0.1:1"


class Member:
    """An ordinary consumer in a thread: polls, commits, leaves when told."""

    def __init__(self, bootstrap: str, topic: str, group: str, controller: str, **more: Any) -> None:
        settings = {"heartbeat_interval_ms": 300, "session_timeout_ms": 30000, "auto_offset_reset": "earliest", **more}
        self.consumer = PlannedConsumer(
            topic,
            controller=controller,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            beat_s=0.1,
            **{"timeout_s": 10.0, **settings},
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            if self.consumer.poll(timeout_ms=100):
                self.consumer.commit()
        self.consumer.close()

    @property
    def id(self) -> str:
        return str(self.consumer.group_metadata().member_id)

    @property
    def generation(self) -> int:
        return int(self.consumer.group_metadata().generation_id)

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


@dataclass
class Group:
    bootstrap: str
    name: str
    partitions: int
    desk: Desk = field(init=False)
    server: DeskServer = field(init=False)
    members: list[Member] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(self.name, self.partitions, 1)])[self.name].result(20)
        eventually(lambda: len(admin.list_topics(self.name, timeout=5).topics[self.name].partitions) > 0, "a topic")
        self.desk = Desk(self.name, floor_s=0.001, clock=time.time)
        self.server = DeskServer(self.desk, "127.0.0.1", 0)
        self.server.start()
        self._meter = self.meter()

    def meter(self, window_s: float = 2.0) -> GroupMeter:
        kafka_python = {"bootstrap_servers": self.bootstrap}
        return GroupMeter({"bootstrap.servers": self.bootstrap}, kafka_python, self.name, window_s, time.time)

    def partition(self, n: int) -> TopicPartition:
        return TopicPartition(self.name, n)

    def plan(self, *bins: Sequence[int]) -> Assignment:
        return Assignment({i: frozenset(self.partition(n) for n in held) for i, held in enumerate(bins, start=1)})

    def join(self, controller: str | None = None, **more: Any) -> Member:
        self.members.append(Member(self.bootstrap, self.name, self.name, controller or self.server.address, **more))
        return self.members[-1]

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        member.leave()

    def settled(self, count: int) -> GroupLook:
        """The group as its coordinator describes it, once it is stable with that many members."""

        def found() -> GroupLook | None:
            try:
                look = self._meter.group()
            except KafkaUnavailable:  # a busy broker, or no coordinator yet
                return None
            return look if look.state == STABLE and len(look.members) == count else None

        return eventually(found, f"{count} members in a stable group")

    def owned(self, count: int) -> list[list[int]]:
        """Partition numbers by member, smallest first; the test ends here unless each partition is owned once."""
        held = [sorted(p.partition for p in owned) for owned in self.settled(count).assigned.values()]
        assert sorted(n for numbers in held for n in numbers) == list(range(self.partitions))
        return sorted(held)

    def heard(self) -> int:
        """The generation, once every member has reported the same one."""

        def found() -> int | None:
            beats = self.desk.beats()
            reported = {beats[m.id].generation if m.id in beats else -1 for m in self.members}
            return reported.pop() if len(reported) == 1 and min(reported) > 0 else None

        return eventually(found, "all members have reported one generation")

    def controller(self, settings: GroupSettings, policy: Policy, carrier: Carrier | None) -> GroupController:
        def make(capacity: float, members: int) -> Policy:
            return policy

        return GroupController(settings, self.meter(), self.desk, make, carrier, self.told.append, time.time)

    def close(self) -> None:
        self.server.stop()
        for member in list(self.members):
            self.leave(member)
        self._meter.close()


def turn_until(controller: GroupController, told: list[str], words: str, deadline_s: float = 90) -> list[Decision]:
    """Turns of the controller until it has said this; its decisions."""
    decisions: list[Decision] = []

    def said() -> bool:
        decision = controller.turn()
        if decision is not None:
            decisions.append(decision)
        time.sleep(0.15)
        return any(words in text for text in told)

    eventually(said, f"{words!r} in {told}", deadline_s)
    return decisions


@contextmanager
def traffic(bootstrap: str, topic: str, records_per_s: Sequence[float]) -> Iterator[None]:
    """Partition n gets the n-th rate."""
    stop = threading.Event()

    def send() -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        sent, began_s = [0] * len(records_per_s), time.monotonic()
        while not stop.wait(0.02):
            for n, rate in enumerate(records_per_s):
                for _ in range(int((time.monotonic() - began_s) * rate) - sent[n]):
                    producer.produce(topic, b"x" * 20, partition=n)
                    sent[n] += 1
            producer.poll(0)
        producer.flush(20)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
